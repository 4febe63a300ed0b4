"""The evidence for and against one run that was handed in.

The right answers come from a run made here, from the exercise's own configuration and the
student's seed. Only the parts that the exercise leaves free come from the student's configuration.
So nothing that a student names is started or read: no program, no topology, no kernel module, no
file.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from outcast import experiment
from outcast.api import Planned, execute
from outcast.errors import ConfigError, InputError, OutcastError, ReplayError
from outcast.experiment import Experiment, files_of, key_of, of_text, read
from outcast.records import GuestRecord, Manifest, Run, RunDirectory, require_equal
from outcast.uses.classroom.exercise import ALWAYS_FREE, RunTask
from outcast.uses.classroom.folder import Folder
from outcast.uses.classroom.question_kind import GAP

RunState = Literal[
    "genuine", "consistent", "disagreeing", "unchecked", "other", "forged", "missing"
]
"""
genuine: made again from its configuration and seed, the run came out the same to the byte.
consistent: it was made with another guest or version, so it cannot be the same to the byte.
disagreeing: its captures and counters do not agree.
unchecked: nothing shows what is in it, because it could not be made again here.
other: it is a run, but not the one that this student has to make.
forged: something in it was changed, or cannot come from this configuration and seed.
missing: the run is not there.
"""

COUNTING: frozenset[RunState] = frozenset({"genuine", "consistent"})
"""Only a run in one of these states gives points to the questions about it."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The facts of one run of one student, with the seed that it states.

    `reasons` says why it has its state, in lines.
    """

    name: str
    state: RunState
    reasons: tuple[str, ...] = ()
    seed: int | None = None


def departures(task: RunTask, config: Experiment, expected: Experiment) -> list[str]:
    """How an experiment differs from the expected one, in lines; empty if it does not.

    What the task leaves free is not compared, and neither is what a run merely records.
    """
    if config.engine != "virtual":
        return [f"engine is {config.engine}, and the task sheet asks for virtual"]
    theirs, ours = (made.resolved("virtual") for made in (config, expected))
    wrong = [
        f"{key_of(name)} is not what the task sheet asks for"
        for name in Experiment.model_fields
        if name != "seed"
        and key_of(name) not in {*ALWAYS_FREE, *task.free}
        and getattr(theirs, name) != getattr(ours, name)
    ]
    if theirs.seed != ours.seed:
        wrong.append(f"seed is {theirs.seed}, and yours is {ours.seed}")
    return wrong


def same(config: Experiment, run_config: Experiment) -> bool:
    """Whether a run was made from this configuration; the run's has every default resolved."""
    engine = run_config.engine
    return engine != "auto" and config.resolved(engine) == run_config


def as_issued(issued: str, config: Path) -> Experiment:
    """The experiment as it was handed out, with the gaps filled as the student filled them.

    `issued` is the text of the configuration as it was handed out.

    Raises ConfigError: a gap is still there, or the result is no valid experiment.
    """
    source = read(config)
    before = of_text(issued, config, own_folder=config.parent.parent)
    filled = _filled(before.tree, source.tree)
    if not isinstance(filled, dict):
        raise ConfigError(f"{config}: allowed is a mapping of keys")
    return before.changed(filled).experiment()


def _filled(issued: Any, theirs: Any) -> Any:
    """The issued tree with the student's values where it has a gap."""
    if issued == GAP:
        return copy.deepcopy(theirs)
    if isinstance(issued, Mapping) and isinstance(theirs, Mapping):
        return {key: _filled(value, theirs.get(key, value)) for key, value in issued.items()}
    if isinstance(issued, list) and isinstance(theirs, list) and len(issued) == len(theirs):
        return [_filled(*pair) for pair in zip(issued, theirs, strict=True)]
    return issued


class Runner(Protocol):
    """An engine as a replay needs it; `Guest` is the real one."""

    def run(self, config: Experiment, target: Path) -> RunDirectory:
        """Makes the run. Raises OutcastError if it fails."""


@dataclass(frozen=True, slots=True)
class Guest:
    def run(self, config: Experiment, target: Path) -> RunDirectory:
        return execute(Planned(config), target, progress=False, draw=False)


def compare(submitted: RunDirectory, fresh: RunDirectory) -> tuple[RunState, list[str]]:
    """Compares a run that was handed in with the run that was made again; its state, and why.

    With another guest or another version of a program a difference proves nothing.
    """
    wrong = _difference(submitted, fresh)
    if not wrong:
        return "genuine", []
    elsewhere = _environment(submitted.read_manifest(), fresh.read_manifest())
    if not elsewhere:
        return "forged", [wrong]
    return "consistent", [f"{elsewhere}; answers are compared with the run as it comes out here"]


def _difference(submitted: RunDirectory, fresh: RunDirectory) -> str:
    try:
        require_equal(submitted, fresh)
    except ReplayError as error:
        return f"run again, {error}"
    here, there = submitted.read_manifest(), fresh.read_manifest()
    kinds = ("counters.json", "flows/", "samples/", "blackout.json")
    measured = {name for name in (*here.files, *there.files) if name.startswith(kinds)}
    for name in sorted(measured):
        if here.files.get(name) != there.files.get(name):
            return f"run again, {name} differs"
    for key in ("seed", "requested", "effective", "traffic", "flows", "bottlenecks", "captures"):
        if getattr(here, key) != getattr(there, key):
            return f"run again, {key} of manifest.json differs"
    return ""


def _environment(submitted: Manifest, fresh: Manifest) -> str:
    """Says what besides configuration and seed could make two runs differ; empty if nothing."""
    guests = [manifest.guest or GuestRecord(root="host") for manifest in (submitted, fresh)]
    for what, there, here in (
        ("outcast", submitted.outcast, fresh.outcast),
        ("engine", submitted.engine, fresh.engine),
        ("kernel", *(_short(part.kernel.get("sha256")) for part in (submitted, fresh))),
        ("root", *(_short(guest.root) for guest in guests)),
        ("code in the guest", *(_short(guest.code) for guest in guests)),
        *(
            (name, version, fresh.versions.get(name))
            for name, version in submitted.versions.items()
        ),
    ):
        if there != here:
            return f"made with {what} {there}, here is {here}"
    return ""


def _short(digest: object) -> str:
    return str(digest)[:12]


@dataclass(frozen=True, slots=True)
class WantedRun:
    """The run that one student has to make; `experiment` has their parameters and seed."""

    name: str
    task: RunTask
    experiment: Experiment


@dataclass(frozen=True, slots=True)
class Examined:
    """One run after it was examined.

    If it counts, right answers are computed from the run `truth`, which `experiment` made.
    """

    evidence: Evidence
    truth: RunDirectory | None = None
    experiment: Experiment | None = None


def as_wanted(run: WantedRun, actual: Experiment, always: frozenset[str]) -> Experiment:
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


def examine(folder: Folder, run: WantedRun, runner: Runner, scratch: Path) -> Examined:
    """Checks one run of a submission. Of its files only hashes count, in the manifest."""
    directory = folder.run(run.name)
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
        config = experiment.load(folder.config(run.task), own_folder=folder.path)
        if not wrong and not same(config, run_config):
            wrong.append(f"configs/{run.name}.yaml has changed since the run was made")
    except OutcastError as error:
        wrong.append(str(error).replace(f"{folder.path}/", ""))
    if wrong:
        return _ended(evidence, "other", *wrong)
    try:
        strict = as_wanted(run, run_config, frozenset())
        as_recorded = as_wanted(run, run_config, ALWAYS_FREE)
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
        state, reasons = compare(directory, fresh)
    except (OutcastError, OSError) as error:
        return _ended(evidence, "forged", _told(error, directory))
    if state == "forged":
        return _ended(evidence, state, *reasons)
    capture = Run(truth).summary.capture
    if not capture.trusted:
        return _ended(evidence, "disagreeing", *capture.reasons)
    return Examined(_with(evidence, state, *reasons), truth, strict)


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
