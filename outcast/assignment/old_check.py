"""Checks what is still missing in a student's folder, without running or analysing anything."""

from __future__ import annotations

from dataclasses import dataclass

from outcast import experiment
from outcast.assignment import evidence, seal
from outcast.assignment import old_answers as answers
from outcast.assignment import old_tasks as tasks
from outcast.assignment.old_folder import Folder, Identity
from outcast.errors import OutcastError
from outcast.records.run import Run


@dataclass(frozen=True, slots=True)
class Checked:
    """What is wrong, in lines. Each line begins with the file.

    Attributes:
        missing: what the student still has to do.
        doubtful: runs that cannot be handed in, because they are not complete or not trusted.
    """

    missing: tuple[str, ...]
    doubtful: tuple[str, ...]


def check(folder: Folder) -> Checked:
    """Looks through the folder. Raises InputError if it is not the folder of an assignment."""
    identity = folder.identity()
    missing: list[str] = []
    doubtful: list[str] = []
    for task in tasks.TASKS:
        missing += _of_config(folder, identity, task)
        absent, broken = _of_run(folder, identity, task)
        missing += absent
        doubtful += broken
    missing += answers.read_answers(folder.answers).missing
    return Checked(tuple(missing), tuple(doubtful))


def _of_config(folder: Folder, identity: Identity, task: tasks.Task) -> list[str]:
    name = f"configs/{task.name}.yaml"
    try:
        gaps = tasks.gaps(folder.config(task))
        if gaps:
            lines = ", ".join(str(line) for line in gaps)
            return [f"{name}: {tasks.GAP} is still in line{'s' * (len(gaps) > 1)} {lines}"]
        config = experiment.load(folder.config(task))
    except OutcastError as error:
        return [str(error).replace(f"{folder.path}/", "")]
    return [f"{name}: {reason}" for reason in tasks.departures(task, config, identity.seed)]


def _of_run(folder: Folder, identity: Identity, task: tasks.Task) -> tuple[list[str], list[str]]:
    directory = folder.run(task)
    name = f"runs/{task.name}"
    if not directory.path.is_dir():
        command = f"outcast run configs/{task.name}.yaml -o {name}"
        return [f"{name}: the run is missing; make it with: {command}"], []
    try:
        manifest = directory.read_manifest()
        broken = seal.verify(directory, manifest).broken
        wrong = evidence.departures(folder, identity, task, manifest)
        capture = Run(directory).summary.capture
    except (OutcastError, OSError, ValueError) as error:
        return [], [f"{name}: not complete: {str(error).replace(f'{folder.path}/', '')}"]
    reasons = [broken] if broken else []
    reasons += [f"cannot be trusted: {reason}" for reason in capture.reasons]
    return [f"{name}: {line}" for line in wrong], [f"{name}: {line}" for line in reasons]
