"""Makes runs: their tasks, the interface of a pool, and the pool of this machine's processes.

A process makes runs, one after another, and ends when its parent ends, even if that is killed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Literal, NoReturn, Protocol

from outcast import files
from outcast.emulation.commands import leave_working_folder, python_module
from outcast.engines import ledger
from outcast.errors import OutcastError
from outcast.experiment.engine import EngineName, properties

Captures = Literal["keep", "compress", "drop"]

REAL = "outcast.sweep.worker:execute"
"""The executor that runs and analyses an experiment; tests name another one."""

RUN_BYTES = 800 * 2**20
"""The most memory that a usual run takes: the guest, the analysis and the interpreters."""

ATTEMPTS = {
    "GuestError": 2,
    "DeadlineError": 2,
    "BusyError": 2,
    "ProcessLostError": 2,
}
"""Errors whose cause can pass, and how many times a run with that error is tried in all."""


def is_exclusive(engine: EngineName) -> bool:
    """Whether a run needs the machine for itself, because realtime runs disturb each other."""
    return not properties(engine).virtual_clock


@dataclass(frozen=True)
class Task:
    """A run that a pool makes.

    Attributes:
        config: the experiment as YAML, with its seed.
        exclusive: whether no other run may share the machine with it.
        executor: `module:function` of an Executor.
        memory_bytes: the most memory that it takes.
        interventions: what is changed in it, as JSON; empty where nothing is.
    """

    name: str
    config: str
    captures: Captures
    exclusive: bool
    executor: str = REAL
    memory_bytes: int = RUN_BYTES
    interventions: str = ""


@dataclass(frozen=True)
class Failure:
    """Why a run has no result.

    Attributes:
        kind: the name of the error's class, of outcast/errors.py or of Python.
        message: one line.
        exit_status: the status with which `outcast run` would have ended.
    """

    kind: str
    message: str
    exit_status: int = 1

    @classmethod
    def of(cls, error: Exception) -> Failure:
        status = error.exit_status if isinstance(error, OutcastError) else 1
        message = " ".join(str(error).split()) or "the error has no message"
        return cls(type(error).__name__, message, status)


@dataclass(frozen=True)
class Ended:
    """A task that has ended, with the seconds it took by the clock of the machine that made it.

    Without a failure its result is in the folder for unfinished runs.
    """

    name: str
    failure: Failure | None
    wall_s: float


STOP_DEADLINE_S = 4.0
"""How long an interrupted run may take to clean up."""

ENDED = "ended.json"
"""The process writes this into a run's folder, last: the `failure` or null, and if it `stays`."""

_THREAD_SETTINGS = [
    f"{library}_THREADS" for library in ("POLARS_MAX", "NUMBA_NUM", "OMP_NUM", "OPENBLAS_NUM")
]


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


def started(
    argv: Sequence[str], folder: Path, threads: int, wrapper: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Starts a process, which ends with this one, even if this one is killed.

    What it says goes to `stderr` in the folder. Its analysis uses `threads` threads.
    """
    environment = {**os.environ, **dict.fromkeys(_THREAD_SETTINGS, str(threads))}
    leave_working_folder(environment)
    with (folder / "stderr").open("wb") as stderr:
        return subprocess.Popen(
            # PR_SET_PDEATHSIG (prctl(2)).
            ["setpriv", "--pdeathsig", "KILL", *wrapper, *argv],
            stdin=subprocess.PIPE,
            stdout=stderr,
            stderr=stderr,
            env=environment,
            # Only we get Ctrl-C, and we pass it on once, in an orderly way.
            start_new_session=True,
        )


def ask_to_end(popen: subprocess.Popen[bytes]) -> None:
    """Sends SIGTERM, on which the process removes what it has made."""
    with contextlib.suppress(ProcessLookupError):
        popen.send_signal(signal.SIGTERM)


def end(popen: subprocess.Popen[bytes], within_s: float) -> None:
    """Kills a process that does not end by itself, and removes what a killed one has left."""
    try:
        popen.wait(within_s)
    except subprocess.TimeoutExpired:
        popen.kill()
        popen.wait()
    if popen.returncode < 0:
        ledger.undo_dead()


def interrupted_by_signals() -> None:
    """Treats signals that end a process like Ctrl-C, because the engines then clean up."""

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)


@dataclass
class RunProcess:
    """A process and the task that it was given last.

    `stays` says whether it takes another task, once `poll` has returned how its task ended.
    """

    popen: subprocess.Popen[bytes]
    task: Task = field(init=False)
    folder: Path = field(init=False)
    began: float = field(init=False)
    stays: bool = False

    def give(self, task: Task, folder: Path) -> None:
        self.task, self.folder = task, folder
        self.began, self.stays = time.monotonic(), False
        assert self.popen.stdin is not None
        line = json.dumps({"folder": str(folder), "task": asdict(task)})
        # If it has died, `poll` says so.
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.write(f"{line}\n".encode())
            self.popen.stdin.flush()

    def poll(self) -> Ended | None:
        """Returns how the task ended; None while it goes on."""
        status = self.popen.poll()
        try:
            reply = json.loads((self.folder / ENDED).read_text(encoding="utf-8"))
            failure = None if reply["failure"] is None else Failure(**reply["failure"])
            self.stays = bool(reply["stays"])
        except (OSError, ValueError, TypeError, KeyError):
            if status is None:
                return None
            failure = self._lost(status)
        return Ended(self.task.name, failure, time.monotonic() - self.began)

    def _lost(self, status: int) -> Failure:
        said: list[str] = []
        with contextlib.suppress(OSError):
            said = (self.folder / "stderr").read_text(errors="replace").splitlines()
        with contextlib.suppress(OSError):
            if files.is_full(self.folder):
                # What the process said is not on the disk either.
                return Failure("RunError", f"{self.folder}: {os.strerror(errno.ENOSPC)}")
        how = f"signal {-status}" if status < 0 else f"status {status}"
        if status == -signal.SIGKILL:
            how += ", as where memory runs out; fewer --jobs take less"
        last_line = f": {said[-1]}" if said else ""
        return Failure("ProcessLostError", f"the run's process ended with {how}{last_line}")

    def end(self, deadline: float) -> None:
        """Waits until `deadline` (by time.monotonic), then kills the process."""
        assert self.popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.close()
        end(self.popen, max(0.0, deadline - time.monotonic()))


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
        folder.mkdir()
        self._idle = [process for process in self._idle if process.popen.poll() is None]
        if self._idle:
            process = self._idle.pop()
        else:
            module = python_module("outcast.sweep.worker")
            process = RunProcess(started(module, folder, self.threads))
        process.give(task, folder)
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
            ask_to_end(process.popen)
        for process in processes:
            process.end(deadline)
        self._running.clear()
        self._idle.clear()
