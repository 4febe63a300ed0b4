"""The evidence for and against one run that was handed in.

The right answers come from the run that was made again here, from the exercise's own
configuration and the student's seed. Of the student's configuration only the parts count that the
exercise leaves free. So nothing that a student names is started or read: no program, no topology,
no kernel module, no file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from outcast import experiment
from outcast.assignment import replayed
from outcast.assignment.departures import departures, same
from outcast.assignment.exercise import ALWAYS_FREE, RunTask
from outcast.assignment.graded import COUNTING, Evidence, RunState
from outcast.errors import InputError, OutcastError
from outcast.experiment import Experiment
from outcast.experiment.parts import files_of, key_of
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of one student in one run; `experiment` has their parameters and seed."""

    name: str
    task: RunTask
    experiment: Experiment


@dataclass(frozen=True, slots=True)
class Handed:
    """A student's submission of one run. Of its files only hashes count, in the manifest."""

    config: Path
    directory: RunDirectory


@dataclass(frozen=True, slots=True)
class Examined:
    """One run after it was examined.

    If it counts, right answers are computed from the run `truth`, which `experiment` made.
    """

    evidence: Evidence
    truth: RunDirectory | None = None
    experiment: Experiment | None = None


def as_asked(run: Asked, actual: Experiment, always: frozenset[str]) -> Experiment:
    """The exercise's own experiment, with what a student chose.

    `always` names keys that are taken from the student's experiment besides those that the exercise
    leaves free.

    Raises InputError: such a key names a file. A replay reads no files of students.
    """
    keys = {*run.task.free, *always}
    chosen = {
        name: getattr(actual, name) for name in Experiment.model_fields if key_of(name) in keys
    }
    for name, part in chosen.items():
        if files_of(part):
            raise InputError(f"{name}: names a file; a replay reads no files of students")
    return run.experiment.model_copy(update=chosen)


def examine(handed: Handed, run: Asked, runner: replayed.Runner, scratch: Path) -> Examined:
    """Checks one run in every way."""
    directory = handed.directory
    if not directory.path.is_dir():
        return Examined(Evidence(run.name, "missing", (f"runs/{run.name}: there is no run",)))
    evidence = Evidence(run.name, "consistent")
    try:
        manifest = directory.read_manifest()
        evidence = replace(evidence, seed=manifest.seed)
        run_config = experiment.load_resolved(directory.config)
        wrong = departures(run.task, run_config, run.experiment)
        if manifest.seed != run_config.seed:
            wrong.append(f"manifest.json says seed {manifest.seed}, config.yaml {run_config.seed}")
    except (OutcastError, OSError) as error:
        return _ended(evidence, "forged", _told(error, directory))
    try:
        config = experiment.load(handed.config, own_folder=handed.config.parent.parent)
        if not wrong and not same(config, run_config):
            wrong.append(f"configs/{run.name}.yaml has changed since the run was made")
    except OutcastError as error:
        wrong.append(str(error).replace(f"{handed.config.parent.parent}/", ""))
    if wrong:
        return _ended(evidence, "other", *wrong)
    return _replayed(evidence, handed, run, run_config, runner, scratch)


def _replayed(
    evidence: Evidence,
    handed: Handed,
    run: Asked,
    run_config: Experiment,
    runner: replayed.Runner,
    scratch: Path,
) -> Examined:
    try:
        strict = as_asked(run, run_config, frozenset())
        as_recorded = as_asked(run, run_config, ALWAYS_FREE)
        fresh = runner.run(as_recorded, scratch / "replayed")
        # Answers come from what the exercise records, so that nobody chooses what is measured.
        resolved = strict.resolved("virtual"), as_recorded.resolved("virtual")
        truth = (
            fresh
            if _measured(resolved[0]) == _measured(resolved[1])
            else runner.run(strict, scratch / "asked")
        )
    except OutcastError as error:
        return _ended(evidence, "unchecked", f"could not be made again: {error}")
    try:
        outcome = replayed.compare(handed.directory, fresh)
    except (OutcastError, OSError) as error:
        return _ended(evidence, "forged", _told(error, handed.directory))
    if outcome.state == "different":
        return _ended(evidence, "forged", outcome.reason)
    capture = Run(truth).summary.capture
    if not capture.trusted:
        return _ended(evidence, "disagreeing", *capture.reasons)
    if outcome.state == "equal":
        return Examined(_with(evidence, "genuine"), truth, strict)
    reason = f"{outcome.reason}; answers are compared with the run as it comes out here"
    return Examined(_with(evidence, "consistent", reason), truth, strict)


def _measured(experiment: Experiment) -> tuple[object, ...]:
    return experiment.capture, experiment.samples, experiment.analysis


def _ended(evidence: Evidence, state: RunState, *reasons: str) -> Examined:
    assert state not in COUNTING
    return Examined(_with(evidence, state, *reasons))


def _with(evidence: Evidence, state: RunState, *reasons: str) -> Evidence:
    lines = tuple(f"runs/{evidence.name}: {reason}" for reason in reasons)
    return replace(evidence, state=state, reasons=lines)


def _told(error: Exception, directory: RunDirectory) -> str:
    return str(error).replace(f"{directory.path}/", "")
