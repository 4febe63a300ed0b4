"""A pool of Dask's workers: each of their threads makes one run at a time.

A result comes back through the scheduler, or with a store through that (objects.py): an object
store, or a folder that all machines see. Whichever way it came, its files are compared with their
hashes here, because a file system of the network can lose what a worker has already read back.

We give every run to one worker by name. So we know which runs were lost when a worker goes away,
and another worker makes them again. Only this module and dask_worker.py import Dask.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import secrets
import tempfile
import time
import uuid
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outcast import files
from outcast.emulation.commands import within
from outcast.errors import (
    ConfigError,
    DeadlineError,
    FeatureMissingError,
    InputError,
    OutcastError,
    RunError,
)
from outcast.files import sha256
from outcast.records.run_directory import RunDirectory
from outcast.sweep import dask_worker
from outcast.sweep.dask_worker import LOST, Fingerprint, Reply, fingerprint, unpack
from outcast.sweep.objects import BASE_DEADLINE_S, Objects
from outcast.sweep.store import RESULT, problems
from outcast.sweep.task import Ended, Failure, Task

CONNECT_DEADLINE_S = 10.0
WORKER_DEADLINE_S = 60.0
"""How long to wait for a first usable worker, or for another when all have gone."""

FINGERPRINT_DEADLINE_S = 30.0
"""How long a worker may take to read and hash the Python files of its outcast."""

RESULT_DEADLINE_S = 120.0
ASKED_DEADLINE_S = 2 * BASE_DEADLINE_S + 10.0
"""How long a worker may take to use a file system of ours, which may have to be mounted first."""

MOST_LOST = 3
"""A worker that loses so many results in a row gets no further run."""
_CLOSE_DEADLINE_S = 2.0
LOOK_EVERY_S = 0.5


def connect(address: str, store: str | None = None) -> DaskPool:
    """Connects to a running scheduler of Dask, whose workers become the pool.

    Raises:
        FeatureMissingError: if Dask is not installed, or fsspec lacks what the URL needs.
        ConfigError: if the URL is none of fsspec's, or the address is none.
        RunError: if no scheduler answers, or the object store cannot be used.
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
    # A lost connection is told in one line of ours. Dask would print tracebacks beside it.
    for name in ("distributed", "distributed.client", "distributed.core", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        return DaskPool(client, fingerprint(), None if store is None else _opened(store))
    except OutcastError:
        client.close()
        raise


def _opened(url: str) -> Objects:
    """A folder of our own in an object store, with the question that every worker answers."""
    ours = Objects(url).below(f"outcast-{uuid.uuid4().hex[:12]}")
    ours.make()
    with tempfile.TemporaryDirectory(prefix="outcast-") as scratch:
        question = Path(scratch) / dask_worker.QUESTION
        question.write_bytes(secrets.token_bytes(dask_worker.QUESTION_BYTES))
        ours.put(question, dask_worker.QUESTION)
    return ours


@dataclass
class _Assignment:
    """A task that a worker has been given."""

    task: Task
    folder: Path
    worker: str
    future: Any
    place: Objects | None


@dataclass
class DaskPool:
    """A pool of Dask's workers; the module's docstring describes it."""

    client: Any
    ours: Fingerprint
    store: Objects | None = None
    _usable: dict[str, int] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)
    _lost: Counter[str] = field(default_factory=Counter)
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
            self._give(task, folder)

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

    def _give(self, task: Task, folder: Path) -> None:
        worker = self._free_worker()
        assert worker is not None
        place = None
        if self.store is not None:
            # An attempt of a worker that we took for lost may still write to its own place.
            place = self.store.below(f"{folder.name}.{uuid.uuid4().hex[:8]}")
        future = self._submit(
            worker, task.name, dask_worker.make_run, task, self._stop_event, place
        )
        self._assigned[task.name] = _Assignment(task, folder, worker, future, place)

    def _submit(self, worker: str, name: str, function: Callable[..., Any], *given: object) -> Any:
        return self.client.submit(
            function,
            *given,
            key=f"outcast-{name}-{uuid.uuid4().hex}",
            workers=[worker],
            allow_other_workers=False,
            pure=False,
        )

    def poll(self) -> list[Ended]:
        with self._scheduler():
            self._look()
            return self._all_ended()

    def _all_ended(self) -> list[Ended]:
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
                self.client.run(dask_worker.end_idle, workers=list(self._usable), on_error="ignore")
        self._assigned.clear()
        with contextlib.suppress(OSError, TimeoutError):
            self.client.close(*([] if is_there else [_CLOSE_DEADLINE_S]))
        if self.store is not None:
            # What is left there is named after outcast, and does no harm.
            with contextlib.suppress(OutcastError):
                self.store.remove_all()

    def _free_worker(self) -> str | None:
        busy = Counter(assignment.worker for assignment in self._assigned.values())
        free = {
            worker: busy[worker] for worker, most in self._usable.items() if busy[worker] < most
        }
        return min(free, key=lambda worker: free[worker]) if free else None

    def _look(self) -> None:
        """Updates the list of workers. A new worker has to have our fingerprint."""
        if time.monotonic() - self._looked < LOOK_EVERY_S:
            return
        self._looked = time.monotonic()
        threads: dict[str, int] = self.client.nthreads()
        for worker in set(self._usable) - set(threads):
            self._notes.append(f"worker {worker} has gone; others make its runs again")
            del self._usable[worker]
        for worker in set(threads) - set(self._usable) - self._refused:
            why = self._why_refused(worker)
            if why is None:
                self._usable[worker] = threads[worker]
            else:
                self._refuse(worker, why)

    def _refuse(self, worker: str, why: str) -> None:
        """Gives a worker no further run. What it has now is made elsewhere."""
        self._usable.pop(worker, None)
        if worker not in self._refused:
            self._refused.add(worker)
            self._notes.append(f"worker {worker} is refused: {why}")

    def _failure(
        self, worker: str, function: Callable[..., str | None], *given: object
    ) -> str | None:
        """Says what failed when a worker called a function, which may wait for a file system."""
        future = self._submit(worker, "asked", function, *given)
        try:
            said: str | None = future.result(timeout=ASKED_DEADLINE_S)
        except TimeoutError:
            # The thread that waits for the file system there would not take a run either.
            self.client.cancel([future], force=True)
            self._refuse(worker, f"a file system gave it no answer within {ASKED_DEADLINE_S:g} s")
            return "no answer"
        except Exception as error:  # whatever the worker's file system raises
            self.client.cancel([future], force=True)
            return f"{type(error).__name__}: {error}"
        return said

    def _why_refused(self, worker: str) -> str | None:
        try:
            # What `run` of Dask asks for has no deadline.
            answer = within(
                FINGERPRINT_DEADLINE_S,
                "its fingerprint",
                lambda: self.client.run(fingerprint, workers=[worker], on_error="return"),
            ).get(worker)
        except DeadlineError as error:
            return str(error)
        if not isinstance(answer, Fingerprint):
            return f"it does not run outcast: {answer}"
        return self.ours.difference(answer) or self._why_out_of_reach(worker)

    def _why_out_of_reach(self, worker: str) -> str | None:
        """Why a worker cannot use the object store as we do; None if it can, or without one."""
        if self.store is None:
            return None
        failed = self._failure(worker, dask_worker.answer_in_store, self.store)
        if failed is not None:
            return f"it cannot use the object store: {failed}"
        with tempfile.TemporaryDirectory(prefix="outcast-") as scratch:
            question, given = Path(scratch) / "question", Path(scratch) / "answer"
            try:
                self.store.get(dask_worker.QUESTION, question, dask_worker.QUESTION_BYTES)
                self.store.get(dask_worker.ANSWER, given, dask_worker.QUESTION_BYTES)
                self.store.remove(dask_worker.ANSWER)
            except OutcastError as error:
                return f"what it writes to the object store is not there: {error}"
            if given.read_bytes() != question.read_bytes():
                return "what it writes to the object store is not what we read there"
        return None

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
            is_gone = type(error).__name__ in ("KilledWorker", "CommClosedError")
            return lost if is_gone else Ended(name, Failure.of(error), 0.0)
        try:
            reply: Reply = assignment.future.result(timeout=RESULT_DEADLINE_S)
        except (OSError, TimeoutError):
            return lost
        # What a failed run has left is kept too, but that it failed is what counts.
        taken = _taken(reply, assignment)
        failure = reply.ended.failure or taken
        if failure is None or failure.kind != LOST:
            self._lost[worker] = 0
            return Ended(name, failure, reply.ended.wall_s)
        self._lost[worker] += 1
        if self._lost[worker] >= MOST_LOST:
            # It fails quickly, and would take every run from workers that can make it.
            self._refuse(worker, f"it lost {MOST_LOST} results in a row: {failure.message}")
        return Ended(name, Failure(LOST, f"worker {worker}: {failure.message}"), 0.0)


def _taken(reply: Reply, assignment: _Assignment) -> Failure | None:
    """Puts a result into its folder here. Returns why it cannot be used; None if it can."""
    try:
        _received(reply, assignment.place, assignment.folder)
    except OSError as error:
        # Our own disk is at fault, so another worker would not help.
        return Failure.of(RunError(files.describe(error)))
    except (zipfile.BadZipFile, OutcastError) as error:
        return Failure(LOST, str(error))
    if reply.ended.failure is not None:
        return None
    wrong = why_other(RunDirectory(assignment.folder / RESULT), reply.manifest)
    return None if wrong is None else Failure(LOST, f"its result came back broken: {wrong}")


def _received(reply: Reply, place: Objects | None, folder: Path) -> None:
    """Unpacks what came through the scheduler or the object store."""
    if reply.archive is not None:
        unpack(io.BytesIO(reply.archive), folder)
    elif reply.in_store is not None and place is not None:
        with tempfile.TemporaryDirectory(prefix=".taken-", dir=folder.parent) as scratch:
            file = Path(scratch) / dask_worker.ARCHIVE
            place.get(dask_worker.ARCHIVE, file, reply.in_store.size)
            if sha256(file) != reply.in_store.sha256:
                raise RunError(f"{place.shown}: holds other bytes than the worker wrote")
            with file.open("rb") as stream:
                unpack(stream, folder)
        place.remove(dask_worker.ARCHIVE)


def why_other(result: RunDirectory, digest: str | None) -> str | None:
    """Why a result here is not the one whose manifest has this SHA-256; None if it is.

    All files are read. A worker reads its own back from its machine's memory, so a network file
    system whose disk is full can still lose them.
    """
    try:
        if sha256(result.manifest) != digest:
            return f"{result.manifest}: not as the worker wrote it"
        return next(iter(problems(result)), None)
    except OSError as error:
        return files.describe(error)
    except InputError as error:
        return str(error)
