"""Warnings before a run: settings that change what it measures, values beyond the tested envelope.

These are pure functions of a plan and its experiment. `tests/unit/plan/test_hints.py` holds every
bound of the envelope to the cases of tests/physics: some case reaches it, and none lies beyond.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from math import inf

from outcast import units
from outcast.experiment import Experiment
from outcast.experiment.engine import EngineChoice, candidates, properties
from outcast.experiment.parts import MOST_RATE_BPS
from outcast.experiment.queues.classes import HtbClasses
from outcast.experiment.queues.drop_tail import Custom
from outcast.plan import events, ports, traces
from outcast.plan.flows import Flow
from outcast.plan.links import Direction
from outcast.plan.model import Plan
from outcast.plan.schedule import generated_packet

PAGE = "docs/envelope.md"


BOUNDS: dict[str, tuple[int, int, Callable[[int], str]]] = {
    "rate": (100_000, 10**10, units.format_rate),
    "delay": (0, 600 * 10**6, units.format_time),
    "base RTT": (2_604, 1_203_030_848, units.round_time),
    "number of flows": (1, 500, str),
    "MTU": (576, 9000, str),
    "limit": (2, 20_000, lambda packets: f"{packets} packet{'s' * (packets != 1)}"),
    "full queue": (24_608, 12_304_000_000, lambda ns: f"{units.round_time(ns)} to drain"),
    "duration": (100 * 10**6, 120 * 10**9, units.format_time),
}
"""The least and the most that tests/physics reached, and how it is written. Rates in bit/s, times
in ns, the MTU in bytes, limits in full frames."""

REAL_TIME_RATE_BPS = 10**8
"""What two free cores carried in real time (docs/limits.md)."""


def extents(experiment: Experiment, plan: Plan) -> dict[str, list[int]]:
    """All numbers of a run that have a bound, by its name.

    Limits and queues are those on the paths of flows; without flows, those of the bottleneck.
    """
    crossed = {port for flow in plan.flows for port in plan.ports_on(flow.path)}
    every = (ports.switch_queue(experiment, plan, p) for p in crossed or {plan.bottleneck.egress})
    queues = [queue for queue in every if queue.limit_packets]
    links = plan.links.values()
    rates = [link.rate_bps for hop, link in plan.links.items() if hop not in plan.traced]
    for trace in plan.traces:
        rates += [rate for rate in traces.lasting_bps(trace.t_ns, trace.rate_bps) if rate]
    rates += [event.rate_bps for event in experiment.events if event.rate_bps is not None]
    delays = [event.delay_ns for event in experiment.events if event.delay_ns is not None]
    return {
        "rate": rates,
        "delay": [*delays, *(link.delay_ns or 0 for link in links)],
        "base RTT": [plan.base_rtt_ns(flow.path, flow.return_path) for flow in plan.flows],
        "number of flows": [len(plan.flows)] if plan.flows else [],
        "MTU": [link.mtu_bytes for link in links],
        "limit": [queue.limit_packets for queue in queues],
        "full queue": [queue.full_ns for queue in queues],
        "duration": [experiment.duration_ns],
    }


def envelope_warnings(experiment: Experiment, plan: Plan, engine: EngineChoice) -> list[str]:
    """A line on each bound that a run lies beyond, with the number that is farthest from it."""
    lines = []
    for name, numbers in extents(experiment, plan).items():
        least, most, words = BOUNDS[name]
        beyond = [number for number in numbers if not least <= number <= most]
        if beyond:
            farthest = max(beyond, key=lambda number: abs(number - most))
            lines.append(
                f"the {name} {words(farthest)} is outside the tested envelope "
                f"({words(least)} to {words(most)}; {PAGE})"
            )
    fastest_bps = max((plan.slowest_bps(flow.path) for flow in plan.flows), default=0)
    if not properties(candidates(engine)[0]).virtual_clock and fastest_bps > REAL_TIME_RATE_BPS:
        lines.append(
            f"a path of {units.format_rate(fastest_bps)} is faster than what two free cores "
            f"carried in real time ({units.format_rate(REAL_TIME_RATE_BPS)}; docs/limits.md)"
        )
    return lines


def beforehand(experiment: Experiment, plan: Plan, engine: EngineChoice) -> list[str]:
    """A run's lines before it begins, and in its warnings."""
    return [
        *held_at_senders(experiment, plan),
        *buffer_warnings(experiment, plan),
        *_unmarked(experiment, plan),
        *envelope_warnings(experiment, plan, engine),
    ]


def _unmarked(experiment: Experiment, plan: Plan) -> list[str]:
    """A line if a flow has ECN and no measured queue on its path, or else none at all, marks."""
    measured = {port.egress for port in (plan.bottleneck, *plan.others)}
    for flow in plan.flows:
        on_path = plan.ports_on(flow.path)
        names = [port for port in on_path if port in measured] or on_path
        queues = [ports.switch_queue(experiment, plan, port).queue for port in names]
        if flow.transport.negotiates_ecn and not any(queue.marks for queue in queues):
            return [
                f"flow {flow.flow} has ECN ({flow.transport.congestion_control}), but the queue of "
                f"{names[0]} ({queues[0].kind}) never marks, so losses alone tell it of "
                "congestion; kinds with ecn: true mark, and ecn_threshold (docs/queues.md)"
            ]
    return []


SEND_BUFFER_BYTES = 4 << 20
"""tcp_wmem's largest on a machine with memory (tcp_init in net/ipv4/tcp.c)."""
RECEIVE_BUFFER_BYTES = 16 << 20
"""tcp_rmem's largest with the guest's 2 GB: a 128th of the memory, up to 32 MB. Before Linux 6.16
it was 6 MB."""
LEAST_PAYLOAD = 0.5
"""The payload's share of a buffer, which counts whole packets with their bookkeeping (truesize;
tcp_adv_win_scale in Documentation/networking/ip-sysctl.rst)."""
LEAST_SEND_BUFFER_BYTES = 64 << 10
"""Linux looks at a send buffer only before it begins a packet of this size, which is cut later
(tcp_sendmsg_locked in net/ipv4/tcp.c, GSO_LEGACY_MAX_SIZE)."""
MOST_PAYLOAD = {"send_buffer": 0.9, "receive_buffer": 0.7}
"""The payload's share at most: a program's data lie together in few packets."""


def longest_way_ns(experiment: Experiment, plan: Plan, path: Sequence[str]) -> int:
    """The time of a full frame from the first node of a path to the last if every queue is full."""
    queues = [ports.host_queue(experiment, plan, path[0])]
    queues += [ports.switch_queue(experiment, plan, port) for port in plan.ports_on(path)]
    links = [plan.links[hop] for hop in pairwise(path)]
    return sum(queue.full_ns for queue in queues) + sum(
        (link.delay_ns or 0) + link.frame_ns for link in links
    )


def buffer_warnings(experiment: Experiment, plan: Plan) -> list[str]:
    """A line on each kind of buffer that holds less than the path of some flow holds.

    A path holds the bandwidth-delay product, of its base round trip, and more as its queue fills.
    """
    lines = []
    sizes = ((flow, flow.transport.send_buffer) for flow in plan.flows)
    small = [flow for flow, own in sizes if own and own.max_bytes < LEAST_SEND_BUFFER_BYTES]
    if small:
        lines.append(
            f"{_where_set(experiment, small[0], 'send_buffer')}: below 64KB a send buffer limits "
            "no further: Linux looks at it only before a packet of up to 64KB, so some 90 kB are "
            "under way; allowed for a limit that counts is 64KB or more, or receive_buffer"
        )
    usual = {"send_buffer": SEND_BUFFER_BYTES, "receive_buffer": RECEIVE_BUFFER_BYTES}
    for key, linux in usual.items():
        short: list[tuple[int, int, Flow]] = []
        for flow in plan.flows:
            own = getattr(flow.transport, key)
            holds = linux if own is None else own.max_bytes
            product = plan.product_bytes(flow)
            is_told = key == "send_buffer" and flow in small
            if product > MOST_PAYLOAD[key] * holds and not is_told:
                short.append((product, holds, flow))
        if not short:
            continue
        product, holds, flow = max(short, key=lambda each: each[0])
        lines.append(
            f"the path of flow {flow.flow} holds {product:,} B and its queue more, but a {key} of "
            f"{units.format_size(holds)} holds payload of {LEAST_PAYLOAD:.0%} to "
            f"{MOST_PAYLOAD[key]:.0%} of its size; {_where_set(experiment, flow, key)} sets more"
        )
    return lines


def _where_set(experiment: Experiment, flow: Flow, key: str) -> str:
    """The key that decides: a group's own setting wins."""
    own = experiment.flows[flow.group].transport
    where = f"flows.{flow.group}." if own is not None and key in own.model_fields_set else ""
    return f"{where}transport.{key}"


HELD = "packets wait at senders' own ports"
"""How the line starts."""


def held_at_senders(experiment: Experiment, plan: Plan) -> list[str]:
    """A line if senders' own ports keep a studied queue empty, with the key that cures it.

    Nothing is said where a rate or a fault on the way changes, or where a link bunches or
    duplicates packets, because these may fill a queue.
    """
    is_drawn = plan.per_packet or any(flow.transport.mptcp for flow in plan.flows)
    if is_drawn or plan.blackout_at:
        return []
    changing = {(c.node, c.neighbour) for c in events.changes(experiment, plan)} | plan.traced
    rates_bps = {hop: link.rate_bps for hop, link in plan.links.items()}
    greedy = {
        hop for path, pace in _senders(plan) if pace >= rates_bps[hop := next(pairwise(path))]
    }
    # Acknowledgements too.
    pairs = [*((flow.path, flow.return_path) for flow in plan.flows), *plan.loading_ways]
    ways = [way for pair in pairs for way in pair]
    offered = _offered_bps(plan, [(way, inf) for way in ways])
    for studied in (plan.bottleneck, *plan.others):
        egress, end = studied.egress, plan.ends[studied.egress]
        _, queue = ports.asked_of_switch(experiment, plan, egress)
        crossing = [
            hops[: hops.index(end) + 1] for way in ways if end in (hops := [*pairwise(way)])
        ]
        crossed = {hop for hops in crossing for hop in hops}
        senders = sorted({hops[0] for hops in crossing})
        if (
            not isinstance(queue, HtbClasses | Custom)
            and not any(plan.links[hop].has_faults for hop in crossed - {end})
            and changing.isdisjoint(crossed)
            and all(offered.get(hop, 0) <= rates_bps[hop] for hop in crossed)
            and not greedy.isdisjoint(senders)
        ):
            faster = units.format_rate(min(10 * rates_bps[end], MOST_RATE_BPS))
            return [
                f"{HELD}, and hardly any at {egress}, whatever its limit: senders can bring "
                f"{units.round_rate(offered[end])}, and {egress} sends "
                f"{units.round_rate(rates_bps[end])}; for a queue at {egress} give them faster "
                f"links, as links.overrides: [{{between: [{', '.join(senders[0])}], "
                f"rate: {faster}}}]"
            ]
    return []


def _senders(plan: Plan) -> Iterator[tuple[Sequence[str], float]]:
    """The path of each flow's data, and its highest rate in bit/s."""
    for flow in plan.flows:
        yield flow.path, flow.transport.pacing_rate_bps or inf
    for each in plan.generated:
        path = plan.path(each.src, each.dst, generated_packet(plan.graph, each))
        yield path, (each.datagram_bytes or 0) * 8e9 / each.gap_ns if each.gap_ns else inf


def offered_bps(plan: Plan) -> dict[Direction, float]:
    """The rate that flows and workloads can bring to each direction of a switch's link."""
    return _offered_bps(plan, _senders(plan))


def _offered_bps(plan: Plan, ways: Iterable[tuple[Sequence[str], float]]) -> dict[Direction, float]:
    """What paths with their paces in bit/s bring to each link after their first one.

    A sender brings at most the rate of the slowest link before it, and at most its pace.
    """
    paces_bps: dict[tuple[Direction, Direction], float] = defaultdict(float)
    most_bps: dict[tuple[Direction, Direction], int] = {}
    for path, pace_bps in ways:
        hops = [*pairwise(path)]
        slowest_bps = plan.links[hops[0]].rate_bps
        for before, hop in pairwise(hops):
            slowest_bps = min(slowest_bps, plan.links[before].rate_bps)
            most_bps[hop, hops[0]] = max(most_bps.get((hop, hops[0]), 0), slowest_bps)
            paces_bps[hop, hops[0]] += pace_bps
    offered: dict[Direction, float] = defaultdict(float)
    for (hop, first), rate_bps in most_bps.items():
        offered[hop] += min(rate_bps, paces_bps[hop, first])
    return dict(offered)
