"""The solution of one student, made with the class's key; it has to earn all points (`lint`)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from outcast import experiment, files
from outcast.errors import ConfigError
from outcast.records import Run
from outcast.uses.classroom import answers, marking
from outcast.uses.classroom.classes import Class, new_class
from outcast.uses.classroom.documents import read_text
from outcast.uses.classroom.evidence import Runner
from outcast.uses.classroom.exercise import Exercise
from outcast.uses.classroom.folder import Folder, Key, fill, new_folder
from outcast.uses.classroom.marking import Graded
from outcast.uses.classroom.question_kind import Marked, Right
from outcast.uses.classroom.questions import Number, Packets, Picture, Prediction, Question, Text


def solve(
    klass: Class,
    student: str,
    target: Path,
    runner: Runner,
    on_progress: Callable[[str], None] = lambda text: None,
) -> Folder:
    """Makes a student's folder as it would be handed in with every answer right.

    Raises:
        ConfigError: there is no such student, or `target` exists.
        OutcastError: a run failed.
    """
    if student not in klass.students:
        raise ConfigError(
            f"--student {student}: not in the class; allowed are {', '.join(klass.students)}"
        )
    identity = klass.issued(student)
    exercise = klass.exercise.with_values(identity.values)
    with new_folder(target) as partial:
        folder = fill(partial, identity, klass.exercise)
        partial.chmod(0o700)
        runs: dict[str, Run] = {}
        for run, task in exercise.runs.items():
            on_progress(f"making {run}")
            config = exercise.expected(run, identity.seed)
            files.write_text(folder.config(task), experiment.dump(config))
            # As a student's run is made: from the file.
            made = runner.run(experiment.load(folder.config(task)), folder.run(run).path)
            runs[run] = Run(made)
        files.write_text(folder.answers, _answers_text(exercise, runs))
    return Folder(target)


def _answers_text(exercise: Exercise, runs: Mapping[str, Run]) -> str:
    lines = [
        f"# The solution. {answers.FILE} of a student has the questions in it.",
    ]
    for question in exercise.questions:
        answer = _answer(exercise, question, runs)
        if answer is not None:
            lines.append(
                yaml.safe_dump({question.key: answer}, allow_unicode=True, width=96).rstrip()
            )
        elif question.HAS_SLOT:
            lines.append(f"# {question.key}: there is no model answer")
    return "\n".join(lines) + "\n"


def _answer(exercise: Exercise, question: Question, runs: Mapping[str, Run]) -> Any:
    """The answer that stands in answers.yaml; None if nothing is known."""
    if isinstance(question, (Prediction, Text)):
        return exercise.solution.answers.get(question.key)
    right: Right | None = question.right_answers(runs.get(question.run or ""))
    if not right:
        return None
    first = right[0]
    if isinstance(question, Packets) and isinstance(first, tuple):
        return {"from": first[0], "to": first[1]}
    return first


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
    folder = solve(class_, _STUDENT, scratch / _STUDENT, runner, on_progress)
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
