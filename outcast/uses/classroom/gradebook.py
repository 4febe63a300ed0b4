"""What grading gives people: tables, feedback sheets, points by hand, and forms of gradebooks."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.table import Table

from outcast import files, handed_in
from outcast.errors import ConfigError, InputError
from outcast.records import csv_text
from outcast.uses.classroom import answers
from outcast.uses.classroom.marking import Graded
from outcast.uses.classroom.question_kind import Marked, State
from outcast.view import forms


def number(value: float) -> str:
    """A number of points, without a fraction that says nothing."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value else "0"


def in_short(graded: Graded) -> str:
    return "; ".join(f"{marked.key} {_points(marked)}" for marked in graded.marked)


def _points(marked: Marked) -> str:
    got = "?" if marked.state == "by_hand" else number(marked.points)
    return f"{got}/{number(marked.most_points)}"


def table(graded: Sequence[Graded], runs: Sequence[str]) -> Table:
    """The table for the terminal, a line for each submission; `runs` are the exercise's."""
    names = ("student", "verdict", *runs)
    rows = forms.table(*names, "points", "of", "by hand", left=names)
    for each in graded:
        states = {run.name: run.state for run in each.runs}
        rows.add_row(
            *(each.student or each.place, each.verdict, *(states.get(run, "") for run in runs)),
            "-" if each.verdict == "rejected" else number(each.points),
            number(each.most_points),
            number(each.by_hand_points) if each.by_hand_points else "",
        )
    return rows


def remarks(graded: Sequence[Graded]) -> list[str]:
    """Remarks that do not fit into the table. Each line begins with the submission."""
    lines = []
    for each in graded:
        lost: dict[str, list[str]] = {}
        for marked in each.marked:
            if marked.state in ("partly", "wrong", "missing"):
                lost.setdefault(marked.comment or marked.state, []).append(marked.key)
        lines += [f"{each.place}: {', '.join(keys)}: {why}" for why, keys in lost.items()]
        # An answer that is missing is a note too, for the gradebooks.
        marks = {f"{answers.FILE}: {marked.key}: {marked.comment}" for marked in each.marked}
        notes = [note for note in (*each.notes, *each.for_teacher) if note not in marks]
        lines += [f"{each.place}: {note}" for note in notes]
    return lines


def as_csv(graded: Sequence[Graded], runs: Sequence[str], questions: Sequence[str]) -> str:
    """A line for each submission, with the points of every question."""
    head = ("student", "submission", "verdict", "points", "most_points", "by_hand_points")
    marks = [f"{key}{ending}" for key in questions for ending in ("", ".state")]
    rows: list[Sequence[object]] = [(*head, *runs, *marks, "notes")]
    for each in graded:
        states = {run.name: run.state for run in each.runs}
        marked = {mark.key: mark for mark in each.marked}
        cells: list[object] = []
        for key in questions:
            mark = marked.get(key)
            cells += (number(mark.points), mark.state) if mark else ("", "")
        rows.append(
            (
                *(each.student or "", each.place, each.verdict),
                "" if each.verdict == "rejected" else number(each.points),
                *(number(each.most_points), number(each.by_hand_points)),
                *(states.get(run, "") for run in runs),
                *cells,
                " | ".join((*each.notes, *each.for_teacher)),
            )
        )
    return csv_text(rows)


def as_json(graded: Sequence[Graded]) -> str:
    """Everything that is known of each submission."""
    computed = ("points", "most_points", "by_hand_points")
    trees = [{**asdict(each), **{key: getattr(each, key) for key in computed}} for each in graded]
    return json.dumps(trees, indent=1, ensure_ascii=False)


def feedback(title: str, graded: Graded) -> str:
    """The sheet that a student gets back, in Markdown. It has no right answers."""
    by_hand = f", and {number(graded.by_hand_points)} more to be marked by your teacher"
    points = f"{number(graded.points)} of {number(graded.most_points)} points"
    lines = [
        f"# {title}",
        "",
        f"{graded.student}: **{points}**{by_hand if graded.by_hand_points else ''}.",
        "",
        "| question | points | |",
        "|---|---|---|",
        *(
            f"| {marked.key} | {_points(marked)} | {_plain(marked.comment or marked.state)} |"
            for marked in graded.marked
        ),
    ]
    if graded.runs:
        lines += ["", "| run | |", "|---|---|"]
        lines += [f"| {run.name} | {run.state}{_reasons(run.reasons)} |" for run in graded.runs]
    return "\n".join((*lines, ""))


def _reasons(reasons: Sequence[str]) -> str:
    return f": {_plain('; '.join(reasons))}" if reasons else ""


def _plain(text: str) -> str:
    """A text that cannot break a table of Markdown, or become HTML, a link or a picture in it."""
    marks = {"\\": "\\\\", "|": "\\|", "[": "\\[", "<": "&lt;", "&": "&amp;", "\n": " ", "\r": " "}
    return "".join(marks.get(letter, letter) for letter in text)


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
            f"--format moodle: {number(most)} points in all; allowed are "
            f"{MOODLE_MOST_POINTS}, because Moodle refuses more; give the questions fewer points"
        )
    rows: list[Sequence[object]] = [("ID number", name, f"{name} feedback")]
    for each in with_points(graded):
        rows.append((each.student, number(each.points), in_short(each)))
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
        ("    Points Possible", "", "", "", "", number(most)),
    ]
    for each in with_points(graded):
        student = each.student
        rows.append((student, "", student, student, "", number(each.points)))
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


BY_HAND = "by-hand.csv"
_HEADER = ("student", "question", "points", "most_points", "comment", "answer", "submission")

Given = Mapping[tuple[str, str], "Points"]
"""By student and question, what was given."""


@dataclass(frozen=True, slots=True)
class Points:
    """The points that a person gave for one answer."""

    points: float
    comment: str


def read_by_hand(path: Path) -> dict[tuple[str, str], Points]:
    """The points that were filled in; empty if there is no such file.

    A spreadsheet may have written it, with semicolons and decimal commas.

    Raises ConfigError: it cannot be read; the line is named.
    """
    try:
        text = handed_in.read_text(path).removeprefix("\ufeff")
    except FileNotFoundError:
        return {}
    except InputError as error:
        raise ConfigError(str(error)) from None
    first = next(iter(text.splitlines()), "")
    # Without `newline`, the line ends that spreadsheets on a Mac write would be no line ends.
    stream = io.StringIO(text, newline="")
    rows = csv.DictReader(stream, delimiter=";" if ";" in first else ",")
    try:
        if missing := {"student", "question", "points"} - set(rows.fieldnames or ()):
            raise ConfigError(f"{path}: has no column {sorted(missing)[0]}")
        return {
            (row["student"], row["question"]): _given(f"{path}:{rows.line_num}", row)
            for row in rows
            if (row["points"] or "").strip()
        }
    except csv.Error as error:
        raise ConfigError(f"{path}: not CSV: {error}") from None


def _given(where: str, row: Mapping[str, str]) -> Points:
    most = _value(row.get("most_points"), 1000.0)
    points = _value(row["points"], -1.0)
    if not 0 <= points <= most:
        raise ConfigError(
            f"{where}: points: {row['points'].strip()[:40]!a}: allowed is a number from 0 to "
            f"{number(most)}"
        )
    return Points(points, (row.get("comment") or "").strip())


def _value(cell: str | None, otherwise: float) -> float:
    try:
        return float((cell or "").replace(",", "."))
    except ValueError:
        return otherwise


def write_by_hand(path: Path, graded: Sequence[Graded], given: Given) -> int:
    """Writes the table: what waits for a person, and what was given already.

    `graded` are the grades before these points are in them.

    Returns how many answers wait. Raises OSError, which names the file.
    """
    rows: list[Sequence[object]] = [_HEADER]
    waiting = 0
    for submission in graded:
        for marked in submission.marked:
            if marked.state != "by_hand" or submission.student is None:
                continue
            known = given.get((submission.student, marked.key))
            waiting += known is None
            got = ("", "") if known is None else (number(known.points), known.comment)
            answer = submission.texts.get(marked.key, marked.comment)
            most, place = number(marked.most_points), submission.place
            rows.append((submission.student, marked.key, got[0], most, got[1], answer, place))
    files.write_text(path, csv_text(rows))
    return waiting


def with_by_hand(graded: Sequence[Graded], given: Given) -> list[Graded]:
    """The grades with the points that were given. No question gets more than it is worth."""
    return [
        replace(each, marked=tuple(_with_points(each, marked, given) for marked in each.marked))
        for each in graded
    ]


def _with_points(submission: Graded, marked: Marked, given: Given) -> Marked:
    known = given.get((submission.student or "", marked.key))
    if known is None or marked.state != "by_hand":
        return marked
    points = min(known.points, marked.most_points)
    is_full = points == marked.most_points
    state: State = "right" if is_full else "partly" if points else "wrong"
    return replace(marked, points=points, comment=known.comment, state=state)
