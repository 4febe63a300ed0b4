"""A pool of Dask's workers: each of their threads makes one run at a time.

A worker that sees the sweep's folder writes its results there, and sends back the hash of the
manifest, which has the hashes of all files. From any other worker the whole result comes back
through the scheduler.

We give every run to one worker by name. So we know which runs were lost when a worker goes away,
and another worker makes them again. Only this module imports Dask.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import secrets
import shutil
import tempfile
import threading
import time
import uuid
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outcast import __version__
from outcast.engines.kernel import cache
from outcast.errors import DeadlineError, FeatureMissingError, InputError, RunError
from outcast.files import sha256
from outcast.records.run_directory import RunDirectory
from outcast.sweep.pool import STOP_DEADLINE_S
from outcast.sweep.process import RunProcess, give
from outcast.sweep.store import RESULT, problems
from outcast.sweep.task import Ended, Failure, Task

CONNECT_DEADLINE_S = 10.0
WORKER_DEADLINE_S = 60.0
"""How long to wait for a first usable worker, or for another when all have gone."""

RESULT_DEADLINE_S = 120.0
SEEN_DEADLINE_S = 20.0
"""How long we may take to see what a worker has written into the sweep's folder. A network file
system shows new files after some seconds (nfs(5), acregmax and acdirmax)."""

LOOK_EVERY_S = 0.5
STOP_LOOK_EVERY_S = 1.0


@dataclass(frozen=True)
class Fingerprint:
    """What has to be equal on all machines so that a seed means the same run.

    Attributes:
        code: a digest of outcast's own modules.
        kernel: the SHA-256 of the virtual engine's kernel; None if it is not built.
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
            there = other.kernel[:12] if other.kernel else "missing (outcast kernel build)"
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
    """What a worker sends back.

    Attributes:
        ended: how the task ended.
        folder: the attempt's folder as a ZIP file; None where it was written to a shared folder.
        manifest: the SHA-256 of the result's manifest; None where there is no result.
    """

    ended: Ended
    folder: bytes | None
    manifest: str | None


_idle: dict[int, list[RunProcess]] = {}
"""The processes that stay, by thread. Each thread has its own, because they end with the thread
that started them (PR_SET_PDEATHSIG in prctl(2))."""


def make_run(task: Task, stop_event: str, shared: str | None) -> Reply:
    """Makes a run on a worker, in a process beside it. Ends the process if the event is set.

    Args:
        task: the run.
        stop_event: the name of the event.
        shared: a new path for the attempt's folder, in a folder that the sweep sees too; None
            sends the folder back.
    """
    import distributed

    base = distributed.get_worker().local_directory
    with tempfile.TemporaryDirectory(prefix="outcast-", dir=base) as scratch:
        folder = Path(scratch) / "attempt" if shared is None else Path(shared)
        ended = _make(task, folder, distributed.Event(stop_event))
        manifest = RunDirectory(folder / RESULT).manifest
        digest = sha256(manifest) if ended.failure is None else None
        return Reply(ended, pack(folder) if shared is None else None, digest)


def _make(task: Task, folder: Path, stop: Any) -> Ended:
    idle = _idle.setdefault(threading.get_ident(), [])
    process = give(task, folder, idle, threads=1)
    look_at = time.monotonic() + STOP_LOOK_EVERY_S
    while (ended := process.poll()) is None:
        time.sleep(0.05)
        if time.monotonic() > look_at:
            look_at = time.monotonic() + STOP_LOOK_EVERY_S
            if stop.is_set():
                process.ask_to_end()
                process.end(time.monotonic() + STOP_DEADLINE_S)
    if process.stays and not stop.is_set():
        idle.append(process)
    else:
        process.end(time.monotonic() + STOP_DEADLINE_S)
    return ended


def end_idle() -> None:
    """Ends the processes of a worker that wait for another run."""
    for processes in _idle.values():
        while processes:
            processes.pop().end(time.monotonic() + STOP_DEADLINE_S)


_QUESTION, _ANSWER = "question", "answer"


def answer(folder: str) -> None:
    """Copies the question in a folder to an answer, on a worker. Fails if it is not there."""
    path = Path(folder)
    (path / _ANSWER).write_bytes((path / _QUESTION).read_bytes())


def pack(folder: Path) -> bytes:
    """The files of a folder, as a ZIP file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                # Without times, because the guest's clock can begin before ZIP's first date.
                archive.writestr(zipfile.ZipInfo(str(path.relative_to(folder))), path.read_bytes())
    return buffer.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """Writes the files that `pack` has packed into a new folder."""
    folder.mkdir()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(folder)


def connect(address: str) -> DaskPool:
    """Connects to a running scheduler of Dask, whose workers become the pool.

    Raises:
        FeatureMissingError: if Dask is not installed.
        RunError: if no scheduler answers.
    """
    try:
        import distributed
    except ImportError:
        raise FeatureMissingError(
            "Dask is missing; install it with: pip install 'outcast[dask]'"
        ) from None
    try:
        client = distributed.Client(address, timeout=CONNECT_DEADLINE_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RunError(f"--scheduler {address}: no scheduler of Dask answers: {why}") from None
    return DaskPool(client, fingerprint())


@dataclass
class _Assignment:
    """A task that a worker has been given."""

    task: Task
    folder: Path
    worker: str
    future: Any
    shared: Path | None


@dataclass
class DaskPool:
    """A pool of Dask's workers; the module's docstring describes it."""

    client: Any
    ours: Fingerprint
    _usable: dict[str, int] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)
    _shares: dict[str, bool] = field(default_factory=dict)
    _written_to: list[Path] = field(default_factory=list)
    _assigned: dict[str, _Assignment] = field(default_factory=dict)
    _notes: list[str] = field(default_factory=list)
    _looked: float = 0.0
    _last_usable: float = field(default_factory=time.monotonic)
    _stop_event: str = field(default_factory=lambda: f"outcast-stop-{uuid.uuid4().hex}")

    def can_start(self, task: Task) -> bool:
        """See Pool. Raises DeadlineError if there is no usable worker for a minute."""
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
        worker = self._free_worker()
        assert worker is not None
        shared = None
        if self._sees(worker, folder.parent):
            # An attempt of a worker that we took for lost may still write to its own.
            shared = folder.absolute().with_name(f"{folder.name}.{uuid.uuid4().hex[:8]}")
            self._written_to.append(shared)
        future = self.client.submit(
            make_run,
            task,
            self._stop_event,
            None if shared is None else str(shared),
            key=f"outcast-{task.name}-{uuid.uuid4().hex}",
            workers=[worker],
            allow_other_workers=False,
            pure=False,
        )
        self._assigned[task.name] = _Assignment(task, folder, worker, future, shared)

    def poll(self) -> list[Ended]:
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

        with contextlib.suppress(OSError, TimeoutError):
            distributed.Event(self._stop_event, client=self.client).set()
            self.client.cancel([assignment.future for assignment in self._assigned.values()])
            self.client.run(end_idle, workers=list(self._usable), on_error="ignore")
        self._assigned.clear()
        self.client.close()
        # Results have been moved from there. The attempts of lost workers have not.
        for path in self._written_to:
            shutil.rmtree(path, ignore_errors=True)

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
                self._refused.add(worker)
                self._notes.append(f"worker {worker} is refused: {why}")

    def _sees(self, worker: str, folder: Path) -> bool:
        """Whether a worker can write into a folder of ours, under the same path."""
        if worker not in self._shares:
            with tempfile.TemporaryDirectory(prefix=".seen-", dir=folder) as name:
                place = Path(name).absolute()
                question = secrets.token_bytes(16)
                (place / _QUESTION).write_bytes(question)
                said = self.client.run(answer, str(place), workers=[worker], on_error="return")
                try:
                    answered = (place / _ANSWER).read_bytes() == question
                except OSError:
                    answered = False
            self._shares[worker] = said.get(worker) is None and answered
        return self._shares[worker]

    def _why_refused(self, worker: str) -> str | None:
        answer = self.client.run(fingerprint, workers=[worker], on_error="return").get(worker)
        if isinstance(answer, Fingerprint):
            return self.ours.difference(answer)
        return f"it does not run outcast: {answer}"

    def _ended(self, assignment: _Assignment) -> Ended | None:
        """How a task ended, its result unpacked; None while it goes on."""
        name, worker = assignment.task.name, assignment.worker
        lost = Ended(name, Failure("WorkerLostError", f"worker {worker} has gone"), 0.0)
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
        if reply.folder is not None:
            unpack(reply.folder, assignment.folder)
        elif assignment.shared is not None and assignment.shared.exists():
            assignment.shared.rename(assignment.folder)
        if reply.ended.failure is None:
            wrong = self._wrong(RunDirectory(assignment.folder / RESULT), reply)
            if wrong is not None:
                message = f"the result came back broken: {wrong}"
                return Ended(name, Failure("WorkerLostError", message), 0.0)
        return reply.ended

    def _wrong(self, result: RunDirectory, reply: Reply) -> str | None:
        """What is wrong with a result here; None if it is what the worker has verified."""
        if reply.folder is not None:
            return next(iter(problems(result)), None)
        end = time.monotonic() + SEEN_DEADLINE_S
        while (wrong := _not_yet_here(result, reply.manifest)) and time.monotonic() < end:
            time.sleep(0.1)
        return wrong


def _not_yet_here(result: RunDirectory, digest: str | None) -> str | None:
    """What of a result in a shared folder cannot be seen; None if its manifest and files are here.

    The worker has compared the files with the manifest, so their bytes are not read again.
    """
    try:
        if sha256(result.manifest) != digest:
            return f"{result.manifest}: not as the worker wrote it"
        names = result.read_manifest().files
    except (OSError, InputError) as error:
        return str(error)
    missing = (result.path / name for name in names if not (result.path / name).is_file())
    return next((f"{path}: missing" for path in missing), None)
