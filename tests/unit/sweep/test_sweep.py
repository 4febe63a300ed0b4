"""Sweeps with an executor that takes no time, in real processes."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from outcast import cli, experiment
from outcast.emulation.commands import wait_until
from outcast.engines import ledger
from outcast.engines.ledger import ProcessMark
from outcast.errors import ConfigError
from outcast.records.run_directory import RunDirectory
from outcast.sweep import dataset, plan, scheduler
from outcast.sweep.pool import LocalPool, RunProcess, Task
from outcast.sweep.scheduler import Limits, Progress, Result
from outcast.sweep.store import SweepDirectory, locked, other_key, problem
from tests import quick_sweeps
from tests.deadlines import HANG_S
from tests.golden import fake_run
from tests.processes import children, is_alive

ROOT = Path(__file__).parents[3]
CONFIG = """\
name: {name}
topology: {{kind: linear, rivals: 2}}
links: {{rate: 100mbit}}
queue: {{kind: tbf, limit: 16KB}}
flows: [{{from: 2-hop}}, {{from: 3-hop}}]
duration: 100ms
analysis: {{bin: 10ms}}
engine: virtual
repetitions: {repetitions}
sweep:
  queue.limit: [16KB, 64KB]
  topology.rivals: [1, 2]
  captures: {captures}
"""


class Quiet:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.updates = 0

    def note(self, text: str) -> None:
        self.notes.append(text)

    def update(self, progress: Progress, places: int) -> None:
        self.updates += 1


@pytest.fixture(autouse=True)
def importable(monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def planned(
    folder: Path, name: str = "fake", repetitions: int = 1, captures: str = "keep", **more: str
) -> plan.Plan:
    file = folder / f"{name}.yaml"
    file.write_text(CONFIG.format(name=name, repetitions=repetitions, captures=captures))
    overrides = [f"{key}={value}" for key, value in more.items()]
    return plan.plan_sweep(experiment.read(file, overrides), lambda each: "virtual")


def sweep(wanted: plan.Plan, target: Path, jobs: int = 2, **more: Any) -> tuple[Result, Quiet]:
    quiet = Quiet()
    pool = LocalPool(jobs, memory=lambda: 2**40)
    return scheduler.run_sweep(wanted, target, pool, quiet, executor=fake_run.NAME, **more), quiet


def test_every_run_and_one_dataset(tmp_path, monkeypatch):
    marks = tmp_path / "marks"
    marks.mkdir()
    monkeypatch.setenv("FAKE_RUN_MARKS", str(marks))
    result, _ = sweep(planned(tmp_path, repetitions=2), tmp_path / "out")
    # Processes stay, and each run's words are with it.
    assert len({mark.name.partition("-")[2] for mark in marks.iterdir()}) <= 2
    assert result.complete
    assert result.progress.finished == 8
    found = dataset.load(tmp_path / "out")
    assert found.keys == ("queue.limit", "topology.rivals")
    assert found.runs.height == found.planned == 8
    assert found.flows.height == 16
    columns = ["run", "repetition", "seed", "queue.limit", "topology.rivals", "trusted"]
    assert found.runs.columns[:6] == columns
    assert found.flows.columns[:5] == columns[:5]
    assert "wall_s.boot" not in found.runs.columns
    assert found.runs["topology.rivals"].to_list() == [1, 1, 2, 2, 1, 1, 2, 2]
    draws = [random.Random(seed).randbytes(100) for seed in found.runs["seed"]]
    assert len(set(draws)) == 8
    assert found.runs["classes.2.mean_goodput_bps"].null_count() == 0
    assert not list((tmp_path / "out/unfinished").iterdir())


@pytest.mark.parametrize("captures", ["keep", "compress", "drop"])
def test_captures_and_what_the_manifest_says_of_them(tmp_path, captures):
    result, _ = sweep(planned(tmp_path, captures=captures), tmp_path / "out")
    for name in dataset.load(tmp_path / "out").runs["run"]:
        run = result.directory.run(name)
        manifest = run.read_manifest()
        files = [str(p.relative_to(run.path)) for p in run.captures.glob("*")]
        assert problem(run) is None
        if captures == "drop":
            assert files == []
            assert list(manifest.dropped) == ["captures/s1-eth1.out.pcap"]
        else:
            ending = ".zst" if captures == "compress" else ""
            assert files == [f"captures/s1-eth1.out.pcap{ending}"]
            assert [each.file for each in manifest.captures] == files
            assert [each.file for each in run.read_counters().captures] == files
            assert manifest.dropped == {}


def test_resuming_does_what_is_missing_half_or_changed(tmp_path, monkeypatch):
    marks = tmp_path / "marks"
    marks.mkdir()
    monkeypatch.setenv("FAKE_RUN_MARKS", str(marks))
    wanted, out = planned(tmp_path), tmp_path / "out"
    result, _ = sweep(wanted, out)
    before = {name: (out / name).read_bytes() for name in ("runs.parquet", "run_flows.parquet")}
    missing, half, changed = (run.point for run in wanted.runs[:3])
    runs = result.directory
    for path in (runs.run(missing.name).path).rglob("*.*"):
        path.unlink()
    (runs.run(half.name).path / "flows.parquet").unlink()
    runs.run(changed.name).summary.write_text("{}")
    (out / "unfinished" / "left").mkdir()
    with pytest.raises(ConfigError, match="--resume"):
        sweep(wanted, out)
    monkeypatch.setattr(ledger, "undo_dead", lambda tell: tell("left by a killed run"))
    result, quiet = sweep(wanted, out, resume=True)
    assert quiet.notes[0] == "left by a killed run"
    assert (result.progress.finished_before, result.progress.finished) == (1, 3)
    calls = [int(mark.name.partition("-")[0]) for mark in marks.iterdir()]
    assert sorted(calls) == sorted(
        [run.point.seed for run in wanted.runs] + [missing.seed, half.seed, changed.seed]
    )
    assert before == {name: (out / name).read_bytes() for name in before}
    assert not (out / "unfinished/left").exists()


def swap(first: Path, second: Path, aside: Path) -> None:
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def test_resuming_does_not_trust_a_run_in_the_folder_of_another(tmp_path):
    wanted, out = planned(tmp_path), tmp_path / "out"
    result, _ = sweep(wanted, out)
    before = (out / "runs.parquet").read_bytes()
    first, second = (result.directory.run(run.point.name).path for run in wanted.runs[:2])
    swap(first, second, tmp_path / "aside")
    result, quiet = sweep(wanted, out, resume=True)
    assert (result.progress.finished_before, result.progress.finished) == (2, 2)
    assert [note for note in quiet.notes if "was made with another" in note] == [
        f"set aside and made again: {path}: was made with another topology"
        for path in (first, second)
    ]
    assert (out / "runs.parquet").read_bytes() == before
    assert result.directory.failures() == {}


def test_a_killed_worker_leaves_nothing_in_the_ledger(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, "default_folder", lambda: tmp_path / "ledger")
    worker = subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE)
    folder = tmp_path / ".run.1.partial"
    folder.mkdir()
    entry = ledger.open_entry(tmp_path / "ledger")
    entry.owner = ProcessMark.of(worker.pid)
    entry.note_folder(folder)
    mine = ledger.open_entry(tmp_path / "ledger")
    worker.kill()
    RunProcess(worker).end(time.monotonic() + HANG_S)
    assert not folder.exists()
    assert [page.file for page in ledger.read_entries(tmp_path / "ledger")] == [mine.file]


def test_a_run_is_told_by_its_files_wherever_they_stand(tmp_path):
    program = "{name: get, host: h1, command: [./get.sh], files: [FILE]}"
    tried = {}
    for name in ("here/get.sh", "there/get.sh", "there/put.sh"):
        programs = f"[{program.replace('FILE', str(tmp_path / name))}]"
        (run,) = planned(tmp_path, sweep="{queue.limit: [16KB]}", seed="1", programs=programs).runs
        tried[name] = run.experiment
    fake_run.execute(tried["here/get.sh"], tmp_path / "run")
    run_directory = RunDirectory(tmp_path / "run")
    assert other_key(run_directory, tried["there/get.sh"]) is None
    assert other_key(run_directory, tried["there/put.sh"]) == "programs"


def test_a_sweep_can_grow_but_not_become_another(tmp_path):
    sweep(planned(tmp_path), tmp_path / "out")
    result, _ = sweep(planned(tmp_path, repetitions=2), tmp_path / "out", resume=True)
    assert (result.progress.finished_before, result.progress.finished) == (4, 4)
    with pytest.raises(ConfigError, match="another duration"):
        sweep(planned(tmp_path, duration="200ms"), tmp_path / "out", resume=True)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/file").touch()
    with pytest.raises(ConfigError, match="no sweep"):
        sweep(planned(tmp_path), tmp_path / "foreign", resume=True)


def test_a_failed_run_does_not_stop_the_rest(tmp_path):
    result, quiet = sweep(planned(tmp_path, "fail", 2), tmp_path / "out")
    odd = {run.point.name for run in planned(tmp_path, "fail", 2).runs if run.point.seed % 2}
    assert 0 < len(odd) < 8
    assert set(result.progress.failures) == odd
    assert result.progress.finished == 8 - len(odd)
    assert not result.complete
    assert {failure.kind for failure in result.progress.failures.values()} == {"ReadBackError"}
    assert SweepDirectory(tmp_path / "out").failures() == result.progress.failures
    assert any("requested 1, the kernel shows 2" in note for note in quiet.notes)
    why = json.loads((tmp_path / "out/failed" / min(odd) / "why.json").read_text())
    assert why["attempts"] == 1
    for name in odd:
        said = (tmp_path / "out/failed" / name / "stderr").read_text()
        assert said.count("Traceback") == 1
    assert dataset.load(tmp_path / "out").runs.height == 8 - len(odd)


def test_what_can_pass_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_RUN_MARKS", str(tmp_path))
    result, quiet = sweep(planned(tmp_path, "fail-once"), tmp_path / "out")
    assert result.complete
    assert sum(note.startswith("tried again: ") for note in quiet.notes) == 4
    assert not list((tmp_path / "out").glob("failed/*"))


def test_a_process_that_dies_is_tried_once_more_and_then_listed(tmp_path):
    wanted = planned(tmp_path, "die", **{"sweep.topology.rivals": "[1]"})
    result, quiet = sweep(wanted, tmp_path / "out")
    assert {each.kind for each in result.progress.failures.values()} == {"ProcessLostError"}
    assert sum(note.startswith("tried again: ") for note in quiet.notes) == 2
    assert all("signal 6" in each.message for each in result.progress.failures.values())


def test_a_full_disk_stops_in_order_and_the_sweep_goes_on_later(tmp_path):
    free = iter([10**10, 10**10])
    limits = Limits(keep_free_bytes=10**9, free_bytes=lambda path: next(free, 10**8))
    result, _ = sweep(planned(tmp_path), tmp_path / "out", limits=limits)
    assert "the disk is full: 95 MB are free" in result.progress.stopped
    assert (result.progress.finished, len(result.progress.waiting)) == (2, 2)
    result, _ = sweep(planned(tmp_path), tmp_path / "out", resume=True)
    assert result.complete


def test_the_deadline_stops_in_order(tmp_path):
    result, _ = sweep(planned(tmp_path), tmp_path / "out", limits=Limits(deadline_s=0.01), jobs=1)
    assert "deadline" in result.progress.stopped
    assert len(result.progress.waiting) >= 3


SCRIPT = """
import sys
from pathlib import Path
from tests.unit.sweep import test_sweep as t
from outcast.sweep import plan
from outcast import experiment
wanted = plan.plan_sweep(experiment.read(Path(sys.argv[1])), lambda each: "virtual")
print("go", flush=True)
t.sweep(wanted, Path(sys.argv[2]), resume=True)
"""


def start(config: Path, target: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(config), str(target)],
        env={**os.environ, "FAKE_RUN_S": "0.15", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_killed_twice_and_resumed_it_gives_the_same_dataset(tmp_path):
    wanted = planned(tmp_path, repetitions=2)
    sweep(wanted, tmp_path / "whole")
    draw = random.Random(1)
    for _ in range(2):
        with start(tmp_path / "fake.yaml", tmp_path / "out") as process:
            assert process.stdout.readline() == "go\n"
            time.sleep(draw.uniform(0.1, 1.2))
            process.kill()
    with start(tmp_path / "fake.yaml", tmp_path / "out") as process:
        assert process.wait(HANG_S) == 0
    for name in ("runs.parquet", "run_flows.parquet"):
        assert pl.read_parquet(tmp_path / "out" / name).equals(
            pl.read_parquet(tmp_path / "whole" / name)
        )
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_when_it_is_ended_nothing_goes_on(tmp_path, number):
    planned(tmp_path)
    with start(tmp_path / "fake.yaml", tmp_path / "out") as process:
        wait_until(lambda: len(children(process.pid)) == 2, "two runs", HANG_S)
        runs = children(process.pid)
        process.send_signal(number)
        process.wait(HANG_S)
        wait_until(lambda: not any(is_alive(run) for run in runs), "the runs' end", HANG_S)


# --- the pool and the plan


def task(name: str, exclusive: bool = False) -> Task:
    return Task(name, "", "keep", exclusive, "tests.golden.fake_run:nothing")


@pytest.fixture
def pool() -> Iterator[LocalPool]:
    made = LocalPool(3, memory=lambda: 2**40)
    yield made
    made.stop()


def test_a_realtime_run_shares_the_machine_with_none(tmp_path, pool):
    pool.start(task("a"), tmp_path / "a")
    assert pool.can_start(task("b"))
    assert not pool.can_start(task("c", exclusive=True))
    pool.stop()
    assert pool.can_start(task("c", exclusive=True))
    pool.start(task("c", exclusive=True), tmp_path / "c")
    assert not pool.can_start(task("b"))
    assert not pool.can_start(task("d", exclusive=True))


def test_runs_wait_for_memory_but_one_always_starts(tmp_path):
    short = LocalPool(3, memory=lambda: 10**9)
    assert short.can_start(task("a"))
    short.start(task("a"), tmp_path / "a")
    assert not short.can_start(task("b"))
    short.stop()


def test_a_point_that_cannot_be_built_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(
        ConfigError, match=r'sweep, at queue\.limit="16KB", topology\.rivals=1: flows'
    ):
        planned(tmp_path, **{"flows.1.hosts": "2"})


# --- the command


def invoke(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = cli.invoke(["sweep", *argv])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def faked(tmp_path, monkeypatch) -> Path:
    """The command with the tests' executor and its own cache, and a configuration for it."""
    quick_sweeps.prepare(tmp_path, monkeypatch)
    planned(tmp_path)
    return tmp_path / "fake.yaml"


def test_the_plan_is_shown_and_nothing_run(faked, tmp_path, capsys):
    out_folder = tmp_path / "out"
    argv = [str(faked), "--dry-run", "--jobs", "2", "-o", str(out_folder)]
    status, out, _ = invoke(capsys, *argv)
    assert status == 0
    assert "4 runs into" in out
    assert "queue.limit: 16KB, 64KB" in out
    assert not out_folder.exists()


@pytest.mark.parametrize(
    ("name", "options", "status", "said"),
    [
        ("fail", ["--set", "sweep.seed=[1, 2]"], 1, "4 runs failed; to go on: outcast sweep"),
        ("disagreeing", [], 4, "captures and counters of 4 runs do not agree"),
        ("fake", ["--keep-free", "100000000GB"], 1, "stopped with 4 runs left: the disk is full"),
        ("fake", ["--keep-free", "much"], 2, "--keep-free: 'much' is not a size"),
        ("fake", ["--deadline", "8"], 2, "--deadline: '8' is not a time"),
        ("fake", ["--set", "sweep.queue.limit=16KB"], 2, "allowed is a list"),
        ("fake", ["--set", "sweep.seed=[1]", "--set", "repetitions=2"], 2, "one of the two"),
        ("fake", ["--jobs", "0"], 2, "--jobs"),
    ],
)
def test_how_it_ends_is_its_exit_status(faked, tmp_path, capsys, name, options, status, said):
    config = tmp_path / f"{name}.yaml"
    planned(tmp_path, name)
    ended, _, err = invoke(capsys, str(config), "-o", str(tmp_path / "out"), *options)
    assert (ended, said in err.splitlines()[-1]) == (status, True), err


def test_a_folder_that_is_no_store_keeps_what_is_in_it(tmp_path):
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished/thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="did not make this folder, and unfinished is in it"):
        locked(tmp_path).__enter__()
    assert [path.name for path in tmp_path.rglob("*")] == ["unfinished", "thesis.txt"]
