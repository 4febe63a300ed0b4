"""Draws a run's figures and writes its report in processes beside this one.

matplotlib takes a second to import, and a run's figures two seconds to draw. So a process imports
it while the run goes on, and then shares the figures out among this machine's cores. This process
imports no matplotlib.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from outcast import errors
from outcast.emulation.commands import leave_working_folder, python_module
from outcast.errors import CommandError, DeadlineError
from outcast.records.run_directory import RunDirectory

NAME = "the process that draws the figures"
SILENCE_S = 600.0
"""So long may one figure of a large run take."""
_END_S = 10.0
_MOST_SAID_BYTES = 1 << 16


class Drawing:
    """Processes that draw one run; used in a `with`, which ends them, as our own end does.

    `pid` is also the number of their process group.
    """

    def __init__(self, directory: RunDirectory, silence_s: float = SILENCE_S) -> None:
        """Starts the processes, which get ready to draw. Raises OSError: it cannot be started."""
        # A process with threads must not fork, and numpy's algebra starts some.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        # The user's choice is for windows. A name that matplotlib does not know would stop it.
        environment["MPLBACKEND"] = "agg"
        leave_working_folder(environment)
        self._directory = directory
        self._silence_s = silence_s
        # A pipe that nobody empties would stop whoever writes much.
        self._stderr = os.memfd_create("figures")
        self._popen = subprocess.Popen(
            [*python_module(__name__), str(directory.path), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment,
            # Only we get Ctrl-C, and we end it then.
            start_new_session=True,
        )
        self.pid = self._popen.pid

    def __enter__(self) -> Drawing:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        self.close()

    def draw(self) -> list[Path]:
        """Draws every figure that the run has data for, once it is analysed, and writes its report.

        Returns their paths, the report's last.

        Raises:
            InputError: the run has not been analysed, or a file cannot be written.
            RunError: a process ended before it had finished, or took too long.
        """
        assert self._popen.stdin is not None
        # If it has died, its status says so below.
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.write(bytes(range(256)))
            self._popen.stdin.close()
        paths: dict[int, Path] = {}
        for line in self._lines():
            reply = json.loads(line)
            if "error" in reply:
                raise errors.rebuilt(reply["error"], reply["message"])
            paths[reply["place"]] = self._directory.path / reply["file"]
        try:
            status = self._popen.wait(_END_S)
        except subprocess.TimeoutExpired:
            raise DeadlineError(f"the end of {NAME}", _END_S) from None
        if status:
            said = os.pread(self._stderr, _MOST_SAID_BYTES, 0).decode(errors="replace")
            raise CommandError((), status, said, NAME)
        return [paths[place] for place in sorted(paths)]

    def _lines(self) -> Iterator[bytes]:
        """What the processes write, line by line, until the last of them has ended."""
        assert self._popen.stdout is not None
        output, rest = self._popen.stdout.fileno(), b""
        while True:
            if not _has_more(output, self._silence_s):
                raise DeadlineError("the next figure", self._silence_s)
            data = os.read(output, 1 << 16)
            *lines, rest = (rest + data).split(b"\n")
            yield from lines
            if not data:
                return

    def close(self) -> None:
        """Ends the processes and waits until none of them can write any more."""
        if self._popen.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        # A process that waits for a disk ends later. What the run has measured counts all the same.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(_END_S)
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        end = time.monotonic() + _END_S
        # The output has an end when the last process that can write to it has gone.
        output = self._popen.stdout.fileno()
        while _has_more(output, max(0.0, end - time.monotonic())) and os.read(output, 1 << 16):
            pass
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.close()
        self._popen.stdout.close()
        os.close(self._stderr)


def _has_more(output: int, within_s: float) -> bool:
    """Whether there is something to read, or the end, within so many seconds."""
    waiting = select.poll()
    waiting.register(output, select.POLLIN)
    return bool(waiting.poll(within_s * 1e3))
