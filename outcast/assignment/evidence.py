"""The evidence for and against one submitted run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import polars as pl

from outcast import experiment, handed_in
from outcast.assignment import old_tasks as tasks
from outcast.assignment import recomputed, replayed, seal
from outcast.assignment.old_folder import Folder, Identity
from outcast.assignment.old_questions import QUESTIONS, Known
from outcast.errors import InputError, OutcastError
from outcast.files import sha256
from outcast.records.run import Run
from outcast.records.run_directory import Manifest

State = Literal["genuine", "consistent", "untrusted", "other", "forged", "missing"]
"""
genuine: repeated with its configuration and seed, the run came out the same to the byte.
consistent: everything agrees that can be checked without repeating the run.
untrusted: its captures and counters contradict each other, as the run itself had said.
other: it is a run, but not the one that the task asks for.
forged: something in it was changed, or cannot come from this configuration and seed.
missing: the run is not there.
"""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence about one run of one student.

    Attributes:
        reasons: why the run has this state, in lines.
        known: by question, the right answers, recomputed from the captures.
        captures: the SHA-256 of the large capture files, whatever the manifest says.
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
    """Checks one run in every way. Without a runner it is not repeated, and consistent at best."""
    directory = folder.run(task)
    if not directory.path.is_dir():
        return Evidence(task, "missing", (f"runs/{task.name}: the run is missing",))
    captures = _hashes(directory.captures)
    try:
        manifest = directory.read_manifest()
        broken = seal.verify(directory, manifest).broken
        wrong = departures(folder, identity, task, manifest)
    except (OutcastError, OSError) as error:
        text = str(error).replace(f"{folder.path}/", "")
        return Evidence(task, "forged", (text,), captures=captures)
    evidence = Evidence(task, "consistent", seed=manifest.seed, captures=captures)
    with TemporaryDirectory(prefix="outcast-grade-") as name:
        return _examined(evidence, folder, broken, wrong, runner, Path(name))


def departures(
    folder: Folder, identity: Identity, task: tasks.Task, manifest: Manifest
) -> list[str]:
    """How a run differs from what the task asks for. Raises InputError without its config.yaml."""
    run_config = experiment.load_finished(folder.run(task).config)
    wrong = tasks.departures(task, run_config, identity.seed)
    if manifest.seed != run_config.seed:
        wrong.append(f"manifest.json says seed {manifest.seed}, config.yaml {run_config.seed}")
    try:
        config = experiment.load(folder.config(task))
    except OutcastError as error:
        return [*wrong, str(error).replace(f"{folder.path}/", "")]
    if not tasks.same(config, run_config):
        wrong.append(f"configs/{task.name}.yaml has changed since the run was made")
    return wrong


def _examined(
    evidence: Evidence,
    folder: Folder,
    broken: str,
    wrong: list[str],
    runner: replayed.Runner | None,
    scratch: Path,
) -> Evidence:
    directory = folder.run(evidence.task)
    try:
        fresh = recomputed.recompute(directory, scratch / "recomputed")
    except InputError as error:
        return _with(evidence, "forged", *([broken] if broken else []), str(error))
    evidence = replace(evidence, known=_known(fresh, evidence.task))
    against = [*([broken] if broken else []), *fresh.differences]
    if against:
        return _with(evidence, "forged", *against)
    if wrong:
        return _with(evidence, "other", *wrong)
    if runner is None:
        outcome = replayed.Replayed("impossible")
    else:
        try:
            outcome = replayed.compare(directory, runner, scratch / "replayed")
        except OutcastError as error:
            # The student did not cause this, and the rest of the class still gets its grades.
            outcome = replayed.Replayed("impossible", f"running it again failed: {error}")
    if outcome.state == "different":
        return _with(evidence, "forged", outcome.reason)
    if not fresh.summary.capture.trusted:
        return _with(evidence, "untrusted", *fresh.summary.capture.reasons)
    if outcome.state == "impossible":
        return _with(evidence, "consistent", *([outcome.reason] if outcome.reason else []))
    return _with(evidence, "genuine")


def _known(fresh: recomputed.Recomputed, task: tasks.Task) -> dict[str, Known]:
    known, run = {}, Run(fresh.directory)
    for question in QUESTIONS:
        if question.task == task:
            try:
                known[question.key] = question.known(run)
            except (InputError, pl.exceptions.PolarsError):
                known[question.key] = ()
    return known


def _with(evidence: Evidence, state: State, *reasons: str) -> Evidence:
    lines = tuple(f"runs/{evidence.task.name}: {reason}" for reason in reasons)
    return replace(evidence, state=state, reasons=lines)


def _hashes(folder: Path) -> frozenset[str]:
    """The hashes of large captures only, because those of idle ports can be equal by chance."""
    files = handed_in.plain_files(folder) if folder.is_dir() else []
    sizes = {path: path.stat().st_size for path in files if path.parent == folder}
    least = max(sizes.values(), default=0) / 10
    return frozenset(sha256(path) for path, size in sizes.items() if size >= least)
