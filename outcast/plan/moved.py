"""Bottlenecks at no studied port: from the start, or from a change of a rate on.

Pure. Rates are divided max-min by progressive filling (Bertsekas and Gallager, Data Networks, 1992,
section 6.5.2): those of all senders grow alike until a link is full, whose senders then stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from outcast import units
from outcast.experiment import Background, Experiment, Poisson
from outcast.experiment.queues.classes import HtbClasses
from outcast.plan import events, ports
from outcast.plan.links import Direction
from outcast.plan.model import Plan
from outcast.plan.round_trips import ACKNOWLEDGEMENT_BYTES
from outcast.plan.schedule import generated_packet

Hop = tuple[str, str, str]
"""A direction of a link, and what limits there: its `port`, its `policer` or a `class NAME`."""

STARTS = "the bottleneck of "
"""How the line starts."""
NEARLY = 0.99
"""A studied port that is so full is a bottleneck too: several links may be alike."""
_FINEST = 100
"""Senders' starts and ends count to so small a part of the run, so that few times are judged."""
_MOST_NAMED = 3


@dataclass(frozen=True)
class Way:
    """One sender's way through the network.

    Attributes:
        name: the sender in words.
        weights: how much of each hop's rate a rate of 1 takes.
        pace_bps: the most that it sends; None if nothing limits it.
        since_ns, until_ns: when it sends, after the traffic's start.
        is_mean: whether its pace is the mean of transfers that arrive by themselves.
    """

    name: str
    weights: Mapping[Hop, float]
    pace_bps: int | None
    since_ns: int
    until_ns: int
    is_mean: bool = False


@dataclass(frozen=True)
class _State:
    """Rates in force for a while; `why` is the event or trace that began them, "" at the start."""

    since_ns: int
    until_ns: int
    why: str
    capacity: Mapping[Hop, int]


def moved(experiment: Experiment, plan: Plan) -> list[str]:
    """A line if some bottleneck is at no studied port, with how to study it.

    Of transfers and programs nobody knows beforehand when they send. If nothing else is planned,
    they count where the rate of a link falls during the run. Beside flows and streams, transfers
    that arrive by themselves count with their mean rate.
    """
    if plan.per_packet:  # What is drawn for each packet loads links alike.
        return []
    planned = [*_flows(experiment, plan), *_streams(experiment, plan)]
    arriving = [*_arrivals(experiment, plan)] if planned else []
    ways = _without_shared_answers([*planned, *arriving] or _talks(experiment, plan))
    studied = {plan.ends[port.egress] for port in (plan.bottleneck, *plan.others)}
    found: dict[Hop, list[tuple[_State, list[Way]]]] = {}
    usual: Mapping[Hop, int] = {}
    for state in _split(
        states(experiment, plan, {hop for way in ways for hop in way.weights}), ways
    ):
        active = [way for way in ways if _sends(way, state)]
        usual = usual or state.capacity
        for hop, those in _unstudied(active, state.capacity, studied).items():
            if not planned and state.capacity[hop] >= usual[hop]:
                continue
            spans = found.setdefault(hop, [])
            if not spans or _is_apart(spans[-1][0], state, hop):
                spans.append((state, those))
            elif state.since_ns < state.until_ns:
                spans[-1] = (replace(spans[-1][0], until_ns=state.until_ns), spans[-1][1])
    if not found:
        return []
    named = [_where(experiment, plan, hop, spans) for hop, spans in found.items()]
    more = f" (and {len(found) - _MOST_NAMED} more such links)" * (len(found) > _MOST_NAMED)
    places = ", that of ".join(named[:_MOST_NAMED])
    return [f"{STARTS}{places}{more}; {_how_to_study(plan, list(found))}"]


def _is_apart(last: _State, state: _State, hop: Hop) -> bool:
    """Whether time has passed since a hop's last span, or its rate is another one."""
    if state.since_ns == state.until_ns:
        return False
    return last.until_ns != state.since_ns or last.capacity[hop] != state.capacity[hop]


def _split(states: Iterable[_State], ways: Sequence[Way]) -> Iterator[_State]:
    """The states, divided further where senders start or end."""
    ends = sorted({t_ns for way in ways for t_ns in (way.since_ns, way.until_ns)})
    least_ns = max(ends, default=0) // _FINEST
    for state in states:
        at_ns, why = state.since_ns, state.why
        for t_ns in ends:
            if at_ns + least_ns < t_ns < state.until_ns - least_ns:
                yield replace(state, since_ns=at_ns, until_ns=t_ns, why=why)
                at_ns, why = t_ns, ""
        yield replace(state, since_ns=at_ns, why=why)


def _sends(way: Way, state: _State) -> bool:
    """Whether a sender is active for half of a state or more."""
    both_ns = min(way.until_ns, state.until_ns) - max(way.since_ns, state.since_ns)
    return both_ns >= 0 and 2 * both_ns >= state.until_ns - state.since_ns


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
    spare_bps = {hop: float(capacity[hop]) for hop in growing}
    paces = {numbers[0]: ways[numbers[0]].pace_bps for numbers in alike.values()}
    ends: dict[int, tuple[float, Hop | None]] = {}
    while growing:
        levels = {hop: spare_bps[hop] / sum(those.values()) for hop, those in growing.items()}
        full = min(levels, key=levels.__getitem__)
        slow = {number: pace for number, pace in paces.items() if pace and pace < levels[full]}
        first = min(slow, key=slow.__getitem__, default=None)
        rate, why = (levels[full], full) if first is None else (float(slow[first]), None)
        for number in list(growing[full]) if first is None else [first]:
            ends[number] = (rate, why)
            del paces[number]
            for hop in ways[number].weights:
                spare_bps[hop] = max(0.0, spare_bps[hop] - growing[hop].pop(number) * rate)
                if not growing[hop]:
                    del growing[hop]
    of_all = {number: ends[numbers[0]] for numbers in alike.values() for number in numbers}
    return [of_all[number] for number in range(len(ways))], spare_bps


def _unstudied(
    active: Sequence[Way], capacity: Mapping[Hop, int], studied: set[Direction]
) -> dict[Hop, list[Way]]:
    """Each hop that limits senders which find no studied port full on their way.

    Where a link is down, it is the first one down.
    """
    found: dict[Hop, list[Way]] = defaultdict(list)
    for way in active:
        down = [hop for hop in way.weights if not capacity[hop]]
        if down and not any(hop[:2] in studied for hop in down):
            found[down[0]].append(way)
    active = [way for way in active if all(capacity[hop] for hop in way.weights)]
    ends, spare_bps = divide(active, capacity)
    most: dict[Hop, float] = defaultdict(float)
    for way, (rate, _) in zip(active, ends, strict=True):
        for hop in way.weights:
            most[hop] = max(rate, most[hop])
    for way, (rate, limit) in zip(active, ends, strict=True):
        is_seen = any(
            (hop[:2] in studied and hop[2] != "policer" and weight == 1)
            and spare_bps[hop] <= (1 - NEARLY) * capacity[hop]
            and rate >= NEARLY * most[hop]
            for hop, weight in way.weights.items()
        )
        if limit is not None and not is_seen:
            found[limit].append(way)
    # Transfers that arrive by themselves have no bottleneck of their own: their rate is a mean.
    told = {hop: [way for way in those if not way.is_mean] for hop, those in found.items()}
    return {hop: those for hop, those in told.items() if those}


def _flows(experiment: Experiment, plan: Plan) -> Iterator[Way]:
    for flow in plan.flows:
        ends = (flow.start_ns, flow.start_ns + (flow.duration_ns or experiment.duration_ns))
        # Multipath TCP takes other paths too.
        if flow.transport.mptcp is None:
            segments = 1 if flow.transport.delayed_acks is False else 2
            weights = _weights(experiment, plan, flow.path, flow.return_path, flow.dscp, segments)
            yield Way(f"flow {flow.flow}", weights, flow.transport.pacing_rate_bps, *ends)


def _streams(experiment: Experiment, plan: Plan) -> Iterator[Way]:
    for stream in plan.generated:
        if stream.gap_ns and stream.datagram_bytes and stream.start_ns is not None:
            path = plan.path(stream.src, stream.dst, generated_packet(plan.graph, stream))
            rate_bps = stream.datagram_bytes * 8 * 10**9 // stream.gap_ns
            workload = experiment.workloads[stream.workload]
            ends = (workload.start_ns, stream.end_ns or 0)
            name = f"UDP from {stream.src} to {stream.dst}"
            weights = _weights(experiment, plan, path, dscp=workload.dscp)
            yield Way(name, weights, rate_bps, *ends)


def _arrivals(experiment: Experiment, plan: Plan) -> Iterator[Way]:
    """Transfers that arrive by themselves, by workload and path, with their mean rate."""
    sizes: dict[tuple[int, tuple[str, ...]], int] = defaultdict(int)
    for each in plan.generated:
        if each.kind in ("poisson", "background") and each.size_bytes:
            path = plan.path(each.src, each.dst, generated_packet(plan.graph, each))
            sizes[each.workload, tuple(path)] += each.size_bytes
    for (number, way), size_bytes in sizes.items():
        workload = experiment.workloads[number]
        assert isinstance(workload, Poisson | Background)
        lasts_ns = workload.duration_ns or experiment.duration_ns - workload.start_ns
        yield Way(
            f"what {way[0]} sends to {way[-1]}",
            _weights(experiment, plan, way, dscp=workload.dscp),
            size_bytes * 8 * 10**9 // lasts_ns,
            workload.start_ns,
            workload.start_ns + lasts_ns,
            is_mean=True,
        )


def _talks(experiment: Experiment, plan: Plan) -> list[Way]:
    """Transfers and programs, by their hosts. Nobody knows which side sends more."""
    always = (0, experiment.duration_ns)
    return [
        Way(f"what {path[0]} sends to {path[-1]}", _weights(experiment, plan, path), None, *always)
        for path, _ in plan.loading_ways
    ]


def _weights(
    experiment: Experiment,
    plan: Plan,
    there: Sequence[str],
    back: Sequence[str] = (),
    dscp: int = 0,
    segments: int = 2,
) -> dict[Hop, float]:
    """What each hop carries of a sender's rate: all, or an acknowledgement for some segments."""
    weights: dict[Hop, float] = {}
    for path, is_data in ((there, True), (back, False)):
        for node, neighbour in pairwise(path):
            link = plan.links[node, neighbour]
            data, answer = map(link.framing.wire_bytes, (link.frame_bytes, ACKNOWLEDGEMENT_BYTES))
            weight = 1.0 if is_data else answer / data / segments
            weights[node, neighbour, "port"] = weight
            if link.policer is not None:
                weights[node, neighbour, "policer"] = weight
            queue = _classes(experiment, plan, (node, neighbour))
            if queue is not None and is_data:
                name = queue.classes[queue.told_by.get(dscp, queue.rest) - 1].name
                weights[node, neighbour, f"class {name}"] = weight
    return weights


def _classes(experiment: Experiment, plan: Plan, end: Direction) -> HtbClasses | None:
    """The queue of a switch's port if its classes have ceilings."""
    if plan.graph.nodes[end[0]]["kind"] == "host":
        return None
    _, queue = ports.asked_of_switch(experiment, plan, plan.port(*end))
    return queue if isinstance(queue, HtbClasses) else None


def _fixed_bps(experiment: Experiment, plan: Plan, hop: Hop) -> int | None:
    """The rate of a policer, or of a class; None of a port, whose rate may change."""
    link, queue = plan.links[hop[:2]], _classes(experiment, plan, hop[:2])
    if hop[2] == "port":
        return None
    if hop[2] == "policer" or queue is None:
        return link.policer.rate_bps if link.policer else link.rate_bps
    (ceil_bps,) = (each.ceil_bps for each in queue.classes if f"class {each.name}" == hop[2])
    return ceil_bps or link.rate_bps


def states(experiment: Experiment, plan: Plan, hops: Collection[Hop]) -> Iterator[_State]:
    """The rates at the start, after each event that changes one, and at each trace's extremes.

    But for its extremes a trace has its mean rate.
    """
    steps = {hop[:2]: {0: plan.links[hop[:2]].rate_bps} for hop in hops}
    ups = {hop[:2]: {0: 1} for hop in hops}
    fixed = {
        hop: {0: bps} for hop in hops if (bps := _fixed_bps(experiment, plan, hop)) is not None
    }
    whys = {0: ""}
    for change in events.changes(experiment, plan):
        if change.what in ("rate_bps", "up", "policer_bps"):
            whys.setdefault(change.at_ns, f"events.{change.event}")
            direction = (change.node, change.neighbour)
            if change.what == "policer_bps":
                fixed.get((*direction, "policer"), {})[change.at_ns] = change.value
                continue
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
        of_hops = {hop: _at(fixed[hop], since) if hop in fixed else rates[hop[:2]] for hop in hops}
        yield _State(since, until, why, of_hops)


def _at(steps: Mapping[int, int], t_ns: int) -> int:
    """What is in force at a time."""
    return steps[max(t for t in steps if t <= t_ns)]


def _where(
    experiment: Experiment, plan: Plan, hop: Hop, spans: Sequence[tuple[_State, Sequence[Way]]]
) -> str:
    """Whose bottleneck is where, and when."""
    senders = spans[0][1]
    more = f" (and {len(senders) - 1} more)" if len(senders) > 1 else ""
    node, neighbour, kind = hop
    of = "" if senders[0].weights[hop] == 1 else " for its acknowledgements"
    place = f"{kind} of {plan.port(node, neighbour)}".removeprefix("port of ")
    if kind == "policer":
        place = f"the policer from {node} to {neighbour}"
    times = [_when(experiment, state, hop, of) for state, _ in spans[:_MOST_NAMED]]
    rest = ", and later" * (len(spans) > _MOST_NAMED)
    return f"{senders[0].name}{more} is {place} {', '.join(times)}{rest}"


def _when(experiment: Experiment, state: _State, hop: Hop, of: str) -> str:
    """The rate of a hop, and during which time."""
    since = units.format_time(state.since_ns) if state.since_ns else "the start"
    ends = state.until_ns < experiment.duration_ns
    to = f"to {units.format_time(state.until_ns)}" if ends else "on"
    when = f" from {since} {to}" if ends or state.since_ns or state.why else ""
    if state.since_ns == state.until_ns:
        # A trace's steps are moved to whole frames, so four digits say when.
        digits = 4 - len(str(state.since_ns))
        when = f" at times, as at {units.format_time(round(state.since_ns, min(digits, 0)))}"
    rate = units.round_rate(state.capacity[hop]) if state.capacity[hop] else "down"
    return f"({rate}){of}{when}" + f" ({state.why})" * bool(state.why)


def _how_to_study(plan: Plan, hops: Sequence[Hop]) -> str:
    studied = [port.egress for port in (plan.bottleneck, *plan.others)][:_MOST_NAMED]
    words = [f"queues, drops and chains are shown of {', '.join(studied)} alone"]
    policers = [hop for hop in hops if hop[2] == "policer"]
    hosts = [hop for hop in hops if plan.graph.nodes[hop[0]]["kind"] == "host"]
    switches = [hop[:2] for hop in hops if hop not in (*policers, *hosts)]
    crossed = {end for flow in plan.flows for end in pairwise(flow.path)} or {*plan.links}
    if fitting := [plan.port(*end) for end in switches if end in crossed]:
        words.append(f"`bottleneck: {{port: {fitting[0]}}}` studies that port instead")
    if switches:
        is_seen = all((plan.port(*end), "out") in plan.capture_ports for end in switches)
        words.append(
            f"{'' if is_seen else 'with `capture: {ports: all}` '}`outcast inspect DIR --losses` "
            "tells where packets are lost"
        )
    if policers:
        words.append("a policer has no queue, and its drops count as lost by the link")
    if {*hosts} - {*policers}:
        words.append("a host's own queue is not captured, and its wait is in rtt.png alone")
    return "; ".join(words)
