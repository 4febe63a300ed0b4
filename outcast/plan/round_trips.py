"""Base round trips: what a full frame and its acknowledgement take without any queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from outcast.experiment import Link
from outcast.experiment.engine import VIRTUAL
from outcast.plan.flows import Flow
from outcast.plan.links import Direction
from outcast.plan.paths import subflow_ways, there_and_back
from outcast.plan.programs import probe

if TYPE_CHECKING:
    from outcast.plan.model import Plan

ACKNOWLEDGEMENT_BYTES = 66
"""Ethernet, IPv4, and TCP with time stamps."""


def base_rtt_ns(plan: Plan, there: Sequence[str], back: Sequence[str]) -> int:
    """What a full frame and its acknowledgement take without any queue.

    A switch sends a frame on when its last bit has come, so each link adds the frame's own time to
    its delay. A delay that the engine decides counts as that of the virtual engine.
    """
    data = [plan.links[hop] for hop in pairwise(there)]
    answer = [plan.links[hop] for hop in pairwise(back)]
    return sum(_delay_ns(link) + link.frame_ns for link in data) + sum(
        crossing_ns(link, ACKNOWLEDGEMENT_BYTES) for link in answer
    )


def crossing_ns(link: Link, frame_bytes: int) -> int:
    """What a frame takes on a link without any queue: the link's delay and the frame's own time."""
    return _delay_ns(link) + link.framing.wire_bytes(frame_bytes) * 8 * 10**9 // link.rate_bps


def _delay_ns(link: Link) -> int:
    drawn_ns = link.random_delay.mean_ns if link.random_delay else 0
    return drawn_ns + (VIRTUAL.delay_ns if link.delay_ns is None else link.delay_ns)


def rate_bps(plan: Plan, flow: Flow) -> int:
    """The least rate of a flow's path."""
    return min(plan.links[hop].rate_bps for hop in pairwise(flow.path))


def product_bytes(plan: Plan, flow: Flow) -> int:
    """A flow's bandwidth-delay product: the least rate of its path times its base RTT."""
    rtt_ns = base_rtt_ns(plan, flow.path, flow.return_path)
    return rate_bps(plan, flow) * rtt_ns // (8 * 10**9)


def of_directions(plan: Plan) -> Mapping[Direction, int]:
    """The base RTT of each direction of each link, in ns, by which a queue of `1 bdp` is made.

    It is the greatest of the flows that cross the direction with data. Where none does, it is the
    greatest of those that cross it with acknowledgements, and else the greatest of all flows. So
    one product is enough for each of them. A network without flows, as that of a command, has the
    greatest between its first host and another.
    """
    ways: list[tuple[Sequence[str], Sequence[str]]] = [
        (flow.path, flow.return_path) for flow in plan.flows
    ]
    ways += subflow_ways(plan.graph, plan.routes, plan.flows)
    ways += plan.loading_ways
    ways = ways or _to_first_host(plan)
    data: dict[Direction, int] = {}
    answers: dict[Direction, int] = {}
    for there, back in dict.fromkeys((tuple(there), tuple(back)) for there, back in ways):
        rtt_ns = base_rtt_ns(plan, there, back)
        for crossed, path in ((data, there), (answers, back)):
            for hop in pairwise(path):
                crossed[hop] = max(rtt_ns, crossed.get(hop, 0))
    greatest_ns = max(data.values(), default=0)
    return {hop: data.get(hop) or answers.get(hop, greatest_ns) for hop in plan.links}


def _to_first_host(plan: Plan) -> list[tuple[Sequence[str], Sequence[str]]]:
    first, *others = plan.hosts
    return [
        there_and_back(plan.graph, plan.routes, host, first, probe(plan.ip(host), plan.ip(first)))
        for host in others
    ]
