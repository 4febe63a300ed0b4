"""Samples of sockets and queues against what the captures and the counters say of the same run."""

import json
from pathlib import Path

import polars as pl
import pytest

from tests import guest_runs

EVERY_NS = 5_000_000


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Two DCTCP flows for 200 ms through one switch that marks."""
    target = tmp_path_factory.mktemp("sampling") / "run"
    guest_runs.run(
        *("t17-windows", target, "duration=200ms", "samples.every=5ms", "capture.ports=all"),
        *("analysis.windows=[50ms]", "transport.congestion_control=dctcp", "transport.ecn=true"),
        "queue={kind: ecn_threshold, limit: 100 packets, threshold: 20 packets}",
    )
    return target


def table(run: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(run / f"{name}.parquet")


def test_samples_are_taken_when_they_are_due(run):
    sockets = table(run, "sockets")
    for flow in (0, 1):
        times = sockets.filter((pl.col("flow") == flow) & (pl.col("t") < 200_000_000))["t"]
        assert len(times) == 40
        late = times - pl.Series(range(40)) * EVERY_NS
        # Timers of the guest end with its next tick, 1 ms.
        assert late.min() >= 0
        assert late.max() < 1_100_000
    effective = json.loads((run / "manifest.json").read_text())["effective"]
    assert effective["samples.every_ns"] == EVERY_NS
    assert effective["samples.missed"] == 0
    assert effective["samples.longest_ns"] < 100_000


def test_sockets_agree_with_the_captures(run):
    sockets = table(run, "sockets").filter(pl.col("t") <= 200_000_000)
    packets = table(run, "packets")
    begin = json.loads((run / "manifest.json").read_text())["traffic"]["t_start_ns"]
    for flow in (0, 1):
        mine = sockets.filter(flow=flow)
        first, last = mine.row(4, named=True), mine.row(-1, named=True)
        acked = last["bytes_acked"] - first["bytes_acked"]
        between = pl.col("t_out").is_between(begin + first["t"], begin + last["t"])
        left = packets.filter((pl.col("flow") == flow) & between)["payload"].sum()
        # What left and is not yet acknowledged is a window at the most, at either end.
        window = int(mine["cwnd"].max()) * 1448
        assert abs(acked - left) <= window
    # The sender's round trip: what was captured from the switch on, and the links before it.
    captured = table(run, "rtt")["rtt_ns"].median()
    sampled = sockets.filter(pl.col("t") > 50_000_000)["srtt_us"].median()
    assert isinstance(captured, float)
    assert isinstance(sampled, float)
    assert captured / 1e3 <= sampled <= captured / 1e3 + 200


def test_marks_and_drops_agree_with_the_counters(run):
    summary = json.loads((run / "summary.json").read_text())
    ports = table(run, "ports").filter(port="s1-eth1")
    sockets = table(run, "sockets")
    in_duration = ports.filter(pl.col("t") < (summary["duration_s"] + 0.005) * 1e9)["marks"]
    assert summary["queue"]["s1-eth1"]["marks"] == in_duration[-1] - in_duration[0] > 0
    echoed = sockets.group_by("flow").agg(pl.max("delivered_ce"))["delivered_ce"].sum()
    assert ports["marks"][-1] > 100
    # Every segment marked is acknowledged as such, but for those on the way at a flow's end.
    assert abs(echoed - ports["marks"][-1]) <= 0.02 * ports["marks"][-1] + 50
    assert ports["drops"][-1] <= summary["capture"]["qdisc_drops"]
    assert sockets["dctcp_alpha"].drop_nulls().is_between(0, 1).all()
    assert sockets["dctcp_alpha"].drop_nulls().len() > 60
    # The queue that was found when sampled is one that the captures' replay knows.
    assert ports["backlog_packets"].max() <= 100


def test_what_is_stored_is_analysed_again_to_the_byte(run):
    before = {name: (run / name).read_bytes() for name in ("summary.json", "sockets.parquet")}
    assert guest_runs.outcast("analyze", run).returncode == 0
    assert {name: (run / name).read_bytes() for name in before} == before
