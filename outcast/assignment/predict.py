"""Seals a student's predictions: the seeds of the runs that come after them follow from them.

A seal of this kind shows that a run was made after the prediction. It cannot hinder a student who
predicts, runs, and then predicts something else and runs again. So a prediction's points are for
having made one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outcast.assignment import answers, documents
from outcast.assignment.folder import SEED_LINE, Folder, Handout
from outcast.errors import ConfigError, InputError
from outcast.files import write_text


@dataclass(frozen=True, slots=True)
class Sealed:
    """By run, the seed that its configuration has now; and runs that have another one."""

    seeds: Mapping[str, int]
    outdated: tuple[str, ...]


def predicted_for(handout: Handout, run: str, given: Mapping[str, Any]) -> dict[str, str] | None:
    """The predictions that come before a run; None if one is not made yet."""
    before = handout.predictions(run)
    if any(question.key not in given for question in before):
        return None
    return {question.key: given[question.key] for question in before}


def seal(folder: Folder) -> Sealed:
    """Writes the seeds that follow from the predictions in answers.yaml into the configurations.

    Raises:
        InputError: a prediction is missing, or the folder is no student's.
        ConfigError: a configuration has no line for its seed, or cannot be written.
    """
    handout = folder.handout()
    runs = [run for run in handout.runs if handout.predictions(run)]
    if not runs:
        raise InputError(f"{folder.path}: this exercise asks for no prediction")
    told = answers.read_answers(folder.path, handout.questions)
    keys = {question.key for run in runs for question in handout.predictions(run)}
    for line in told.missing:
        file, _, rest = line.partition(": ")
        if rest.partition(":")[0] in keys or not rest.partition(":")[1]:
            raise InputError(f"{folder.path / file}: {rest}")
    seeds: dict[str, int] = {}
    texts: dict[Path, str] = {}
    outdated = []
    for run in runs:
        predicted = predicted_for(handout, run, told.given)
        if predicted is None:
            raise InputError(f"{folder.answers}: the predictions before {run} are not answered")
        seeds[run] = handout.run_seed(predicted)
        path = folder.config(handout.runs[run])
        text = documents.read_text(path)
        if len(SEED_LINE.findall(text)) != 1:
            raise ConfigError(f"{path}: allowed is one line that begins with seed:")
        texts[path] = SEED_LINE.sub(f"seed: {seeds[run]}", text)
        if _other_seed(folder, run, seeds[run]):
            outdated.append(run)
    for path, text in texts.items():
        write_text(path, text)
    return Sealed(seeds, tuple(outdated))


def _other_seed(folder: Folder, run: str, seed: int) -> bool:
    directory = folder.run(run)
    if not directory.path.is_dir():
        return False
    try:
        return directory.read_manifest().seed != seed
    except InputError:
        return True
