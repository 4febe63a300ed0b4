"""Makes runs: the interface of a pool, and the pool of this machine's processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from outcast.sweep.process import RunProcess
from outcast.sweep.task import RUN_BYTES, Ended, Task

STOP_DEADLINE_S = 4.0
"""How long an interrupted run may take to clean up."""


class Pool(Protocol):
    """The maker of runs, as the scheduler needs it."""

    def can_start(self, task: Task) -> bool:
        """Returns whether this task can start now."""

    def start(self, task: Task, folder: Path) -> None:
        """Starts a task. Its result goes to `folder`, which does not exist yet."""

    def poll(self) -> list[Ended]:
        """Returns the tasks that have ended since the last call."""

    def running(self) -> list[str]:
        """Returns the names of the tasks in progress."""

    def places(self) -> int:
        """Returns how many tasks can be in progress at a time."""

    def notes(self) -> list[str]:
        """Returns new remarks for the user, for example about a worker that was refused."""

    def stop(self) -> None:
        """Ends all tasks in progress, within seconds."""


def available_memory_bytes() -> int:
    """The memory that the kernel can give without swapping (MemAvailable in proc_meminfo(5))."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return RUN_BYTES


@dataclass
class LocalPool:
    """Runs in processes of this machine: at most `jobs`, and no more than memory allows.

    A process stays for the next run if all went well. A realtime run has the machine to itself. If
    nothing is in progress, a run starts whatever the free memory is, because there would be nothing
    to wait for.
    """

    jobs: int
    threads: int = 1
    memory: Callable[[], int] = available_memory_bytes
    _running: dict[str, RunProcess] = field(default_factory=dict)
    _idle: list[RunProcess] = field(default_factory=list)

    def can_start(self, task: Task) -> bool:
        if not self._running:
            return True
        if len(self._running) >= self.jobs or task.exclusive:
            return False
        if any(run.task.exclusive for run in self._running.values()):
            return False
        # A run that has just started has not taken its memory yet. A large one takes minutes.
        untaken_bytes = sum(
            run.task.memory_bytes
            for run in self._running.values()
            if run.task.memory_bytes > RUN_BYTES or time.monotonic() - run.began < 10
        )
        return self.memory() >= untaken_bytes + task.memory_bytes

    def start(self, task: Task, folder: Path) -> None:
        while self._idle:
            process = self._idle.pop()
            if process.popen.poll() is None:
                process.give(task, folder)
                break
        else:
            process = RunProcess.start(task, folder, self.threads)
        self._running[task.name] = process

    def poll(self) -> list[Ended]:
        ended = [end for run in self._running.values() if (end := run.poll()) is not None]
        for end in ended:
            process = self._running.pop(end.name)
            if process.stays:
                self._idle.append(process)
            else:
                process.end(time.monotonic() + STOP_DEADLINE_S)
        return ended

    def running(self) -> list[str]:
        return list(self._running)

    def places(self) -> int:
        return self.jobs

    def notes(self) -> list[str]:
        return []

    def end_idle(self) -> None:
        """Ends the processes that wait for another run."""
        while self._idle:
            self._idle.pop().end(time.monotonic() + STOP_DEADLINE_S)

    def stop(self) -> None:
        deadline = time.monotonic() + STOP_DEADLINE_S
        processes = [*self._running.values(), *self._idle]
        for process in processes:
            process.ask_to_end()
        for process in processes:
            process.end(deadline)
        self._running.clear()
        self._idle.clear()
