"""A queue's limit in bytes, packets, a time or bandwidth-delay products, at each place."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcast import experiment, units
from outcast.experiment import Experiment, Link
from outcast.experiment.limit import Limit, Unit
from outcast.plan import events, ports
from outcast.plan.make import plan_of_command
from outcast.plan.model import Plan
from tests import plans, queue_kinds

UPLINK = (
    "topology.rivals=1",
    "links={rate: 100mbit, delay: 2500us, overrides: [{from: s1, to: h1, rate: 10mbit}]}",
    "queue.limit=1 bdp",
    "flows=[{from: 2-hop}, {from: 3-hop}]",
    "duration=1s",
    "noise.profile=exact",
)
WIRE, FRAME = 1538, 1514
OWN = "links.overrides=[{from: s1, to: h1, rate: 10mbit, %s}]"


def planned(*overrides: str) -> tuple[Experiment, Plan]:
    return plans.planned("linear-12", *UPLINK, *overrides)


def queue_of(*overrides: str) -> Any:
    """The queue of s1-eth1."""
    return ports.switch_queue(*planned(*overrides), "s1-eth1").queue


def limit(*overrides: str) -> str:
    return str(queue_of(*overrides).limits["limit"])


RTT_NS = 15_000_000 + 2 * 123_040 + 1_230_400 + 3 * 7_200
"""Three links there and back, each with its delay and the time of a frame or an acknowledgement."""
FRAMES = RTT_NS * 10**7 // (8 * 10**9 * WIRE)
IN_BYTES = RTT_NS * 10**7 * FRAME // (8 * 10**9 * WIRE)


def test_the_base_rtt_is_what_it_is_made_of():
    _, plan = planned()
    far = plan.flows[1]
    assert plan.base_rtt_ns(far.path, far.return_path) == RTT_NS
    assert (FRAMES, IN_BYTES) == (13, 20300)


@pytest.mark.parametrize("kind", queue_kinds.LIMITED)
def test_each_kind_takes_each_unit(kind):
    def as_limit(text: str) -> str:
        return limit(f"queue={json.dumps(queue_kinds.keys(kind, limit=text))}")

    counts = queue_kinds.BY_NAME[kind].counts
    is_bytes = counts[0] == "size_bytes"
    assert as_limit("1 bdp") == (f"{IN_BYTES}B" if is_bytes else f"{FRAMES} packets")
    twice = RTT_NS * 2 * 10**7 * FRAME // (8 * 10**9 * WIRE)
    assert as_limit("2BDP") == (f"{twice}B" if is_bytes else "26 packets")
    # 5 ms hold four frames, and RED's thresholds need that the limit has three.
    assert as_limit("5ms") == (f"{6250 * FRAME // WIRE}B" if is_bytes else "4 packets")
    assert as_limit("16KB") == ("16KB" if is_bytes else "10 packets")
    assert as_limit("11 packets") == ("11 packets" if "packets" in counts else f"{11 * FRAME}B")


def test_ports_that_no_data_crosses():
    _, plan = planned()
    near = plan.base_rtt_ns(plan.flows[0].path, plan.flows[0].return_path)
    assert plan.base_rtts_ns["s1", "h1"] == RTT_NS
    assert plan.base_rtts_ns["s1", "h2"] == near < RTT_NS
    assert plan.base_rtts_ns["h1", "s1"] == RTT_NS
    _, plan = planned("topology.rivals=2", "flows=[{from: [h3]}]")
    assert plan.base_rtts_ns["s2", "h4"] == plan.base_rtts_ns["s1", "h1"]


def test_workloads_and_programs_cross_ports_too():
    load = "workloads=[{kind: incast, to: h1, senders: 2, block: 10KB, rounds: 3}]"
    programs = "programs=[{name: a, host: h3, command: [ping, '{h1}']}]"
    for traffic in (load, programs):
        _, plan = planned("flows=[]", traffic)
        assert plan.base_rtts_ns["s1", "h1"] == RTT_NS


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["queues=[{at: bottleneck, queue: {kind: codel, limit: 5ms}}]"], "4 packets"),
        ([OWN % "queue: {kind: pie, limit: 5ms}"], "4 packets"),
        (["links.overhead=none", "queue.limit=5ms"], "6250B"),
    ],
)
def test_every_place_takes_them(overrides, expected):
    assert limit(*overrides) == expected


def test_an_event_sets_such_a_limit_at_the_rate_in_force():
    change = "events=[{at: 100ms, from: s1, to: h1, rate: 20mbit, limit: 5ms}]"
    *_, last = events.changes(*planned(change))
    assert (last.what, last.value) == ("limit_bytes", 12500 * FRAME // WIRE)
    packets = "events=[{at: 100ms, from: s1, to: h1, limit: 16KB}]"
    (only,) = events.changes(*planned(packets, "queue.kind=pfifo"))
    assert (only.what, only.value) == ("limit_packets", 10)


def test_a_limit_is_kept_as_it_was_given():
    whole, _ = planned("queue.limit=0.5 bdp")
    assert "limit: 0.5 bdp" in experiment.dump(whole)
    whole, plan = planned("queue.limit=16KB")
    port = ports.switch_queue(whole, plan, "s1-eth1")
    assert port.queue is whole.queue
    assert port.asked is None


def test_reds_thresholds_follow_the_limit():
    def thresholds(*keys: str) -> tuple[int, int]:
        return queue_of(f"queue={{kind: red, {', '.join(keys)}}}").thresholds_packets

    assert thresholds("limit: 64KB") == (5, 15)
    assert thresholds("limit: 128KB") == (9, 29)
    assert thresholds("limit: 16KB") == (2, 4)
    assert thresholds("limit: 1 bdp") == (2, 5)
    assert thresholds("limit: 2 bdp", "min_packets: 4") == (4, 9)
    assert thresholds("limit: 2 bdp", "max_packets: 20") == (6, 20)
    # The kernel's average has 32 bits, 9 of which are of the weight.
    assert thresholds("limit: 100MB") == (923, 2770)


def test_a_threshold_of_marking_can_be_a_time():
    queue = queue_of("queue={kind: ecn_threshold, limit: 1 bdp, threshold: 0.2 bdp}")
    assert queue.threshold_bytes == RTT_NS * 10**7 * FRAME // (5 * 8 * 10**9 * WIRE)


def test_a_trace_counts_by_its_mean_rate(tmp_path):
    trace = tmp_path / "rates.csv"
    trace.write_text("time,rate\n0ms,5mbps\n500ms,15mbps\n")
    own = f"links.overrides=[{{from: s1, to: h1, rate: {{trace: {trace}}}}}]"
    assert limit(own, "queue.limit=5ms") == "6152B"


def test_a_limit_is_rounded_down():
    link = Link(rate_bps=10**7, delay_ns=0, jitter_ns=0, overhead="ethernet")
    packet: tuple[Unit, ...] = ("packets",)
    for limit in (Limit(time_ns=7_000_000), Limit(bdp=0.3), Limit(bdp=1 / 3)):
        packets = ports.counted_limit(limit, packet, link, 20_000_000).packets or 0
        size = (
            ports.counted_limit(limit, ("size_bytes", "packets"), link, 20_000_000).size_bytes or 0
        )
        lasts_ns = (limit.time_ns or 0) + (limit.bdp or 0) * 20_000_000
        assert packets * WIRE * 800 <= lasts_ns < (packets + 1) * WIRE * 800
        assert size // FRAME == packets


def test_a_command_without_flows_meets_queues_of_the_longest_way():
    _, plan = planned("queue.limit=1 bdp")
    alone = plan_of_command(plan, None, ["true"], "/work", 10**9)
    assert not alone.flows
    assert max(alone.base_rtts_ns.values()) == max(plan.base_rtts_ns.values()) > 0


RATE, SIZE, TIME = units.parse_rate_bps, units.parse_size_bytes, units.parse_time_ns


@pytest.mark.parametrize(
    ("parse", "texts"),
    [
        (RATE, {"1gbit": 10**9, "100Mbit": 10**8, "2.5gbit": 2_500_000_000, "100 mbps": 10**8}),
        (SIZE, {"16KB": 16384, "1600B": 1600, "128 KiB": 131072, "1mb": 1 << 20}),
        (TIME, {"2ms": 2_000_000, "5us": 5000, "0.5s": 500_000_000, "5µs": 5000}),
        (TIME, {"1h": 3600 * 10**9}),
    ],
)
def test_amounts_with_a_unit(parse, texts):
    assert {text: parse(text) for text in texts} == texts


@given(st.integers(0, 10**15))
def test_formats_are_read_back(value):
    assert RATE(units.format_rate(value)) == value
    assert SIZE(units.format_size(value)) == value
    assert TIME(units.format_time(value)) == value


@pytest.mark.parametrize(
    ("rate_bps", "text"),
    [
        (0, "0 bps"),
        (999, "999 bps"),
        (10**9, "1 Gbps"),
        (123_450_000, "123.5 Mbps"),
        (33_333_300, "33.33 Mbps"),
        # A port's oscillator is up to 100 ppm off; what is farther off is told.
        (9_999_200, "10 Mbps"),
        (99_990_000, "99.99 Mbps"),
    ],
)
def test_a_rate_for_people_has_few_digits(rate_bps, text):
    assert units.round_rate(rate_bps) == text
