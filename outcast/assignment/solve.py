"""The solution of one student, made with the class's key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from outcast import experiment
from outcast.assignment import answers
from outcast.assignment.classes import Class
from outcast.assignment.evidence import Runner
from outcast.assignment.exercise import Exercise
from outcast.assignment.folder import Folder, fill, new_folder
from outcast.assignment.questions import Packets, Prediction, Question, Right, Text
from outcast.errors import ConfigError
from outcast.files import write_text
from outcast.records.run import Run


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
            write_text(folder.config(task), experiment.dump(config))
            # As a student's run is made: from the file.
            made = runner.run(experiment.load(folder.config(task)), folder.run(run).path)
            runs[run] = Run(made)
        write_text(folder.answers, _answers_text(exercise, runs))
    return Folder(target)


def _answers_text(exercise: Exercise, runs: Mapping[str, Run]) -> str:
    lines = [
        f"# The solution. {answers.FILE} of a student has the questions in it.",
    ]
    for question in exercise.questions:
        told = _answer(exercise, question, runs)
        if told is not None:
            lines.append(
                yaml.safe_dump({question.key: told}, allow_unicode=True, width=96).rstrip()
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
