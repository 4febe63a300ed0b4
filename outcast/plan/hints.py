"""Warnings before a run: settings that change what it measures, values beyond the tested envelope.

These are pure functions of a plan and its experiment. `tests/unit/plan/test_hints.py` holds every
bound of the envelope to the cases of tests/physics: some case reaches it, and none lies beyond.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from outcast import units
from outcast.experiment import Experiment, Queue
from outcast.experiment.engine import EngineChoice, candidates, properties
from outcast.experiment.parts import MOST_RATE_BPS
from outcast.experiment.queues.classes import HtbClasses
from outcast.experiment.queues.drop_tail import Custom
from outcast.plan import events, ports, traces
from outcast.plan.flows import Flow
from outcast.plan.links import Direction
from outcast.plan.model import Plan
from outcast.plan.schedule import generated_packet
from outcast.units import format_rate, round_rate

PAGE = "docs/envelope.md"


@dataclass(frozen=True, slots=True)
class Bound:
    least: int
    most: int
    words: Callable[[int], str]


BOUNDS = {
    "rate": Bound(100_000, 10**10, units.format_rate),
    "delay": Bound(0, 600 * 10**6, units.format_time),
    "base RTT": Bound(2_604, 1_203_030_848, units.round_time),
    "number of flows": Bound(1, 500, str),
    "MTU": Bound(576, 9000, str),
    "limit": Bound(2, 20_000, lambda packets: f"{packets} packet{'s' * (packets != 1)}"),
    "full queue": Bound(24_608, 12_304_000_000, lambda ns: f"{units.round_time(ns)} to drain"),
    "duration": Bound(100 * 10**6, 120 * 10**9, units.format_time),
}
"""Rates in bit/s, times in ns, the MTU in bytes, limits in full frames."""

REAL_TIME_RATE_BPS = 10**8
"""What two free cores carried in real time (docs/limits.md)."""


def extents(experiment: Experiment, plan: Plan) -> Iterator[tuple[str, int, str]]:
    """Every number of a run that has a bound: the bound's name, the number, and its owner.

    Limits and queues are those on the paths of flows; without flows, those of the bottleneck.
    """
    for (near, far), link in plan.links.items():
        where = f" of the link from {near} to {far}"
        if (near, far) not in plan.traced:
            yield "rate", link.rate_bps, where
        yield "delay", link.delay_ns or 0, where
        yield "MTU", link.mtu_bytes, where
    for trace in plan.traces:
        for rate in traces.lasting_bps(trace.t_ns, trace.rate_bps):
            if rate:
                yield "rate", rate, f" in {trace.file}"
    for number, event in enumerate(experiment.events):
        if event.rate_bps is not None:
            yield "rate", event.rate_bps, f" of events.{number}"
        if event.delay_ns is not None:
            yield "delay", event.delay_ns, f" of events.{number}"
    for flow in plan.flows:
        yield "base RTT", plan.base_rtt_ns(flow.path, flow.return_path), f" of flow {flow.flow}"
    if plan.flows:
        yield "number of flows", len(plan.flows), ""
    crossed = {port for flow in plan.flows for port in plan.ports_on(flow.path)}
    for port in sorted(crossed or {plan.bottleneck.egress}):
        queue = ports.switch_queue(experiment, plan, port)
        if queue.limit_packets:
            yield "limit", queue.limit_packets, f" of the queue at {port}"
            yield "full queue", queue.full_ns, f" at {port}"
    yield "duration", experiment.duration_ns, ""


def envelope_warnings(experiment: Experiment, plan: Plan, engine: EngineChoice) -> list[str]:
    """A line on each bound that a run lies beyond, with the number that is farthest from it."""
    farthest: dict[tuple[str, bool], tuple[int, str]] = {}
    for name, number, where in extents(experiment, plan):
        bound = BOUNDS[name]
        if bound.least <= number <= bound.most:
            continue
        is_above = number > bound.most
        known = farthest.get((name, is_above))
        if known is None or (number > known[0] if is_above else number < known[0]):
            farthest[name, is_above] = (number, where)
    lines = [
        f"the {name}{where}, {BOUNDS[name].words(number)}, is outside the tested envelope "
        f"({BOUNDS[name].words(BOUNDS[name].least)} to {BOUNDS[name].words(BOUNDS[name].most)}; "
        f"{PAGE})"
        for (name, _), (number, where) in farthest.items()
    ]
    fastest_bps = max((plan.slowest_bps(flow.path) for flow in plan.flows), default=0)
    if not properties(candidates(engine)[0]).virtual_clock and fastest_bps > REAL_TIME_RATE_BPS:
        lines.append(
            f"a path of {units.format_rate(fastest_bps)} is faster than what two free cores "
            f"carried in real time ({units.format_rate(REAL_TIME_RATE_BPS)}; docs/limits.md)"
        )
    return lines


_AQM = "the kind red, codel or fq_codel with ecn: true"
_MARKING = {"dctcp": "the kind ecn_threshold"}


def beforehand(experiment: Experiment, plan: Plan, engine: EngineChoice) -> list[str]:
    """A run's lines before it begins, and in its warnings: hints, and bounds that it exceeds."""
    return [*hints(experiment, plan), *envelope_warnings(experiment, plan, engine)]


def hints(experiment: Experiment, plan: Plan) -> list[str]:
    """A line on each hint: an unused queue, small buffers, and marks that never come."""
    return [
        *held_at_senders(experiment, plan),
        *buffer_warnings(experiment, plan),
        *_unmarked(experiment, plan),
    ]


def _unmarked(experiment: Experiment, plan: Plan) -> list[str]:
    found: list[tuple[Flow, str, Queue]] = []
    measured = {port.egress for port in (plan.bottleneck, *plan.others)}
    for flow in plan.flows:
        if not flow.transport.negotiates_ecn:
            continue
        on_path = plan.ports_on(flow.path)
        queues = {
            port: ports.switch_queue(experiment, plan, port).queue
            for port in [port for port in on_path if port in measured] or on_path
        }
        if not any(queue.marks for queue in queues.values()):
            found.append((flow, *next(iter(queues.items()))))
    if not found:
        return []
    flow, port, queue = found[0]
    control = flow.transport.congestion_control
    marks = "ecn: true" if "ecn" in type(queue).model_fields else _MARKING.get(control, _AQM)
    return [
        f"flow {flow.flow}{_more(len(found))} has ECN ({control}), but the queue of {port} "
        f"({queue.kind}) never marks, so losses alone tell it of congestion; for marks give it "
        f"{marks}"
    ]


def _more(flows: int) -> str:
    return f" (and {flows - 1} more)" if flows > 1 else ""


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
    """A line on each kind of buffer that holds less than the paths of some flows hold.

    A path holds the bandwidth-delay product, of its base round trip, and more as its queue fills.
    """
    sizes = {flow: own.max_bytes for flow in plan.flows if (own := flow.transport.send_buffer)}
    small = [flow for flow, size in sizes.items() if size < LEAST_SEND_BUFFER_BYTES]
    lines = [
        f"{_where_set(experiment, flow, 'send_buffer')}: {units.format_size(sizes[flow])}: Linux "
        "looks at it only before a packet of up to 64KB, so some 90 kB are under way with any "
        "smaller one; allowed for a limit that counts is 64KB or more, or receive_buffer"
        for flow in small[:1]
    ]
    told = {("send_buffer", flow) for flow in small}
    usual = {"send_buffer": SEND_BUFFER_BYTES, "receive_buffer": RECEIVE_BUFFER_BYTES}
    for key, linux in usual.items():
        short: list[tuple[int, Flow, int, bool]] = []
        for flow in plan.flows:
            own = getattr(flow.transport, key)
            holds = linux if own is None else own.max_bytes
            product = plan.product_bytes(flow)
            if product > MOST_PAYLOAD[key] * holds and (key, flow) not in told:
                short.append((product, flow, holds, own is None))
        if not short:
            continue
        product, flow, holds, is_default = max(short, key=lambda item: item[0])
        whose = "Linux's largest by default" if is_default else "as transport says"
        more = f" (and of {len(short) - 1} more flows)" if len(short) > 1 else ""
        full = product + _queue_bytes(experiment, plan, flow)
        keys = dict.fromkeys(_where_set(experiment, each, key) for _, each, *_ in short)
        needed = -(-int(full / LEAST_PAYLOAD * 1.5) // 2**20)
        lines.append(
            f"the path of flow {flow.flow}{more} holds {product:,} B "
            f"({units.format_rate(plan.slowest_bps(flow.path))} times "
            f"{units.round_time(plan.base_rtt_ns(flow.path, flow.return_path))}), and a {key} of "
            f"{units.format_size(holds)} ({whose}) holds payload of {LEAST_PAYLOAD:.0%} to "
            f"{MOST_PAYLOAD[key]:.0%} of its size; to fill the path and its queue set "
            f"{' and '.join(keys)}: {needed}MB"
        )
    return lines


def _where_set(experiment: Experiment, flow: Flow, key: str) -> str:
    """The key that decides: a group's own setting wins."""
    own = experiment.flows[flow.group].transport
    where = f"flows.{flow.group}." if own is not None and key in own.model_fields_set else ""
    return f"{where}transport.{key}"


def _queue_bytes(experiment: Experiment, plan: Plan, flow: Flow) -> int:
    queues = [ports.switch_queue(experiment, plan, port) for port in plan.ports_on(flow.path)]
    slowest = min(queues, key=lambda queue: queue.rate_bps, default=None)
    return 0 if slowest is None else slowest.limit_packets * slowest.frame_bytes


HELD = "packets wait at senders' own ports"
"""How the line starts."""
_FASTER = 10
_MOST_NAMED = 3


def held_at_senders(experiment: Experiment, plan: Plan) -> list[str]:
    """A line if senders' own ports keep a studied queue empty, with the key that cures it.

    Nothing is said where a rate or a fault on the way changes, or where a link bunches or
    duplicates packets, because these may fill a queue.
    """
    is_drawn = plan.per_packet or any(flow.transport.mptcp for flow in plan.flows)
    if is_drawn or plan.blackout_at or not (plan.flows or plan.generated):
        return []
    changing = {(c.node, c.neighbour) for c in events.changes(experiment, plan)} | plan.traced
    found = []
    for studied in (plan.bottleneck, *plan.others):
        end = plan.ends[studied.egress]
        _, queue = ports.asked_of_switch(experiment, plan, studied.egress)
        ways = _ways_to(plan, end)
        crossed = {hop for way in ways for hop in pairwise(way)}
        own_bps = {
            hop: plan.links[hop].rate_bps for hop in sorted({next(pairwise(way)) for way in ways})
        }
        if (
            not isinstance(queue, HtbClasses | Custom)
            and not any(plan.links[hop].has_faults for hop in crossed - {end})
            and changing.isdisjoint(crossed)
            and all(
                own_bps[way[0], way[1]] <= plan.links[hop].rate_bps
                for way in ways
                for hop in pairwise(way)
            )
            and sum(own_bps.values()) <= plan.links[end].rate_bps
            and not own_bps.keys().isdisjoint(_unpaced(plan))
        ):
            found.append((studied.egress, plan.links[end].rate_bps, own_bps))
    return [_line(*found[0], len(found) - 1)] if found else []


def _ways_to(plan: Plan, end: Direction) -> list[tuple[str, ...]]:
    """All ways to a direction's far end that lead through it, also of acknowledgements."""
    both = [(flow.path, flow.return_path) for flow in plan.flows]
    ways = {tuple(way) for pair in (*both, *plan.loading_ways) for way in pair}
    return sorted(
        way[: at + 2] for way in ways for at, hop in enumerate(pairwise(way)) if hop == end
    )


def _unpaced(plan: Plan) -> set[Direction]:
    """The first hops of senders that send as fast as the network lets them."""
    hops = [(next(pairwise(path)), pace_bps) for path, pace_bps in _senders(plan)]
    return {hop for hop, pace_bps in hops if pace_bps >= plan.links[hop].rate_bps}


def _senders(plan: Plan) -> Iterator[tuple[Sequence[str], float]]:
    """The path of each flow's data, and its highest rate in bit/s."""
    for flow in plan.flows:
        yield flow.path, flow.transport.pacing_rate_bps or inf
    for each in plan.generated:
        path = plan.path(each.src, each.dst, generated_packet(plan.graph, each))
        yield path, (each.datagram_bytes or 0) * 8e9 / each.gap_ns if each.gap_ns else inf


def _line(egress: str, rate_bps: int, own_bps: dict[Direction, int], others: int) -> str:
    senders = [*own_bps]
    names = ", ".join(host for host, _ in senders[:_MOST_NAMED])
    more = f" and {len(senders) - _MOST_NAMED} more" * (len(senders) > _MOST_NAMED)
    those = f"{egress}" + f" (and {others} more ports)" * (others > 0)
    faster = format_rate(min(_FASTER * rate_bps, MOST_RATE_BPS))
    return (
        f"{HELD}, and hardly any at {those}, whatever its limit: {names}{more} can send "
        f"{round_rate(sum(own_bps.values()))}{' in all' * (len(senders) > 1)}, and {egress} sends "
        f"{round_rate(rate_bps)}; for a queue at {egress} give senders faster links, as "
        f"links.overrides: [{{between: [{', '.join(senders[0])}], rate: {faster}}}]"
    )


def offered_bps(plan: Plan) -> dict[Direction, float]:
    """The rate that flows and workloads can bring to each direction of a switch's link.

    A sender brings at most the rate of the slowest link before it, and at most its pace.
    """
    paces_bps: dict[tuple[Direction, Direction], float] = defaultdict(float)
    most_bps: dict[tuple[Direction, Direction], int] = {}
    for path, pace_bps in _senders(plan):
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
