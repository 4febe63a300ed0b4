"""Bottlenecks at no studied port: from the start, or from a change of a rate on.

Pure. Rates are divided max-min by progressive filling (Bertsekas and Gallager, Data Networks, 1992,
section 6.5.2): those of all senders grow alike until a link is full, whose senders then stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from outcast import units
from outcast.experiment import Experiment
from outcast.plan import events
from outcast.plan.links import Direction
from outcast.plan.model import Plan
from outcast.plan.paths import generated_packet, generated_ways
from outcast.plan.programs import program_ways
from outcast.plan.round_trips import ACKNOWLEDGEMENT_BYTES

Hop = tuple[str, str, str]
"""A direction of a link, and what limits there: its `port` or its `policer`."""

STARTS = "the bottleneck of "
"""How the line starts."""
NEARLY = 0.9
"""A studied port that is so full is a bottleneck too: several links may be nearly alike."""
_SEGMENTS_AN_ACKNOWLEDGEMENT = 2
_MOST_NAMED = 3


@dataclass(frozen=True)
class Way:
    """One sender's way through the network.

    Attributes:
        name: the sender in words.
        weights: how much of each hop's rate a rate of 1 takes.
        pace_bps: the most that it sends; None if nothing limits it.
        since_ns, until_ns: when it sends, after the traffic's start.
    """

    name: str
    weights: Mapping[Hop, float]
    pace_bps: int | None
    since_ns: int
    until_ns: int


@dataclass(frozen=True)
class _State:
    """Rates in force for a while; `why` is the event or trace that began them, "" at the start."""

    since_ns: int
    until_ns: int
    why: str
    capacity: Mapping[Hop, int]


def moved(experiment: Experiment, plan: Plan) -> list[str]:
    """A line if some bottleneck is at no studied port, with how to study it.

    Of transfers and programs nobody knows beforehand what they send. They count only if nothing
    else is planned, and only where the rate of a link falls during the run.
    """
    planned = [*_flows(experiment, plan), *_streams(plan)]
    ways = _without_shared_answers(planned or _talks(experiment, plan))
    studied = {plan.ends[port.egress] for port in (plan.bottleneck, *plan.others)}
    found: dict[Hop, tuple[_State, list[Way]]] = {}
    usual: Mapping[Hop, int] = {}
    for state in _states(experiment, plan, {hop for way in ways for hop in way.weights}):
        active = [
            way
            for way in ways
            if way.since_ns < state.until_ns
            and way.until_ns > state.since_ns
            and all(state.capacity[hop] for hop in way.weights)
        ]
        usual = usual or state.capacity
        for hop, those in _unstudied(active, state.capacity, studied).items():
            if not planned and state.capacity[hop] >= usual[hop]:
                continue
            first, senders = found.get(hop, (state, those))
            if first.until_ns == state.since_ns:
                first = replace(first, until_ns=state.until_ns)
                if state.capacity[hop] < first.capacity[hop]:
                    why = f"{first.why}, {state.why}".removeprefix(", ")
                    first = replace(first, why=why, capacity=state.capacity)
            found[hop] = (first, senders)
    if not found:
        return []
    named = [_where(experiment, plan, hop, *seen) for hop, seen in found.items()]
    more = f" (and {len(found) - _MOST_NAMED} more such links)" * (len(found) > _MOST_NAMED)
    places = ", that of ".join(named[:_MOST_NAMED])
    return [f"{STARTS}{places}{more}; {_how_to_study(plan, list(found))}"]


def _without_shared_answers(ways: Sequence[Way]) -> list[Way]:
    """Acknowledgements limit nobody beside data: they are few, and each repeats those before."""
    data = {hop for way in ways for hop, weight in way.weights.items() if weight == 1}
    return [
        replace(
            way, weights={hop: w for hop, w in way.weights.items() if w == 1 or hop not in data}
        )
        for way in ways
    ]


def divide(
    ways: Sequence[Way], capacity: Mapping[Hop, int]
) -> tuple[list[tuple[float, Hop | None]], dict[Hop, float]]:
    """Divides rates max-min.

    Returns:
        Each way's rate in bit/s, with the hop that limits it, None for its own pace; and what each
        hop has left.
    """
    alike: dict[object, list[int]] = defaultdict(list)
    for number, way in enumerate(ways):
        alike[tuple(way.weights.items()), way.pace_bps].append(number)
    growing: dict[Hop, dict[int, float]] = defaultdict(dict)
    for numbers in alike.values():
        for hop, weight in ways[numbers[0]].weights.items():
            growing[hop][numbers[0]] = weight * len(numbers)
    left = {hop: float(capacity[hop]) for hop in growing}
    paces = {numbers[0]: ways[numbers[0]].pace_bps for numbers in alike.values()}
    ends: dict[int, tuple[float, Hop | None]] = {}
    while growing:
        levels = {hop: left[hop] / sum(those.values()) for hop, those in growing.items()}
        full = min(levels, key=levels.__getitem__)
        slow = {number: pace for number, pace in paces.items() if pace and pace < levels[full]}
        first = min(slow, key=slow.__getitem__, default=None)
        rate, why = (levels[full], full) if first is None else (float(slow[first]), None)
        for number in list(growing[full]) if first is None else [first]:
            ends[number] = (rate, why)
            del paces[number]
            for hop in ways[number].weights:
                left[hop] = max(0.0, left[hop] - growing[hop].pop(number) * rate)
                if not growing[hop]:
                    del growing[hop]
    of_all = {number: ends[numbers[0]] for numbers in alike.values() for number in numbers}
    return [of_all[number] for number in range(len(ways))], left


def _unstudied(
    active: Sequence[Way], capacity: Mapping[Hop, int], studied: set[Direction]
) -> dict[Hop, list[Way]]:
    """Each hop that limits senders which find no studied port full on their way."""
    ends, left = divide(active, capacity)
    most: dict[Hop, float] = defaultdict(float)
    for way, (rate, _) in zip(active, ends, strict=True):
        for hop in way.weights:
            most[hop] = max(rate, most[hop])
    found: dict[Hop, list[Way]] = defaultdict(list)
    for way, (rate, limit) in zip(active, ends, strict=True):
        is_seen = any(
            (hop[:2] in studied and hop[2] == "port" and weight == 1)
            and left[hop] <= (1 - NEARLY) * capacity[hop]
            and rate >= NEARLY * most[hop]
            for hop, weight in way.weights.items()
        )
        if limit is not None and not is_seen:
            found[limit].append(way)
    return found


def _flows(experiment: Experiment, plan: Plan) -> Iterator[Way]:
    for flow in plan.flows:
        ends = (flow.start_ns, flow.start_ns + (flow.duration_ns or experiment.duration_ns))
        # Multipath TCP takes other paths too.
        if flow.transport.mptcp is None:
            weights = _weights(plan, flow.path, flow.return_path)
            yield Way(f"flow {flow.flow}", weights, flow.transport.pacing_rate_bps, *ends)


def _streams(plan: Plan) -> Iterator[Way]:
    for stream in plan.generated:
        if stream.gap_ns and stream.datagram_bytes and stream.start_ns is not None:
            path = plan.path(stream.src, stream.dst, generated_packet(plan.graph, stream))
            rate_bps = stream.datagram_bytes * 8 * 10**9 // stream.gap_ns
            ends = (stream.start_ns, stream.end_ns or 0)
            name = f"UDP from {stream.src} to {stream.dst}"
            yield Way(name, _weights(plan, path, ()), rate_bps, *ends)


def _talks(experiment: Experiment, plan: Plan) -> list[Way]:
    """Transfers and programs, by their hosts. Nobody knows which side sends more."""
    talks = generated_ways(plan.graph, plan.routes, plan.generated)
    talks += program_ways(plan.graph, plan.routes, plan.programs)
    always = (0, experiment.duration_ns)
    return [
        Way(f"what {path[0]} sends to {path[-1]}", _weights(plan, path, ()), None, *always)
        for path, _ in talks
    ]


def _weights(plan: Plan, there: Sequence[str], back: Sequence[str]) -> dict[Hop, float]:
    """What each hop carries of a sender's rate: all, or one acknowledgement for two segments."""
    weights: dict[Hop, float] = {}
    for path, is_data in ((there, True), (back, False)):
        for one, other in pairwise(path):
            link = plan.links[one, other]
            data, answer = map(link.framing.wire_bytes, (link.frame_bytes, ACKNOWLEDGEMENT_BYTES))
            weight = 1.0 if is_data else answer / data / _SEGMENTS_AN_ACKNOWLEDGEMENT
            weights[one, other, "port"] = weight
            if link.policer is not None:
                weights[one, other, "policer"] = weight
    return weights


def _states(experiment: Experiment, plan: Plan, hops: Collection[Hop]) -> Iterator[_State]:
    """The rates at the start, after each event that changes one, and at each trace's extremes.

    But for its extremes a trace has its mean rate.
    """
    steps = {hop[:2]: {0: plan.links[hop[:2]].rate_bps} for hop in hops}
    ups = {hop[:2]: {0: 1} for hop in hops}
    policed = {end: link.policer.rate_bps for end, link in plan.links.items() if link.policer}
    whys = {0: ""}
    for change in events.changes(experiment, plan):
        if change.event is not None and change.what in ("rate_bps", "up"):
            whys.setdefault(change.at_ns, f"events.{change.event}")
            direction = (change.node, change.neighbour)
            # A host's port is not set down, but what it sends is lost.
            for end in (direction, direction[::-1]) if change.what == "up" else (direction,):
                (ups if change.what == "up" else steps).get(end, {})[change.at_ns] = change.value
    times = [*sorted(whys), experiment.duration_ns]
    spans = [(since, until, whys[since]) for since, until in pairwise(times)]
    for trace in plan.traces:
        steps_of = zip(trace.rate_bps, trace.t_ns, strict=True)
        inside = sorted((rate, t) for rate, t in steps_of if rate and t < experiment.duration_ns)
        spans += [(t, t, trace.file) for _, t in dict.fromkeys((*inside[:1], *inside[-1:]))]
    for since, until, why in spans:
        rates = {end: _at(of, since) * _at(ups[end], since) for end, of in steps.items()}
        if since == until:
            for trace in plan.traces:
                at = _at(dict(zip(trace.t_ns, trace.rate_bps, strict=True)), since)
                rates |= {end: at for end in trace.directions if end in rates}
        of_hops = {hop: (rates if hop[2] == "port" else policed)[hop[:2]] for hop in hops}
        yield _State(since, until, why, of_hops)


def _at(steps: Mapping[int, int], t_ns: int) -> int:
    """What is in force at a time."""
    return steps[max(t for t in steps if t <= t_ns)]


def _where(
    experiment: Experiment, plan: Plan, hop: Hop, state: _State, senders: Sequence[Way]
) -> str:
    """Whose bottleneck is where, and when."""
    more = f" (and {len(senders) - 1} more)" if len(senders) > 1 else ""
    node, neighbour, kind = hop
    since = units.format_time(state.since_ns) if state.since_ns else "the start"
    ends = state.until_ns < experiment.duration_ns
    to = f"to {units.format_time(state.until_ns)}" if ends else "on"
    when = f" from {since} {to}" if ends or state.since_ns or state.why else ""
    if state.since_ns == state.until_ns:
        when = f" at times, as at {since}"
    when += f" ({state.why})" if state.why else ""
    of = "" if senders[0].weights[hop] == 1 else " for its acknowledgements"
    is_port = kind == "port"
    place = plan.port(node, neighbour) if is_port else f"the policer from {node} to {neighbour}"
    return f"{senders[0].name}{more} is {place} ({units.round_rate(state.capacity[hop])}){of}{when}"


def _how_to_study(plan: Plan, hops: Sequence[Hop]) -> str:
    studied = [port.egress for port in (plan.bottleneck, *plan.others)][:_MOST_NAMED]
    words = [f"queues, drops and chains are shown of {', '.join(studied)} alone"]
    policers = [hop for hop in hops if hop[2] == "policer"]
    hosts = [hop for hop in hops if plan.graph.nodes[hop[0]]["kind"] == "host"]
    ports = [plan.port(*hop[:2]) for hop in hops if hop not in (*policers, *hosts)]
    if ports:
        is_seen = all((port, "out") in plan.capture_ports for port in ports)
        words.append(
            f"`bottleneck: {{port: {ports[0]}}}` studies that port instead; "
            f"{'' if is_seen else 'with `capture: {ports: all}` '}`outcast inspect DIR --losses` "
            "tells where packets are lost"
        )
    if policers:
        words.append("a policer has no queue, and its drops count as lost by the link")
    if {*hosts} - {*policers}:
        words.append("a host's own queue is not captured, and its wait is in rtt.png alone")
    return "; ".join(words)
