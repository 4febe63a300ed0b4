"""Classes of service: what tc is told, what the kernel has to show, and what is refused."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outcast import experiment, netlink
from outcast.analysis.join.join import JoinOptions, Verdict
from outcast.emulation import senders
from outcast.emulation.generator import loop
from outcast.emulation.generator.tasks import tasks
from outcast.emulation.kernel import rtnetlink, sockets
from outcast.emulation.queues import port_checks, qdiscs
from outcast.emulation.traffic import iperf
from outcast.errors import ReadBackError
from outcast.experiment.queues import KINDS, WITH_CLASSES
from outcast.experiment.queues.classes import HasClasses
from outcast.plan.make import make_plan
from tests.fakes import Shown
from tests.flows import FLOW, RECEIVER, SAMPLE, wants
from tests.golden.packets import P
from tests.unit.emulation.test_queues import port_queue
from tests.unit.join.test_join import joined

LINEAR = Path(__file__).parents[3] / "configs/linear-12.yaml"
PRIO = "{kind: prio, limit: 10 packets, classes: [{name: fast, dscp: [ef, 8]}, {name: slow}]}"
DRR = "{kind: drr, limit: 10KB, classes: [{name: fast, dscp: cs1, quantum: 3000B}, {name: slow}]}"
HTB = (
    "{kind: htb_classes, limit: 10 packets, classes: [{name: slow, rate: 20mbit, ceil: 40mbit}, "
    "{name: fast, dscp: af41, rate: 30mbit, priority: 1, quantum: 2000B}]}"
)


def filters(*points: tuple[int, int], rest: int) -> list[str]:
    """The lines of all filters: each code point with its class, and the class of all others."""
    lines = [
        f"filter add dev s1-eth1 parent 3: protocol {family} pref {pref} u32 match {field} "
        f"{point << 2:#04x} 0xfc flowid 3:{minor}"
        for point, minor in points
        for pref, family, field in ((1, "ip", "ip dsfield"), (2, "ipv6", "ip6 priority"))
    ]
    every = f"filter add dev s1-eth1 parent 3: protocol all pref 3 matchall flowid 3:{rest}"
    return [*lines, every]


def test_each_class_has_a_queue_of_its_own(monkeypatch):
    asked: list[tuple[str, int, int, bytes]] = []

    def replaced(_port: str, kind: str, *, parent: int, major: int, options: bytes) -> None:
        asked.append((kind, parent, major, options))

    monkeypatch.setattr(rtnetlink, "replace_qdisc", replaced)
    qdiscs.set_by_netlink(port_queue(DRR))
    limit = struct.pack("=I", 10_240)
    assert asked == [("bfifo", 0x30001, 0x11, limit), ("bfifo", 0x30002, 0x12, limit)]


def test_kinds_with_classes_are_known_by_their_class():
    named = {
        each.model_fields["kind"].annotation.__args__[0]
        for each in KINDS
        if issubclass(each, HasClasses)
    }
    assert named == WITH_CLASSES


# --- what the kernel shows


Filter = tuple[int, bytes]


def u32(family: int, shift: int, point: int, minor: int, mask: int = 0xFC) -> Filter:
    key = struct.pack("!IIii", mask << shift, point << shift + 2, 0, 0)
    selector = struct.pack("=BBBB12x", 0, 0, 1, 1) + key
    options = netlink.encode(1, struct.pack("=I", 0x30000 + minor)) + netlink.encode(5, selector)
    return socket.htons(family), options


def both(point: int, minor: int, **more: int) -> list[Filter]:
    return [u32(0x0800, 16, point, minor, **more), u32(0x86DD, 20, point, minor, **more)]


def every(minor: int) -> Filter:
    options = netlink.encode(1, struct.pack("=I", 0x30000 + minor))
    return socket.htons(3), options


TABLE = socket.htons(0x0800), bytes([8, 0, 3, 0, 1, 0, 0, 0])
"""u32 also tells of its hash tables."""


def of_drr(*quanta: int) -> list[Shown]:
    return [
        Shown(
            handle=0x30000 + minor,
            TCA_OPTIONS=netlink.encode(1, struct.pack("=I", quantum)).hex(":"),
        )
        for minor, quantum in enumerate(quanta, 1)
    ]


def of_htb(minor: int, rate_bps: int, ceil_bps: int, quantum: int, priority: int) -> Shown:
    rates = [struct.pack("=BBHhHI", 0, 1, 24, 0, 84, bps // 8) for bps in (rate_bps, ceil_bps)]
    options = netlink.encode(1, b"".join(rates) + struct.pack("=5I", 0, 0, quantum, 0, priority))
    return Shown(handle=0x30000 + minor, TCA_OPTIONS=options.hex(":"))


@pytest.fixture
def kernel(monkeypatch) -> Any:
    """Lets the kernel show these classes and filters."""

    def show(classes: Sequence[Shown], shown: Sequence[Filter]) -> None:
        class Fake:
            def __enter__(self) -> Fake:
                return self

            def __exit__(self, *_error: object) -> None:
                pass

            def classes(self, interface: int) -> Sequence[Shown]:
                assert interface == 7
                return classes

            def filters(self, interface: int, parent: int) -> Sequence[Filter]:
                assert (interface, parent) == (7, 0x30000)
                return shown

        monkeypatch.setattr(port_checks.rtnetlink, "Kernel", Fake)
        monkeypatch.setattr(socket, "if_nametoindex", lambda name: {"s1-eth1": 7}[name])

    return show


def test_settings_in_effect_are_read_back(kernel):
    shaper = Shown(handle=0x20001, TCA_OPTIONS="")
    kernel([shaper, *of_drr(3000, 1514)], [TABLE, *both(8, 1), every(2)])
    assert port_checks.read_classes(port_queue(DRR)) == {
        "fast quantum_bytes": 3000,
        "slow quantum_bytes": 1514,
        "fast dscp": "8",
        "slow dscp": "all others",
    }
    kernel(
        [
            of_htb(0xFFF, 0, 0, 0, 0),
            of_htb(1, 20_000_000, 40_000_000, 1514, 0),
            of_htb(2, 30_000_000, 0, 2000, 1),
        ],
        [*both(34, 2), every(1)],
    )
    effective = port_checks.read_classes(port_queue(HTB))
    assert effective["slow ceil_bps"] == 40_000_000
    assert effective["fast priority"] == 1
    kernel([Shown(handle=0x30001), Shown(handle=0x30002)], [*both(46, 1), *both(8, 1), every(2)])
    assert port_checks.read_classes(port_queue(PRIO))["fast dscp"] == "8 46"
    assert port_checks.read_classes(port_queue("{kind: tbf, limit: 16KB}")) == {}


@pytest.mark.parametrize(
    ("quanta", "shown", "what"),
    [
        ((3000, 1500), [*both(8, 1), every(2)], "slow quantum_bytes"),
        ((3000, 1514), [*both(8, 2), every(2)], "filters"),
        ((3000, 1514), [*both(9, 1), every(2)], "filters"),
        ((3000, 1514), [*both(8, 1)[:1], every(2)], "filters"),
        ((3000, 1514), [*both(8, 1), every(1)], "filters"),
        ((3000, 1514), both(8, 1), "filters"),
        ((3000, 1514), [*both(8, 1, mask=0xFF), every(2)], "filters"),
        ((3000,), [*both(8, 1), every(2)], "classes"),
    ],
)
def test_a_difference_ends_the_run(kernel, quanta, shown, what):
    kernel(of_drr(*quanta), shown)
    with pytest.raises(ReadBackError, match=f"s1-eth1: {what}"):
        port_checks.read_classes(port_queue(DRR))


def test_a_slow_oscillator_takes_no_rate_away_from_what_htb_promises():
    for seed in range(3):
        offset = [f"queue={HTB}", "links.rate=50mbit", "links.clock_offset_ppm=100"]
        make_plan(experiment.load(LINEAR, [*offset, f"seed={seed}"]))


# --- who sends what


def test_senders_mark_what_they_send():
    marked = replace(FLOW, dscp=46)
    assert "-S" not in iperf.client_arguments(FLOW, 0)
    argv = iperf.client_arguments(marked, 0)
    assert argv[argv.index("-S") + 1] == "184"
    argv = senders.sender_arguments(Path("stream"), marked, 1)
    assert argv[argv.index("--tos") + 1] == "184"
    assert "--tos" not in senders.sender_arguments(Path("stream"), FLOW, 1)


def test_a_socket_has_to_show_the_code_point():
    flow = replace(wants(), dscp=46)
    sockets.check_sockets([flow], [replace(SAMPLE, dscp=46), RECEIVER])
    with pytest.raises(ReadBackError, match="dscp: requested 46"):
        sockets.check_sockets([flow], [SAMPLE, RECEIVER])


def test_generated_traffic_has_its_code_point():
    config = Path(__file__).parents[3] / "configs/fig3c.yaml"
    wanted = experiment.load(
        config, ["workloads=[{kind: incast, senders: 2, block: 1KB, rounds: 2, dscp: ef}]"]
    )
    plan = make_plan(wanted)
    given = {
        (host, port): tos
        for host, task in tasks(wanted, plan).items()
        for port, tos in task.get("tos", {}).items()
    }
    assert given == {(flow.src, str(flow.sport)): 46 << 2 for flow in plan.generated}


@pytest.mark.parametrize(
    ("family", "level", "option"),
    [
        (socket.AF_INET, socket.IPPROTO_IP, socket.IP_TOS),
        (socket.AF_INET6, socket.IPPROTO_IPV6, socket.IPV6_TCLASS),
    ],
)
def test_a_socket_is_marked(family, level, option):
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        loop.mark(sock, 0)
        assert sock.getsockopt(level, option) == 0
        loop.mark(sock, 184)
        assert sock.getsockopt(level, option) == 184


# --- the join


def test_where_a_queue_has_classes_only_a_flows_own_order_counts(tmp_path):
    """Two equal datagrams wait while others pass, and another one is dropped."""
    same: dict[str, Any] = {"sport": 9, "seq": 0, "ip_id": 0}
    slow = [P(10, **same), P(20, **same), P(300, **same)]
    fast = [P(100 + 50 * n, seq=1000 + n, ip_id=n) for n in range(4)]
    left = [P(101 + 50 * n, seq=1000 + n, ip_id=n) for n in range(4)]
    left += [P(400, **same), P(410, **same)]
    inputs = {"slow": slow, "fast": fast}
    apart = JoinOptions(apart=True, watched_ns=(0, 10**10))
    got = joined(tmp_path, inputs, left, apart)
    mine = got.arrivals.port == 0
    assert got.t_out_ns[mine].tolist() == [400_000, 410_000, -1]
    assert got.verdict[mine].tolist()[2] == Verdict.DROPPED
    # At the end of the captures it may still wait, though others have passed it.
    at_end = joined(tmp_path, {"slow": slow[:1], "fast": fast}, left[:4], JoinOptions(apart=True))
    assert at_end.verdict[at_end.arrivals.port == 0].tolist() == [Verdict.UNKNOWN]
    # In one queue for all, those that were passed over would have been dropped.
    other = joined(tmp_path, inputs, left, replace(apart, apart=False))
    assert other.t_out_ns[mine].tolist() != got.t_out_ns[mine].tolist()
