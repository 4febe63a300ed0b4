"""Runs a sweep, from its plan to its dataset; merges shards; says what a sweep's folder holds."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from outcast.archive.contents import listed
from outcast.errors import ConfigError, InputError
from outcast.experiment import Experiment
from outcast.records.run import Run
from outcast.records.run_directory import Manifest
from outcast.sweep import dataset, scheduler, store
from outcast.sweep.dataset import Dataset
from outcast.sweep.plan import Plan
from outcast.sweep.points import Point
from outcast.sweep.pool import Pool
from outcast.sweep.scheduler import Limits, Observer, Progress
from outcast.sweep.store import RESULT, SweepDirectory
from outcast.sweep.task import REAL, Failure


@dataclass(frozen=True)
class Result:
    """A sweep that has ended; captures and counters of `disagreeing` runs contradict each other."""

    directory: SweepDirectory
    progress: Progress
    disagreeing: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether every run of the plan has a result."""
        return self.progress.left == 0 and not self.progress.failures


def run_sweep(
    plan: Plan,
    path: Path,
    pool: Pool,
    observer: Observer,
    *,
    limits: Limits | None = None,
    resume: bool = False,
    executor: str = REAL,
) -> Result:
    """Makes the runs that are not finished yet, and writes the dataset of all runs.

    Raises:
        ConfigError: if the folder cannot be used.
        BusyError: if another process works in the folder.
    """
    with store.opened(path, plan.experiment, resume, observer.note, plan.own) as directory:
        store.keep_networks(directory, plan.own_topologies)
        finished = store.take_stock(directory, plan.asked, observer.note)
        tasks = plan.tasks(finished, executor)
        progress = scheduler.run(
            tasks, len(finished), directory, pool, limits or Limits(), observer
        )
        if warning := mixture_warning(plan, directory):
            observer.note(warning)
        runs = dataset.write(directory).runs
        disagreeing = (
            tuple(runs.filter(~runs["trusted"])["run"]) if "trusted" in runs.columns else ()
        )
        return Result(directory, progress, disagreeing)


def mixture_warning(plan: Plan, directory: SweepDirectory) -> str | None:
    """A warning if different versions of outcast, or different kernels, made the runs."""
    runs = (directory.run(run.point.name) for run in plan.runs)
    makers = Counter(_maker(run.read_manifest()) for run in runs if run.manifest.exists())
    if len(makers) < 2:
        return None
    counts = ", ".join(f"{count} by {maker}" for maker, count in makers.items())
    return f"warning: these runs are not alike: {counts}; remove the run folders to make them again"


def _maker(manifest: Manifest) -> str:
    kernel = str(manifest.kernel.get("sha256", manifest.kernel.get("release", "unknown")))
    return f"outcast {manifest.outcast} with kernel {kernel[:20]}"


def merge(plan: Plan, shards: Sequence[Path], target: Path) -> SweepDirectory:
    """Copies every run of a plan from the shards' folders into a new folder, with its dataset.

    Raises:
        InputError: a shard is no sweep, or a run is missing or not as it was when it ended. Nothing
            is written then.
        ConfigError: a shard or a run is of another configuration, or the folder cannot be used.
        BusyError: another process works in the folder.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"{target}: exists already; allowed is a new or empty folder (-o)")
    directories = [SweepDirectory(path) for path in shards]
    for directory in directories:
        store.require_same(directory, plan.experiment)
    places: dict[str, Path] = {}
    missing: list[str] = []
    for name, requested in plan.asked.items():
        runs = [directory.run(name) for directory in directories]
        found = next((run for run in runs if run.manifest.exists()), None)
        if found is None:
            failures = (directory.failures().get(name) for directory in directories)
            failed = next((f" ({each.kind}: {each.message})" for each in failures if each), "")
            missing.append(f"{name}{failed}")
            continue
        if why := store.problem(found):
            raise InputError(f"{why}; make it again in its shard with --resume")
        if key := store.other_key(found, requested):
            raise ConfigError(
                f"{found.path}: was made with another {key} than this configuration has; "
                "allowed are runs of the same configuration and files"
            )
        places[name] = found.path
    if missing:
        raise InputError(
            f"{len(missing)} of {len(plan.runs)} runs are missing: {listed(missing)}; make them in "
            "their shards with --resume"
        )
    with store.opened(target, plan.experiment, resume=False, own=plan.own) as whole:
        store.keep_networks(whole, plan.own_topologies)
        for name, path in places.items():
            shutil.copytree(path, whole.attempt(name) / RESULT, symlinks=True)
            whole.accept(name)
        dataset.write(whole)
        return whole


@dataclass(frozen=True)
class State:
    """The content of a sweep's folder, read once.

    Attributes:
        planned: every run, in the order of the configuration.
        failures: by run name, why the run failed; only runs without a result.
        left: names of the runs that have neither a result nor a failure.
        makers: how many runs were made by each version of outcast with its kernel.
    """

    experiment: Experiment
    planned: Sequence[Point]
    results: Dataset
    failures: Mapping[str, Failure]
    disagreeing: Mapping[str, str]
    left: Sequence[str]
    makers: Mapping[str, int]

    @property
    def finished(self) -> list[str]:
        """Names of the runs that have a result."""
        return self.results.runs["run"].to_list() if self.results.runs.height else []


def read_state(directory: SweepDirectory) -> State:
    """Reads a sweep's folder.

    Raises InputError if the folder does not hold a sweep, or a result cannot be read.
    """
    planned = dataset.planned_points(directory)
    results = dataset.load(directory.path)
    finished = set(results.runs["run"]) if results.runs.height else set()
    failures = {name: why for name, why in directory.failures().items() if name not in finished}
    runs = {name: Run(directory.run(name)) for name in sorted(finished)}
    makers = Counter(_maker(run.directory.read_manifest()) for run in runs.values())
    return State(
        experiment=directory.read_experiment(),
        planned=planned,
        results=results,
        failures=failures,
        disagreeing={n: "; ".join(run.reasons) for n, run in runs.items() if not run.trusted},
        left=[p.name for p in planned if p.name not in finished and p.name not in failures],
        makers=dict(sorted(makers.items())),
    )
