"""What counts in a part of a run, and what limited its flows, where the answer is known."""

from pathlib import Path
from typing import Any

import dpkt
import polars as pl
import pytest

import outcast
from outcast.records.run import Run

DUMBBELL = {
    "engine": "virtual",
    "topology": {"kind": "linear", "rivals": 2},
    "links": {"rate": "1gbit", "delay": "10us"},
    "noise": {"profile": "exact"},
    "transport": {"congestion_control": "cubic"},
}


def run_of(path: Path, **keys: Any) -> Run:
    return outcast.run(outcast.load("configs/linear-12.yaml", {**DUMBBELL, **keys}), path)


START_NS, END_NS = 400_000_000, 1_000_000_000
DELAY_NS = 2_000_000
"""Of the bottleneck's link. Packets count when they have passed it and reach the queue."""


@pytest.fixture(scope="module", params=["all active", "asked"])
def staggered(request, tmp_path_factory) -> Run:
    """Three flows of 20 Mbps, of which the last starts late. Before it losses are many."""
    late = request.param == "all active"
    flows = [{"from": "3-hop"}, {"from": "2-hop", **({"start": "400ms"} if late else {})}]
    return run_of(
        tmp_path_factory.mktemp("staggered") / "run",
        **{
            "links.overrides": [{"from": "s1", "to": "h1", "rate": "20mbit", "delay": "2ms"}],
            "queue": {"kind": "pfifo", "limit": "20 packets"},
            "flows": flows,
            "duration": "1s",
            "analysis": {"bin": "20ms", "windows": []} | ({} if late else {"from": "400ms"}),
        },
    )


def captured(run: Run, port: str) -> list[int]:
    """When the IP packets of a capture came, after the traffic's start, by dpkt."""
    t_start_ns = run.manifest.traffic.t_start_ns
    wanted = {flow.dst_ip for flow in run.manifest.flows}
    with (run.directory.captures / f"{port}.in.pcap").open("rb") as file:
        reader = dpkt.pcap.Reader(file)
        return [
            round(stamp * 10**9) - t_start_ns
            for stamp, frame in reader
            if isinstance(packet := dpkt.ethernet.Ethernet(frame).data, dpkt.ip.IP)
            and ".".join(map(str, packet.dst)) in wanted
        ]


def test_every_number_is_of_the_interval(staggered):
    summary, flows = staggered.summary, staggered.table("flows")
    assert (summary.start_s, summary.end_s) == (0.4, 1.0)
    reached_ns = pl.col("t_in") - staggered.manifest.traffic.t_start_ns + DELAY_NS
    inside = reached_ns.is_between(START_NS, END_NS, closed="left")
    table = staggered.table("packets", whole=True).with_columns(
        pl.col("verdict", "ingress").cast(pl.String)
    )
    lost = table.filter(verdict="dropped")
    assert 0 < lost.filter(inside).height < lost.height == summary.capture.qdisc_drops
    for port, drops in summary.drops.items():
        reached = [at_ns + DELAY_NS for at_ns in captured(staggered, port)]
        came = sum(START_NS <= at_ns < END_NS for at_ns in reached)
        assert drops.packets == came
        assert drops.dropped == lost.filter(inside, ingress=port).height
    of_flows = lost.filter(inside).group_by("flow").len()
    assert flows["dropped"].sum() == of_flows["len"].sum()
    groups = summary.grouped("sender").values()
    assert sum(group.dropped or 0 for group in groups) == of_flows["len"].sum()
    chains = sum(int(length) * n for group in groups for length, n in group.chains.items())
    assert chains >= of_flows["len"].sum() - max(flows["longest_chain"])


def test_the_kernels_counts_are_of_the_interval(staggered):
    flows = staggered.table("flows")
    hosts = staggered.counters.hosts
    for row in flows.iter_rows(named=True):
        samples = staggered.table("sockets").filter(flow=row["flow"]).sort("t").to_dicts()
        # A sample is due at both ends, and comes some nanoseconds later.
        first = next(sample for sample in samples if sample["t"] >= START_NS)
        last = next(sample for sample in samples if sample["t"] >= END_NS)
        assert row["retransmits"] == last["retransmits"] - first["retransmits"]
        assert row["timeouts"] == last["timeouts"] - first["timeouts"]
        assert row["retransmits"] <= hosts[row["src"]].within("TcpRetransSegs")
    whole = sum(host.within("TcpRetransSegs") for host in hosts.values())
    assert 0 < flows["retransmits"].sum() < whole
    classes = staggered.summary.classes.values()
    assert sum(part.retransmits or 0 for part in classes) == flows["retransmits"].sum()


@pytest.mark.parametrize(
    ("limit", "rate", "transport", "least_mbps", "most_mbps"),
    [
        # A buffer of S over a round trip of R sends 0.5 to 0.7 S/R of payload, because it counts
        # packets with their bookkeeping (outcast/plan/hints.py).
        ("send_buffer", "100mbit", {"send_buffer": "512KB", "receive_buffer": "16MB"}, 20.9, 29.4),
        # Within 1 ms the kernel's clock, which counts whole jiffies, sees next to nothing.
        ("send_buffer", "1gbit", {"send_buffer": "32KB", "receive_buffer": "16MB"}, 200, 400),
        ("receiver", "100mbit", {"send_buffer": "16MB", "receive_buffer": "256KB"}, 10.4, 14.7),
        ("network", "20mbit", {"send_buffer": "16MB", "receive_buffer": "16MB"}, 18, 20),
    ],
)
def test_what_limited_a_flow(limit, rate, transport, least_mbps, most_mbps, tmp_path):
    """The first two seconds, which slow start may take, are left out."""
    delay = "500us" if rate == "1gbit" else "50ms"
    run = run_of(
        tmp_path / "run",
        **{
            "links.overrides": [
                {"from": "s1", "to": "h1", "rate": rate, "delay": delay},
                {"from": "h1", "to": "s1", "rate": "1gbit", "delay": delay},
            ],
            "queue": {"kind": "pfifo", "limit": "400 packets"},
            "transport": {"congestion_control": "cubic", **transport},
            "flows": [{"from": "2-hop"}],
            "duration": "5s",
            "analysis": {"bin": "100ms", "windows": [], "from": "2s"},
        },
    )
    assert run.trusted
    assert least_mbps < run.summary.total_goodput_bps / 1e6 < most_mbps
    (limited,) = run.summary.limited.values()
    assert getattr(limited, limit) > 0.98
    assert not limited.at_least
    names = {"send_buffer": "its own send buffer", "receiver": "the receiver's window"}
    warned = [line for line in run.summary.warnings if "of the time by" in line]
    assert [names[limit] in line for line in warned] == ([True] if limit in names else [])


def test_flows_of_given_bytes_that_hardly_overlap(tmp_path):
    flows = [{"from": "3-hop", "bytes": "1400B"}, {"from": "2-hop", "bytes": "1MB"}]
    run = run_of(tmp_path / "run", **{"flows": flows, "duration": "400ms"})
    first = run.table("flows").filter(flow=0)
    # iperf's client sends 80 bytes as it connects, before the traffic.
    assert first["goodput_bytes"].to_list() == [1400 - 80]
    assert run.summary.interval == "all active"
    assert any("less than 10 base round trips" in line for line in run.summary.warnings)
