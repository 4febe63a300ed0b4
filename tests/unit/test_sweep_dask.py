"""Sweeps on Dask: a real scheduler, real workers, one of them killed in the middle."""

import errno
import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import pytest

import outcast
from outcast.errors import ConfigError, DeadlineError, FeatureMissingError, OutcastError, RunError
from outcast.files import sha256
from outcast.records.run_directory import RunDirectory
from outcast.sweep import dask_pool, dask_worker, objects, runner
from outcast.sweep.dask_pool import DaskPool, _Assignment
from outcast.sweep.dask_worker import Fingerprint, InStore, Reply
from outcast.sweep.objects import Objects
from outcast.sweep.runner import Result
from outcast.sweep.store import RESULT, problems
from outcast.sweep.task import Ended, Failure
from tests.deadlines import HANG_S
from tests.golden import fake_run
from tests.processes import children, is_alive
from tests.unit.test_sweep import ROOT, Quiet, planned, sweep, task, wait_for

distributed = pytest.importorskip("distributed", reason="scripts/install.sh installs it")
pytest.importorskip("fsspec", reason="scripts/install.sh installs it")


@dataclass
class Cluster:
    """A scheduler on the loopback interface, and as many workers as asked for."""

    folder: Path
    address: str
    stack: ExitStack
    scheduler: subprocess.Popen[bytes]

    def worker(self, name: str, path: Path = ROOT) -> subprocess.Popen[bytes]:
        """A worker with one thread and `path` first on its module path."""
        argv = ["distributed.cli.dask_worker", self.address, "--nthreads", "1", "--no-nanny"]
        argv += ["--no-dashboard", "--host", "127.0.0.1", "--name", name, "--memory-limit", "0"]
        argv += ["--local-directory", str(self.folder / name)]
        return start(self.stack, argv, self.folder, path)


def start(stack: ExitStack, argv: list[str], folder: Path, path: Path) -> subprocess.Popen[bytes]:
    log = stack.enter_context((folder / f"{len(list(folder.iterdir()))}.log").open("wb"))
    process = subprocess.Popen(
        [sys.executable, "-m", *argv],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{path}:{ROOT}", "FAKE_RUN_S": "0.4"},
        stdout=log,
        stderr=log,
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


@pytest.fixture
def cluster(tmp_path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    file = folder / "scheduler.json"
    with ExitStack() as stack:
        argv = ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
        argv += ["--no-dashboard", "--scheduler-file", str(file)]
        scheduler = start(stack, argv, folder, ROOT)
        wait_for(lambda: file.exists() and '"address"' in file.read_text(), "the scheduler")
        address = file.read_text().split('"address": "')[1].split('"')[0]
        yield Cluster(folder, address, stack, scheduler)


class Watching(Quiet):
    """Does something once, after a number of runs and while every worker has one."""

    def __init__(self, after: int, do: Callable[[], None]) -> None:
        super().__init__()
        self.after, self.do, self.done = after, do, False

    def update(self, progress: object, places: int) -> None:
        busy = len(getattr(progress, "running", ())) >= places
        if not self.done and busy and getattr(progress, "finished", 0) >= self.after:
            self.done = True
            self.do()


def on_dask(cluster: Cluster, target: Path, quiet: Quiet, store: str | None = None) -> Result:
    pool = dask_pool.connect(cluster.address, store)
    wanted = planned(target.parent, repetitions=2)
    return runner.run_sweep(wanted, target, pool, quiet, executor=fake_run.NAME)


def test_a_killed_worker_changes_nothing_of_the_dataset(cluster, tmp_path):
    first, second = cluster.worker("first"), cluster.worker("second")
    quiet = Watching(3, lambda: first.send_signal(signal.SIGKILL))
    result = on_dask(cluster, tmp_path / "dask", quiet)
    assert second.poll() is None
    assert quiet.done
    assert result.complete
    assert result.progress.finished == 8
    assert not list((tmp_path / "dask/unfinished").iterdir())
    assert any("tried again: " in note and "has gone" in note for note in quiet.notes)
    sweep(planned(tmp_path, repetitions=2), tmp_path / "local")
    for name in ("runs.parquet", "run_flows.parquet"):
        ours = (tmp_path / "dask" / name).read_bytes()
        assert ours == (tmp_path / "local" / name).read_bytes()


def test_a_worker_with_another_outcast_is_refused(cluster, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(ROOT / "outcast", other / "outcast")
    module = other / "outcast/__init__.py"
    module.write_text(module.read_text().replace(outcast.__version__, "9.9.9"))
    cluster.worker("other", other)
    pool = dask_pool.connect(cluster.address)
    notes: list[str] = []

    def looked() -> bool:
        pool.poll()
        notes.extend(pool.notes())
        return bool(notes)

    wait_for(looked, "a worker")
    assert "is refused: its outcast is 9.9.9" in notes[0]
    assert pool.places() == 0
    cluster.worker("ours")

    def usable() -> bool:
        pool.poll()
        return pool.places() == 1

    wait_for(usable, "a worker like us")
    pool.stop()


def test_an_interrupted_sweep_ends_its_runs_on_the_workers(cluster, tmp_path, monkeypatch):
    worker = cluster.worker("only")

    def interrupt() -> None:
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        on_dask(cluster, tmp_path / "dask", Watching(1, interrupt))
    ended = time.monotonic()
    assert ended - began < HANG_S

    def idle() -> bool:
        assert is_alive(worker.pid)
        return not children(worker.pid)

    wait_for(idle, "the run's end on the worker")


def test_a_killed_scheduler_is_said_in_one_line(cluster, tmp_path, capfd):
    cluster.worker("one")
    quiet = Watching(1, lambda: cluster.scheduler.kill())
    with pytest.raises(RunError, match=r"^the scheduler of Dask has gone, or cannot be reached$"):
        on_dask(cluster, tmp_path / "sweep", quiet)
    assert capfd.readouterr().err == ""


def test_no_scheduler_is_said_in_one_line(monkeypatch):
    monkeypatch.setattr(dask_pool, "CONNECT_DEADLINE_S", 0.5)
    with pytest.raises(RunError, match=r"--scheduler tcp://127\.0\.0\.1:1: no scheduler"):
        dask_pool.connect("tcp://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"--scheduler foo: allowed is HOST:PORT"):
        dask_pool.connect("foo")


def test_what_differs_between_machines_is_named():
    ours = Fingerprint("1", "a" * 64, "b" * 64)
    assert ours.difference(ours) is None
    assert ours.difference(Fingerprint("1", "a" * 64, None)) == (
        "its kernel is missing (scripts/guest/build), not bbbbbbbbbbbb"
    )
    assert "its kernel is c" in str(ours.difference(Fingerprint("1", "a" * 64, "c" * 64)))
    assert "its outcast is 1 (dddddddddddd)" in str(
        ours.difference(Fingerprint("1", "d" * 64, "b" * 64))
    )


@pytest.fixture
def made(tmp_path) -> Path:
    """An attempt's folder as a worker leaves it."""
    folder = tmp_path / "attempt"
    folder.mkdir()
    fake_run.execute(planned(tmp_path).runs[0].experiment, folder / RESULT)
    return folder


def replied(
    made: Path, target: Path, *, archive: bytes | None = None, in_store: InStore | None = None
) -> Reply:
    digest = sha256(RunDirectory(made / RESULT).manifest)
    target.parent.mkdir(exist_ok=True)
    return Reply(Ended("a", None, 1.0), archive, in_store, digest)


def assigned(target: Path, place: Objects | None = None) -> _Assignment:
    return _Assignment(task("a"), target, "tcp://w", Finished(), place)


@dataclass
class Finished:
    """A future whose task has ended with a reply."""

    reply: Reply | None = None
    status: str = "finished"

    def result(self, timeout: float) -> Reply | None:
        return self.reply


def through_scheduler(made: Path, target: Path) -> tuple[Reply, _Assignment]:
    file = made.parent / "packed.zip"
    dask_worker.pack(made, file)
    return replied(made, target, archive=file.read_bytes()), assigned(target)


def through_store(made: Path, target: Path) -> tuple[Reply, _Assignment]:
    file = made.parent / "packed.zip"
    dask_worker.pack(made, file)
    place = Objects(f"file://{made.parent / 'store'}")
    place.make()
    place.put(file, "attempt.zip")
    of_store = InStore(sha256(file), file.stat().st_size)
    return replied(made, target, in_store=of_store), assigned(target, place=place)


Way = Callable[[Path, Path], tuple[Reply, _Assignment]]


@pytest.mark.parametrize("way", [through_scheduler, through_store])
def test_a_result_comes_whole_by_every_way(way, made, tmp_path):
    target = tmp_path / "unfinished/a"
    reply, assignment = way(made, target)
    assert dask_pool._taken(reply, assignment) is None
    assert problems(RunDirectory(target / RESULT)) == []
    assert [path.name for path in target.parent.iterdir()] == ["a"]
    assert not [path for path in tmp_path.glob("store/*")]


def halved(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (halved, "holds other bytes than"),
        (lambda file: file.write_bytes(bytes(2**20)), "attempt.zip: has 1048576 bytes; "),
        (Path.unlink, "FileNotFoundError"),
    ],
)
def test_what_comes_back_broken_is_lost(harm, said, made, tmp_path):
    reply, assignment = through_store(made, tmp_path / "unfinished/a")
    harm(tmp_path / "store/attempt.zip")
    failure = dask_pool._taken(reply, assignment)
    assert (failure.kind, said in failure.message) == ("WorkerLostError", True), failure
    assert "\n" not in failure.message


def test_our_own_full_disk_is_no_fault_of_the_worker(made, tmp_path, monkeypatch):
    def full(stream: IO[bytes], folder: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))

    reply, assignment = through_scheduler(made, tmp_path / "unfinished/a")
    monkeypatch.setattr(dask_pool, "unpack", full)
    failure = dask_pool._taken(reply, assignment)
    assert failure.kind == "RunError"
    assert failure.message == f"{tmp_path}/unfinished/a: No space left on device"


def test_a_worker_that_loses_results_gets_no_further_run(made, tmp_path, monkeypatch):
    """Its disk is full, so it fails at once and would take all runs from the others."""

    @dataclass
    class Worker:
        local_directory: str

    monkeypatch.setattr(distributed, "get_worker", lambda: Worker(str(tmp_path)))

    class Stop:
        is_over = False

        def is_set(self) -> bool:
            return self.is_over

    stop = Stop()
    monkeypatch.setattr(distributed, "Event", lambda name: stop)
    monkeypatch.setattr(dask_worker, "FULL_BYTES", 2**62)
    failed = Ended("a", Failure("RunError", "No space left on device"), 1.0)
    monkeypatch.setattr(dask_worker, "_make", lambda *given: failed)
    reply = dask_worker.make_run(task("a"), "stop", None)
    assert reply.ended.failure.kind == "WorkerLostError"
    pool = DaskPool(None, Fingerprint("1", "a", None), _usable={"tcp://w": 1, "tcp://v": 1})
    for attempt in range(dask_pool.MOST_LOST):
        assert pool.places() == 2
        assignment = replace(assigned(tmp_path / f"a{attempt}"), future=Finished(reply))
        ended = pool._ended(assignment)
        assert ended.failure.message.startswith("worker tcp://w: its disk is full (")
    assert pool.places() == 1
    assert "tcp://w is refused: it lost 3 results in a row: its disk is full" in pool.notes()[0]
    # After its end a sweep takes nothing, and would not remove it from the object store.
    stop.is_over = True
    monkeypatch.setattr(Objects, "put", lambda *given: pytest.fail("written"))
    after = dask_worker.make_run(task("a"), "stop", Objects("s3://a"))
    assert (after.in_store, after.archive) == (None, None)


def test_results_come_through_an_object_store(cluster, tmp_path, monkeypatch):
    get, seen = Objects.get, []

    def half_at_first(self: Objects, name: str, file: Path, most_bytes: int) -> None:
        get(self, name, file, most_bytes)
        seen.append(name)
        if seen.count("attempt.zip") == 1 and name == "attempt.zip":
            halved(file)

    monkeypatch.setattr(Objects, "get", half_at_first)
    (tmp_path / "bucket").mkdir()
    cluster.worker("only")
    quiet = Quiet()
    result = on_dask(cluster, tmp_path / "dask", quiet, f"file://{tmp_path}/bucket")
    assert result.complete
    assert seen.count("attempt.zip") == 9
    assert ["holds other bytes" in note for note in quiet.notes] == [True]
    assert not list((tmp_path / "bucket").iterdir())
    assert not list((tmp_path / "dask/unfinished").iterdir())
    # What only this process has is no store.
    pool = dask_pool.connect(cluster.address, "memory://results")
    wait_for(lambda: bool(pool.poll() or pool._refused), "a refusal")
    (note,) = pool.notes()
    assert "is refused: it cannot use the object store: memory://results/outcast-" in note
    assert (pool.places(), "\n" in note) == (0, False)
    pool.stop()


@pytest.mark.parametrize(
    ("url", "kind", "said"),
    [
        ("results/here", ConfigError, "--store results/here: is no URL; allowed is one of"),
        ("nothing://a", ConfigError, "--store nothing://a: Protocol not known: nothing; allowed"),
        ("file:///no/such/folder", RunError, "file:///no/such/folder: FileNotFoundError: "),
        ("sftp://ana:secret@127.0.0.1:1/a", OutcastError, "sftp://...@127.0.0.1:1/a: "),
    ],
)
def test_an_object_store_that_cannot_be_used_is_said_in_one_line(url, kind, said):
    with pytest.raises(kind) as refusal:
        Objects(url).make()
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert "secret" not in str(refusal.value)


def test_a_file_system_whose_package_is_missing_is_said_in_one_line(monkeypatch):
    broken = {"class": "no_such_package.System", "err": "Install no_such_package to access X"}
    registry = importlib.import_module("fsspec.registry")
    monkeypatch.setitem(registry.known_implementations, "missing", broken)
    with pytest.raises(FeatureMissingError, match="--store missing://a: Install no_such_package"):
        Objects("missing://a").make()
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(FeatureMissingError, match="fsspec is missing; install it with: pip"):
        Objects("file:///a").make()


def test_a_worker_that_does_not_say_what_it_runs_is_refused(monkeypatch):
    class Client:
        def nthreads(self) -> dict[str, int]:
            return {"tcp://hangs": 1, "tcp://answers": 1}

        def run(self, _: object, workers: list[str], on_error: str) -> dict[str, object]:
            if workers == ["tcp://hangs"]:
                time.sleep(HANG_S)
            return dict.fromkeys(workers, ours)

    ours = Fingerprint("1", "a", None)
    monkeypatch.setattr(dask_pool, "FINGERPRINT_DEADLINE_S", 0.1)
    pool = DaskPool(Client(), ours)
    pool._look()
    assert pool._usable == {"tcp://answers": 1}
    assert pool.notes() == ["worker tcp://hangs is refused: waited 0.1 s for its fingerprint"]


def test_an_object_store_that_does_not_answer_is_not_waited_for_for_ever(monkeypatch):
    class Hanging:
        def rm_file(self, path: str) -> None:
            time.sleep(HANG_S)

    monkeypatch.setattr(objects, "BASE_DEADLINE_S", 0.1)
    monkeypatch.setattr(Objects, "_open", lambda self: (Hanging(), "folder"))
    with pytest.raises(DeadlineError, match=r"waited 0\.1 s for an answer of s3://a"):
        Objects("s3://a").remove("b")
