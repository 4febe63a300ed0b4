"""Sweeps on Dask: a real scheduler, real workers, one of them killed in the middle."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

import outcast
from outcast.errors import RunError
from outcast.files import sha256
from outcast.records.run_directory import RunDirectory
from outcast.sweep import dask_pool, runner
from outcast.sweep.dask_pool import DaskPool, Fingerprint
from outcast.sweep.runner import Result
from tests.deadlines import HANG_S
from tests.golden import fake_run
from tests.processes import children, is_alive
from tests.unit.test_sweep import ROOT, Quiet, planned, sweep, wait_for

pytest.importorskip("distributed", reason="scripts/install.sh installs it")


@dataclass
class Cluster:
    """A scheduler on the loopback interface, and as many workers as asked for."""

    folder: Path
    address: str
    stack: ExitStack

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
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    file = folder / "scheduler.json"
    with ExitStack() as stack:
        argv = ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
        argv += ["--no-dashboard", "--scheduler-file", str(file)]
        start(stack, argv, folder, ROOT)
        wait_for(lambda: file.exists() and '"address"' in file.read_text(), "the scheduler")
        address = file.read_text().split('"address": "')[1].split('"')[0]
        yield Cluster(folder, address, stack)


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


def on_dask(cluster: Cluster, target: Path, quiet: Quiet) -> Result:
    pool = dask_pool.connect(cluster.address)
    wanted = planned(target.parent, repetitions=2)
    return runner.run_sweep(wanted, target, pool, quiet, executor=fake_run.NAME)


def test_a_killed_worker_changes_nothing_of_the_dataset(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every other result is written to the sweep's folder, and the rest comes through the scheduler.
    sees, shares = DaskPool._sees, itertools.cycle((True, False))
    packed: list[Path] = []
    monkeypatch.setattr(DaskPool, "_sees", lambda *given: sees(*given) and next(shares))
    unpack = dask_pool.unpack

    def count(data: bytes, folder: Path) -> None:
        packed.append(folder)
        unpack(data, folder)

    monkeypatch.setattr(dask_pool, "unpack", count)
    first, second = cluster.worker("first"), cluster.worker("second")
    quiet = Watching(3, lambda: first.send_signal(signal.SIGKILL))
    result = on_dask(cluster, tmp_path / "dask", quiet)
    assert second.poll() is None
    assert quiet.done
    assert result.complete
    assert result.report.progress.finished == 8
    assert 0 < len(packed) < 8
    assert not list((tmp_path / "dask/unfinished").iterdir())
    assert any("tried again: " in note and "has gone" in note for note in quiet.notes)
    sweep(planned(tmp_path, repetitions=2), tmp_path / "local")
    for name in ("runs.parquet", "run_flows.parquet"):
        ours = (tmp_path / "dask" / name).read_bytes()
        assert ours == (tmp_path / "local" / name).read_bytes()


def test_a_worker_with_another_outcast_is_refused(cluster: Cluster, tmp_path: Path) -> None:
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


def test_an_interrupted_sweep_ends_its_runs_on_the_workers(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_no_scheduler_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_pool, "CONNECT_DEADLINE_S", 0.5)
    with pytest.raises(RunError, match=r"--scheduler tcp://127\.0\.0\.1:1: no scheduler"):
        dask_pool.connect("tcp://127.0.0.1:1")


def test_what_differs_between_machines_is_named() -> None:
    ours = Fingerprint("1", "a" * 64, "b" * 64)
    assert ours.difference(ours) is None
    assert ours.difference(Fingerprint("1", "a" * 64, None)) == (
        "its kernel is missing (outcast kernel build), not bbbbbbbbbbbb"
    )
    assert "its kernel is c" in str(ours.difference(Fingerprint("1", "a" * 64, "c" * 64)))
    assert "its outcast is 1 (dddddddddddd)" in str(
        ours.difference(Fingerprint("1", "d" * 64, "b" * 64))
    )


def test_a_shared_result_is_here_when_its_manifest_and_files_are(tmp_path: Path) -> None:
    fake_run.execute(planned(tmp_path).runs[0].experiment, tmp_path / "run")
    result = RunDirectory(tmp_path / "run")
    digest = sha256(result.manifest)
    assert dask_pool._not_yet_here(result, digest) is None
    assert "not as the worker wrote it" in str(dask_pool._not_yet_here(result, "0" * 64))
    result.summary.unlink()
    assert "summary.json: missing" in str(dask_pool._not_yet_here(result, digest))
    result.manifest.unlink()
    assert dask_pool._not_yet_here(result, digest) is not None


def test_a_folder_comes_back_as_it_was(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep/bytes").write_bytes(bytes(range(256)) * 10)
    (source / "text").write_text("text")
    dask_pool.unpack(dask_pool.pack(source), tmp_path / "target")
    for name in ("deep/bytes", "text"):
        assert (tmp_path / "target" / name).read_bytes() == (source / name).read_bytes()
