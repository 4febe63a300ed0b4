"""Tries an exercise before it is handed out: its own solution has to earn all points."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import yaml

from outcast import files
from outcast.assignment import marking, solve
from outcast.assignment.classes import new_class
from outcast.assignment.documents import read_text
from outcast.assignment.evidence import Runner
from outcast.assignment.exercise import Exercise
from outcast.assignment.folder import Key
from outcast.assignment.graded import Graded
from outcast.assignment.questions import Marked, Number, Picture, Question, Text

_STUDENT = "student"
_DIGITS = 3
"""The significant digits with which reports show rates and times."""


def lint(
    exercise: Exercise,
    runner: Runner,
    scratch: Path,
    on_progress: Callable[[str], None] = lambda text: None,
) -> list[str]:
    """Makes the solution as a student would hand it in, and grades it.

    Returns what is wrong, in lines that begin with the run or the question; none if the solution
    earns all points.

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
    marks = zip(exercise.questions, graded.marked, strict=True)
    wrong = [(question.key, _problem(question, marked, graded)) for question, marked in marks]
    return [
        *(reason for run in graded.runs for reason in run.reasons),
        *(f"{key}: {problem}" for key, problem in wrong if problem),
    ]


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
