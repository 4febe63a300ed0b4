"""Has all runs of a plan made: starts them, takes the results in, tries again, stops in order."""

from __future__ import annotations

import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Protocol

from outcast.sweep.pool import Pool
from outcast.sweep.store import RESULT, SweepDirectory
from outcast.sweep.task import ATTEMPTS, Ended, Failure, Task

PAUSE_S = 0.05

OnResult = Callable[[str, float, int], None]
"""Takes a finished run's name, the seconds it took and its bytes on the disk."""

DEFAULT_KEEP_FREE_BYTES = 2**30


@dataclass(frozen=True)
class Limits:
    """When no further run is started.

    Attributes:
        keep_free_bytes: of the file system that the sweep's folder is on; the runs in progress
            are taken to need what the ones so far took.
        deadline_s: after the start; a run that would not end before, by the mean so far, is not
            started.
        free_bytes: how much is free now; a seam for tests.
    """

    keep_free_bytes: int = DEFAULT_KEEP_FREE_BYTES
    deadline_s: float | None = None
    free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free


@dataclass
class Progress:
    """How far a sweep is; what a display shows.

    Attributes:
        total: runs of the plan.
        found: of these, finished before this start.
        finished, failed, retried: of these, since.
        running: names of those in progress.
        wall_s: what each finished one took.
    """

    total: int
    found: int
    finished: int = 0
    failed: int = 0
    retried: int = 0
    running: Sequence[str] = ()
    wall_s: list[float] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> int:
        """Runs that have no result yet and have not failed for good."""
        return self.total - self.found - self.finished - self.failed

    def eta_s(self, places: int, expected_s: float | None) -> float | None:
        """An estimate of the seconds that are left: by the mean so far, else by `expected_s`."""
        each_s = fmean(self.wall_s) if self.wall_s else expected_s
        return None if each_s is None else self.left * each_s / max(1, places)


class Observer(Protocol):
    """Who is told how the sweep goes."""

    def update(self, progress: Progress, places: int) -> None:
        """Called after every change, and now and then."""

    def note(self, text: str) -> None:
        """A line for the user."""


@dataclass(frozen=True)
class Report:
    """How a sweep came to its end.

    Attributes:
        failures: by name, those that failed this time.
        left: names that were not run, since the sweep was stopped.
        stopped: why; None where it was not.
        progress: the counts.
    """

    failures: dict[str, Failure]
    left: tuple[str, ...]
    stopped: str | None
    progress: Progress


def run(
    tasks: Sequence[Task],
    found: int,
    directory: SweepDirectory,
    pool: Pool,
    limits: Limits,
    observer: Observer,
    on_result: OnResult = lambda name, wall_s, disk_bytes: None,
) -> Report:
    """Has the tasks made, in their order. Every exception ends what is in progress first.

    Args:
        tasks: what is to be made.
        found: how many runs of the sweep are finished already.
        directory: where results go.
        pool: who makes them.
        limits: when to stop.
        observer: who is told.
        on_result: called for each run that came in.
    """
    progress = Progress(len(tasks) + found, found)
    return _Loop(directory, pool, limits, observer, on_result, progress).run(tasks)


@dataclass
class _Loop:
    directory: SweepDirectory
    pool: Pool
    limits: Limits
    observer: Observer
    on_result: OnResult
    progress: Progress
    failures: dict[str, Failure] = field(default_factory=dict)
    attempts: Counter[str] = field(default_factory=Counter)
    bytes_so_far: list[int] = field(default_factory=list)

    def run(self, tasks: Sequence[Task]) -> Report:
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
        return Report(self.failures, tuple(task.name for task in waiting), stopped, self.progress)

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
                f"the disk is full: {free / 2**20:.0f} MB are free, {needed / 2**20:.0f} MB are to "
                "be (--keep-free and what the runs in progress take)"
            )
        each_s = fmean(self.progress.wall_s) if self.progress.wall_s else 0.0
        gone_s = time.monotonic() - self.progress.began
        if self.limits.deadline_s is not None and gone_s + each_s > self.limits.deadline_s:
            return f"the deadline: a run takes {each_s:.0f} s, and no time is left for another"
        return None

    def _take(self, ended: Ended) -> bool:
        """Files the result; whether the run is to be tried again."""
        if ended.failure is None:
            result = self.directory.attempt(ended.name) / RESULT
            disk_bytes = folder_bytes(result)
            self.directory.accept(ended.name)
            self.bytes_so_far.append(disk_bytes)
            self.progress.finished += 1
            self.progress.wall_s.append(ended.wall_s)
            self.on_result(ended.name, ended.wall_s, disk_bytes)
            return False
        why = f"{ended.name}: {ended.failure.kind}: {ended.failure.message}"
        if self.attempts[ended.name] < ATTEMPTS.get(ended.failure.kind, 1):
            self.observer.note(f"tried again: {why}")
            self.progress.retried += 1
            return True
        self.observer.note(f"failed: {why}")
        self.directory.reject(ended.name, ended.failure, self.attempts[ended.name])
        self.failures[ended.name] = ended.failure
        self.progress.failed += 1
        return False


def folder_bytes(path: Path) -> int:
    """What the files of a folder take, by their lengths."""
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
