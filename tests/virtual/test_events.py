"""Changes during a run, in the guest: exact in time, read back, and replayed to the byte."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from outcast.records.run_directory import RunDirectory
from tests import guest_runs
from tests.guest_runs import captures

MS = 10**6
NETWORK = (
    "topology.rivals=2",
    "links.rate=100mbit",
    "analysis={bin: 10ms}",
    "noise.profile=jitter",  # rates are exact
    "flows=[{from: 2-hop, hosts: 1}, {from: 3-hop, hosts: 2}]",
)


def run(target: Path, *settings: str) -> dict[str, Any]:
    """A run's summary. The run has to be trusted."""
    return guest_runs.run("linear-12", target, *NETWORK, *settings)


def goodput_bps(target: Path, begin_ms: int, end_ms: int, flow: int | None = None) -> float:
    table = pl.read_parquet(target / "throughput.parquet")
    table = table.filter(pl.col("t").is_between(begin_ms * MS, end_ms * MS, closed="left"))
    if flow is not None:
        table = table.filter(flow=flow)
    return float(table.group_by("t").agg(pl.sum("goodput_bps"))["goodput_bps"].mean() or 0)


def test_a_bottleneck_that_moves_away_is_told(tmp_path):
    summary = run(
        tmp_path / "run", "duration=1s", "events=[{at: 100ms, from: s2, to: s1, rate: 2mbit}]",
        "flows=[{from: 3-hop, hosts: 2}]", "links.overrides=[{from: s1, to: h1, rate: 50mbit}]",
    )  # fmt: skip
    (idle,) = [line for line in summary["warnings"] if "was idle for" in line]
    # Of both rates together s2-eth1 was busy for too little to say that packets waited there.
    assert idle.endswith("; small congestion windows, or a queue elsewhere, held them back")


def test_goodput_follows_the_rate(tmp_path):
    settings = (
        "duration=200ms",
        "events=[{at: 100ms, from: s1, to: h1, rate: 50mbit, delay: 1ms, limit: 24KB}]",
    )
    summary = run(tmp_path / "one", *settings)
    assert goodput_bps(tmp_path / "one", 40, 100) > 85e6
    assert 40e6 < goodput_bps(tmp_path / "one", 120, 200) < 50e6
    assert 0.9 < summary["queue"]["s1-eth1"]["utilisation"] <= 1.01
    bins = pl.read_parquet(tmp_path / "one" / "bins.parquet")
    assert bins.filter(pl.col("t") >= 120 * MS)["utilisation"].max() <= 1.02
    changes = RunDirectory(tmp_path / "one").read_manifest().changes
    assert [(c.what, c.requested, c.shown) for c in changes] == [
        ("rate_bps", 50_000_000, 50_000_000),
        ("delay_ns", MS, MS),
        ("limit_bytes", 24 * 1024, 24 * 1024),
    ]
    assert all(0 <= (c.applied_ns or 0) - c.at_ns < 10_000 for c in changes)
    # Nothing that was queued is lost by a change.
    assert summary["capture"]["link_down_drops"] == 0


def test_a_link_fails_and_comes_back(tmp_path):
    summary = run(
        tmp_path / "run",
        "duration=300ms",
        "transport.min_rto=10ms",
        "events=[{at: 100ms, between: [h1, s1], up: false}, {at: 120ms, between: [h1, s1], "
        "up: true}, {at: 200ms, between: [s1, s2], up: false}, "
        "{at: 210ms, between: [s1, s2], up: true}]",
    )
    assert goodput_bps(tmp_path / "run", 110, 120) == 0
    for flow in range(3):
        assert goodput_bps(tmp_path / "run", 150, 200, flow) > 0
        assert goodput_bps(tmp_path / "run", 210, 300, flow) > 0
    assert summary["capture"]["link_down_drops"] > 0
    assert summary["queue"]["s1-eth1"]["utilisation"] <= 1.01
    bins = pl.read_parquet(tmp_path / "run" / "bins.parquet").filter(t=110 * MS)
    assert bins["utilisation"].to_list() == [None]


def test_a_link_that_is_down_at_the_end_stays_down(tmp_path):
    run(tmp_path / "run", "duration=200ms", "events=[{at: 60ms, between: [s1, s2], up: false}]")
    manifest = RunDirectory(tmp_path / "run").read_manifest()
    assert [(c.what, c.at_ns, c.shown) for c in manifest.changes] == [("up", 60 * MS, 0)] * 2
    assert goodput_bps(tmp_path / "run", 80, 200, 1) == 0
    assert goodput_bps(tmp_path / "run", 80, 200, 0) > 0
    # Nothing comes over the link afterwards either.
    packets = pl.read_parquet(tmp_path / "run" / "packets.parquet")
    of_flow_1 = packets.filter(flow=1)["t_in"] - manifest.traffic.t_start_ns
    assert of_flow_1.max() < 62 * MS


def test_a_link_follows_its_trace(tmp_path):
    rates_mbps = [8, 24, 5, 40, 12, 0, 30, 9, 18, 6]
    rows = [f"{20 * place},{rate}" for place, rate in enumerate(rates_mbps)]
    (tmp_path / "cell.csv").write_text("\n".join(["time_ms,rate_mbps", *rows]) + "\n")
    override = f"{{from: s1, to: h1, rate: {{trace: {tmp_path}/cell.csv}}}}"
    summary = run(
        *(tmp_path / "run", "duration=200ms", "queue={kind: tbf, limit: 128KB}"),
        f"links={{rate: 100mbit, overrides: [{override}]}}",
    )
    (rates,) = RunDirectory(tmp_path / "run").read_rates().ports
    # The trace's rates, the mean one at the end, and those of the frames between.
    assert (rates.port, rates.skipped) == ("s1-eth1", 0)
    assert 11 <= len(rates.t_ns) <= 20
    assert rates.latest_ns < 10_000
    bins = pl.read_parquet(tmp_path / "run" / "bins.parquet").sort("t")
    used = bins.filter(pl.col("t").is_between(40 * MS, 180 * MS, closed="left"))["utilisation"]
    # The queue is never empty, so every bin is full, but for the frame that its ends cut.
    assert 0.97 < summary["queue"]["s1-eth1"]["utilisation"] < 1.03
    assert used.len() == 14
    assert 0.9 < float(used.mean()) < 1.1


def test_steps_of_a_millisecond_do_not_fall_behind(tmp_path):
    """1.5 and 3.7 frames in turn, into which a frame's end never falls twice alike."""
    rows = [f"{ms},{(1.5, 3.7)[ms % 2] * 12.304:.6f}" for ms in range(100)]
    (tmp_path / "cell.csv").write_text("\n".join(["time_ms,rate_mbps", *rows]) + "\n")
    override = f"{{from: s1, to: h1, rate: {{trace: {tmp_path}/cell.csv}}}}"
    run(
        *(
            tmp_path / "run",
            "flows=[]",
            "duration=100ms",
            "queue={kind: pfifo, limit: 9000 packets}",
        ),
        "workloads=[{kind: constant_rate, from: h2, to: h1, rate: 90mbit, datagram: 1472B}]",
        *(f"links={{rate: 100mbit, overrides: [{override}]}}", "noise.profile=exact"),
    )
    begin_ns = RunDirectory(tmp_path / "run").read_manifest().traffic.t_start_ns
    packets = pl.read_parquet(tmp_path / "run" / "packets.parquet")
    left_ns = packets.filter(pl.col("payload") == 1472)["t_out"].drop_nulls().sort() - begin_ns
    for ms in range(10, 100, 2):
        begun = int((left_ns < ms * MS).sum())
        assert abs(begun - ms / 2 * 5.2) < 2, ms


def test_the_example_of_a_cellular_link_stands_alone(tmp_path):
    """A result replays to the byte from its own config.yaml, where the user's file never was."""
    first, again = tmp_path / "first", tmp_path / "elsewhere" / "again"
    examples = Path(__file__).parents[2] / "configs" / "examples"
    short = ("duration=200ms", "analysis.windows=[]")
    guest_runs.run(examples / "cellular.yaml", first, *short)
    guest_runs.run(first / "config.yaml", again)
    copy = first / "sources" / "0-cellular.csv"
    assert copy.read_bytes() == (examples / "cellular.csv").read_bytes()
    assert "sources/0-cellular.csv" in RunDirectory(first).read_manifest().files
    assert captures(first) == captures(again)
    assert (again / "sources").exists()


def require_levels_of_the_kernel(target: Path, port: str) -> None:
    """Requires the queue's length and drops to be the kernel's at every sample."""
    begin_ns = RunDirectory(target).read_manifest().traffic.t_start_ns
    changes = pl.scan_parquet(target / "queue.parquet").filter(egress=port).collect()
    at_ns = (changes["t"] - begin_ns).to_numpy()
    samples = pl.read_parquet(target / "ports.parquet").filter(port=port)
    last = at_ns.searchsorted(samples["t"].to_numpy(), side="right")
    levels = [0, *changes["queue_bytes"]]
    assert [levels[place] for place in last] == samples["backlog_bytes"].to_list()
    assert samples["backlog_bytes"].max() > 15_000


@pytest.mark.parametrize(
    "events",
    [
        "[{at: 100ms, from: s1, to: h1, delay: 30ms}, {at: 200ms, from: s1, to: h1, delay: 1ms}]",
        "[{at: 150ms, between: [s1, h1], up: false}, {at: 170ms, between: [s1, h1], up: true}]",
    ],
)
def test_the_queue_is_the_kernels_whatever_happens_to_its_link(events, tmp_path):
    summary = run(
        tmp_path / "run",
        *("duration=300ms", "samples.every=1ms", "queue={kind: pfifo, limit: 20 packets}"),
        *("links.overrides=[{from: s1, to: h1, delay: 5ms}]", f"events={events}"),
        *("transport.min_rto=10ms", "analysis={from: 50ms}", "noise.profile=exact"),
    )
    require_levels_of_the_kernel(tmp_path / "run", "s1-eth1")
    changed, capacity = "delay" in events, summary["queue"]["s1-eth1"]["capacity"]
    assert (summary["queue"]["s1-eth1"]["switch_latency_us"] == 0) is changed
    assert (capacity["unit"], capacity["at_least"]) == ("bytes", 20 * 1514)
    for drops in summary["drops"].values():
        assert sum(int(length) * n for length, n in drops["chains"].items()) == drops["dropped"]


def test_drops_are_the_kernels_at_the_end_of_the_duration(tmp_path):
    # Packets that came in are on their way for longer than the queue holds any.
    summary = run(
        tmp_path / "run",
        *("duration=300ms", "queue={kind: pfifo, limit: 20 packets}"),
        "links.overrides=[{from: s1, to: h1, delay: 60ms}]",
        *("transport.congestion_control=reno", "transport.min_rto=10ms", "noise.profile=exact"),
    )
    counted = summary["losses"]["ports"]["s1-eth1"]["lost"]["queue"]
    assert sum(drops["dropped"] for drops in summary["drops"].values()) == counted > 0
    bins = pl.read_parquet(tmp_path / "run" / "bins.parquet")
    assert bins["dropped"].sum() == counted
