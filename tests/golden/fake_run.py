"""An executor for tests. It makes a run directory at once, with numbers from the seed alone."""

import os
import random
import shutil
import time
from pathlib import Path

import polars as pl

from outcast.errors import GuestError, ReadBackError
from outcast.experiment import Experiment, dump
from outcast.experiment.links import RateTrace
from outcast.files import write_text
from outcast.records.counters import Counters
from outcast.records.port_summaries import CaptureSummary, PortDrops
from outcast.records.run_directory import RunDirectory
from outcast.records.summary import ClassSummary, CompareSummary, GroupSummary, Summary
from tests import records

NAME = "tests.golden.fake_run:execute"


def execute(experiment: Experiment, target: Path) -> None:
    """See outcast.sweep.worker.Executor.

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
    for override in experiment.links.overrides:
        if isinstance(override.rate_bps, RateTrace):
            directory.sources.mkdir(exist_ok=True)
            shutil.copy(override.rate_bps.trace, directory.sources)
    time.sleep(float(os.environ.get("FAKE_RUN_S", "0")))
    if experiment.name == "fail" and experiment.seed % 2:
        raise ReadBackError("s1-eth1", "limit", 1, 2)
    if experiment.name == "fail-once" and not earlier:
        raise GuestError("the guest has gone")
    if experiment.name == "die":
        os.abort()
    draw = random.Random(experiment.seed)
    capture = records.capture("captures/s1-eth1.out.pcap")
    directory.captures.mkdir()
    (target / capture.file).write_bytes(draw.randbytes(100) * 100)
    directory.write_counters(Counters(ports={}, hosts={}, captures=[capture]))
    ratio = draw.uniform(1, 8)
    write_text(directory.summary, _summary(experiment, ratio).model_dump_json())
    pl.DataFrame(
        {
            "flow": [0, 1],
            "src": pl.Series(["h1", f"h{draw.randint(2, 9)}"]).cast(pl.Categorical),
            "goodput_bps": [draw.uniform(0, 1e6) for _ in range(2)],
        }
    ).write_parquet(target / "flows.parquet")
    directory.write_manifest(
        records.manifest(
            outcast="0",
            name=experiment.name,
            seed=experiment.seed,
            captures=[capture],
            wall_s={"traffic": 0.0},
        )
    )
    directory.seal()


def _summary(experiment: Experiment, ratio: float) -> Summary:
    lone = ClassSummary(
        flows=1, mean_goodput_bps=1e6 / ratio, min_goodput_bps=0, timeouts=None, retransmits=None
    )
    port = PortDrops(packets=5, dropped=3, longest_chain=3, chains={"3": 1}, blackouts=0, hops=[2])
    capture = CaptureSummary(
        tcpdump_kernel_drops=0,
        inferred_drops=3,
        qdisc_drops=3,
        unmatched=0,
        in_flight=0,
        trusted=experiment.name != "disagreeing",
        reasons=[],
    )
    named = {group.name: group for group in experiment.flows if group.name is not None}
    groups = {
        name: GroupSummary(
            **lone.model_dump(exclude={"mean_goodput_bps"}),
            mean_goodput_bps=1e6 / (place + 1),
            congestion_controls=["cubic"],
        )
        for place, name in enumerate(named)
    }
    compare = experiment.analysis.compare
    return Summary(
        windows_from="all active",
        group_by="name" if named else "hops",
        groups={"name": groups} if named else {},
        compare=CompareSummary(
            by="name", groups=compare, mean_goodput_bps=(None, None), ratio=ratio
        )
        if compare is not None
        else None,
        name=experiment.name,
        engine="virtual",
        duration_s=1,
        interval="whole",
        start_s=0,
        end_s=1,
        jain_index=None,
        total_goodput_bps=1e6,
        classes={"2": lone},
        outcast_ratio=ratio,
        windows={},
        drops={"s1-eth2": port},
        flow_chains={},
        tcp={},
        queue={},
        phase={},
        fairness={},
        convergence=[],
        synchronisation=None,
        samples=None,
        warnings=[],
        capture=capture,
        wall_s={"boot": time.time()},
    )
