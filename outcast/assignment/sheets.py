"""Sheets for teachers and students: tables, CSV and JSON of all, and a feedback sheet for each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table

from outcast.assignment import answers
from outcast.assignment.graded import Graded
from outcast.assignment.questions import Marked
from outcast.records.spreadsheets import csv_text
from outcast.view.terminal import forms


def number(value: float) -> str:
    """A number of points, without a fraction that says nothing."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value else "0"


def in_short(graded: Graded) -> str:
    """The points of every question, in one line."""
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
        told = {f"{answers.FILE}: {marked.key}: {marked.comment}" for marked in each.marked}
        notes = [note for note in (*each.notes, *each.for_teacher) if note not in told]
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
