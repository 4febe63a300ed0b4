import struct
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from outcast import experiment, netlink
from outcast.emulation.kernel import rtnetlink
from outcast.emulation.queues import netem, port_checks, port_queues, qdiscs
from outcast.errors import FeatureMissingError, ReadBackError
from outcast.experiment.queues.base import TICK_NS, Qdisc
from outcast.netlink import encode as attribute
from outcast.plan import ports
from outcast.plan.make import make_plan
from outcast.plan.ports import PortQueue
from outcast.records.queue_statistics import CABLE_HANDLE, DELAY_HANDLE
from tests.fakes import Shown

FIG3C = Path(__file__).parents[3] / "configs/fig3c.yaml"


def port_queue(queue: str, delay: str = "0us", rate: str = "100mbit") -> PortQueue:
    loaded = experiment.load(
        FIG3C, [f"queue={queue}", f"links.delay={delay}", f"links.rate={rate}"]
    )
    return replace(ports.switch_queue(loaded, make_plan(loaded), "e0_0-eth1"), port="s1-eth1")


def qdisc(handle: int, kind: str, options: Any, **more: Any) -> Shown:
    return Shown(
        event="RTM_NEWQDISC", handle=handle << 16, TCA_KIND=kind, TCA_OPTIONS=options, **more
    )


def tbf(
    rate_bps: int = 10**8,
    burst_bytes: int = 1600,
    added_bytes: int = 24,
    least_bytes: int = 84,
    cuts: bool = True,
) -> Shown:
    """As the kernel shows it: the burst as the time that a frame of its length takes."""
    ticks = (burst_bytes + added_bytes) * 8 * 10**9 // rate_bps // TICK_NS
    parameters = {"rate": rate_bps // 8, "buffer": ticks}
    parameters |= {"rate_overhead": added_bytes, "rate_mpu": least_bytes}
    parameters |= {"peak": 0xFFFFFFFF if cuts else 0}
    return qdisc(2, "tbf", Shown(TCA_TBF_PARMS=parameters))


def bfifo(limit_bytes: int) -> Shown:
    raw = limit_bytes.to_bytes(4, "little").hex(":")
    return qdisc(3, "bfifo", raw)


@pytest.fixture
def asked(monkeypatch) -> list[tuple[str, int, int, str]]:
    """What rtnetlink is asked for: kind, parent, major handle and options in hexadecimal."""
    asked: list[tuple[str, int, int, str]] = []

    def replace(interface: str, kind: str, *, parent: int, major: int, options: bytes) -> None:
        assert interface == "s1-eth1"
        asked.append((kind, parent, major, options.hex()))

    monkeypatch.setattr(rtnetlink, "replace_qdisc", replace)
    return asked


TBF_OF_TC = (
    "28000100"
    "00011800ffff540020bcbe00"
    "00010000ffff0000ffffffff"
    "000000400000000000000000"
    "08000600"
    "40060000"
    "0c000500"
    "0000000000000010"
    "08000700"
    "ea050000"
)
"""What tc(8) sends for `tbf rate 100mbit burst 1600 limit 1gb overhead 24 mpu 84`, but the table of
times, its size, and the buffer in ticks, which the kernel reads only without the last attribute. A
peak rate of 2^60 B/s, whose burst is a frame, cuts units of several segments."""


def test_a_tbf_and_a_drop_tail_queue_need_no_tc(asked):
    wanted = port_queue("{kind: tbf, limit: 16KB}")
    assert qdiscs.commands(wanted) == []
    qdiscs.set_delay(wanted)
    qdiscs.set_shaper(wanted)
    qdiscs.set_by_netlink(wanted)
    assert asked == [
        ("tbf", netlink.ROOT, 2, TBF_OF_TC),
        ("bfifo", 0x20001, 3, (16384).to_bytes(4, "little").hex()),
    ]


@pytest.mark.parametrize(
    ("burst", "cut_at_bytes"),
    # TCP itself keeps segments apart where a host's burst is longer (`lets_units_through`).
    [("1600B", 1514), ("1624B", 1514), ("1625B", None), ("10KB", None)],
)
def test_a_unit_of_several_segments_is_cut_at_a_frame(burst, cut_at_bytes):
    options = qdiscs.tbf_options(port_queue(f"{{kind: tbf, limit: 16KB, burst: {burst}}}"))
    peak = struct.unpack_from("=I", options, 4 + 12 + 8)[0]
    raw = netlink.attribute(options, 7)
    shown = None if raw is None else int.from_bytes(raw, "little")
    assert (peak > 0, shown) == (cut_at_bytes is not None, cut_at_bytes)


def test_a_delay_stands_above_the_shaper(asked):
    wanted = port_queue("{kind: tbf, limit: 16KB}", delay="5us")
    qdiscs.set_delay(wanted)
    qdiscs.set_shaper(wanted)
    assert [request[:3] for request in asked] == [("netem", netlink.ROOT, 1), ("tbf", 0x10001, 2)]
    del asked[:]
    qdiscs.set_shaper(port_queue("{kind: htb, limit: 16KB}"))
    assert asked == []


def test_a_queue_can_be_at_the_bottleneck_only():
    loaded = experiment.load(FIG3C, ["queue.where=bottleneck", "links.delay=0us"])
    plan = make_plan(loaded)
    elsewhere = ports.switch_queue(loaded, plan, "e0_0-eth2")
    assert [qdisc.kind for qdisc in elsewhere.queue.tc()] == ["pfifo"]
    here = ports.switch_queue(loaded, plan, "e0_0-eth1")
    assert here.queue.tc() == (Qdisc("bfifo", (16384).to_bytes(4, "little")),)


def test_what_the_kernel_shows_is_returned():
    effective = port_checks.read_back(port_queue("{kind: tbf, limit: 16KB}"), [tbf(), bfifo(16384)])
    shown = {"rate_bps": 10**8, "limit_bytes": 16384, "burst_bytes": 1600}
    assert shown.items() <= effective.items()


@pytest.mark.parametrize(
    ("shown", "setting"),
    [
        ([tbf(rate_bps=10**7), bfifo(16384)], "rate_bps"),
        ([tbf(), bfifo(16383)], "limit_bytes"),
        ([tbf(burst_bytes=1500), bfifo(16384)], "burst"),
        ([tbf(added_bytes=0), bfifo(16384)], "overhead_bytes: requested 24, the kernel shows 0"),
        # Kernels before Linux 5.17 ignore mpu (psched_l2t_ns in include/net/sch_generic.h).
        ([tbf(least_bytes=0), bfifo(16384)], "least_bytes: requested 84, the kernel shows 0"),
        ([tbf(burst_bytes=3000), bfifo(16384)], "burst_bytes"),
        ([tbf(cuts=False), bfifo(16384)], "units_cut: requested True, the kernel shows False"),
        ([tbf()], "qdisc 3:"),
        ([bfifo(16384)], "qdisc 2:"),
        ([tbf(), qdisc(3, "pfifo", "0b:00:00:00")], "qdisc 3:"),
    ],
)
def test_any_other_setting_stops_the_run(shown, setting):
    with pytest.raises(ReadBackError, match=setting):
        port_checks.read_back(port_queue("{kind: tbf, limit: 16KB}"), shown)


def numbers(*pairs: tuple[int, int]) -> str:
    """Attributes of 32 bits each, in the form in which pyroute2 leaves unknown ones."""
    return b"".join(attribute(kind, value.to_bytes(4, "little")) for kind, value in pairs).hex(":")


def red_options(flags: int, weight_exponent: int = 9) -> str:
    parameters = b"".join(value.to_bytes(4, "little") for value in (65536, 7570, 22710))
    parameters += bytes([weight_exponent, 10, 5, flags])
    probability = round(0.1 * 2**32).to_bytes(4, "little")
    return (attribute(3, probability) + attribute(1, parameters)).hex(":")


def test_red_is_read_from_its_raw_attributes():
    wanted = port_queue("{kind: red, limit: 64KB}")
    assert (
        port_checks.read_back(wanted, [tbf(), qdisc(3, "red", red_options(0))])["min_bytes"] == 7570
    )
    with pytest.raises(ReadBackError, match="ecn"):
        port_checks.read_back(wanted, [tbf(), qdisc(3, "red", red_options(1))])
    with pytest.raises(ReadBackError, match="weight"):
        port_checks.read_back(wanted, [tbf(), qdisc(3, "red", red_options(0, 5))])


def marking_options(threshold: int, flags: int = 9) -> str:
    parameters = struct.pack("=IIIBBBB", 0, threshold, threshold, 0, 0, 0, 1)
    return (attribute(1, parameters) + attribute(4, struct.pack("=II", flags, 15))).hex(":")


def test_the_marking_threshold_is_read_back_with_what_it_does_not_drop():
    wanted = port_queue("{kind: ecn_threshold, limit: 60 packets, threshold: 12 packets}")
    assert qdiscs.kinds(wanted) == {"tbf", "red", "pfifo"}
    held = qdisc(4, "pfifo", "3c:00:00:00")
    effective = port_checks.read_back(
        wanted, [tbf(), qdisc(3, "red", marking_options(18168)), held]
    )
    assert effective["threshold_bytes"] == 12 * 1514
    assert effective["limit_packets"] == 60
    for options, setting in (
        (marking_options(18000), "threshold_bytes"),
        (marking_options(18168, 1), "drops what cannot be marked"),
        (marking_options(18168, 8), "ecn"),
    ):
        with pytest.raises(ReadBackError, match=setting):
            port_checks.read_back(wanted, [tbf(), qdisc(3, "red", options), held])


def test_dualpi2_is_not_for_tc_and_named_where_the_kernel_lacks_it():
    wanted = port_queue("{kind: dualpi2, limit: 100 packets, coupling: 3, l4s: any_ect}")
    assert qdiscs.commands(wanted) == []
    ((kind, options, _),) = wanted.queue.tc()
    assert kind == "dualpi2"
    assert isinstance(options, bytes)
    told = netlink.numbers(options)
    assert (told[1], told[5], told[6], told[10], told[14]) == (100, 41, 819, 3, 3)
    with pytest.raises(FeatureMissingError, match="no qdisc dualpi2; the virtual engine's"):
        qdiscs.require_kinds(qdiscs.kinds(wanted), {"tbf": True, "dualpi2": False})


def test_sfqs_flows_and_depth_are_recorded():
    wanted = port_queue("{kind: sfq, limit: 20 packets}")
    options = struct.pack("=IiIIIII", 1514, 0, 20, 4, 4, 127, 0).hex(":")
    effective = port_checks.read_back(wanted, [tbf(), qdisc(3, "sfq", options)])
    assert (effective["flows"], effective["depth_packets"]) == (4, 127)


def test_a_clock_offset_is_drawn_by_seed_and_port():
    def rate(port: str, *overrides: str) -> int:
        loaded = experiment.load(FIG3C, ["links.clock_offset_ppm=50", *overrides])
        return ports.port_rate_bps(loaded, port, 10**9)

    rates = [rate(f"s1-eth{number}") for number in range(40)]
    assert len(set(rates)) == 40
    assert all(rate_bps % 8 == 0 and abs(rate_bps - 10**9) <= 50_000 for rate_bps in rates)
    assert max(rates) > 10**9 > min(rates)
    assert rate("s1-eth1") == rate("s1-eth1") != rate("s1-eth1", "seed=2")
    assert rate("s1-eth1", "links.clock_offset_ppm=0") == 10**9


def test_netems_times_are_read_from_its_raw_attributes():
    def delay(latency_ns: int, more: Mapping[int, int] = MappingProxyType({})) -> Shown:
        numbers = {netem.LATENCY64: latency_ns, **more}
        shown = b"".join(attribute(kind, struct.pack("=q", n)) for kind, n in numbers.items())
        return qdisc(1, "netem", (bytes(24) + shown).hex(":"))

    wanted = port_queue("{kind: tbf, limit: 16KB}", delay="5us")
    assert port_checks.read_back(wanted, [delay(5000), tbf(), bfifo(16384)])["delay_ns"] == 5000
    with pytest.raises(ReadBackError, match="delay_ns: requested 5000, the kernel shows 4992"):
        port_checks.read_back(wanted, [delay(4992), tbf(), bfifo(16384)])
    jittery = replace(port_queue("{kind: tbf, limit: 16KB}", delay="5us"), jitter_ns=1000)
    in_order = delay(5000, {netem.JITTER64: 1000, netem.RATE64: netem.IN_ORDER_RATE})
    shown = port_checks.read_back(jittery, [in_order, tbf(), bfifo(16384)])
    assert (shown["jitter_ns"], shown["packets keep their order"]) == (1000, True)
    seeded = replace(jittery, jitter_seed=7)
    for seed, is_ours in ((7, True), (8, False)):
        numbers = {netem.JITTER64: 1000, netem.RATE64: netem.IN_ORDER_RATE, netem.PRNG_SEED: seed}
        shown = [delay(5000, numbers), tbf(), bfifo(16384)]
        with nullcontext() if is_ours else pytest.raises(ReadBackError, match="jitter is seeded"):
            assert port_checks.read_back(seeded, shown)["jitter is seeded"]
    for rate in ({}, {netem.RATE64: 10**9}):
        overtaking = delay(5000, {netem.JITTER64: 1000, **rate})
        with pytest.raises(ReadBackError, match="keep their order: requested True"):
            port_checks.read_back(jittery, [overtaking, tbf(), bfifo(16384)])


def test_behind_a_cable_each_qdisc_stands_in_its_place():
    wanted = replace(port_queue("{kind: tbf, limit: 16KB}", delay="5us"), has_cable=True)
    latency = attribute(netem.LATENCY64, struct.pack("=q", 5000))

    def shown(shaper_at: int, delay_at: int) -> list[Shown]:
        delay = qdisc(DELAY_HANDLE, "netem", (bytes(24) + latency).hex(":"))
        shaper = tbf()
        shaper["parent"] = (CABLE_HANDLE << 16) + shaper_at
        delay["parent"] = (CABLE_HANDLE << 16) + delay_at
        return [qdisc(CABLE_HANDLE, "cable", None), shaper, delay, bfifo(16384)]

    assert port_checks.read_back(wanted, shown(1, 2))["delay_ns"] == 5000
    for places in ((2, 1), (1, 1), (2, 2)):
        with pytest.raises(ReadBackError, match="parent of"):
            port_checks.read_back(wanted, shown(*places))


def test_tcs_rounding_of_a_burst_is_accepted_unless_tbf_would_drop_full_frames():
    gigabit = 10**9

    def htb(burst_bytes: int) -> list[Shown]:
        ticks = burst_bytes * 8 * 10**9 // gigabit // TICK_NS
        parameters = {"rate": gigabit // 8, "ceil": gigabit // 8, "buffer": ticks}
        for which in ("rate", "ceil"):
            parameters |= {f"{which}_overhead": 24, f"{which}_mpu": 84}
        return [
            qdisc(2, "htb", None),
            Shown(
                event="RTM_NEWTCLASS",
                handle=(2 << 16) + 1,
                TCA_OPTIONS=Shown(TCA_HTB_PARMS=parameters),
            ),
            qdisc(3, "pfifo", "0b:00:00:00"),
        ]

    wanted = port_queue("{kind: htb, limit: 11 packets}", rate="1gbit")
    assert port_checks.read_back(wanted, htb(1496))["burst_bytes"] == 1496
    with pytest.raises(ReadBackError, match="burst_bytes"):
        port_checks.read_back(wanted, htb(1200))
    for parameter, value, setting in (
        ("ceil", gigabit // 8 + 1, "ceil_bps"),
        ("ceil_overhead", 0, "ceil_overhead_bytes"),
        ("ceil_mpu", 0, "ceil_least_bytes"),
    ):
        shown = htb(1496)
        shown[1].get_attr("TCA_OPTIONS").get_attr("TCA_HTB_PARMS")[parameter] = value
        with pytest.raises(ReadBackError, match=setting):
            port_checks.read_back(wanted, shown)
    with pytest.raises(ReadBackError, match="htb classes: requested 1, the kernel shows 2"):
        port_checks.read_back(wanted, [*htb(1496), htb(1496)[1]])
    wanted = port_queue("{kind: tbf, limit: 16KB}", rate="1gbit")
    with pytest.raises(ReadBackError, match="below a full frame"):
        port_checks.read_back(wanted, [tbf(gigabit, 1496), bfifo(16384)])


def test_a_kernel_whose_frames_take_no_time_is_told(tmp_path):
    parameter = tmp_path / "frame_time"
    assert qdiscs.frame_time_warnings(parameter) == [qdiscs.TIMELESS]
    parameter.write_text("N\n")
    assert qdiscs.frame_time_warnings(parameter) == [qdiscs.TIMELESS]
    parameter.write_text("Y\n")
    assert qdiscs.frame_time_warnings(parameter) == []


def test_reds_idle_time_is_one_setting_of_the_kernel(tmp_path):
    seen, stock = (
        port_queue(f"{{kind: red, limit: 64KB, idle: {idle}}}").queue for idle in ("seen", "stock")
    )
    marking = port_queue("{kind: ecn_threshold, limit: 64KB, threshold: 20KB}").queue
    parameter = tmp_path / "stock_idle"
    assert port_queues.set_red_idle([seen], parameter) == [port_queues.UNSEEN]
    assert port_queues.set_red_idle([stock], parameter) == []
    assert port_queues.set_red_idle([], parameter) == []
    for queues_of_run, wanted in (([seen], "N"), ([stock, stock], "Y"), ([marking], "Y")):
        parameter.write_text("?")
        assert port_queues.set_red_idle(queues_of_run, parameter) == []
        assert parameter.read_text() == wanted
    with pytest.raises(ReadBackError, match="stock_idle"):
        port_queues.set_red_idle([seen], Path("/dev/null"))
