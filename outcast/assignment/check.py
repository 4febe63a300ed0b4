"""What is still missing in a student's folder, found without running or analysing anything."""

from __future__ import annotations

from dataclasses import dataclass

from outcast import experiment
from outcast.assignment import answers, evidence, seal, tasks
from outcast.assignment.folder import Folder, Identity
from outcast.errors import OutcastError
from outcast.records.run import Run


@dataclass(frozen=True, slots=True)
class Checked:
    """What is wrong, in lines, each beginning with the file.

    Attributes:
        missing: what is to be done still.
        doubtful: runs that cannot be handed in, because they are not whole or not trusted.
    """

    missing: tuple[str, ...]
    doubtful: tuple[str, ...]


def check(folder: Folder) -> Checked:
    """Looks through the folder. Raises InputError where it is none of an assignment."""
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
            return [f"{name}: {tasks.GAP} still stands in line {lines}"]
        found = experiment.load(folder.config(task))
    except OutcastError as error:
        return [str(error).replace(f"{folder.path}/", "")]
    return [f"{name}: {each}" for each in tasks.departures(task, found, identity.seed)]


def _of_run(folder: Folder, identity: Identity, task: tasks.Task) -> tuple[list[str], list[str]]:
    directory = folder.run(task)
    name = f"runs/{task.name}"
    if not directory.path.is_dir():
        command = f"outcast run configs/{task.name}.yaml -o {name}"
        return [f"{name}: there is no run; make it with: {command}"], []
    try:
        manifest = directory.read_manifest()
        broken = seal.verify(directory, manifest).broken
        wrong = evidence.departures(folder, identity, task, manifest)
        capture = Run(directory).summary.capture
    except (OutcastError, OSError, ValueError) as error:
        return [], [f"{name}: not whole: {str(error).replace(f'{folder.path}/', '')}"]
    reasons = [broken] if broken else []
    reasons += [f"not to be trusted: {reason}" for reason in capture.reasons]
    return [f"{name}: {each}" for each in wrong], [f"{name}: {each}" for each in reasons]
