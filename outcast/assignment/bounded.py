"""Work on what students handed in, in processes with bounded time and memory.

A submission can be made so that reading it takes for ever, or all memory, or ends the process. Each
gets a process of its own. However that ends, the others get their grades.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outcast import handed_in
from outcast.emulation.commands import python_module
from outcast.errors import InputError
from outcast.sweep.process import ask_to_end, end, started

RESULT = "result.json"
_PAUSE_S = 0.05
_END_DEADLINE_S = 10.0
"""How long a process may take to remove what it made, once it was asked to end."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of one process: its time, and its address space (RLIMIT_AS of getrlimit(2)).

    The guest of a replay has a bound of its own, the memory that the configuration gives it.
    """

    wall_s: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Done:
    """How the work on an item ended: `item` is its place in the list of all.

    Without a `result`, `problem` says why, in one line.
    """

    item: int
    result: Any
    problem: str
    wall_s: float


def each(
    module: str, items: Sequence[dict[str, Any]], scratch: Path, jobs: int, bounds: Bounds
) -> Iterator[Done]:
    """Calls `python -m MODULE FOLDER` for each item, and yields the ends as they come.

    The module gets its item as JSON on standard input and writes its result as JSON into FOLDER.
    FOLDER is new, and is removed afterwards. When the caller ends, even by SIGKILL, so do they.
    """
    waiting = deque(enumerate(items))
    running: list[_Process] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                number, item = waiting.popleft()
                running.append(_Process.start(module, number, item, scratch, bounds, jobs))
            ended = [(process, done) for process in running if (done := process.poll())]
            for process, done in ended:
                running.remove(process)
                shutil.rmtree(process.folder, ignore_errors=True)
                yield done
            if not ended:
                time.sleep(_PAUSE_S)
    finally:
        for process in running:
            ask_to_end(process.popen)
        for process in running:
            end(process.popen, _END_DEADLINE_S)
            shutil.rmtree(process.folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Process:
    number: int
    folder: Path
    popen: subprocess.Popen[bytes]
    began: float
    bounds: Bounds

    @classmethod
    def start(
        cls,
        module: str,
        number: int,
        item: dict[str, Any],
        scratch: Path,
        bounds: Bounds,
        jobs: int,
    ) -> _Process:
        folder = scratch / str(number)
        folder.mkdir()
        # The hard limit stays, because the guest of a replay has to raise its own.
        limit = ["prlimit", f"--as={bounds.memory_bytes}:"]
        threads = max(1, (os.cpu_count() or 1) // jobs)
        popen = started([*python_module(module), str(folder)], folder, threads, limit)
        assert popen.stdin is not None
        with contextlib.suppress(BrokenPipeError), popen.stdin as stream:
            stream.write(json.dumps(item).encode())
        return cls(number, folder, popen, time.monotonic(), bounds)

    def poll(self) -> Done | None:
        """How it ended; None while it goes on. It is ended here when its time is over."""
        status = self.popen.poll()
        wall_s = time.monotonic() - self.began
        if status is None and wall_s < self.bounds.wall_s:
            return None
        if status is None:
            ask_to_end(self.popen)
            end(self.popen, _END_DEADLINE_S)
            problem = f"took longer than {self.bounds.wall_s:.0f} s, the limit for a submission"
            return Done(self.number, None, problem, wall_s)
        try:
            result = handed_in.read_json(self.folder / RESULT)
        except (FileNotFoundError, InputError):
            return Done(self.number, None, self._why(status), wall_s)
        return Done(self.number, result, "", wall_s)

    def _why(self, status: int) -> str:
        lines = (self.folder / "stderr").read_text(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        if status == -signal.SIGKILL or "MemoryError" in last or "memory allocation" in last:
            return (
                f"took more than {self.bounds.memory_bytes >> 20} MiB of memory, the limit for a "
                "submission, or was killed"
            )
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        return f"its grading ended {how}{last and f': {ascii(last)[1:-1][:200]}'}"
