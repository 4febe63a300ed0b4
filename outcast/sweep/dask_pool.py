"""A pool of Dask's workers: each of their threads makes one run at a time.

Dask gives each run to a worker with the same outcast and kernel as here, and to another one when
that worker goes away. A result comes back through the scheduler, as a ZIP file. Only this module
imports Dask. Workers import it by name.
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
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outcast import __version__, files
from outcast.engines.guest import kernels
from outcast.errors import ConfigError, DeadlineError, FeatureMissingError, OutcastError, RunError
from outcast.sweep.pool import Ended, Failure, LocalPool, Task

CONNECT_DEADLINE_S = 10.0
WORKER_DEADLINE_S = 60.0
"""The longest wait for a first usable worker, or for another one when all have gone."""

_RETRIES = 2
"""How often a run is repeated whose worker had no disk or no memory for it."""
_RESULT_DEADLINE_S = 120.0
_CLOSE_DEADLINE_S = 2.0
_LOOK_EVERY_S = 0.5
_STOP_LOOK_EVERY_S = 1.0

Reply = tuple[Ended, bytes]
"""A worker's answer: how the run ended, and the files of its attempt as a ZIP file."""


def fingerprint() -> str:
    """The version, the code's hash and the kernel: with equal ones a seed means the same run."""
    folder = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    kernel = kernels.find()
    built = kernel.sha256[:12] if kernel else "missing (scripts/guest/build)"
    return f"outcast {__version__} ({digest.hexdigest()[:12]}) with kernel {built}"


async def admit(ours: str, dask_worker: Any) -> str:
    """Lets a worker make runs, one a thread, if its fingerprint is `ours`. Returns its fingerprint.

    Dask gives a task only to workers with free resources of the name that the task needs.
    """
    theirs = fingerprint()
    if theirs == ours:
        await dask_worker.set_resources(**{ours: dask_worker.state.nthreads})
    return theirs


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
class DaskPool:
    """A pool of Dask's workers; the module's docstring describes it."""

    client: Any
    ours: str
    _usable: dict[str, int] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)
    _given: dict[str, tuple[Any, Path]] = field(default_factory=dict)
    _notes: list[str] = field(default_factory=list)
    _looked: float = 0.0
    _last_usable: float = field(default_factory=time.monotonic)
    _stop_event: str = field(default_factory=lambda: f"outcast-stop-{uuid.uuid4().hex}")

    def can_start(self, task: Task) -> bool:
        """See Pool. Raises DeadlineError if there is no usable worker for a minute."""
        with self._scheduler():
            self._look()
        return len(self._given) < self.places()

    def start(self, task: Task, folder: Path) -> None:
        with self._scheduler():
            future = self.client.submit(
                *(make_run, task, self._stop_event),
                key=f"outcast-{uuid.uuid4().hex}",
                resources={self.ours: 1},
                retries=_RETRIES,
                pure=False,
            )
            self._given[task.name] = future, folder

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

    def poll(self) -> list[Ended]:
        with self._scheduler():
            self._look()
            ended = [end for name in [*self._given] if (end := self._ended(name)) is not None]
            for end in ended:
                self._given.pop(end.name)[0].release()
            return ended

    def running(self) -> list[str]:
        return list(self._given)

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
                self.client.cancel([future for future, _ in self._given.values()])
                self.client.run(end_idle, workers=list(self._usable), on_error="ignore")
        self._given.clear()
        with contextlib.suppress(OSError, TimeoutError):
            self.client.close(*([] if is_there else [_CLOSE_DEADLINE_S]))

    def _look(self) -> None:
        """Updates the list of workers. Raises DeadlineError if none is usable for a minute."""
        now = time.monotonic()
        if now - self._looked < _LOOK_EVERY_S:
            return
        self._looked = now
        threads: dict[str, int] = self.client.nthreads()
        for worker in set(self._usable) - set(threads):
            self._notes.append(f"worker {worker} has gone; others make its runs again")
            del self._usable[worker]
        if new := set(threads) - set(self._usable) - self._refused:
            answers = self.client.run(admit, self.ours, workers=list(new), on_error="return")
            for worker, theirs in answers.items():
                if theirs == self.ours:
                    self._usable[worker] = threads[worker]
                    continue
                self._refused.add(worker)
                # A worker without outcast answers with what its import raised.
                has = theirs if isinstance(theirs, str) else f"no outcast: {theirs!r}"
                self._notes.append(f"worker {worker} is refused: has {has}; here is {self.ours}")
        if self._usable:
            self._last_usable = now
        elif now - self._last_usable > WORKER_DEADLINE_S:
            raise DeadlineError(
                "a worker with our outcast and kernel",
                WORKER_DEADLINE_S,
                f"{len(self._refused)} were refused" if self._refused else "no worker was there",
            )

    def _ended(self, name: str) -> Ended | None:
        """How a task ended, its result unpacked; None while it goes on."""
        future, folder = self._given[name]
        if future.status == "pending":
            return None
        if future.status == "error":
            return Ended(name, Failure.of(future.exception()), 0.0)
        if future.status != "finished":
            return Ended(name, Failure(RunError.__name__, f"Dask says: {future.status}"), 0.0)
        try:
            reply: Reply = future.result(timeout=_RESULT_DEADLINE_S)
        except TimeoutError:
            # Its worker has gone with the result, and Dask makes it again.
            return None
        ended, packed = reply
        try:
            # What a failed run has left is kept too.
            unpack(packed, folder)
        except OSError as error:
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
            # This also ends a process that waits for another run.
            pool.stop()
        over = Ended(task.name, Failure(RunError.__name__, "the sweep has ended"), 0.0)
        return ended[0] if ended else over, pack(folder)


def end_idle() -> None:
    """Ends the processes of a worker that wait for another run."""
    for pool in _pools.values():
        pool.end_idle()


def pack(folder: Path) -> bytes:
    stream = io.BytesIO()
    # The guest's clock can begin before ZIP's first date.
    with zipfile.ZipFile(
        stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False
    ) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return stream.getvalue()


def unpack(packed: bytes, folder: Path) -> None:
    """Writes the files that `pack` has packed into a new folder."""
    folder.mkdir()
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        archive.extractall(folder)
