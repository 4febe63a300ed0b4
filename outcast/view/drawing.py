"""Draws a run's figures and writes its report in a process beside this one.

matplotlib takes a second to import, and a run's figures two seconds to draw. So the process imports
it while the run goes on, and then shares the figures out to a pool of this machine's cores. It is a
program of its own, `python -m outcast.view.drawing DIRECTORY PARENT`, because multiprocessing would
run the script that calls `outcast.run` once more.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from io import BytesIO
from pathlib import Path

from outcast import errors
from outcast.emulation.commands import end_with_parent, leave_working_folder, python_module
from outcast.errors import CommandError, DeadlineError, OutcastError, gist
from outcast.records.run_directory import RunDirectory

NAME = "the process that draws the figures"
LONGEST_S = 3600.0
"""A run of gigabytes takes some minutes."""
_END_S = 10.0
_MOST_SAID_BYTES = 1 << 16
_REPORT = "report"
_LONGEST = (_REPORT, "drops", "phase", "goodput", "queue", "link")
"""What takes longest comes first, so that all processes end at about the same time."""
_MOST_PROCESSES = 4
_LARGE_BYTES = 64 << 20
"""With a larger table of packets, which each process reads, one process draws all."""


class Drawing:
    """A process that draws one run. It ends with a `with` block, or with this process.

    `pid` is also the number of the group of all processes that draw.
    """

    def __init__(self, directory: RunDirectory, longest_s: float = LONGEST_S) -> None:
        """Starts the process, which gets ready to draw. Raises OSError: it cannot be started."""
        # A process with threads must not fork, and numpy's algebra starts some.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        # The user's backend may be one for windows, or one that matplotlib does not know.
        environment["MPLBACKEND"] = "agg"
        leave_working_folder(environment)
        self._directory = directory
        self._longest_s = longest_s
        # A pipe that nobody empties would stop a process that writes much.
        self._stderr = os.memfd_create("figures")
        self._popen = subprocess.Popen(
            [*python_module(__name__), str(directory.path), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment,
            # Ctrl-C reaches only this process, which then ends the other.
            start_new_session=True,
        )
        self.pid = self._popen.pid

    def __enter__(self) -> Drawing:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def draw(self) -> list[Path]:
        """Draws every figure that the run has data for, once it is analysed, and writes its report.

        Returns their paths, the report's last.

        Raises:
            InputError: the run has not been analysed, or a file cannot be written.
            RunError: a process ended before it had finished, or took too long.
        """
        try:
            output, _ = self._popen.communicate(b"\n", self._longest_s)
        except subprocess.TimeoutExpired:
            raise DeadlineError("the figures", self._longest_s) from None
        reply = json.loads(output or b"{}")
        if "error" in reply:
            raise errors.rebuilt(reply["error"], reply["message"])
        if self._popen.returncode:
            said = os.pread(self._stderr, _MOST_SAID_BYTES, 0).decode(errors="replace")
            raise CommandError((), self._popen.returncode, said, NAME)
        return [self._directory.path / name for name in reply["files"]]

    def close(self) -> None:
        """Ends the processes, so that none writes any more."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        # A process that waits for a disk ends later. The run's result counts without it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(_END_S)
        for stream in (self._popen.stdin, self._popen.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        os.close(self._stderr)


def _draw(directory: RunDirectory) -> dict[str, object]:
    # The processes of the pool share these imports, which have no threads. polars has some, and a
    # lock of another thread stays locked in a copy of the process (fork(2)).
    import matplotlib.backends.backend_agg
    import matplotlib.figure

    matplotlib.figure.Figure().savefig(BytesIO())
    count = min(len(os.sched_getaffinity(0)), _MOST_PROCESSES)
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(count, context, _get_ready) as pool:
        # With the first task the pool forks all of its processes.
        pool.submit(int).result()
        from outcast.view.figures import BY_ITSELF

        names = [*BY_ITSELF, _REPORT]
        order = [*_LONGEST, *(name for name in names if name not in _LONGEST)]
        draw = partial(_draw_one, directory)
        sys.stdin.readline()
        shared_out = map if _is_large(directory) else pool.map
        files = dict(zip(order, shared_out(draw, order), strict=True))
    return {"files": [file for name in names if (file := files[name]) is not None]}


def _get_ready() -> None:
    end_with_parent()
    from outcast.view import figures, report  # noqa: F401


def _draw_one(directory: RunDirectory, name: str) -> str | None:
    from outcast.records.run import Run
    from outcast.view import report
    from outcast.view.figures import draw_one

    path = report.write(directory) if name == _REPORT else draw_one(Run(directory), name)
    return None if path is None else path.name


def _is_large(directory: RunDirectory) -> bool:
    try:
        return (directory.path / "packets.parquet").stat().st_size > _LARGE_BYTES
    except FileNotFoundError:
        return False


def main() -> int:
    """Draws the figures of the first argument's directory while the second one's process lives."""
    end_with_parent()
    if os.getppid() != int(sys.argv[2]):
        return 1
    try:
        reply = _draw(RunDirectory(Path(sys.argv[1])))
    except OutcastError as error:
        reply = {"error": type(error).__name__, "message": str(error)}
    except (MemoryError, BrokenProcessPool):
        text = "the figures cannot be drawn: a process ended, perhaps for want of memory"
        reply = {"error": "RunError", "message": text}
    except ImportError as error:
        text = f"the figures cannot be drawn: {gist(str(error))}; scripts/install.sh installs all"
        reply = {"error": "FeatureMissingError", "message": text}
    print(json.dumps(reply))
    return int("error" in reply)


if __name__ == "__main__":
    sys.exit(main())
