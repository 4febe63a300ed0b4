"""Grades submissions, each in a process of its own, which is this module as a program.

A submission can be made so that reading it never ends, takes all memory, or kills the process.
The others get their grades all the same.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from outcast import __version__, files
from outcast.api import (
    ask_to_end,
    end,
    interrupted_by_signals,
    kernels,
    python_module,
    roots,
    scratch_folder,
    started,
)
from outcast.errors import InputError
from outcast.uses.classroom import marking
from outcast.uses.classroom.classes import Class
from outcast.uses.classroom.evidence import Runner
from outcast.uses.classroom.exercise import Exercise
from outcast.uses.classroom.marking import Graded, chosen
from outcast.uses.classroom.questions import Effect

KEPT = ".grading"
"""The folder of earlier grades in the folder of results."""
RESULT = "result.json"
GUEST = "outcast.uses.classroom.evidence:Guest"
"""The runner of replays; tests name another one."""
GRADED = TypeAdapter(Graded)

_END_DEADLINE_S = 10.0
"""How long a process may take to remove its files, after the signal to end."""
_MEMORY_BYTES = 6 << 30
"""The address space of one grading, which uses a tenth of it. A guest has its own bound."""
_ONCE_S = 120.0
_RUN_S = 180.0
"""For each run that is made again; on two cores with other work one took up to 60 s."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of one process: its time, and its address space (RLIMIT_AS of getrlimit(2))."""

    wall_s: float
    memory_bytes: int = _MEMORY_BYTES


@dataclass(frozen=True, slots=True)
class Task:
    """One submission to grade.

    Attributes:
        class_folder: the class, with its key.
        place: the submission.
        runner: `module:class` of a Runner.
        kept: the folder of earlier grades and of measures of repeated runs.
        basis: what else decides a grade, so that an earlier one of another basis is not taken.
    """

    class_folder: str
    place: str
    runner: str
    kept: str
    basis: str


@dataclass(frozen=True, slots=True)
class Done:
    """How the work on an item ended: `item` is its place in the list of all.

    Without a `result`, `problem` says why, in one line.
    """

    item: int
    result: Any
    problem: str
    wall_s: float


def grade(
    class_: Class,
    places: Sequence[Path],
    *,
    runner: str | None = None,
    jobs: int = 1,
    results: Path | None = None,
    resume: bool = False,
    on_progress: Callable[[str], None] = lambda text: None,
) -> list[Graded]:
    """Grades every submission by itself, and chooses which of a student counts.

    None as `runner` is the virtual engine (see `Task`). Grades are kept in `results`; with
    `resume` a kept grade of the same submission is taken.

    Raises ConfigError: the class is not valid, or its key is not there.
    """
    bounds = usual_bounds(class_.exercise)
    graded: dict[int, Graded] = {}
    took_s = 0.0
    with scratch_folder() as scratch:
        kept = (results or scratch) / KEPT
        if not resume:
            shutil.rmtree(kept, ignore_errors=True)
        files.make_folders(kept)
        runner, class_folder = runner or GUEST, str(class_.path.absolute())
        of_class = runner, str(kept.absolute()), _basis(class_, runner)
        tasks = [asdict(Task(class_folder, str(place.absolute()), *of_class)) for place in places]
        for done in each(tasks, scratch, jobs, bounds):
            paper = graded[done.item] = _graded(done, _printable(places[done.item]))
            took_s += done.wall_s
            left_s = took_s / len(graded) * (len(places) - len(graded)) / jobs
            remaining = f"; about {left_s / 60:.0f} min left" if left_s > 90 else ""
            on_progress(f"{paper.place}: {paper.verdict} by itself, {done.wall_s:.0f} s{remaining}")
    return chosen(
        [graded[number] for number in range(len(places))], [_date_s(place) for place in places]
    )


def usual_bounds(exercise: Exercise) -> Bounds:
    repeated = {
        (name, number)
        for question in exercise.questions
        if isinstance(question, Effect)
        for name in (question.run, question.against)
        for number in range(question.seeds)
    }
    return Bounds(_ONCE_S + _RUN_S * (len(exercise.runs) + len(repeated)))


def _basis(class_: Class, runner: str) -> str:
    """A short hash of all that decides a grade besides the submission."""
    whole = hashlib.sha256(f"{__version__}\0{runner}\0{class_.name}\0".encode())
    whole.update(class_.key.secret)
    kernel, root = kernels.find(), roots.find()
    whole.update(f"{kernel and kernel.sha256}\0{root and root.key}\0".encode())
    whole.update(marking.digest(class_.exercise.folder).encode())
    return whole.hexdigest()[:16]


def _graded(done: Done, place: str) -> Graded:
    if done.problem:
        return Graded(None, place, "rejected", notes=(done.problem,))
    return replace(GRADED.validate_python(done.result), place=place)


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


def each(
    items: Sequence[dict[str, Any]], scratch: Path, jobs: int, bounds: Bounds
) -> Iterator[Done]:
    """Starts this module's process for each item, and yields the ends as they come.

    A process gets its item as JSON on standard input, and writes its result as JSON into a new
    folder, which is removed afterwards. When the caller ends, even by SIGKILL, the processes end.
    """
    running: dict[int, subprocess.Popen[bytes]] = {}
    is_over = threading.Event()
    # The hard limit stays, because the guest of a replay has to raise its own.
    limit = ["prlimit", f"--as={bounds.memory_bytes}:"]
    threads = max(1, (os.cpu_count() or 1) // jobs)

    def call(number: int) -> Done:
        folder, began, problem, result = scratch / str(number), time.monotonic(), "", None
        folder.mkdir()
        argv = [*python_module("outcast.uses.classroom.grade"), str(folder)]
        popen = running[number] = started(argv, folder, threads, limit)
        if is_over.is_set():
            ask_to_end(popen)
        try:
            popen.communicate(json.dumps(items[number]).encode(), bounds.wall_s)
            result = json.loads((folder / RESULT).read_bytes())
        except subprocess.TimeoutExpired:
            problem = f"took longer than {bounds.wall_s:.0f} s, the limit for a submission"
            ask_to_end(popen)
        except FileNotFoundError:
            problem = _why(popen.returncode, folder, bounds)
        finally:
            end(popen, _END_DEADLINE_S)
            shutil.rmtree(folder, ignore_errors=True)
        return Done(number, result, problem, time.monotonic() - began)

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


def grade_one(task: Task, scratch: Path) -> Graded:
    """Grades the submission, or takes the earlier grade of the same submission.

    Raises ConfigError: the class is not valid.
    """
    place, kept = Path(task.place), Path(task.kept)
    digest = ""
    with suppress(InputError, OSError):  # `mark` says what is wrong with it
        digest = marking.digest(place)
    file = kept / f"{digest}-{task.basis}.json"
    if digest and file.exists():
        return GRADED.validate_json(file.read_bytes())
    scratch.mkdir()
    module, _, kind = task.runner.partition(":")
    runner: Runner = getattr(importlib.import_module(module), kind)()
    shared = kept / f"measured-{task.basis}"
    graded = marking.mark(Class(Path(task.class_folder)), place, runner, scratch, shared)
    # What could not be made again or computed today may be possible tomorrow.
    is_final = not graded.for_teacher and all(run.state != "unchecked" for run in graded.runs)
    if digest and is_final:
        _write(file, graded)
    return graded


def main() -> int:
    interrupted_by_signals()
    folder = Path(sys.argv[1])
    try:
        graded = grade_one(Task(**json.load(sys.stdin)), folder / "scratch")
    except KeyboardInterrupt:
        return 1
    _write(folder / RESULT, graded)
    return 0


def _write(path: Path, graded: Graded) -> None:
    """Writes a grade without its place, because no file of JSON holds every name of a file."""
    files.write_json(path, GRADED.dump_python(replace(graded, place=""), mode="json"))


if __name__ == "__main__":
    sys.exit(main())
