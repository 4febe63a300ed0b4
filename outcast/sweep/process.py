"""One run in a process of its own, which ends when we end, even if we are killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from outcast.emulation.commands import leave_working_folder, python_module
from outcast.sweep.task import Ended, Failure, Task

_THREAD_SETTINGS = (
    "POLARS_MAX_THREADS",
    "NUMBA_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
)


@dataclass
class RunProcess:
    """A task in progress; create it with `start`."""

    task: Task
    folder: Path
    popen: subprocess.Popen[bytes]
    began: float

    @classmethod
    def start(cls, task: Task, folder: Path, threads: int) -> RunProcess:
        """Starts the task. Its analysis uses `threads` threads."""
        folder.mkdir()
        limits = dict.fromkeys(_THREAD_SETTINGS, str(threads))
        # PR_SET_PDEATHSIG ends the run when the sweep itself is killed.
        argv = ["setpriv", "--pdeathsig", "KILL", *python_module("outcast.sweep.worker")]
        environment = {**os.environ, **limits}
        leave_working_folder(environment)
        with (folder / "stderr").open("wb") as stderr:
            popen = subprocess.Popen(
                [*argv, str(folder)],
                stdin=subprocess.PIPE,
                stdout=stderr,
                stderr=stderr,
                env=environment,
                # Only we get Ctrl-C, and we pass it on once, in an orderly way.
                start_new_session=True,
            )
        assert popen.stdin is not None
        with contextlib.suppress(BrokenPipeError), popen.stdin as stream:
            stream.write(json.dumps(asdict(task)).encode())
        return cls(task, folder, popen, time.monotonic())

    def poll(self) -> Ended | None:
        """Returns how the task ended; None while it goes on."""
        status = self.popen.poll()
        if status is None:
            return None
        return Ended(self.task.name, self._failure(status), time.monotonic() - self.began)

    def _failure(self, status: int) -> Failure | None:
        try:
            fields = json.loads((self.folder / "ended.json").read_text(encoding="utf-8"))
            return None if fields is None else Failure(**fields)
        except (OSError, ValueError, TypeError):
            stderr = (self.folder / "stderr").read_text(errors="replace").splitlines()
            how = f"signal {-status}" if status < 0 else f"status {status}"
            last_line = f": {stderr[-1]}" if stderr else ""
            return Failure("ProcessLostError", f"the run's process ended with {how}{last_line}")

    def ask_to_end(self) -> None:
        """Sends SIGTERM, on which the process removes what it has made."""
        with contextlib.suppress(ProcessLookupError):
            self.popen.send_signal(signal.SIGTERM)

    def end(self, deadline: float) -> None:
        """Waits until `deadline` (by time.monotonic), then kills the process."""
        try:
            self.popen.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
