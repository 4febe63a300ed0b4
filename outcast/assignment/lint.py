"""Tries an exercise before it is handed out: its own solution has to earn all points."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml
from rich.table import Table

from outcast import files
from outcast.assignment import marking, solve
from outcast.assignment.classes import new_class
from outcast.assignment.documents import read_text
from outcast.assignment.exercise import Exercise
from outcast.assignment.graded import Graded
from outcast.assignment.identity import Key
from outcast.assignment.questions import Marked, Number, Picture, Question, Text
from outcast.assignment.replayed import Runner
from outcast.view.terminal import forms

_STUDENT = "student"
_DIGITS = 3
"""The significant digits with which reports show rates and times."""


@dataclass(frozen=True, slots=True)
class Line:
    """A question, the solution's answer to it, and what is wrong; empty if nothing is."""

    key: str
    kind: str
    answer: str
    problem: str


@dataclass(frozen=True, slots=True)
class Linted:
    """What came of each question, and what is wrong with the runs."""

    questions: tuple[Line, ...]
    runs: tuple[str, ...]

    @property
    def problems(self) -> list[str]:
        """All that is wrong, in lines that begin with the run or the question."""
        wrong = [f"{line.key}: {line.problem}" for line in self.questions if line.problem]
        return [*self.runs, *wrong]


def lint(
    exercise: Exercise,
    runner: Runner,
    scratch: Path,
    on_progress: Callable[[str], None] = lambda text: None,
) -> Linted:
    """Makes the solution as a student would hand it in, and grades it.

    Raises OutcastError: a run failed, or a query does not fit the run's tables.
    """
    # The same exercise gives the same runs, so a second lint shows what a change did.
    key = Key(hashlib.sha256(f"lint {exercise.name}".encode()).digest())
    class_ = new_class(scratch / "class", "lint", exercise, [_STUDENT], key)
    folder = solve.solve(class_, _STUDENT, scratch / _STUDENT, runner, on_progress)
    answers = yaml.safe_load(read_text(folder.answers)) or {}
    for question in exercise.questions:
        if isinstance(question, Number) and question.key in answers:
            answers[question.key] = _as_reported(answers[question.key])
    files.write_text(folder.answers, yaml.safe_dump(answers))
    on_progress("grading")
    (scratch / "grading").mkdir()
    graded = marking.mark(class_, folder.path, runner, scratch / "grading")
    lines = tuple(
        Line(question.key, question.kind, _short(answers.get(question.key, "")), problem)
        for question, marked in zip(exercise.questions, graded.marked, strict=True)
        for problem in [_problem(question, marked, graded)]
    )
    return Linted(lines, tuple(reason for run in graded.runs for reason in run.reasons))


def _as_reported(value: float) -> float:
    """A number as a report shows it: whole ones in full, others with three digits."""
    return value if value == round(value) else float(f"{value:.{_DIGITS}g}")


def _problem(question: Question, marked: Marked, graded: Graded) -> str:
    if marked.state == "right" or isinstance(question, Picture):
        return ""
    if isinstance(question, Text) and marked.state == "by_hand":
        return ""
    notes = (*graded.notes, *graded.for_teacher)
    said = "; ".join(note for note in notes if f"{question.key}: " in note)
    return said or marked.comment or "the solution's answer, to three digits, is not right"


def _short(answer: object) -> str:
    text = " ".join(str(answer).split())
    return text if len(text) <= 40 else f"{text[:37]}..."


def table(linted: Linted) -> Table:
    """The table for the terminal, with a line for each question."""
    heads = ("question", "kind", "the solution's answer", "")
    rows = forms.table(*heads, left=heads, wrapped=None)
    for line in linted.questions:
        rows.add_row(line.key, line.kind, line.answer, "wrong" if line.problem else "ok")
    return rows
