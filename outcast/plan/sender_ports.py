"""Studied queues that nothing fills, because the senders' own ports let no more through.

Pure. A port queues only what comes faster than it sends. If the ports of all who send to it are
together no faster, then packets wait at the senders, in queues that nobody captures.
"""

from __future__ import annotations

from itertools import pairwise

from outcast.experiment import Experiment
from outcast.experiment.parts import MOST_RATE_BPS
from outcast.experiment.queues.classes import HtbClasses
from outcast.experiment.queues.custom import Custom
from outcast.plan import events, ports
from outcast.plan.links import Direction
from outcast.plan.model import Plan
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
    paced_bps = {flow.flow: flow.transport.pacing_rate_bps for flow in plan.flows}
    hops = [(flow.flow, next(pairwise(flow.path))) for flow in plan.flows]
    bulk = {hop for flow, hop in hops if not 0 < (paced_bps[flow] or 0) < plan.links[hop].rate_bps}
    senders = {each.src for each in plan.generated if each.gap_ns is None}
    return bulk | {hop for hop in plan.links if hop[0] in senders}


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
