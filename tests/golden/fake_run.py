"""An executor for tests: a run directory in no time, whose numbers come from the seed alone."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import polars as pl

from outcast.errors import GuestError, ReadBackError
from outcast.experiment import Experiment, dump
from outcast.files import write_json, write_text
from outcast.records.run_directory import (
    CaptureRecord,
    Counters,
    Manifest,
    RunDirectory,
    TrafficRecord,
)

NAME = "tests.golden.fake_run:execute"


def execute(experiment: Experiment, target: Path) -> None:
    """See outcast.sweep.task.Executor.

    Takes FAKE_RUN_S seconds. A name `fail-once`, `fail` or `die` does so; FAKE_RUN_MARKS is a
    folder where every call leaves a file.
    """
    marks = os.environ.get("FAKE_RUN_MARKS")
    earlier = 0
    if marks is not None:
        earlier = len(list(Path(marks).glob(f"{experiment.seed}-*")))
        (Path(marks) / f"{experiment.seed}-{os.getpid()}").touch()
    target.mkdir(parents=True)
    directory = RunDirectory(target)
    write_text(directory.config, dump(experiment))
    time.sleep(float(os.environ.get("FAKE_RUN_S", "0")))
    if experiment.name == "fail" and experiment.seed % 2:
        raise ReadBackError("s1-eth1", "limit", 1, 2)
    if experiment.name == "fail-once" and not earlier:
        raise GuestError("the guest has gone")
    if experiment.name == "die":
        os.abort()
    draw = random.Random(experiment.seed)
    capture = CaptureRecord(
        port="s1-eth1",
        direction="out",
        file="captures/s1-eth1.out.pcap",
        captured=1,
        received_by_filter=1,
        dropped_by_kernel=0,
    )
    directory.captures.mkdir()
    (target / capture.file).write_bytes(draw.randbytes(100) * 100)
    directory.write_counters(Counters(ports={}, hosts={}, captures=[capture]))
    ratio = draw.uniform(1, 8)
    summary = {
        "name": experiment.name,
        "engine": "virtual",
        "outcast_ratio": ratio,
        "jain_index": None,
        "classes": {"2": {"flows": 1, "mean_goodput_bps": 1e6 / ratio}},
        "drops": {"s1-eth2": {"packets": 5, "chains": {"3": 1}, "hops": [2]}},
        "warnings": [],
        "capture": {"trusted": experiment.name != "untrusted", "reasons": []},
        "wall_s": {"boot": time.time()},
    }
    write_json(directory.summary, summary)
    pl.DataFrame(
        {
            "flow": [0, 1],
            "src": pl.Series(["h1", f"h{draw.randint(2, 9)}"]).cast(pl.Categorical),
            "goodput_bps": [draw.uniform(0, 1e6) for _ in range(2)],
        }
    ).write_parquet(target / "flows.parquet")
    manifest = Manifest(
        outcast="0",
        name=experiment.name,
        engine="virtual",
        datapath="system",
        seed=experiment.seed,
        kernel={},
        versions={},
        requested={},
        effective={},
        traffic=TrafficRecord(t_start_ns=0, t_end_ns=1, duration_ns=1),
        flows=[],
        bottlenecks=[],
        captures=[capture],
        wall_s={"traffic": 0.0},
    )
    directory.write_manifest(manifest)
    directory.seal()
