"""Points that a person gives: a table to fill in, and the grades with what was filled in."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from outcast import files, handed_in
from outcast.assignment import sheets
from outcast.assignment.graded import Graded
from outcast.assignment.questions import Marked, State
from outcast.errors import ConfigError, InputError
from outcast.records.spreadsheets import csv_text

FILE = "by-hand.csv"
_HEADER = ("student", "question", "points", "most_points", "comment", "answer", "submission")

Given = Mapping[tuple[str, str], "Points"]
"""By student and question, what was given."""


@dataclass(frozen=True, slots=True)
class Points:
    """The points that a person gave for one answer."""

    points: float
    comment: str


def read(path: Path) -> dict[tuple[str, str], Points]:
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
        return _points(path, rows)
    except csv.Error as error:
        raise ConfigError(f"{path}: not CSV: {error}") from None


def _points(path: Path, rows: csv.DictReader[str]) -> dict[tuple[str, str], Points]:
    if missing := {"student", "question", "points"} - set(rows.fieldnames or ()):
        raise ConfigError(f"{path}: has no column {sorted(missing)[0]}")
    given = {}
    for row in rows:
        cell = (row["points"] or "").strip()
        if not cell:
            continue
        try:
            points = float(cell.replace(",", "."))
        except ValueError:
            points = -1.0
        if not 0 <= points <= _most(row):
            raise ConfigError(
                f"{path}:{rows.line_num}: points: {cell[:40]!a}: allowed is a number from 0 to "
                f"{sheets.number(_most(row))}"
            )
        given[row["student"], row["question"]] = Points(points, (row.get("comment") or "").strip())
    return given


def _most(row: Mapping[str, str]) -> float:
    try:
        return float((row.get("most_points") or "").replace(",", "."))
    except ValueError:
        return 1000.0


def write(path: Path, graded: Sequence[Graded], given: Given) -> int:
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
            got = ("", "") if known is None else (sheets.number(known.points), known.comment)
            answer = submission.texts.get(marked.key, marked.comment)
            most, place = sheets.number(marked.most_points), submission.place
            rows.append((submission.student, marked.key, got[0], most, got[1], answer, place))
    files.write_text(path, csv_text(rows))
    return waiting


def apply(graded: Sequence[Graded], given: Given) -> list[Graded]:
    """The grades with the points that were given. No question gets more than it is worth."""
    return [
        replace(each, marked=tuple(_applied(each, marked, given) for marked in each.marked))
        for each in graded
    ]


def _applied(submission: Graded, marked: Marked, given: Given) -> Marked:
    known = given.get((submission.student or "", marked.key))
    if known is None or marked.state != "by_hand":
        return marked
    points = min(known.points, marked.most_points)
    is_full = points == marked.most_points
    state: State = "right" if is_full else "partly" if points else "wrong"
    return replace(marked, points=points, comment=known.comment, state=state)
