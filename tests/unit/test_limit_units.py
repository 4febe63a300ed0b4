"""A queue's limit in bytes, packets, a time or bandwidth-delay products, at each place."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcast import experiment, units
from outcast.errors import ConfigError
from outcast.experiment import Experiment
from outcast.experiment.limit import Drain, Limit, Unit
from outcast.plan import events, link_words, ports
from outcast.plan.make import make_plan, plan_of_command
from outcast.plan.model import Plan
from outcast.plan.round_trips import base_rtt_ns
from outcast.view.terminal.topology import describe

UPLINK = """\
name: uplink
topology: {kind: linear, rivals: 1}
links:
  rate: 100mbit
  delay: 2500us
  overrides: [{from: s1, to: h1, rate: 10mbit}]
queue: {kind: tbf, limit: 1 bdp}
transport: {congestion_control: cubic}
flows: [{from: 2-hop}, {from: 3-hop}]
duration: 1s
noise: {profile: exact}
engine: virtual
"""
WIRE, FRAME = 1538, 1514


@pytest.fixture
def uplink(tmp_path) -> Path:
    file = tmp_path / "uplink.yaml"
    file.write_text(UPLINK)
    return file


def planned(file: Path, *overrides: str) -> tuple[Experiment, Plan]:
    whole = experiment.load(file, overrides).resolved("virtual")
    return whole, make_plan(whole)


def limit_at(port: str, file: Path, *overrides: str) -> str:
    whole, plan = planned(file, *overrides)
    return str(ports.switch_queue(whole, plan, port).queue.limits["limit"])


RTT_NS = 15_000_000 + 2 * 123_040 + 1_230_400 + 3 * 7_200
"""Three links there and back, each with its delay and the time of a frame or an acknowledgement."""
FRAMES = RTT_NS * 10**7 // (8 * 10**9 * WIRE)
IN_BYTES = RTT_NS * 10**7 * FRAME // (8 * 10**9 * WIRE)


def test_the_base_rtt_is_what_it_is_made_of(uplink):
    _, plan = planned(uplink)
    far = plan.flows[1]
    assert base_rtt_ns(plan, far.path, far.return_path) == RTT_NS
    assert (FRAMES, IN_BYTES) == (13, 20300)


COUNTS = {
    **dict.fromkeys(("tbf", "htb", "bfifo", "red", "cake"), "bytes"),
    **dict.fromkeys(("pfifo", "sfq", "fq", "codel", "fq_codel", "pie", "dualpi2"), "packets"),
}


@pytest.mark.parametrize(("kind", "counts"), COUNTS.items())
def test_each_kind_takes_each_unit(kind, counts, uplink):
    def limit(text: str) -> str:
        return limit_at("s1-eth1", uplink, f"queue={{kind: {kind}, limit: {text}}}")

    is_bytes = counts == "bytes"
    assert limit("1 bdp") == (f"{IN_BYTES}B" if is_bytes else f"{FRAMES} packets")
    twice = RTT_NS * 2 * 10**7 * FRAME // (8 * 10**9 * WIRE)
    assert limit("2BDP") == (f"{twice}B" if is_bytes else "26 packets")
    # 5 ms hold four frames, and RED's thresholds need that the limit has three.
    assert limit("5ms") == (f"{6250 * FRAME // WIRE}B" if is_bytes else "4 packets")
    assert limit("16KB") == ("16KB" if is_bytes else "10 packets")
    as_it_is = kind in ("tbf", "htb") or not is_bytes
    assert limit("11 packets") == ("11 packets" if as_it_is else f"{11 * FRAME}B")


def test_ports_that_no_data_crosses(uplink):
    _, plan = planned(uplink)
    near = base_rtt_ns(plan, plan.flows[0].path, plan.flows[0].return_path)
    assert plan.base_rtts_ns["s1", "h1"] == RTT_NS
    assert plan.base_rtts_ns["s1", "h2"] == near < RTT_NS
    assert plan.base_rtts_ns["h1", "s1"] == RTT_NS
    _, plan = planned(uplink, "topology.rivals=2", "flows=[{from: [h3]}]")
    assert plan.base_rtts_ns["s2", "h4"] == plan.base_rtts_ns["s1", "h1"]


def test_workloads_and_programs_cross_ports_too(uplink):
    load = "workloads=[{kind: incast, to: h1, senders: 2, block: 10KB, rounds: 3}]"
    programs = "programs=[{name: a, host: h3, command: [ping, '{h1}']}]"
    for traffic in (load, programs):
        _, plan = planned(uplink, "flows=[]", traffic)
        assert plan.base_rtts_ns["s1", "h1"] == RTT_NS


@pytest.mark.parametrize(
    ("overrides", "at", "limit"),
    [
        (["queues=[{at: bottleneck, queue: {kind: codel, limit: 5ms}}]"], "s1-eth1", "4 packets"),
        (
            ["links.overrides=[{from: s1, to: h1, rate: 10mbit, queue: {kind: pie, limit: 5ms}}]"],
            "s1-eth1",
            "4 packets",
        ),
        (
            ["links.overrides=[{from: s1, to: h1, rate: 10mbit, mtu: 576}]", "queue.limit=10ms"],
            "s1-eth1",
            None,
        ),
        (["links.overhead=none", "queue.limit=5ms"], "s1-eth1", "6250B"),
    ],
)
def test_every_place_takes_them(overrides, at, limit, uplink):
    if limit is None:
        with pytest.raises(ConfigError, match="mtu"):
            limit_at(at, uplink, *overrides)
    else:
        assert limit_at(at, uplink, *overrides) == limit


def test_a_host_can_have_such_a_queue(uplink):
    whole, plan = planned(
        uplink, "links.overrides=[{from: h2, to: s1, rate: 10mbit, queue: {kind: tbf, limit: 5ms}}]"
    )
    assert str(ports.host_queue(whole, plan, "h2").queue.limits["limit"]) == "6152B"


def test_an_event_sets_such_a_limit_at_the_rate_in_force(uplink):
    change = "events=[{at: 100ms, from: s1, to: h1, rate: 20mbit, limit: 5ms}]"
    *_, last = events.changes(*planned(uplink, change))
    assert (last.what, last.value) == ("limit_bytes", 12500 * FRAME // WIRE)
    packets = "events=[{at: 100ms, from: s1, to: h1, limit: 16KB}]"
    (only,) = events.changes(*planned(uplink, packets, "queue.kind=pfifo"))
    assert (only.what, only.value) == ("limit_packets", 10)


def test_a_limit_is_kept_as_it_was_given(uplink):
    whole, _ = planned(uplink, "queue.limit=0.5 bdp")
    assert "limit: 0.5 bdp" in experiment.dump(whole)
    whole, plan = planned(uplink, "queue.limit=16KB")
    port = ports.switch_queue(whole, plan, "s1-eth1")
    assert port.queue is whole.queue
    assert port.asked is None


def test_reds_thresholds_follow_the_limit(uplink):
    def thresholds(*keys: str) -> tuple[int, int]:
        whole, plan = planned(uplink, f"queue={{kind: red, {', '.join(keys)}}}")
        queue = ports.switch_queue(whole, plan, "s1-eth1").queue
        assert queue.kind == "red"
        return queue.thresholds_packets

    assert thresholds("limit: 64KB") == (5, 15)
    assert thresholds("limit: 128KB") == (9, 29)
    assert thresholds("limit: 16KB") == (2, 4)
    assert thresholds("limit: 1 bdp") == (2, 5)
    assert thresholds("limit: 2 bdp", "min_packets: 4") == (4, 9)
    assert thresholds("limit: 2 bdp", "max_packets: 20") == (6, 20)
    # The kernel's average has 32 bits, 9 of which are of the weight.
    assert thresholds("limit: 100MB") == (923, 2770)


def test_a_threshold_of_marking_can_be_a_time(uplink):
    queue = "queue={kind: ecn_threshold, limit: 1 bdp, threshold: 0.2 bdp}"
    whole, plan = planned(uplink, queue)
    port = ports.switch_queue(whole, plan, "s1-eth1").queue
    assert port.kind == "ecn_threshold"
    assert port.threshold_bytes == RTT_NS * 10**7 * FRAME // (5 * 8 * 10**9 * WIRE)
    with pytest.raises(ConfigError, match="threshold: allowed is less than the limit"):
        planned(uplink, "queue={kind: ecn_threshold, limit: 1 bdp, threshold: 2 bdp}")


@pytest.mark.parametrize(
    ("overrides", "refusal"),
    [
        (["queue.limit=0 bdp"], "holds no full frame"),
        (["queue.limit=0ms"], "holds no full frame"),
        (["queue.limit=-1 bdp"], "is not a queue limit; allowed is a size as 16KB, a number of"),
        (["queue.limit=1bpd"], "a time as 5ms, or bandwidth-delay products as '0.5 bdp'"),
        (["queue.limit=100us"], r"queue.limit: s1-eth1: 100us is 123 B at 10mbit, which holds no"),
        (
            ["queue.limit=0.05 bdp"],
            r"0.05 bdp is 1015 B at 10mbit and a base RTT of 16.5 ms, which",
        ),
        (["queue.limit=1000000 bdp"], r"more than the 1GB that a kernel counts; allowed is less"),
        (["queue={kind: sfq, limit: 1s}"], "at most 508 packets"),
        (["queues=[{at: core, queue: {kind: tbf, limit: 1us}}]"], "queues.0.at"),
        (
            ["queues=[{at: s1-eth1, queue: {kind: tbf, limit: 1us}}]"],
            "queues.0.queue.limit: s1-eth1: 1us is 1 B",
        ),
        (
            ["links.overrides=[{from: s1, to: h1, queue: {kind: tbf, limit: 1us}}]"],
            "links: s1-eth1: 1us is 12 B",
        ),
        (["events=[{at: 1ms, from: s1, to: h1, limit: 1us}]"], "events.0.limit: 1us is 1 B"),
    ],
)
def test_a_bad_limit_is_refused_in_a_line(overrides, refusal, uplink):
    with pytest.raises(ConfigError, match=refusal) as refused:
        planned(uplink, *overrides)
    assert "\n" not in str(refused.value)


def test_a_trace_counts_by_its_mean_rate(uplink, tmp_path):
    (tmp_path / "rates.csv").write_text("time,rate\n0ms,5mbps\n500ms,15mbps\n")
    own = "links.overrides=[{from: s1, to: h1, rate: {trace: rates.csv}}]"
    assert limit_at("s1-eth1", uplink, own, "queue.limit=5ms") == "6152B"


def test_what_it_came_to_is_told(uplink):
    whole, plan = planned(uplink)
    line, *_ = link_words.limits(whole, plan, ["s1-eth1"])
    assert line == (
        f"s1-eth1: tbf, limit 1 bdp: {IN_BYTES}B, from 10mbit, a base RTT of 16.5 ms and frames of "
        "1514 B, 1538 on the wire"
    )
    assert f"  {line}" in describe(whole, plan)
    assert link_words.limits(*planned(uplink, "queue.limit=16KB"), ["s1-eth1"]) == []


def test_topo_has_the_base_rtt_and_product_of_every_flow(uplink):
    flows = [line for line in describe(*planned(uplink)) if re.match(r"  \d: ", line)]
    assert len(flows) == 2
    assert "base RTT 16.5 ms, BDP 20,622 B on the wire" in flows[1]


def test_a_limit_is_rounded_down():
    drain = Drain(rate_bps=10**7, frame_bytes=FRAME, wire_bytes=WIRE, base_rtt_ns=20_000_000)
    packet: tuple[Unit, ...] = ("packets",)
    for limit in (Limit(time_ns=7_000_000), Limit(bdp=0.3), Limit(bdp=1 / 3)):
        packets = limit.counted(packet, drain).packets or 0
        size = limit.counted(("size_bytes", "packets"), drain).size_bytes or 0
        lasts_ns = (limit.time_ns or 0) + (limit.bdp or 0) * 20_000_000
        assert packets * WIRE * 800 <= lasts_ns < (packets + 1) * WIRE * 800
        assert size // FRAME == packets


def test_a_command_without_flows_meets_queues_of_the_longest_way(uplink):
    _, plan = planned(uplink, "queue.limit=1 bdp")
    alone = plan_of_command(plan, None, ["true"], "/work", 10**9)
    assert not alone.flows
    assert max(alone.base_rtts_ns.values()) == max(plan.base_rtts_ns.values()) > 0


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [("1gbit", 10**9), ("100Mbit", 10**8), ("2.5gbit", 2_500_000_000), ("100 mbps", 10**8)],
)
def test_rates(text, rate_bps):
    assert units.parse_rate_bps(text) == rate_bps


@pytest.mark.parametrize("text", ["100MBps", "1GBps", "800 kBps", "5Bps "])
def test_a_rate_in_bytes_is_refused_with_the_units_of_bits(text):
    with pytest.raises(ValueError, match=r"counts bytes; .* bit, kbit, mbit, gbit"):
        units.parse_rate_bps(text)


@pytest.mark.parametrize(
    ("text", "size"), [("16KB", 16384), ("1600B", 1600), ("128 KiB", 131072), ("1mb", 1 << 20)]
)
def test_sizes(text, size):
    assert units.parse_size_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [("2ms", 2_000_000), ("5us", 5000), ("0.5s", 500_000_000), ("5µs", 5000), ("1h", 3600 * 10**9)],
)
def test_times(text, time_ns):
    assert units.parse_time_ns(text) == time_ns


@pytest.mark.parametrize("text", ["", "16", "16 furlongs", "-1ms", "ms", 3, None, True, "1e9bit"])
def test_refusals_name_what_is_allowed(text):
    for parse in (units.parse_rate_bps, units.parse_size_bytes, units.parse_time_ns):
        with pytest.raises(ValueError, match="allowed is"):
            parse(text)


def test_a_fraction_of_the_base_unit_is_refused():
    with pytest.raises(ValueError, match="whole number"):
        units.parse_time_ns("0.5ns")


@given(st.integers(0, 10**15))
def test_formats_are_read_back(value):
    assert units.parse_rate_bps(units.format_rate(value)) == value
    assert units.parse_size_bytes(units.format_size(value)) == value
    assert units.parse_time_ns(units.format_time(value)) == value


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
