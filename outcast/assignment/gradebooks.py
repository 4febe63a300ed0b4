"""Points in the forms that gradebooks take: the CSV of Moodle and of Canvas.

Sources: Moodle's grade/import/csv/classes/load_data.php, and Canvas's
app/models/gradebook_importer.rb.
"""

from __future__ import annotations

from collections.abc import Sequence

from outcast.assignment import sheets
from outcast.assignment.graded import Graded
from outcast.errors import ConfigError
from outcast.records.spreadsheets import csv_text

MOODLE_MOST_POINTS = 100
"""Moodle refuses a whole file if one grade is higher, unless its site allows more."""


def moodle(name: str, graded: Sequence[Graded]) -> str:
    """The CSV of Moodle's "Import > CSV file", a line for each student with a total.

    Its preview asks what each column is: "ID number" is a user field (the students' ID number or
    their user name, whichever you call them by), NAME the grade, the last column its feedback.
    Moodle deletes grades if the feedback comes alone, so both have to be mapped. One student whom
    Moodle does not know ends the whole import.

    Raises ConfigError: there are more points than Moodle takes.
    """
    most = max((submission.most_points for submission in graded), default=0)
    if most > MOODLE_MOST_POINTS:
        raise ConfigError(
            f"--format moodle: {sheets.number(most)} points in all; allowed are "
            f"{MOODLE_MOST_POINTS}, because Moodle refuses more; give the questions fewer points"
        )
    rows: list[Sequence[object]] = [("ID number", name, f"{name} feedback")]
    for each in with_points(graded):
        rows.append((each.student, sheets.number(each.points), sheets.in_short(each)))
    return csv_text(rows)


def canvas(name: str, graded: Sequence[Graded]) -> str:
    """The CSV of Canvas's "Gradebook > Import", a line for each student with a total.

    Canvas looks for a student by its own ID, which is empty here, then by the SIS user ID, then by
    the login, then by the name. So the student stands in each of these. An assignment called NAME
    gets the points. If the course has none, Canvas asks. It imports no comments.
    """
    most = max((submission.most_points for submission in graded), default=0)
    rows: list[Sequence[object]] = [
        ("Student", "ID", "SIS User ID", "SIS Login ID", "Section", name),
        ("    Points Possible", "", "", "", "", sheets.number(most)),
    ]
    for each in with_points(graded):
        student = each.student
        rows.append((student, "", student, student, "", sheets.number(each.points)))
    return csv_text(rows)


def with_points(graded: Sequence[Graded]) -> list[Graded]:
    """The submissions whose points may go into a gradebook.

    A rejected one has none, because a person decides what it means. One with answers that wait for
    a person has no total yet, see `waiting`.
    """
    return [each for each in counting(graded) if not each.by_hand_points]


def counting(graded: Sequence[Graded]) -> list[Graded]:
    """The submissions that count, of students who are known."""
    return [each for each in graded if each.student and each.counts and each.verdict != "rejected"]


def waiting(graded: Sequence[Graded]) -> list[str]:
    """The students who have no total yet, because answers of theirs wait for a person."""
    return [str(each.student) for each in counting(graded) if each.by_hand_points]
