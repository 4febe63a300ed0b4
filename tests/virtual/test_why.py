"""`outcast why` on a run in the guest: causes, sums, timers and words, by the kernel's events."""

from pathlib import Path

import polars as pl
import pytest

from outcast.analysis.trace import events as of
from outcast.analysis.trace import senders, sums
from outcast.analysis.trace.causes import CAUSES
from outcast.analysis.trace.drops import reason_table
from outcast.analysis.trace.timers import armed_at, tick_zero_ns
from outcast.records.run import Run
from outcast.view.terminal import why
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
    compared = sums.compare(traced.every, run.counters)
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


def test_a_timer_goes_off_when_it_is_said_to_be_due(traced):
    timers = traced.senders["tcp_timer"]
    zero_ns = tick_zero_ns(timers)
    fired = timers.filter(pl.col("action") == of.FIRED, pl.col("kind") != of.TIME_DACK)
    assert fired.height
    for t_ns, *socket in fired.select("t_ns", *of.SOCKET).iter_rows():
        own = pl.all_horizontal(
            pl.col(name) == value for name, value in zip(of.SOCKET, socket, strict=True)
        )
        timer = armed_at(timers.filter(own), t_ns - 1, zero_ns)
        assert (timer.due_ns, timer.end, timer.end_ns) == (t_ns, "fired", t_ns)


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


def test_a_wait_in_words(run, traced):
    timeout = traced.again.filter(pl.col("cause") == "rto").row(0, named=True)
    words = "\n".join(why.at(run, timeout["flow"], timeout["t_ns"] - 1, "table"))
    until = f"until {timeout['t_ns'] / 1e6:.6f} ms"
    assert f"waits for its retransmission timer (tcp_retransmit_timer), {until}." in words
    assert f"it went off at {timeout['t_ns'] / 1e6:.6f} ms" in words
