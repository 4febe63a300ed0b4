"""Events: which port changes when, what is refused, and how the changes are made."""

import struct
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from outcast import experiment, netlink
from outcast.emulation.network.changes import MOST_LATE_NS, Changer
from outcast.emulation.queues import reconfigure
from outcast.errors import ReadBackError, RunError
from outcast.plan.events import Change, changes, cut_off
from outcast.plan.make import make_plan
from outcast.plan.model import Plan

CONFIGS = Path(__file__).parents[3] / "configs"
MS = 10**6


def planned(events: str, *overrides: str) -> tuple[experiment.Experiment, Plan]:
    text = [f"events={events}", "duration=500ms", "analysis={}", "engine=virtual"]
    text += ["noise.profile=jitter", *overrides]
    whole = experiment.load(CONFIGS / "linear-12.yaml", text)
    whole = whole.resolved("virtual")
    return whole, make_plan(whole)


def planned_changes(events: str, *overrides: str) -> list[Change]:
    return list(changes(*planned(events, *overrides)))


def test_a_rate_changes_in_both_directions_of_a_link_or_in_one():
    both = planned_changes("[{at: 200ms, between: [s1, s2], rate: 50mbit}]")
    assert [(c.port, c.at_ns, c.what, c.value) for c in both] == [
        ("s1-eth3", 200 * MS, "rate_bps", 50_000_000),
        ("s2-eth1", 200 * MS, "rate_bps", 50_000_000),
    ]
    assert (both[0].before.rate_bps, both[0].after.rate_bps) == (100_000_000, 50_000_000)
    (one,) = planned_changes("[{at: 200ms, from: s2, to: s1, rate: 50mbit}]")
    assert (one.node, one.neighbour, one.port) == ("s2", "s1", "s2-eth1")


def test_changes_come_in_the_order_of_time_and_each_knows_the_one_before():
    late, early = planned_changes(
        "[{at: 300ms, from: s1, to: h1, rate: 20mbit}, {at: 100ms, from: s1, to: h1, rate: 50mbit}]"
    )[::-1]
    assert (early.event, late.event) == (1, 0)
    assert late.before == early.after


def test_a_delay_that_becomes_shorter_than_the_jitter_shortens_the_jitter():
    (change,) = planned_changes("[{at: 1ms, from: s1, to: h1, delay: 1us}]", "noise.profile=jitter")
    assert change.before.jitter_ns > 1000
    # A packet takes at least the delay, and at most twice the jitter longer.
    assert (change.value, change.after.delay_ns, change.after.jitter_ns) == (1000, 2000, 1000)


def test_a_port_whose_delay_changes_has_a_netem_from_the_beginning():
    (change,) = planned_changes("[{at: 1ms, from: s1, to: h1, delay: 1ms}]", "links.delay=0s")
    assert (change.before.delay_ns, change.before.has_netem) == (0, True)
    (other,) = planned_changes("[{at: 1ms, from: s1, to: h1, rate: 1mbit}]", "links.delay=0s")
    assert not other.before.has_netem


def test_a_link_fails_by_its_switches_and_stays_down():
    down = planned_changes("[{at: 300ms, between: [s1, s2], up: false}]")
    assert [(c.port, c.at_ns, c.event, c.value) for c in down] == [
        ("s1-eth3", 300 * MS, 0, 0),
        ("s2-eth1", 300 * MS, 0, 0),
    ]
    to_host = planned_changes(
        "[{at: 300ms, between: [h1, s1], up: false}, {at: 400ms, between: [s1, h1], up: true}]"
    )
    assert [(c.port, c.at_ns, c.value) for c in to_host] == [
        ("s1-eth1", 300 * MS, 0),
        ("s1-eth1", 400 * MS, 1),
    ]


def test_flows_over_a_link_that_is_down_at_the_end_are_cut_off():
    def cut(events: str, *overrides: str) -> set[int]:
        return set(cut_off(*planned(events, *overrides)))

    fails = "{at: 300ms, between: [s1, s2], up: false}"
    groups = "flows=[{from: 2-hop, hosts: 1}, {from: 3-hop, hosts: 2}]"
    assert cut(f"[{fails}]", groups) == {1, 2}
    assert cut("[{at: 300ms, between: [s1, h1], up: false}]", groups) == {0, 1, 2}
    assert cut(f"[{fails}, {{at: 400ms, between: [s2, s1], up: true}}]", groups) == set()
    assert cut("[{at: 300ms, from: s1, to: h1, rate: 50mbit}]", groups) == set()
    # The order in which they are written says nothing.
    assert cut(f"[{{at: 400ms, between: [s2, s1], up: true}}, {fails}]", groups) == set()
    # Subflows leave by ports that the kernel picks.
    assert cut(f"[{fails}]", groups, "transport.mptcp={}") == {1, 2}


def attributes_of(request: bytes) -> dict[int, bytes]:
    return dict(netlink.attributes(request[36:]))


def test_tbf_is_told_the_limit_of_the_fifo_below_it():
    (change,) = planned_changes("[{at: 1ms, from: s1, to: h1, rate: 50mbit}]")
    (request,) = reconfigure.requests(7, change.before, change.after)
    assert struct.unpack_from("=HH", request, 4) == (netlink.RTM_NEWQDISC, 5)  # no create
    assert struct.unpack_from("=iII", request, 20) == (7, 2 << 16, 0)
    parameters = netlink.attribute(attributes_of(request)[2], 1)
    assert parameters is not None
    rate, limit = (struct.unpack_from("=I", parameters, at)[0] for at in (8, 24))
    assert (rate, limit) == (50_000_000 // 8, 16384)
    assert netlink.numbers(attributes_of(request)[2])[6] == 1600


def test_an_htb_class_is_changed_and_not_its_qdisc():
    queue = "queue={kind: htb, limit: 16KB}"
    (change,) = planned_changes("[{at: 1ms, from: s1, to: h1, rate: 50mbit}]", queue)
    (request,) = reconfigure.requests(7, change.before, change.after)
    assert struct.unpack_from("=H", request, 4) == (netlink.RTM_NEWTCLASS,)
    assert struct.unpack_from("=iII", request, 20) == (7, 2 << 16 | 1, 2 << 16)


def test_a_changed_delay_keeps_packets_in_order():
    (change,) = planned_changes("[{at: 1ms, from: s1, to: h1, delay: 1ms}]")
    (request,) = reconfigure.requests(7, change.before, change.after)
    options = netlink.numbers(attributes_of(request)[2][24:])
    assert (options[10], options[8]) == (1_000_000 + change.after.noise_ns, 1 << 62)


def test_only_what_differs_is_changed():
    (change,) = planned_changes("[{at: 1ms, from: s1, to: h1, limit: 32KB}]")
    (request,) = reconfigure.requests(7, change.before, change.after)
    assert struct.unpack_from("=iI", request, 20) == (7, 3 << 16)
    assert attributes_of(request)[2] == struct.pack("=I", 32768)
    assert reconfigure.requests(7, change.before, change.before) == []


class FakeKernel:
    """Notes the changes; the clock goes on by `takes_ns` with each."""

    def __init__(self, takes_ns: int = 0, error: Exception | None = None) -> None:
        self.made: list[Change] = []
        self.closed = False
        self.now_ns = 10**18
        self._takes_ns = takes_ns
        self._error = error

    def apply(self, change: Change) -> int:
        if self._error is not None:
            raise self._error
        self.now_ns += self._takes_ns
        self.made.append(change)
        return change.value

    def close(self) -> None:
        self.closed = True


def changer_with(kernel: FakeKernel) -> Changer:
    return Changer(two_changes(), (), kernel, now_ns=lambda: kernel.now_ns)


def ended(changer: Changer, kernel: FakeKernel, left: int, start_ns: int) -> None:
    end = time.monotonic() + 10
    with changer:
        changer.start(start_ns)
        while len(kernel.made) < left and time.monotonic() < end:
            changer.require_alive()
            time.sleep(0.001)
        changer.finish()


def two_changes() -> Sequence[Change]:
    return planned_changes("[{at: 1ms, between: [s1, s2], rate: 50mbit}]")


def test_changes_are_made_and_recorded_with_their_times():
    kernel = FakeKernel(takes_ns=1000)
    start_ns = kernel.now_ns - 2 * MS
    changer = changer_with(kernel)
    ended(changer, kernel, 2, start_ns)
    first, second = changer.applied()
    assert (first.event, first.at_ns, first.applied_ns) == (0, MS, 2 * MS + 1000)
    assert (second.applied_ns, second.requested, second.shown) == (
        *(2 * MS + 2000, 50_000_000, 50_000_000),
    )
    assert kernel.closed
    assert not changer.warnings()


def test_a_late_change_is_a_warning_and_a_very_late_one_ends_the_run():
    kernel = FakeKernel()
    late = changer_with(kernel)
    ended(late, kernel, 2, kernel.now_ns - 20 * MS)
    assert late.warnings() == [
        "2 of 2 changes of links and queues came late, the latest by 19.0 ms; less load on this "
        "machine, or the virtual engine, keeps their times"
    ]
    kernel = FakeKernel()
    start_ns = kernel.now_ns - MOST_LATE_NS - 2 * MS
    with pytest.raises(RunError, match=r"s1-eth3: rate_bps changed 251 ms after its time"):
        ended(changer_with(kernel), kernel, 2, start_ns)


def test_what_the_kernel_shows_otherwise_ends_the_run():
    error = ReadBackError("s1-eth3", "rate_bps", 1, 2)
    kernel = FakeKernel(error=error)
    changer = changer_with(kernel)
    with pytest.raises(ReadBackError, match="requested 1, the kernel shows 2"):
        ended(changer, kernel, 1, kernel.now_ns - 2 * MS)
    kernel = FakeKernel(error=ValueError("odd"))
    changer = changer_with(kernel)
    with pytest.raises(RunError, match="changing links and queues: odd"):
        ended(changer, kernel, 1, kernel.now_ns - 2 * MS)


def test_changes_that_are_not_due_at_the_end_are_not_made_and_named():
    kernel = FakeKernel()
    changer = changer_with(kernel)
    with changer:
        changer.start(kernel.now_ns)
        changer.finish()
    assert kernel.made == []
    assert [(a.applied_ns, a.shown) for a in changer.applied()] == [(None, None)] * 2
    assert changer.warnings() == [
        "events.0 at 0.001 s was not reached, because all flows had ended before"
    ]
