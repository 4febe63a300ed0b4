"""Routers in the guest: closed forms through one, TTLs, both families, ways, events, fates."""

from pathlib import Path
from typing import Any

import dpkt
import networkx as nx
import numpy as np
import polars as pl
import pytest
import yaml

import outcast
from outcast.cli import invoke
from tests import guest_runs

EXAMPLE = Path(__file__).parents[2] / "configs" / "examples" / "routed.yaml"
SHORT = ("duration=200ms", "analysis.windows=[]", "noise.profile=exact")
FRAME_NS = 12_304
"""A full frame at 1 Gbps with preamble, gap and checksum: 1538 B."""

GRAPH = """graph [
  node [ id 0 label "h1" kind "host" ]
  node [ id 1 label "s1" ]
  node [ id 2 label "r1" kind "router" ]
  node [ id 3 label "h2" kind "host" ]
  node [ id 4 label "h3" kind "host" of "h2" ]
  node [ id 5 label "s2" ]
  edge [ source 0 target 1 ]
  edge [ source 1 target 2 ]
  edge [ source 2 target 3 ]
  edge [ source 4 target 5 ]
  edge [ source 5 target 2 ]
]
"""
DEEP = {"kind": "pfifo", "limit": "10000 packets"}
CONFIG: dict[str, Any] = {
    "name": "one-router",
    "topology": {"kind": "graph", "path": "net.graphml"},
    "links": {"rate": "10gbit", "delay": "10us", "overhead": "ethernet"},
    "queue": {"kind": "pfifo", "limit": "20 packets"},
    "transport": {"congestion_control": "cubic"},
    "flows": [{"from": "h1", "to": "h2"}],
    "duration": "100ms",
    "analysis": {"windows": [], "bin": "10ms"},
    "noise": {"profile": "exact"},
    "engine": "virtual",
}


def made(folder: Path, graph: str = GRAPH, /, **settings: Any) -> outcast.Run:
    nx.write_graphml(nx.parse_gml(graph, label="id"), folder / "net.graphml")
    config = CONFIG | settings
    (folder / "own.yaml").write_text(yaml.safe_dump(config))
    guest_runs.run(folder / "own.yaml", folder / "run")
    return outcast.open_run(folder / "run")


def ttls(file: Path) -> set[tuple[str, int]]:
    """The last byte of each packet's source, and its TTL or hop limit."""
    found = set()
    for _, frame in dpkt.pcap.Reader(file.open("rb")):
        ip = dpkt.ethernet.Ethernet(frame).data
        found.add((ip.src[-1], ip.hlim if isinstance(ip, dpkt.ip6.IP6) else ip.ttl))
    return found


def read(run: outcast.Run, table: str) -> pl.DataFrame:
    return pl.read_parquet(run.directory.path / f"{table}.parquet")


SLOW = {**CONFIG["links"], "overrides": [{"from": "r1", "to": "h2", "rate": "1gbit"}]}
"""The router's port is the bottleneck."""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> outcast.Run:
    return made(tmp_path_factory.mktemp("router"), links=SLOW)


def test_a_router_sends_full_frames_without_a_gap(run):
    """What its port counts as lost is what captures lack."""
    (bottleneck,) = run.manifest.bottlenecks
    assert (bottleneck.egress, bottleneck.routed) == ("r1-eth1", True)
    packets = read(run, "packets").filter(pl.col("payload") == 1448, pl.col("t_in") > 0)
    left = packets.filter(pl.col("verdict") == "forwarded").sort("t_out")
    gaps = np.diff(left["t_out"].to_numpy())
    # The first frames find the port's token bucket full.
    assert np.mean(gaps == FRAME_NS) > 0.99
    assert run.summary.capture.inferred_drops == run.summary.capture.qdisc_drops > 0


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_a_ping_takes_the_round_trip_without_queues(family, tmp_path):
    """The way is h1 s1 r1 h2: three links of 10 us and the frame's own time, each way."""
    probes = [{"from": "h1", "to": "h2", "every": "10ms", "start": "5ms"}]
    more = {"addressing": family, "flows": [], "probes": probes}
    run = made(tmp_path, GRAPH.replace(' of "h2"', ""), **more)
    (took_ns,) = read(run, "probes")["rtt_ns"].unique()
    frame_bytes = {"ipv4": 14 + 20 + 8 + 56, "ipv6": 14 + 40 + 8 + 56}[family] + 24
    assert took_ns == pytest.approx(2 * 3 * (10_000 + frame_bytes * 8 / 10), abs=6)


def test_a_host_with_two_links_sends_by_both_of_a_routers_ports(tmp_path):
    """Multipath TCP from two interfaces of h2 in two subnets."""
    mptcp = {"mptcp": {"subflows": 2, "over": "interfaces"}}
    run = made(
        tmp_path,
        flows=[{"from": "h2", "to": "h1", "transport": mptcp}],
        links={"rate": "1gbit", "delay": "10us"},
        bottleneck={"port": "r1-eth0"},
    )
    inputs = read(run, "packets").filter(pl.col("payload") > 0)["ingress"]
    assert set(inputs) == {"r1-eth1", "r1-eth2"}


@pytest.mark.parametrize("addressing", ["ipv4", "ipv6"])
def test_the_way_back_goes_by_another_router(addressing, tmp_path):
    target = tmp_path / "run"
    more = (*SHORT, "capture.ports=all", f"addressing={addressing}", "probes=[]")
    guest_runs.run(EXAMPLE, target, *more)
    captures = target / "captures"
    # h1 and h2 end with 1 and 2, and so do h3 and h4 in their subnet.
    assert ttls(captures / "s1-eth3.out.pcap") == {(1, 64), (2, 64)}
    assert ttls(captures / "r1-eth1.out.pcap") == {(1, 63), (2, 63)}
    assert ttls(captures / "s2-eth3.in.pcap") == {(1, 62), (2, 62)}
    assert ttls(captures / "r3-eth1.out.pcap") == {(1, 62)}
    assert ttls(captures / "r2-eth0.out.pcap") == {(2, 63)}
    assert ttls(captures / "s1-eth3.in.pcap") == {(1, 61), (2, 62)}
    assert guest_runs.captures(target)["r3-eth0.out.pcap"].__len__() == 24
    # What the routers drop is told apart from the rest of the way.
    ports = outcast.open_run(target).summary.losses.ports
    assert {port for port, part in ports.items() if any(part.lost.values())} == {"r1-eth1"}


def test_events_at_a_router_are_on_time(tmp_path):
    change = {"at": "50ms", "from": "r1", "to": "h2", "rate": "100mbit"}
    run = made(tmp_path, links=SLOW, events=[change], queue=DEEP)
    left = read(run, "packets").filter(pl.col("payload") == 1448).sort("t_out")["t_out"].to_numpy()
    gaps, since = np.diff(left), left[1:] - run.manifest.traffic.t_start_ns
    assert set(gaps[(since > 30_000_000) & (since < 50_000_000)].tolist()) == {FRAME_NS}
    assert set(gaps[since > 51_000_000].tolist()) == {10 * FRAME_NS}


def test_another_fate_at_a_router(run, tmp_path):
    dropped = read(run, "packets").with_row_index().filter(pl.col("verdict") == "dropped")
    packet, other = str(dropped["index"][0]), tmp_path / "other"
    words = ["whatif", str(run.path), "--packet", packet, "--fate", "forward"]
    assert invoke([*words, "-o", str(other)]) == 0
    again = pl.read_parquet(other / "packets.parquet")
    assert again["verdict"][int(packet)] == "forwarded"
