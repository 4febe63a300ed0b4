"""Grades submissions: each by itself in a bounded process, then all together.

A submission can be made so that reading it takes for ever, or all memory, or ends the process.
However its process ends, the others get their grades.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outcast import __version__, files, handed_in
from outcast.api.archives import scratch_folder
from outcast.assignment import worker
from outcast.assignment.classes import Class
from outcast.assignment.exercise import Exercise
from outcast.assignment.graded import Graded, chosen
from outcast.assignment.questions import Effect
from outcast.emulation.commands import python_module
from outcast.engines.kernel import cache as kernels
from outcast.engines.root import cache as roots
from outcast.errors import BusyError, InputError
from outcast.sweep.process import ask_to_end, end, started

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
            result = handed_in.read_json(folder / worker.RESULT)
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


KEPT = ".grading"
"""The folder of earlier grades in the folder of results."""

MEMORY_BYTES = 6 << 30
"""The address space of one grading, of which it uses a tenth. A guest has its own bound."""
_ONCE_S = 120.0
_RUN_S = 180.0
"""For each run that is made again; on two cores with other work one took up to 60 s."""


def grade(
    class_: Class,
    places: Sequence[Path],
    *,
    runner: str | None = None,
    jobs: int = 1,
    results: Path | None = None,
    resume: bool = False,
    bounds: Bounds | None = None,
    on_progress: Callable[[str], None] = lambda text: None,
) -> list[Graded]:
    """Grades every submission by itself, and chooses which of a student counts.

    None as `runner` is the virtual engine (see `worker.Task`), and None as `bounds` takes the usual
    ones. Grades are kept in `results`; with `resume` a kept grade of the same submission is taken.

    Raises:
        ConfigError: the class is not valid, or its key is not there.
        BusyError: another grading uses `results`.
    """
    exercise = class_.exercise
    _ = class_.key
    runner = runner or worker.GUEST
    kept = None if results is None else results / KEPT
    graded: dict[int, Graded] = {}
    took_s = 0.0
    bounds = bounds or usual_bounds(exercise)
    with contextlib.ExitStack() as stack:
        if kept is not None:
            files.make_folders(kept)
            # Another grading would lose its results when this one empties the folder.
            stack.enter_context(_alone(kept.parent))
            if not resume:
                shutil.rmtree(kept)
                kept.mkdir()
        scratch = stack.enter_context(scratch_folder())
        for done in each(
            worker.__name__, _tasks(class_, places, runner, kept, scratch), scratch, jobs, bounds
        ):
            paper = graded[done.item] = _graded(done, _printable(places[done.item]))
            took_s += done.wall_s
            left_s = took_s / len(graded) * (len(places) - len(graded)) / jobs
            remaining = f"; about {left_s / 60:.0f} min left" if left_s > 90 else ""
            on_progress(f"{paper.place}: {paper.verdict} by itself, {done.wall_s:.0f} s{remaining}")
    return chosen(
        [graded[number] for number in range(len(places))], [_date_s(place) for place in places]
    )


def _tasks(
    class_: Class, places: Sequence[Path], runner: str, kept: Path | None, scratch: Path
) -> list[dict[str, object]]:
    basis = _basis(class_, runner)
    task = worker.Task(
        class_folder=str(class_.path.absolute()),
        place="",
        runner=runner,
        kept="" if kept is None else str(kept.absolute()),
        basis=basis,
        shared=str((kept or scratch).absolute() / f"measured-{basis}"),
    )
    return [{**asdict(task), "place": str(place.absolute())} for place in places]


def _graded(done: Done, place: str) -> Graded:
    if done.problem:
        return Graded(None, place, "rejected", notes=(done.problem,))
    return worker.at_place(worker.GRADED.validate_python(done.result), place)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keeps other gradings out of a folder. Raises BusyError if one is in it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(f"{folder}: another grading works in it; wait until it ends") from None
        except OSError:
            pass  # Some network file systems lock no folders (flock(2)).
        yield
    finally:
        os.close(descriptor)


def usual_bounds(exercise: Exercise) -> Bounds:
    """Bounds of grading one submission of an exercise."""
    repeated = {
        (name, number)
        for question in exercise.questions
        if isinstance(question, Effect)
        for name in (question.run, question.against)
        for number in range(question.seeds)
    }
    return Bounds(_ONCE_S + _RUN_S * (len(exercise.runs) + len(repeated)), MEMORY_BYTES)


def _basis(class_: Class, runner: str) -> str:
    """A short hash of all that decides a grade besides the submission."""
    whole = hashlib.sha256(f"{__version__}\0{runner}\0{class_.name}\0".encode())
    whole.update(class_.key.secret)
    kernel, root = kernels.find(), roots.find()
    whole.update(f"{kernel and kernel.sha256}\0{root and root.key}\0".encode())
    folder = class_.exercise.folder
    for path in handed_in.plain_files(folder):
        whole.update(f"{path.relative_to(folder)}\0{files.sha256(path)}\0".encode())
    return whole.hexdigest()[:16]


def _printable(place: Path) -> str:
    """The name of a submission, as a file of text can hold it. Students choose these names."""
    name = str(place)
    return name if name.isprintable() else name.encode("unicode_escape").decode("ascii")


def _date_s(place: Path) -> float:
    """When a submission came, as its file or folder says; now if it is not there."""
    try:
        return place.stat().st_mtime
    except OSError:
        return float("inf")
