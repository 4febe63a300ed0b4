"""Draws as a process of its own: `python -m outcast.view.drawing DIRECTORY`; see `Drawing`.

It imports what has no threads, and divides itself into as many processes as there are cores. Each
imports the rest and takes numbers of figures, or of the report, from standard input, byte by byte,
up to one beyond the last. For each file written there is a line on standard output, a JSON object
with its name as `file` and its `place` in the order of display, or with `error` and `message`.
"""

import gc
import json
import os
import select
import sys
import traceback
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path

from controllers import slim

slim.slim(*slim.GRAPHS)

from outcast.emulation.commands import end_with_parent  # noqa: E402
from outcast.errors import OutcastError, gist, how_ended  # noqa: E402
from outcast.records.run_directory import RunDirectory  # noqa: E402

_REPORT = "report"
_LONGEST = (_REPORT, "drops", "phase", "goodput", "queue", "link")
"""What takes longest comes first, so that all processes end at about the same time."""
_MOST_PROCESSES = 4
_LARGE_BYTES = 64 << 20
"""With a larger table of packets, which each process reads, one process draws all."""


def _get_ready() -> None:
    """Imports what all need and has no threads, as polars has; the first figure loads fonts too."""
    import matplotlib
    import rich.console
    import rich.table  # noqa: F401
    from matplotlib.figure import Figure

    from outcast.analysis import statistics  # noqa: F401
    from outcast.analysis.measure import phase, sent_again  # noqa: F401
    from outcast.records import captures, summary  # noqa: F401

    with matplotlib.rc_context():
        # As `styled` does, which imports threads.
        matplotlib.rcdefaults()
        figure = Figure(figsize=(3, 2), layout="constrained")
        axes = figure.subplots()
        axes.bar([1, 2], [1, 2], label="bars")
        axes.plot([1, 2], [1, 2], label="line")
        axes.set_yscale("log")
        axes.legend()
        figure.suptitle("heading", fontweight="bold")
        figure.savefig(BytesIO(), format="png")


def _say(**words: object) -> None:
    # One write, so that the lines of several processes do not mix (pipe(7)).
    os.write(1, json.dumps(words).encode() + b"\n")


def _work(directory: RunDirectory, is_first: bool) -> int:
    """Takes one number after the other, until none is left. Returns the exit status."""
    from outcast.records.run import Run
    from outcast.view import report
    from outcast.view.figures import BY_ITSELF, draw_one

    gc.freeze()
    gc.enable()
    names = [*BY_ITSELF, _REPORT]
    order = [*_LONGEST, *(name for name in names if name not in _LONGEST)]
    run = Run(directory)
    select.select([0], [], [])
    if _is_large(directory) and not is_first:
        return 0
    while (number := os.read(0, 1)) and number[0] < len(order):
        name = order[number[0]]
        path = report.write(directory) if name == _REPORT else draw_one(run, name)
        if path is not None:
            _say(place=names.index(name), file=path.name)
    return 0


def _telling(work: Callable[[], int]) -> int:
    """Does something, and says why it could not be done. Returns the exit status."""
    try:
        return work()
    except OutcastError as error:
        _say(error=type(error).__name__, message=str(error))
    except MemoryError:
        _say(error="RunError", message="the figures cannot be drawn: out of memory")
    except ImportError as error:
        _say(
            error="FeatureMissingError",
            message=f"the figures cannot be drawn: {gist(str(error))}; scripts/install.sh installs "
            "all libraries",
        )
    return 1


def _is_large(directory: RunDirectory) -> bool:
    try:
        return (directory.path / "packets.parquet").stat().st_size > _LARGE_BYTES
    except FileNotFoundError:
        return False


def _divide(directory: RunDirectory) -> int:
    """Divides itself into several processes and waits for their ends. Returns the exit status."""
    count = min(len(os.sched_getaffinity(0)), _MOST_PROCESSES)
    if len(os.listdir("/proc/self/task")) > 1:
        # What another thread has locked stays locked in a copy (fork(2)).
        return _work(directory, is_first=True)
    parent, children = os.getpid(), []
    for place in range(count):
        child = os.fork()
        if child:
            children.append(child)
            continue
        status = 1
        try:
            end_with_parent()
            if os.getppid() == parent:
                status = _telling(partial(_work, directory, is_first=place == 0))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    for status in ended:
        if status < 0:
            _say(error="RunError", message=f"a process that draws figures{how_ended(status)}")
    return int(any(ended))


def _draw() -> int:
    # What has been imported stays. A search for garbage in it would take time, and make the kernel
    # copy the memory that the processes share.
    gc.disable()
    _get_ready()
    gc.freeze()
    return _divide(RunDirectory(Path(sys.argv[1])))


def main() -> int:
    """Draws the figures of the first argument's directory while the second one's process lives."""
    end_with_parent()
    if os.getppid() != int(sys.argv[2]):
        return 1
    return _telling(_draw)


if __name__ == "__main__":
    sys.exit(main())
