"""A process that makes runs, one after another, and ends when we end, even if we are killed."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from outcast import files
from outcast.emulation.commands import leave_working_folder, python_module
from outcast.engines import ledger
from outcast.sweep.task import Ended, Failure, Task

ENDED = "ended.json"
"""The process writes this into a run's folder, last: an `outcast.sweep.worker.Reply`."""

_THREAD_SETTINGS = [
    f"{library}_THREADS" for library in ("POLARS_MAX", "NUMBA_NUM", "OMP_NUM", "OPENBLAS_NUM")
]


@dataclass
class RunProcess:
    """A process and the task that it was given last; create it with `start`.

    `stays` says whether it takes another task, once `poll` has returned how its task ended.
    """

    task: Task
    folder: Path
    popen: subprocess.Popen[bytes]
    began: float
    stays: bool = False

    @classmethod
    def start(cls, task: Task, folder: Path, threads: int) -> RunProcess:
        """Starts a process with its first task. Its analysis uses `threads` threads."""
        folder.mkdir()
        limits = dict.fromkeys(_THREAD_SETTINGS, str(threads))
        # PR_SET_PDEATHSIG ends the run when the sweep itself is killed.
        argv = ["setpriv", "--pdeathsig", "KILL", *python_module("outcast.sweep.worker")]
        environment = {**os.environ, **limits}
        leave_working_folder(environment)
        with (folder / "stderr").open("wb") as stderr:
            popen = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=stderr,
                stderr=stderr,
                env=environment,
                # Only we get Ctrl-C, and we pass it on once, in an orderly way.
                start_new_session=True,
            )
        process = cls(task, folder, popen, time.monotonic())
        process._tell()
        return process

    def give(self, task: Task, folder: Path) -> None:
        """Gives a process that stays its next task."""
        folder.mkdir()
        self.task, self.folder = task, folder
        self.began, self.stays = time.monotonic(), False
        self._tell()

    def _tell(self) -> None:
        assert self.popen.stdin is not None
        line = json.dumps({"folder": str(self.folder), "task": asdict(self.task)})
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

    def ask_to_end(self) -> None:
        """Sends SIGTERM, on which the process removes what it has made."""
        with contextlib.suppress(ProcessLookupError):
            self.popen.send_signal(signal.SIGTERM)

    def end(self, deadline: float) -> None:
        """Waits until `deadline` (by time.monotonic), then kills the process."""
        assert self.popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.close()
        try:
            self.popen.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        if self.popen.returncode < 0:
            ledger.undo_dead()


def give(task: Task, folder: Path, idle: list[RunProcess], threads: int) -> RunProcess:
    """Gives a task to a process that stays, which is taken from the list, or to a new one."""
    while idle:
        process = idle.pop()
        if process.popen.poll() is None:
            process.give(task, folder)
            return process
    return RunProcess.start(task, folder, threads)
