"""Links: what is planned to cross them, what they carried, their rate over time, their frames."""

import json
import struct
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.all import IP, TCP, Dot1AD, Dot1Q, Ether, Raw

from outcast import analysis
from outcast.analysis.capture.pcap import read_capture
from outcast.emulation.kernel import counters as links
from outcast.engines.realtime import RealtimeEngine
from outcast.errors import FeatureMissingError
from outcast.experiment import Experiment, load
from outcast.plan import ports
from outcast.plan.make import make_plan
from outcast.plan.model import Plan
from outcast.records.counters import LinkRecord, LinkTotals, PortRates, Rates
from outcast.records.effective import AppliedChange
from outcast.records.flows import TrafficRecord
from outcast.records.link_rate import FIRST_NS, LinkRate, down_spans_ns, link_rate, steps_of
from outcast.records.run_directory import Manifest, RunDirectory
from outcast.units import MOST_SPAN_NS
from tests import records
from tests.golden.run_directory import make_run

CONFIGS = Path(__file__).parents[3] / "configs"


def planned(*settings: str) -> tuple[Experiment, Plan]:
    experiment = load(CONFIGS / "fig3c.yaml", settings)
    return experiment, make_plan(experiment)


ROUTINGS = (
    "{kind: shortest}",
    "{kind: spanning_tree}",
    "{kind: hashed, hash_seed: 5}",
    "{kind: equal_length}",
    "{kind: equal_length, core: random}",
)
PER_PACKET = "routing={kind: equal_length, core: packet}"


@pytest.mark.parametrize("routing", ROUTINGS)
def test_each_flow_crosses_as_many_directions_as_its_path_has_links(routing):
    _, plan = planned(f"routing={routing}")
    crossings = links.planned(plan)
    assert len(crossings) == 2 * plan.graph.number_of_edges()
    data = Counter(flow for crossing in crossings.values() for flow in crossing.flows)
    acks = Counter(flow for crossing in crossings.values() for flow in crossing.acknowledged)
    for flow in plan.flows:
        assert data[flow.flow] == len(flow.path) - 1
        assert acks[flow.flow] == len(flow.return_path) - 1
        assert flow.path[0] == flow.return_path[-1] == flow.src
        assert all(flow.flow in crossings[way].flows for way in pairwise(flow.path))
        back = pairwise(flow.return_path)
        assert all(flow.flow in crossings[way].acknowledged for way in back)
    assert not any(crossing.other for crossing in crossings.values())


@pytest.mark.parametrize("routing", ROUTINGS)
def test_a_flows_class_stays_that_of_its_shortest_path(routing):
    _, plan = planned(f"routing={routing}")
    assert Counter(flow.hops for flow in plan.flows) == {2: 1, 6: 12}
    equal = "equal_length" in routing
    assert {len(flow.path) - 1 for flow in plan.flows} == ({6} if equal else {2, 6})


def test_the_split_counts_each_flow_at_each_switch_that_chose():
    _, plan = planned("routing={kind: equal_length, core: random}")
    split = links.split(plan)
    chosen = [switch for switch in split if sum(split[switch].values())]
    uplinks = Counter(node for flow in plan.flows for node, _ in list(pairwise(flow.path))[1:3])
    assert {switch: sum(split[switch].values()) for switch in chosen} == dict(uplinks)
    assert all(len(ports) == 2 for ports in split.values())
    assert links.split(planned()[1]) == {}


def test_another_seed_takes_other_core_switches_and_the_same_seed_the_same():
    ways = [
        tuple(flow.path for flow in planned(f"seed={seed}", f"routing={ROUTINGS[4]}")[1].flows)
        for seed in (1, 2, 1)
    ]
    assert ways[0] == ways[2] != ways[1]


def test_each_packets_draw_leads_over_every_core_switch():
    _, plan = planned(PER_PACKET)
    crossings = links.planned(plan)
    split = links.split(plan)
    for flow in plan.flows:
        ways = plan.ways(flow.src, flow.dst, flow.five_tuple)
        assert {way[3] for way in ways} == {"c0_0", "c0_1", "c1_0", "c1_1"}
        assert {len(way) for way in ways} == {7}
        assert list(flow.path) in ways
        assert all(flow.flow in crossings[hop].flows for way in ways for hop in pairwise(way))
    assert {port for port, count in split["e0_0"].items() if count == 1} == {*split["e0_0"]}
    assert (plan.bottleneck.switch, len(plan.bottleneck.ingress)) == ("e0_0", 2)
    assert {plan.ingress(flow) for flow in plan.flows} == {None}


def test_real_time_draws_no_port_for_each_packet():
    with pytest.raises(FeatureMissingError, match=r"routing\.core: packet is drawn by"):
        RealtimeEngine().require(*planned(PER_PACKET))


def test_what_a_host_sent_is_read_at_its_switch():
    _, plan = planned()
    zero = dict.fromkeys(("tx_packets", "tx_bytes", "rx_packets", "rx_bytes"), 0)
    before = {port: zero for port in plan.switch_ports()}
    sent = {"tx_packets": 7, "tx_bytes": 70, "rx_packets": 3, "rx_bytes": 30}
    after = {**before, "e0_0-eth1": sent}
    none: links.Losses = {port: {"queue": 4} for port in plan.ends}
    lost: links.Losses = {**none, "h0_0_2-eth0": {"queue": 6, "interface": 1}}
    made = links.records(plan, (before, none), None, None, (after, lost))
    by_port = {record.port: record for record in made}
    host, switch = by_port["h0_0_2-eth0"], by_port["e0_0-eth1"]
    assert host.lost == {"queue": 2, "interface": 1}
    assert switch.lost == {"queue": 0}
    assert (switch.packets, switch.bytes) == (7, 70)
    assert (host.packets, host.bytes) == (3, 30)
    assert switch.flows == [flow.flow for flow in plan.flows]
    assert switch.rate_bps == 10**9
    assert len(by_port) == 2 * plan.graph.number_of_edges()


def record(port: str, node: str, neighbour: str, **values: Any) -> LinkRecord:
    packets, size = values.pop("sent", (10**6, 10**10))
    before = LinkTotals(packets=5, bytes=500, lost={})
    after = LinkTotals(packets=5 + packets, bytes=500 + size, lost={})
    return records.link(port, node, neighbour, before=before, after=after, **values)


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return make_run(tmp_path / "run", 100_000_000, 7, 2_000)


def counted(run: RunDirectory, *records: LinkRecord) -> list[str]:
    counters = run.read_counters().model_copy(update={"links": list(records)})
    run.write_counters(counters)
    return analysis.analyze(run).capture.reasons


def test_a_run_whose_links_fit_agrees_and_is_listed(run, verb):
    reasons = counted(
        run,
        record("s1-eth1", "s1", "h1", flows=[0, 1]),
        record("s1-eth2", "s1", "h2", acknowledged=[0], sent=(9, 600)),
        record("s2-eth9", "s2", "h9", sent=(0, 0)),
    )
    assert reasons == []
    frame = pl.read_parquet(run.path / "links.parquet")
    assert frame["packets"].to_list() == [10**6, 9, 0]
    assert frame["flows"].to_list() == [2, 0, 0]
    shown = verb("inspect", run.path, "--links").out
    assert "s1-eth2" in shown
    assert "1 more directions sent nothing" in shown
    rows = verb("inspect", run.path, "--links", "--format", "json").out.splitlines()
    assert [json.loads(row)["port"] for row in rows] == ["s1-eth1", "s1-eth2", "s2-eth9"]


def test_a_link_that_no_path_crosses_may_send_nothing(run):
    (reason,) = counted(run, record("s2-eth9", "s2", "h9", sent=(1, 60)))
    assert reason == "s2-eth9: sent 1 packets, though no path crosses it"
    assert counted(run, record("s2-eth9", "s2", "h9", sent=(1, 60), other=True)) == []


def test_a_link_that_sent_less_than_arrived_is_named(run):
    (reason,) = counted(run, record("s1-eth1", "s1", "h1", flows=[0, 1], sent=(9, 900)))
    assert reason.startswith("s1-eth1: sent 900 bytes, though ")


def test_a_port_that_was_drawn_too_often_is_named(run):
    manifest = run.read_manifest()
    split = {"s1": {"s1-eth1": 2, "s1-eth2": 2}}
    told = {"routing.kind": "equal_length_packet", "routing.split": split}
    run.write_manifest(manifest.model_copy(update={"effective": manifest.effective | told}))

    def reasons(packets: int) -> list[str]:
        return counted(
            run,
            record("s1-eth1", "s1", "h1", flows=[0, 1], sent=(packets, 10**10)),
            record("s1-eth2", "s1", "h2", flows=[0, 1], sent=(10_000, 10**10)),
        )

    # Five standard deviations of 20,000 draws are 353 packets; of 20,600, 358.
    assert reasons(10_600) == []
    too_often, too_seldom = reasons(10_900)
    assert too_often.startswith("s1-eth1: was drawn for 10,900 of 20,900 packets, where 10,450 +- ")
    assert too_seldom.startswith("s1-eth2: ")


def test_the_longest_round_trip_is_by_the_links_of_its_way():
    core = "links.layers={aggregation-core: {delay: 1ms}}"
    # A full frame and an acknowledgement take their own time on each link.
    frames_ns = 12_304 + 720
    delays_ns = 2 * (4 * 5_000 + 2 * 1_000_000)
    assert links.longest_round_trip_ns(planned(core)[1]) == delays_ns + 6 * frames_ns
    near = "flows=[{from: 2-hop}]"
    assert links.longest_round_trip_ns(planned(core, near)[1]) == 2 * (2 * 5_000 + frames_ns)
    datagrams = "workloads=[{kind: constant_rate, from: 6-hop, rate: 1mbit}]"
    assert links.longest_round_trip_ns(planned(core, near, datagrams)[1]) > 4_000_000


@pytest.mark.parametrize(
    ("limit", "rounds"), [("13 packets", 1), ("12 packets", 2), ("6 packets", 3), ("1514B", 1)]
)
def test_flows_that_connect_at_once_try_again_where_a_queue_drops_a_syn(limit, rounds):
    assert ports.rounds_of_handshakes(*planned(f"queue.limit={limit}")) == rounds


def test_a_queue_of_bytes_may_lack_room_for_the_syns_of_many_flows():
    many = "flows=[{from: 6-hop, hosts: 11, per_host: 2}]"
    assert ports.rounds_of_handshakes(*planned("queue.limit=1628B", many)) == 1
    assert ports.rounds_of_handshakes(*planned("queue.limit=1627B", many)) == 2


def change(at: int | None, what: str, value: int, port: str = "s1-eth1") -> AppliedChange:
    shown = None if at is None else value
    return AppliedChange(0, 0, at, "s1", "h1", port, what, value, shown)


def manifest(*changes: AppliedChange) -> Manifest:
    traffic = TrafficRecord(t_start_ns=1000, t_end_ns=2000, duration_ns=900)
    return Manifest.model_construct(changes=list(changes), traffic=traffic)


def test_a_rate_without_changes_is_constant():
    rate = link_rate(manifest(change(5, "rate_bps", 80, "s1-eth2")), Rates(), "s1-eth1", 100)
    assert rate.is_constant
    assert rate.mean_bps(np.array([0, 7, 9])).tolist() == [100.0, 100.0]


def test_events_and_traces_change_it_from_their_actual_times_on():
    trace = PortRates(
        port="s1-eth1", trace="t.csv", t_ns=[300], rate_bps=[60], latest_ns=0, skipped=0
    )
    rates = [change(100, "rate_bps", 80), change(None, "rate_bps", 40)]
    of = manifest(*rates, change(2, "delay_ns", 5))
    rate = link_rate(of, Rates(ports=[trace]), "s1-eth1", 100)
    assert (rate.t_ns, rate.rate_bps) == ((FIRST_NS, 100, 300), (100, 80, 60))
    assert rate.at(np.array([0, 99, 100, 300, 999])).tolist() == [100, 100, 80, 60, 60]
    assert rate.mean_bps(np.array([0, 200, 400])).tolist() == [90, 70]


def test_the_delays_that_events_gave_a_port():
    of = manifest(change(5, "delay_ns", 80), change(6, "rate_bps", 1), change(None, "delay_ns", 7))
    assert steps_of(of, "s1-eth1", "delay_ns") == [(5, 80)]
    assert steps_of(of, "s1-eth2", "delay_ns") == []


def test_a_link_that_is_down_carries_nothing_and_has_its_new_rate_afterwards():
    of = manifest(change(100, "up", 0), change(150, "rate_bps", 80), change(200, "up", 1))
    rate = link_rate(of, Rates(), "s1-eth1", 100)
    assert (rate.t_ns, rate.rate_bps) == ((FIRST_NS, 100, 200), (100, 0, 80))
    assert down_spans_ns(of, "s1-eth1") == [(100, 200)]
    assert down_spans_ns(of, "s1-eth2") == []
    assert down_spans_ns(manifest(change(100, "up", 0)), "s1-eth1") == [(100, MOST_SPAN_NS)]


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 10**9)), max_size=8),
    st.lists(st.integers(-10, 1010), min_size=2, max_size=8, unique=True),
)
def test_means_are_those_of_a_sum_over_every_nanosecond(steps, edges):
    by_time = dict(sorted(steps))
    rate = LinkRate((FIRST_NS, *by_time), (7, *by_time.values()))
    edges_ns = np.array(sorted(edges))
    every = rate.at(np.arange(edges_ns[0], edges_ns[-1]))
    means = [every[a - edges_ns[0] : b - edges_ns[0]].mean() for a, b in pairwise(edges_ns)]
    assert np.allclose(rate.mean_bps(edges_ns), means)


PACKET = (
    IP(src="10.0.0.2", dst="10.0.0.1", id=7) / TCP(sport=20001, dport=5001, seq=9) / Raw(b"x" * 100)
)
INNER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
BYTES = bytes(PACKET)


LAYERS = {
    "plain": (1, bytes(INNER / PACKET)),
    "QinQ": (1, bytes(INNER / Dot1AD(vlan=5) / Dot1Q(vlan=7) / PACKET)),
    "BSD loopback": (0, struct.pack("<I", 2) + BYTES),
    "OpenBSD loopback": (108, struct.pack(">I", 2) + BYTES),
}


@pytest.mark.parametrize("name", LAYERS)
def test_ip_is_found_behind(name, tmp_path):
    link, frame = LAYERS[name]
    path = tmp_path / "a.pcap"
    # Cut off anywhere, it is left out and never misread.
    sizes = [len(frame), *range(0, len(frame) - 120, 3)]
    cut = (struct.pack("<IIII", 10**9, 0, size, len(frame)) + frame[:size] for size in sizes)
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link)
    path.write_bytes(head + b"".join(cut))
    capture = read_capture("a", path)
    columns = capture.columns
    flows = [(flow.src, flow.sport, flow.dst, flow.dport) for flow in capture.flows]
    assert flows == [("10.0.0.2", 20001, "10.0.0.1", 5001)]
    assert (columns.ip_id[0], columns.seq[0], columns.payload_bytes[0]) == (7, 9, 100)
    assert capture.records == len(sizes)
