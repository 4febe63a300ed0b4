"""Makes the runs of a sweep: starts them, stores results, tries again, stops."""

from __future__ import annotations

import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Protocol

from outcast.sweep import dataset, store
from outcast.sweep.plan import Plan
from outcast.sweep.pool import ATTEMPTS, REAL, Ended, Failure, Pool, Task
from outcast.sweep.store import RESULT, SweepDirectory

PAUSE_S = 0.05

OnResult = Callable[[str], None]
"""Called with the name of each run whose result was stored."""

DEFAULT_KEEP_FREE_BYTES = 2**30


@dataclass(frozen=True)
class Limits:
    """When no further run starts.

    Attributes:
        keep_free_bytes: bytes that stay free on the file system of the sweep's folder. Each run in
            progress counts with as many bytes as the largest finished run.
        deadline_s: seconds after the start of the sweep. A run does not start if it would end
            later, judged by the mean time of the runs so far.
        free_bytes: returns how many bytes are free now; tests replace it.
    """

    keep_free_bytes: int = DEFAULT_KEEP_FREE_BYTES
    deadline_s: float | None = None
    free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free


@dataclass
class Progress:
    """How far a sweep is, and in the end how it ended.

    Attributes:
        finished_before: the number of runs that were finished at the beginning.
        finished: the number that have finished since.
        failures: by run name, since the beginning.
        waiting: names of the runs that were not started in the end.
        stopped: why no further run started.
        wall_s: the seconds that each run took which finished since the beginning.
    """

    total: int
    finished_before: int
    finished: int = 0
    failures: dict[str, Failure] = field(default_factory=dict)
    running: Sequence[str] = ()
    waiting: tuple[str, ...] = ()
    stopped: str | None = None
    wall_s: list[float] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> int:
        """The number of runs that have no result yet and have not failed for good."""
        return self.total - self.finished_before - self.finished - len(self.failures)

    def eta_s(self, places: int) -> float | None:
        """Estimates the seconds that are left from the runs so far; None before the first ends."""
        if not self.wall_s:
            return None
        return self.left * fmean(self.wall_s) / max(1, min(places, self.left))


class Observer(Protocol):
    """Gets the scheduler's news."""

    def update(self, progress: Progress, places: int) -> None:
        """Called after every change, and repeatedly in between."""

    def note(self, text: str) -> None:
        """Called with a line for the user."""


def run(
    tasks: Sequence[Task],
    finished_before: int,
    directory: SweepDirectory,
    pool: Pool,
    limits: Limits,
    observer: Observer,
    on_result: OnResult = lambda name: None,
) -> Progress:
    """Makes the tasks' runs, in their order. Those in progress end before an exception leaves."""
    progress = Progress(len(tasks) + finished_before, finished_before)
    return _Loop(directory, pool, limits, observer, on_result, progress).run(tasks)


@dataclass
class _Loop:
    directory: SweepDirectory
    pool: Pool
    limits: Limits
    observer: Observer
    on_result: OnResult
    progress: Progress
    attempts: Counter[str] = field(default_factory=Counter)
    bytes_so_far: list[int] = field(default_factory=list)

    def run(self, tasks: Sequence[Task]) -> Progress:
        waiting = deque(tasks)
        by_name = {task.name: task for task in tasks}
        stopped: str | None = None
        try:
            while waiting or self.pool.running():
                while waiting and stopped is None and self.pool.can_start(waiting[0]):
                    if (stopped := self._why_stop()) is None:
                        self._start(waiting.popleft())
                if stopped is not None and not self.pool.running():
                    break
                for ended in self.pool.poll():
                    if self._take(ended):
                        waiting.append(by_name[ended.name])
                for text in self.pool.notes():
                    self.observer.note(text)
                self.progress.running = self.pool.running()
                self.observer.update(self.progress, self.pool.places())
                time.sleep(PAUSE_S)
        finally:
            self.pool.stop()
        self.progress.waiting = tuple(task.name for task in waiting)
        self.progress.stopped = stopped
        return self.progress

    def _start(self, task: Task) -> None:
        self.attempts[task.name] += 1
        self.directory.clear(task.name)
        self.pool.start(task, self.directory.attempt(task.name))

    def _why_stop(self) -> str | None:
        each_bytes = max(self.bytes_so_far, default=0)
        needed = self.limits.keep_free_bytes + (1 + len(self.pool.running())) * each_bytes
        free = self.limits.free_bytes(self.directory.path)
        if free < needed:
            return (
                f"the disk is full: {free / 2**20:.0f} MB are free, {needed / 2**20:.0f} MB must "
                "be (--keep-free and the needs of the runs in progress)"
            )
        each_s = fmean(self.progress.wall_s) if self.progress.wall_s else 0.0
        elapsed_s = time.monotonic() - self.progress.began
        if self.limits.deadline_s is not None and elapsed_s + each_s > self.limits.deadline_s:
            return f"the deadline: a run takes {each_s:.0f} s, and no time is left for another"
        return None

    def _take(self, ended: Ended) -> bool:
        """Stores the result of a task. Returns whether the run has to be tried again."""
        if ended.failure is None:
            result = self.directory.attempt(ended.name) / RESULT
            files = (path for path in result.rglob("*") if path.is_file())
            self.bytes_so_far.append(sum(path.stat().st_size for path in files))
            self.directory.accept(ended.name)
            self.progress.finished += 1
            self.progress.wall_s.append(ended.wall_s)
            self.on_result(ended.name)
            return False
        why = f"{ended.name}: {ended.failure.kind}: {ended.failure.message}"
        if self.attempts[ended.name] < ATTEMPTS.get(ended.failure.kind, 1):
            self.observer.note(f"tried again: {why}")
            return True
        self.observer.note(f"failed: {why}")
        self.directory.reject(ended.name, ended.failure, self.attempts[ended.name])
        self.progress.failures[ended.name] = ended.failure
        return False


@dataclass(frozen=True)
class Result:
    """A sweep that has ended; captures and counters of `disagreeing` runs contradict each other."""

    directory: SweepDirectory
    progress: Progress
    disagreeing: tuple[str, ...]

    @property
    def complete(self) -> bool:
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

    Raises as `store.opened`.
    """
    with store.opened(path, plan.experiment, resume, observer.note, plan.own) as directory:
        store.keep_networks(directory, plan.own_topologies)
        finished = store.take_stock(directory, plan.requested, observer.note)
        tasks = plan.tasks(finished, executor)
        progress = run(tasks, len(finished), directory, pool, limits or Limits(), observer)
        if warning := mixture_warning(plan, directory):
            observer.note(warning)
        runs = dataset.write(directory).runs
        disagreeing = (
            tuple(runs.filter(~runs["trusted"])["run"]) if "trusted" in runs.columns else ()
        )
        return Result(directory, progress, disagreeing)


def mixture_warning(plan: Plan, directory: SweepDirectory) -> str | None:
    """A warning where different versions of outcast, or different kernels, made the runs."""
    runs = (directory.run(run.point.name) for run in plan.runs)
    makers = Counter(dataset.maker(run.read_manifest()) for run in runs if run.manifest.exists())
    if len(makers) < 2:
        return None
    counts = ", ".join(f"{count} by {maker}" for maker, count in makers.items())
    return f"warning: these runs are not alike: {counts}; remove the run folders to make them again"
