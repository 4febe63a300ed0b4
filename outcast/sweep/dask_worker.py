"""What a worker of Dask does for a sweep: its part of `dask_pool`, which it imports by name."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from outcast import __version__, files
from outcast.engines.kernel import cache
from outcast.errors import OutcastError, WorkerLostError
from outcast.files import sha256
from outcast.records.run_directory import RunDirectory
from outcast.sweep.objects import Objects
from outcast.sweep.pool import LocalPool
from outcast.sweep.store import RESULT
from outcast.sweep.task import Ended, Failure, Task

LOST = WorkerLostError.__name__
FULL_BYTES = 64 << 20
"""A disk with less free than this is full."""
STOP_LOOK_EVERY_S = 1.0

ARCHIVE = "attempt.zip"
QUESTION, ANSWER = "question", "answer"
QUESTION_BYTES = 16


@dataclass(frozen=True)
class Fingerprint:
    """What has to be equal on all machines so that a seed means the same run, by digests.

    `kernel` is None where the virtual engine's kernel is not built.
    """

    version: str
    code: str
    kernel: str | None

    def difference(self, other: Fingerprint) -> str | None:
        """How `other` differs, in words; None if it does not."""
        if (self.version, self.code) != (other.version, other.code):
            return f"its outcast is {other.version} ({other.code[:12]}), not {self.version} " + (
                f"({self.code[:12]})"
            )
        if self.kernel != other.kernel:
            there = other.kernel[:12] if other.kernel else "missing (scripts/guest/build)"
            return f"its kernel is {there}, not {(self.kernel or 'missing')[:12]}"
        return None


def fingerprint() -> Fingerprint:
    """The fingerprint of the machine that calls this function."""
    folder = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    kernel = cache.find()
    return Fingerprint(__version__, digest.hexdigest(), kernel.sha256 if kernel else None)


@dataclass(frozen=True)
class Reply:
    """A worker's answer.

    Attributes:
        archive: the attempt's folder as a ZIP file; None where it is in the object store.
        in_store: the ZIP file's hash and bytes, where it is in the object store.
        manifest: the SHA-256 of the result's manifest; None where there is no result.
    """

    ended: Ended
    archive: bytes | None
    in_store: InStore | None
    manifest: str | None


@dataclass(frozen=True)
class InStore:
    """A ZIP file in an object store: its SHA-256 and its size in bytes."""

    sha256: str
    size: int


_pools: dict[int, LocalPool] = {}
"""The processes that stay, by thread. Each thread has its own, because they end with the thread
that started them (PR_SET_PDEATHSIG in prctl(2))."""


def make_run(task: Task, stop_event: str, store: Objects | None) -> Reply:
    """Makes a run on a worker, in a process beside it. Ends the process if the event is set.

    `store` is a place of the attempt's own in the store. Without it, the folder is sent back.
    """
    import distributed

    base = distributed.get_worker().local_directory
    try:
        with tempfile.TemporaryDirectory(prefix="outcast-", dir=base) as scratch:
            folder = Path(scratch) / "attempt"
            stop = distributed.Event(stop_event)
            ended = _make(task, folder, stop)
            if stop.is_set():
                # Nobody would take the result, or remove it from the object store.
                return _nothing(task, "the sweep has ended")
            if ended.failure is not None and (full := _why_full(folder)) is not None:
                return _nothing(task, f"{full}: {ended.failure.message}")
            manifest = RunDirectory(folder / RESULT).manifest
            digest = sha256(manifest) if ended.failure is None else None
            file = Path(scratch) / ARCHIVE
            pack(folder, file)
            if store is None:
                return Reply(ended, file.read_bytes(), None, digest)
            store.make()
            store.put(file, ARCHIVE)
            return Reply(ended, None, InStore(sha256(file), file.stat().st_size), digest)
    except OSError as error:
        return _nothing(task, files.describe(error))
    except OutcastError as error:
        return _nothing(task, f"the result could not be stored: {error}")


def _nothing(task: Task, why: str) -> Reply:
    """The reply of a worker that could make the run and has no result to give."""
    return Reply(Ended(task.name, Failure(LOST, why), 0.0), None, None, None)


def _why_full(folder: Path) -> str | None:
    """Says so if the disk of a folder is full, because another worker's may not be."""
    free = shutil.disk_usage(folder.parent).free
    return f"its disk is full ({free / 2**20:.0f} MB are free)" if free < FULL_BYTES else None


def _make(task: Task, folder: Path, stop: Any) -> Ended:
    pool = _pools.setdefault(threading.get_ident(), LocalPool(jobs=1))
    pool.start(task, folder)
    look_at = time.monotonic() + STOP_LOOK_EVERY_S
    while not (ended := pool.poll()):
        time.sleep(0.05)
        if time.monotonic() > look_at:
            look_at = time.monotonic() + STOP_LOOK_EVERY_S
            if stop.is_set():
                break
    if stop.is_set():
        pool.stop()
    return ended[0] if ended else _nothing(task, "the sweep has ended").ended


def end_idle() -> None:
    """Ends the processes of a worker that wait for another run."""
    for pool in _pools.values():
        pool.end_idle()


def answer_in_store(store: Objects) -> str | None:
    """Copies the question in the object store to an answer, on a worker. Returns what failed."""
    with tempfile.TemporaryDirectory(prefix="outcast-") as scratch:
        file = Path(scratch) / QUESTION
        try:
            store.get(QUESTION, file, QUESTION_BYTES)
            store.put(file, ANSWER)
        except OutcastError as error:
            return str(error)
    return None


def pack(folder: Path, file: Path) -> None:
    """Writes the files of a folder into a ZIP file."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                # Without times, because the guest's clock can begin before ZIP's first date.
                entry = zipfile.ZipInfo(str(path.relative_to(folder)))
                with path.open("rb") as source, archive.open(entry, "w") as target:
                    shutil.copyfileobj(source, target)


def unpack(stream: IO[bytes], folder: Path) -> None:
    """Writes the files that `pack` has packed into a new folder."""
    folder.mkdir()
    with zipfile.ZipFile(stream) as archive:
        archive.extractall(folder)
