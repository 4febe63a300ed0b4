"""What speaks for and against one submitted run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import polars as pl

from outcast import experiment, handed_in
from outcast.assignment import recomputed, replayed, seal, tasks
from outcast.assignment.folder import Folder, Identity
from outcast.assignment.questions import QUESTIONS, Known
from outcast.errors import InputError, OutcastError
from outcast.files import sha256
from outcast.records.run import Run
from outcast.records.run_directory import Manifest

State = Literal["genuine", "consistent", "untrusted", "other", "forged", "missing"]
"""
genuine: made again by configuration and seed, it came out the same to the byte.
consistent: all that can be checked without making it again agrees.
untrusted: its captures and counters contradict each other, as the run itself had said.
other: a run, but not the one that was asked for.
forged: something in it was changed, or cannot have come of this configuration and seed.
missing: there is none.
"""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One run of one student.

    Attributes:
        reasons: why it is in this state, in lines.
        known: by question, the right answers as recomputed from the captures.
        captures: SHA-256 of the large captures as they lie there, whatever the manifest says.
    """

    task: tasks.Task
    state: State
    reasons: tuple[str, ...] = ()
    seed: int | None = None
    known: Mapping[str, Known] = field(default_factory=dict)
    captures: frozenset[str] = frozenset()


def examine(
    folder: Folder, identity: Identity, task: tasks.Task, runner: replayed.Runner | None
) -> Evidence:
    """Checks one run with everything there is; without a runner it is not made again, and
    consistent at best.
    """
    directory = folder.run(task)
    if not directory.path.is_dir():
        return Evidence(task, "missing", (f"runs/{task.name}: there is none",))
    captures = _hashes(directory.captures)
    try:
        manifest = directory.read_manifest()
        broken = seal.verify(directory, manifest).broken
        wrong = departures(folder, identity, task, manifest)
    except (OutcastError, OSError) as error:
        text = str(error).replace(f"{folder.path}/", "")
        return Evidence(task, "forged", (text,), captures=captures)
    found = Evidence(task, "consistent", seed=manifest.seed, captures=captures)
    with TemporaryDirectory(prefix="outcast-grade-") as name:
        return _examined(found, folder, broken, wrong, runner, Path(name))


def departures(
    folder: Folder, identity: Identity, task: tasks.Task, manifest: Manifest
) -> list[str]:
    """How a run is not the one that was asked for. Raises InputError without its config.yaml."""
    of_the_run = experiment.load_resolved(folder.run(task).config)
    wrong = tasks.departures(task, of_the_run, identity.seed)
    if manifest.seed != of_the_run.seed:
        wrong.append(f"manifest.json says seed {manifest.seed}, config.yaml {of_the_run.seed}")
    try:
        config = experiment.load(folder.config(task))
    except OutcastError as error:
        return [*wrong, str(error).replace(f"{folder.path}/", "")]
    if not tasks.same(config, of_the_run):
        wrong.append(f"it was not made of configs/{task.name}.yaml as that is now")
    return wrong


def _examined(
    found: Evidence,
    folder: Folder,
    broken: str,
    wrong: list[str],
    runner: replayed.Runner | None,
    scratch: Path,
) -> Evidence:
    directory = folder.run(found.task)
    try:
        made = recomputed.recompute(directory, scratch / "recomputed")
    except InputError as error:
        return _with(found, "forged", *([broken] if broken else []), str(error))
    known = _known(made, found.task)
    found = Evidence(found.task, found.state, (), found.seed, known, found.captures)
    against = [*([broken] if broken else []), *made.differences]
    if against:
        return _with(found, "forged", *against)
    if wrong:
        return _with(found, "other", *wrong)
    if runner is None:
        outcome = replayed.Replayed("impossible")
    else:
        try:
            outcome = replayed.compare(directory, runner, scratch / "replayed")
        except OutcastError as error:
            # Not the student's doing, and no reason to leave the rest of a class ungraded.
            outcome = replayed.Replayed("impossible", f"running it again failed: {error}")
    if outcome.state == "different":
        return _with(found, "forged", outcome.reason)
    if not made.summary.capture.trusted:
        return _with(found, "untrusted", *made.summary.capture.reasons)
    if outcome.state == "impossible":
        return _with(found, "consistent", *([outcome.reason] if outcome.reason else []))
    return _with(found, "genuine")


def _known(made: recomputed.Recomputed, task: tasks.Task) -> dict[str, Known]:
    known, run = {}, Run(made.directory)
    for question in QUESTIONS:
        if question.task == task:
            try:
                known[question.key] = question.known(run)
            except (InputError, pl.exceptions.PolarsError):
                known[question.key] = ()
    return known


def _with(found: Evidence, state: State, *reasons: str) -> Evidence:
    lines = tuple(f"runs/{found.task.name}: {reason}" for reason in reasons)
    return Evidence(found.task, state, lines, found.seed, found.known, found.captures)


def _hashes(folder: Path) -> frozenset[str]:
    """Of the large captures: those of idle ports can be alike without a copy."""
    files = handed_in.plain_files(folder) if folder.is_dir() else []
    sizes = {path: path.stat().st_size for path in files if path.parent == folder}
    least = max(sizes.values(), default=0) / 10
    return frozenset(sha256(path) for path, size in sizes.items() if size >= least)
