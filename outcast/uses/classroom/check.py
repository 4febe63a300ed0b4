"""Checks what is still missing in a student's folder, without running or analysing anything.

It compares nothing with right answers, because a student's folder has none.
"""

from __future__ import annotations

from dataclasses import dataclass

from outcast import experiment
from outcast.api import require_unchanged
from outcast.errors import OutcastError
from outcast.experiment import Experiment
from outcast.handed_in import MOST_YAML_BYTES, read_text
from outcast.records import Run
from outcast.uses.classroom import answers, evidence
from outcast.uses.classroom.exercise import gap_lines
from outcast.uses.classroom.folder import Folder, Handout
from outcast.uses.classroom.question_kind import GAP


@dataclass(frozen=True, slots=True)
class Checked:
    """What a student still has to do, and which runs are incomplete or do not agree, in lines."""

    missing: tuple[str, ...]
    doubtful: tuple[str, ...]


def check(folder: Folder) -> Checked:
    """Looks through the folder. Raises InputError if it is not a student's folder."""
    handout = folder.handout()
    given = answers.read_answers(folder.path, handout.questions)
    missing: list[str] = []
    doubtful: list[str] = []
    for run in handout.runs:
        wrong, config = _of_config(folder, handout, run)
        absent, broken = _of_run(folder, handout, run, config)
        missing += wrong + absent
        doubtful += broken
    return Checked((*missing, *given.missing), tuple(doubtful))


def _of_config(folder: Folder, handout: Handout, run: str) -> tuple[list[str], Experiment | None]:
    """What is wrong with a run's configuration, and the experiment if it can be read."""
    task = handout.runs[run]
    path = folder.config(task)
    try:
        if gaps := gap_lines(read_text(path, MOST_YAML_BYTES)):
            lines = ", ".join(map(str, gaps))
            return [f"{task.config}: {GAP} is still in line{'s' * (len(gaps) > 1)} {lines}"], None
        config = experiment.load(path, own_folder=folder.path)
        issued = evidence.as_issued(handout.issued[task.config], path)
        wrong = evidence.departures(task, config, issued)
    except FileNotFoundError:
        return [f"{task.config}: there is no such file"], None
    except OutcastError as error:
        return [str(error).replace(f"{folder.path}/", "")], None
    return [f"{task.config}: {reason}" for reason in wrong], config


def _of_run(
    folder: Folder, handout: Handout, run: str, config: Experiment | None
) -> tuple[list[str], list[str]]:
    directory = folder.run(run)
    name = f"runs/{run}"
    if not directory.path.is_dir():
        command = f"outcast run {handout.runs[run].config} -o {name}"
        return [f"{name}: the run is missing; make it with: {command}"], []
    try:
        require_unchanged(directory)
        run_config = experiment.load_resolved(directory.config)
        capture = Run(directory).summary.capture
    except (OutcastError, OSError, ValueError) as error:
        return [], [f"{name}: not complete: {str(error).replace(f'{folder.path}/', '')}"]
    changed = config is not None and not evidence.same(config, run_config)
    absent = [f"{name}: {handout.runs[run].config} has changed since the run was made"] * changed
    reasons = [f"captures and counters do not agree: {reason}" for reason in capture.reasons]
    return absent, [f"{name}: {reason}" for reason in reasons]
