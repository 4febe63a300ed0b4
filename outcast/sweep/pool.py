"""Where runs are made: the seam, and this machine's own processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from outcast.sweep.process import RunProcess
from outcast.sweep.task import Ended, Task

RUN_BYTES = 800 * 2**20
"""What a run takes of memory at most: the guest, the analysis and the interpreters."""

STOP_DEADLINE_S = 4.0
"""How long an interrupted run may take to remove what it made."""


class Pool(Protocol):
    """What the scheduler needs of whoever makes the runs."""

    def can_start(self, task: Task) -> bool:
        """Whether there is room for this task now."""

    def start(self, task: Task, folder: Path) -> None:
        """Starts a task, whose result is to come into `folder`, which does not exist yet."""

    def poll(self) -> list[Ended]:
        """What has ended since the last call."""

    def running(self) -> list[str]:
        """The names of the tasks in progress."""

    def places(self) -> int:
        """How many tasks can be in progress at a time."""

    def notes(self) -> list[str]:
        """What is new that the user should know, as a worker that is refused."""

    def stop(self) -> None:
        """Ends everything in progress, within seconds."""


def available_memory_bytes() -> int:
    """What the kernel can give without swapping (MemAvailable of proc_meminfo(5))."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return RUN_BYTES


@dataclass
class LocalPool:
    """Processes on this machine: at most `jobs`, no more than memory allows, realtime ones alone.

    A single run is always started: whether it fits is then seen by itself.
    """

    jobs: int
    threads: int = 1
    memory: Callable[[], int] = available_memory_bytes
    _running: dict[str, RunProcess] = field(default_factory=dict)

    def can_start(self, task: Task) -> bool:
        if not self._running:
            return True
        if len(self._running) >= self.jobs or task.exclusive:
            return False
        if any(each.task.exclusive for each in self._running.values()):
            return False
        # Those that were just started have not taken their memory yet.
        young = sum(time.monotonic() - each.began < 10 for each in self._running.values())
        return self.memory() >= (1 + young) * RUN_BYTES

    def start(self, task: Task, folder: Path) -> None:
        self._running[task.name] = RunProcess.start(task, folder, self.threads)

    def poll(self) -> list[Ended]:
        ended = [each for run in self._running.values() if (each := run.poll()) is not None]
        for each in ended:
            del self._running[each.name]
        return ended

    def running(self) -> list[str]:
        return list(self._running)

    def places(self) -> int:
        return self.jobs

    def notes(self) -> list[str]:
        return []

    def stop(self) -> None:
        deadline = time.monotonic() + STOP_DEADLINE_S
        for run in self._running.values():
            run.ask_to_end()
        for run in self._running.values():
            run.end(deadline)
        self._running.clear()
