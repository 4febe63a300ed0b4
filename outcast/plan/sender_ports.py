"""What senders can bring to ports, and studied queues that they cannot fill.

Pure. A port queues only what comes faster than it sends. If the ports of all who send to it are
together no faster, then packets wait at the senders, in queues that nobody captures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf

from outcast.experiment import Experiment
from outcast.experiment.parts import MOST_RATE_BPS
from outcast.experiment.queues.classes import HtbClasses
from outcast.experiment.queues.custom import Custom
from outcast.plan import events, ports
from outcast.plan.links import Direction
from outcast.plan.model import Plan
from outcast.plan.schedule import generated_packet
from outcast.units import format_rate, round_rate

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
    """The way of each flow's data, and the most that it sends in bit/s."""
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
    """What the senders of flows and workloads can bring to each direction of a switch's link.

    A sender brings what the slowest link before lets through, and no more than its pace.
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
