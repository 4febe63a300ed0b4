"""`outcast why` on a run in the guest: causes, sums, timers and words, by the kernel's events."""

from pathlib import Path

import polars as pl
import pytest

from outcast.records.run import Run
from outcast.uses.why import overview, senders
from outcast.uses.why import recorded_events as of
from outcast.uses.why.causes import CAUSES
from outcast.uses.why.drops import reason_table
from tests import guest_runs

SMALL = f"""
name: small
topology: {{kind: linear, rivals: 4}}
links: {{rate: 1gbit, delay: 5us}}
queue: {{kind: tbf, limit: 16KB}}
transport: {{congestion_control: bic, min_rto: 2ms}}
flows: [{{from: 2-hop}}, {{from: 3-hop}}]
duration: 60ms
analysis: {{}}
trace: {{events: [{", ".join(of.EVENTS)}]}}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    """A run with losses and timeouts."""
    folder = tmp_path_factory.mktemp("why")
    (folder / "small.yaml").write_text(SMALL)
    guest_runs.run(folder / "small.yaml", folder / "run")
    return Run(Path(folder / "run"))


@pytest.fixture(scope="module")
def traced(run) -> senders.Traced:
    return senders.read_traced(run.directory)


def test_each_retransmission_has_a_cause_and_the_sums_are_the_counters(run, traced):
    compared = overview.compare(traced.every, run.counters)
    assert set(traced.again["cause"]) <= set(CAUSES)
    assert "rto" in traced.again["cause"]
    assert compared.filter(pl.col("kernel") != pl.col("events")).rows() == []
    assert {"TcpRetransSegs", "TcpExtTCPTimeouts"} <= set(compared["counter"])


def test_each_drop_has_a_reason_and_the_sums_are_the_queues_counters(run, traced):
    table = reason_table(traced.drops, run.counters.links)
    queued = table.filter(pl.col("counter").is_not_null())
    assert queued["note"].unique().to_list() == ["equal"]
    assert queued["qdisc"].null_count() == 0
    assert traced.drops["reason"].null_count() == 0
    assert traced.drops["where"].null_count() == 0


def test_the_series_is_the_windows_that_the_samples_saw(run):
    """A sample is the state of its time; both come from the same kernel by other ways."""
    samples = run.table("sockets").select("flow", "cwnd", t_ns="t").cast({"flow": pl.Int64})
    exact = pl.read_parquet(run.directory.trace / "tcp.parquet").rename({"cwnd": "exact"})
    both = samples.sort("t_ns").join_asof(
        exact.sort("t_ns"), on="t_ns", by="flow", check_sortedness=False
    )
    known = both.drop_nulls("exact")
    assert known.height
    # Samples of one time are taken one after another, so a state may be newer than its time.
    assert (known["cwnd"] == known["exact"]).mean() > 0.8
