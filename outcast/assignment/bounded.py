"""Calls a module for each of several items, in processes with bounded time and memory.

A submission can be made so that reading it takes for ever, or all memory, or ends the process.
However its process ends, the others get their grades.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outcast import handed_in
from outcast.emulation.commands import python_module
from outcast.errors import InputError
from outcast.sweep.process import ask_to_end, end, started

RESULT = "result.json"
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

    The module gets its item as JSON on standard input and writes its result as JSON into FOLDER,
    which is new, and is removed afterwards. When the caller ends, even by SIGKILL, so do they.
    """
    running: dict[int, subprocess.Popen[bytes]] = {}
    is_over = threading.Event()
    # The hard limit stays, because the guest of a replay has to raise its own.
    limit = ["prlimit", f"--as={bounds.memory_bytes}:"]
    threads = max(1, (os.cpu_count() or 1) // jobs)

    def call(number: int) -> Done:
        folder, began, problem = scratch / str(number), time.monotonic(), ""
        folder.mkdir()
        popen = started([*python_module(module), str(folder)], folder, threads, limit)
        running[number] = popen
        if is_over.is_set():
            ask_to_end(popen)
        try:
            popen.communicate(json.dumps(items[number]).encode(), bounds.wall_s)
            result = handed_in.read_json(folder / RESULT)
        except subprocess.TimeoutExpired:
            problem = f"took longer than {bounds.wall_s:.0f} s, the limit for a submission"
            ask_to_end(popen)
        except (FileNotFoundError, InputError):
            problem = _why(popen.returncode, folder, bounds)
        finally:
            end(popen, _END_DEADLINE_S)
            shutil.rmtree(folder, ignore_errors=True)
        return Done(number, None if problem else result, problem, time.monotonic() - began)

    pool = ThreadPoolExecutor(jobs)
    try:
        for future in as_completed([pool.submit(call, number) for number in range(len(items))]):
            yield future.result()
    finally:
        is_over.set()
        pool.shutdown(wait=False, cancel_futures=True)
        for popen in list(running.values()):
            ask_to_end(popen)
        pool.shutdown()


def _why(status: int, folder: Path, bounds: Bounds) -> str:
    """Why a process has left no result, in one line."""
    lines = (folder / "stderr").read_text(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    if status == -signal.SIGKILL or "MemoryError" in last or "memory allocation" in last:
        return (
            f"took more than {bounds.memory_bytes >> 20} MiB of memory, the limit for a "
            "submission, or was killed"
        )
    how = f"by signal {-status}" if status < 0 else f"with status {status}"
    return f"its grading ended {how}{last and f': {ascii(last)[1:-1][:200]}'}"
