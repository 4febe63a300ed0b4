"""A sweep of real runs, killed and resumed."""

import random
import signal
import subprocess
import time
from pathlib import Path

import polars as pl

from outcast import analysis
from outcast.engines import ledger
from outcast.records.run_directory import RunDirectory
from outcast.sweep import dataset
from tests import guest_runs

CONFIG = """\
name: small
topology: {kind: linear, rivals: 1}
links: {rate: 100mbit}
queue: {kind: tbf, limit: 16KB}
transport: {congestion_control: cubic, min_rto: 2ms}
flows: [{from: 2-hop}, {from: 3-hop}]
duration: 100ms
analysis: {bin: 10ms}
engine: virtual
sweep:
  queue.limit: [16KB, 64KB]
  captures: compress
"""
DEADLINE_S = 200.0


def start(
    config: Path, target: Path, *options: str, where: Path | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*guest_runs.OUTCAST, "sweep", str(config), "--jobs", "1", "-o", str(target), *options],
        cwd=where,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(config: Path, target: Path, *options: str, where: Path | None = None) -> str:
    with start(config, target, *options, where=where) as process:
        said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, said
    return said


def wait_for_finished(process: subprocess.Popen[str], target: Path, count: int) -> None:
    end = time.monotonic() + DEADLINE_S
    while len(list(target.glob("runs/*"))) < count:
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)


def test_killed_in_the_middle_and_resumed_it_gives_the_same_dataset(tmp_path):
    config = tmp_path / "small.yaml"
    config.write_text(CONFIG)
    whole, target = tmp_path / "whole", tmp_path / "target"
    assert "2 of 2 runs finished" in finish(config, whole)
    with start(config, target) as process:
        wait_for_finished(process, target, 1)
        time.sleep(random.Random(1).uniform(0.5, 2.5))
        process.send_signal(signal.SIGKILL)
    # From another folder, too, which then is on Python's path.
    said = finish(target / "sweep.yaml", target, "--resume", where=tmp_path)
    assert "1 are finished, 1 are left" in said
    for name in ("runs.parquet", "run_flows.parquet"):
        assert (target / name).read_bytes() == (whole / name).read_bytes()
    found = dataset.load(target)
    assert found.runs["trusted"].all()
    assert found.runs["queue.limit"].to_list() == ["16KB", "64KB"]
    # More room in the queue, fewer drops: both runs came from what they say they came from.
    by_limit = found.flows.group_by("queue.limit", maintain_order=True)
    dropped = by_limit.agg(pl.col("dropped").sum())["dropped"].to_list()
    assert dropped[0] > dropped[1]
    # What the killed run left on the machine went with the resumed one.
    entries = ledger.read_entries(ledger.default_folder())
    assert not [each for each in entries if any(str(tmp_path) in f for f in each.folders)]
    # Compressed captures are read as before.
    run = RunDirectory(target / "runs" / found.runs["run"][0])
    before = run.summary.read_bytes()
    analysis.analyze(run)
    assert run.summary.read_bytes() == before
