"""A sweep from its plan to its dataset."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from outcast.records.run_directory import RunDirectory
from outcast.sweep import dataset, measured, scheduler, store
from outcast.sweep.plan import Plan
from outcast.sweep.pool import Pool
from outcast.sweep.scheduler import Limits, Observer, Report
from outcast.sweep.store import SweepDirectory
from outcast.sweep.task import REAL


@dataclass(frozen=True)
class Result:
    """A sweep as it ended.

    Attributes:
        report: what was done, and what was not.
        untrusted: names of the runs whose captures and counters contradict each other.
    """

    directory: SweepDirectory
    report: Report
    untrusted: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether every run of the plan has a result."""
        return self.report.progress.left == 0 and not self.report.failures


def finished_runs(plan: Plan, directory: SweepDirectory) -> set[str]:
    """The runs whose manifest verifies: every file is there, with its hash."""
    names = [run.point.name for run in plan.runs]
    return {name for name in names if not store.problems(directory.run(name))}


def run_sweep(
    plan: Plan,
    path: Path,
    pool: Pool,
    observer: Observer,
    *,
    limits: Limits | None = None,
    resume: bool = False,
    executor: str = REAL,
    measurements: Path | None = None,
) -> Result:
    """Makes what is not finished yet, and the dataset of all.

    Args:
        plan: the runs.
        path: the sweep's folder.
        pool: who makes them.
        observer: who is told.
        limits: when to stop.
        resume: whether to go on with what is in the folder.
        executor: what makes a run directory; tests have another.
        measurements: where to note what runs take here; None does not.

    Raises:
        ConfigError: where the folder cannot be used.
        BusyError: where another process is at it.
    """
    with store.opened(path, plan.experiment, resume) as directory:
        finished = finished_runs(plan, directory)
        tasks = plan.tasks(finished, executor)
        by_name = {run.point.name: run for run in plan.runs}

        def note(name: str, wall_s: float, disk_bytes: int) -> None:
            if measurements is None:
                return
            made = measured.measure(
                RunDirectory(directory.runs / name),
                by_name[name].experiment,
                wall_s,
                disk_bytes,
                plan.sweep.captures,
            )
            measured.note(made, measurements)

        report = scheduler.run(
            tasks, len(finished), directory, pool, limits or Limits(), observer, on_result=note
        )
        if mixed := _mixture(plan, directory):
            observer.note(mixed)
        written = dataset.write(directory)
        untrusted = ()
        if "trusted" in written.runs.columns:
            untrusted = tuple(written.runs.filter(~written.runs["trusted"])["run"])
        return Result(directory, report, untrusted)


def _mixture(plan: Plan, directory: SweepDirectory) -> str | None:
    """What to say where runs were made by different versions of outcast, or different kernels."""
    made: Counter[str] = Counter()
    for run in plan.runs:
        result = directory.run(run.point.name)
        if result.manifest.exists():
            manifest = result.read_manifest()
            kernel = str(manifest.kernel.get("sha256", manifest.kernel.get("release", "unknown")))
            made[f"outcast {manifest.outcast} with kernel {kernel[:20]}"] += 1
    if len(made) < 2:
        return None
    counts = ", ".join(f"{count} by {maker}" for maker, count in made.items())
    return f"warning: these runs are not alike: {counts}; remove the run folders to make them again"
