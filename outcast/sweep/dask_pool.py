"""A pool of Dask's workers: each of their threads makes one run at a time.

A result comes back through the scheduler, as a ZIP file. We give every run to one worker by name.
So we know which runs were lost when a worker goes away, and another worker makes them again. Only
this module imports Dask, and workers import it by name.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import re
import tempfile
import threading
import time
import uuid
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outcast import __version__, files
from outcast.engines.kernel import cache
from outcast.errors import (
    ConfigError,
    DeadlineError,
    FeatureMissingError,
    OutcastError,
    RunError,
    WorkerLostError,
)
from outcast.sweep.pool import LocalPool
from outcast.sweep.task import Ended, Failure, Task

LOST = WorkerLostError.__name__
CONNECT_DEADLINE_S = 10.0
WORKER_DEADLINE_S = 60.0
"""How long to wait for a first usable worker, or for another when all have gone."""

FINGERPRINT_DEADLINE_S = 60.0
"""How long a worker may take to read and hash the Python files of its outcast."""

_RESULT_DEADLINE_S = 120.0
_CLOSE_DEADLINE_S = 2.0
_LOOK_EVERY_S = 0.5
_STOP_LOOK_EVERY_S = 1.0

Reply = tuple[Ended, bytes]
"""A worker's answer: how the run ended, and the files of its attempt as a ZIP file."""


def fingerprint() -> str:
    """What has to be equal on all machines so that a seed means the same run, in words."""
    folder = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    kernel = cache.find()
    built = kernel.sha256[:12] if kernel else "missing (scripts/guest/build)"
    return f"outcast {__version__} ({digest.hexdigest()[:12]}) with kernel {built}"


def connect(address: str) -> DaskPool:
    """Connects to a running scheduler of Dask, whose workers become the pool.

    Raises:
        FeatureMissingError: if Dask is not installed.
        ConfigError: if the address is malformed.
        RunError: if no scheduler answers.
    """
    try:
        import distributed
    except ImportError:
        raise FeatureMissingError(
            "Dask is missing; install it with: pip install 'outcast-testbed[dask]'"
        ) from None
    if not re.fullmatch(r"([a-z]+://)?\S+:\d{1,5}", address, re.ASCII):
        raise ConfigError(f"--scheduler {address}: allowed is HOST:PORT, as 127.0.0.1:8786")
    try:
        client = distributed.Client(address, timeout=CONNECT_DEADLINE_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RunError(f"--scheduler {address}: no scheduler of Dask answers: {why}") from None
    # The pool says in one line that a connection is lost. Dask would print tracebacks beside it.
    for name in ("distributed", "distributed.client", "distributed.core", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return DaskPool(client, fingerprint())


@dataclass
class _Assignment:
    """A task that a worker has been given."""

    task: Task
    folder: Path
    worker: str
    future: Any


@dataclass
class DaskPool:
    """A pool of Dask's workers; the module's docstring describes it."""

    client: Any
    ours: str
    _usable: dict[str, int] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)
    _assigned: dict[str, _Assignment] = field(default_factory=dict)
    _notes: list[str] = field(default_factory=list)
    _looked: float = 0.0
    _last_usable: float = field(default_factory=time.monotonic)
    _stop_event: str = field(default_factory=lambda: f"outcast-stop-{uuid.uuid4().hex}")

    def can_start(self, task: Task) -> bool:
        """See Pool. Raises DeadlineError if there is no usable worker for a minute."""
        with self._scheduler():
            self._look()
        if self._usable:
            self._last_usable = time.monotonic()
        elif time.monotonic() - self._last_usable > WORKER_DEADLINE_S:
            raise DeadlineError(
                "a worker with our outcast and kernel",
                WORKER_DEADLINE_S,
                f"{len(self._refused)} were refused" if self._refused else "no worker was there",
            )
        return self._free_worker() is not None

    def start(self, task: Task, folder: Path) -> None:
        with self._scheduler():
            worker = self._free_worker()
            assert worker is not None
            future = self._submit(worker, make_run, task, self._stop_event)
            self._assigned[task.name] = _Assignment(task, folder, worker, future)

    @contextlib.contextmanager
    def _scheduler(self) -> Iterator[None]:
        """Raises RunError where the scheduler has gone before or during the block."""
        try:
            if not self._has_gone():
                yield
                return
        except OutcastError:
            raise
        except Exception:  # whatever Dask makes of a closed connection
            if not self._has_gone():
                raise
        raise RunError("the scheduler of Dask has gone, or cannot be reached")

    def _has_gone(self) -> bool:
        """Whether the connection to the scheduler is lost; Dask notices it by itself."""
        return bool(self.client.status != "running")

    def _submit(self, worker: str, function: Callable[..., Any], *given: object) -> Any:
        key = f"outcast-{uuid.uuid4().hex}"
        return self.client.submit(function, *given, key=key, workers=[worker], pure=False)

    def poll(self) -> list[Ended]:
        with self._scheduler():
            self._look()
            ended = []
            for assignment in list(self._assigned.values()):
                result = self._ended(assignment)
                if result is not None:
                    del self._assigned[assignment.task.name]
                    assignment.future.release()
                    ended.append(result)
            return ended

    def running(self) -> list[str]:
        return list(self._assigned)

    def places(self) -> int:
        return sum(self._usable.values())

    def notes(self) -> list[str]:
        new, self._notes = self._notes, []
        return new

    def stop(self) -> None:
        import distributed

        if self.client.status == "closed":
            return
        # Without a scheduler, Dask would wait for it to come back at every call.
        is_there = not self._has_gone()
        if is_there:
            with contextlib.suppress(OSError, TimeoutError):
                distributed.Event(self._stop_event, client=self.client).set()
                self.client.cancel([assignment.future for assignment in self._assigned.values()])
                self.client.run(end_idle, workers=list(self._usable), on_error="ignore")
        self._assigned.clear()
        with contextlib.suppress(OSError, TimeoutError):
            self.client.close(*([] if is_there else [_CLOSE_DEADLINE_S]))

    def _free_worker(self) -> str | None:
        busy = Counter(assignment.worker for assignment in self._assigned.values())
        free = {
            worker: busy[worker] for worker, most in self._usable.items() if busy[worker] < most
        }
        return min(free, key=lambda worker: free[worker]) if free else None

    def _look(self) -> None:
        """Updates the list of workers. A new worker has to have our fingerprint."""
        if time.monotonic() - self._looked < _LOOK_EVERY_S:
            return
        self._looked = time.monotonic()
        threads: dict[str, int] = self.client.nthreads()
        for worker in set(self._usable) - set(threads):
            self._notes.append(f"worker {worker} has gone; others make its runs again")
            del self._usable[worker]
        for worker in set(threads) - set(self._usable) - self._refused:
            theirs = self._fingerprint_of(worker)
            if theirs == self.ours:
                self._usable[worker] = threads[worker]
            else:
                self._refused.add(worker)
                self._notes.append(f"worker {worker} is refused: has {theirs}; here is {self.ours}")

    def _fingerprint_of(self, worker: str) -> str:
        future = self._submit(worker, fingerprint)
        try:
            return str(future.result(timeout=FINGERPRINT_DEADLINE_S))
        except Exception as error:  # a worker without outcast raises what its import does
            self.client.cancel([future], force=True)
            return f"no outcast that answers: {type(error).__name__}: {error}"

    def _ended(self, assignment: _Assignment) -> Ended | None:
        """How a task ended, its result unpacked; None while it goes on."""
        name, worker = assignment.task.name, assignment.worker
        lost = Ended(name, Failure(LOST, f"worker {worker} has gone"), 0.0)
        status = assignment.future.status
        if status in ("lost", "cancelled"):
            return lost
        if status == "pending":
            if worker in self._usable:
                return None
            self.client.cancel([assignment.future], force=True)
            return lost
        if status == "error":
            error = assignment.future.exception()
            if isinstance(error, OSError) or type(error).__name__ == "KilledWorker":
                # Its disk or its connection is at fault, so another worker tries it.
                return Ended(name, Failure(LOST, f"worker {worker}: {error}"), 0.0)
            return Ended(name, Failure.of(error), 0.0)
        try:
            reply: Reply = assignment.future.result(timeout=_RESULT_DEADLINE_S)
        except (OSError, TimeoutError):
            return lost
        ended, packed = reply
        try:
            # What a failed run has left is kept too.
            unpack(packed, assignment.folder)
        except OSError as error:
            # Our own disk is at fault, so another worker would not help.
            return Ended(name, Failure.of(RunError(files.describe(error))), ended.wall_s)
        return ended


_pools: dict[int, LocalPool] = {}
"""The processes that stay, by thread. Each thread has its own, because they end with the thread
that started them (PR_SET_PDEATHSIG in prctl(2))."""


def make_run(task: Task, stop_event: str) -> Reply:
    """Makes a run on a worker, in a process beside it. Ends the process if the event is set."""
    import distributed

    base = distributed.get_worker().local_directory
    stop = distributed.Event(stop_event)
    with tempfile.TemporaryDirectory(prefix="outcast-", dir=base) as scratch:
        folder = Path(scratch) / "attempt"
        pool = _pools.setdefault(threading.get_ident(), LocalPool(jobs=1))
        pool.start(task, folder)
        look_at = time.monotonic() + _STOP_LOOK_EVERY_S
        while not (ended := pool.poll()):
            time.sleep(0.05)
            if time.monotonic() > look_at:
                look_at = time.monotonic() + _STOP_LOOK_EVERY_S
                if stop.is_set():
                    break
        if stop.is_set():
            # Also a process that waits for another run.
            pool.stop()
        over = Ended(task.name, Failure(LOST, "the sweep has ended"), 0.0)
        return ended[0] if ended else over, pack(folder)


def end_idle() -> None:
    """Ends the processes of a worker that wait for another run."""
    for pool in _pools.values():
        pool.end_idle()


def pack(folder: Path) -> bytes:
    """The files of a folder as a ZIP file."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                # Without times, because the guest's clock can begin before ZIP's first date.
                entry = zipfile.ZipInfo(str(path.relative_to(folder)))
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, path.read_bytes())
    return stream.getvalue()


def unpack(packed: bytes, folder: Path) -> None:
    """Writes the files that `pack` has packed into a new folder."""
    folder.mkdir()
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        archive.extractall(folder)
