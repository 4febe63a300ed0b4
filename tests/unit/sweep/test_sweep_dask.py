"""Sweeps on Dask: a real scheduler, real workers, one of them killed in the middle."""

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
from outcast.emulation.commands import wait_until
from outcast.sweep import dask_pool, scheduler
from outcast.sweep.scheduler import Result
from tests.deadlines import HANG_S
from tests.golden import fake_run
from tests.processes import children, is_alive
from tests.unit.sweep.test_sweep import ROOT, Quiet, planned, sweep

pytest.importorskip("distributed", reason="scripts/install.sh installs it")


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
        wait_until(
            lambda: file.exists() and '"address"' in file.read_text(), "the scheduler", HANG_S
        )
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


def on_dask(cluster: Cluster, target: Path, quiet: Quiet) -> Result:
    pool = dask_pool.connect(cluster.address)
    wanted = planned(target.parent, repetitions=2)
    return scheduler.run_sweep(wanted, target, pool, quiet, executor=fake_run.NAME)


def test_a_killed_worker_changes_nothing_of_the_dataset(cluster, tmp_path):
    first, second = cluster.worker("first"), cluster.worker("second")
    quiet = Watching(3, lambda: first.send_signal(signal.SIGKILL))
    result = on_dask(cluster, tmp_path / "dask", quiet)
    assert second.poll() is None
    assert quiet.done
    assert result.complete
    assert result.progress.finished == 8
    assert not list((tmp_path / "dask/unfinished").iterdir())
    assert any("has gone; others make its runs again" in note for note in quiet.notes)
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

    wait_until(looked, "a worker", HANG_S)
    assert "is refused: has outcast 9.9.9 (" in notes[0]
    assert pool.places() == 0
    cluster.worker("ours")

    def usable() -> bool:
        pool.poll()
        return pool.places() == 1

    wait_until(usable, "a worker like us", HANG_S)
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

    wait_until(idle, "the run's end on the worker", HANG_S)
