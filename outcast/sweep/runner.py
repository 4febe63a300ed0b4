"""Runs a sweep, from its plan to its dataset."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from outcast.sweep import dataset, scheduler, store
from outcast.sweep.plan import Plan
from outcast.sweep.pool import Pool
from outcast.sweep.scheduler import Limits, Observer, Progress
from outcast.sweep.store import SweepDirectory
from outcast.sweep.task import REAL


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
    makers: Counter[str] = Counter()
    for run in plan.runs:
        result = directory.run(run.point.name)
        if result.manifest.exists():
            manifest = result.read_manifest()
            kernel = str(manifest.kernel.get("sha256", manifest.kernel.get("release", "unknown")))
            makers[f"outcast {manifest.outcast} with kernel {kernel[:20]}"] += 1
    if len(makers) < 2:
        return None
    counts = ", ".join(f"{count} by {maker}" for maker, count in makers.items())
    return f"warning: these runs are not alike: {counts}; remove the run folders to make them again"
