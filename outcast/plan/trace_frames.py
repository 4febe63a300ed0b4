"""Which frames are sent on links whose rate follows a trace.

A frame has the rate at which it begins, so a trace's steps hold whole frames (`traces.steps`). They
fit frames of one size only, the largest that is planned there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from outcast.experiment import MTU_FRAME_BYTES, Experiment
from outcast.experiment.parts import ETHERNET_HEADER_BYTES
from outcast.experiment.rate import RateTrace
from outcast.plan import addresses
from outcast.plan.links import Direction
from outcast.plan.model import Plan
from outcast.plan.programs import program_ways
from outcast.plan.schedule import generated_packet


def wire_bytes(experiment: Experiment, plan: Plan) -> dict[Direction, int]:
    """How much the largest full frames take, by direction of a link with a trace."""
    return {
        end: plan.links[end].framing.wire_bytes(max(sizes, default=MTU_FRAME_BYTES))
        for end, sizes in _by_direction(experiment, plan).items()
    }


def _by_direction(experiment: Experiment, plan: Plan) -> dict[Direction, set[int]]:
    """The sizes of full frames on each link with a trace. Acknowledgements do not count."""
    found: dict[Direction, set[int]] = {
        end: set()
        for override in experiment.links.overrides
        if isinstance(override.rate_bps, RateTrace)
        for end in override.directions
    }
    for path, packet_bytes in _senders(plan):
        hops = [*pairwise(path)]
        size = packet_bytes or min(plan.links[hop].mtu_bytes for hop in hops)
        for hop in hops:
            if hop in found:
                found[hop].add(ETHERNET_HEADER_BYTES + size)
    return found


def _senders(plan: Plan) -> Iterator[tuple[Sequence[str], int | None]]:
    """The path of data, and the size of its packets, None if the path's MTU limits it."""
    for flow in plan.flows:
        yield flow.path, None
    for each in plan.generated:
        path = plan.path(each.src, each.dst, generated_packet(plan.graph, each))
        size = each.datagram_bytes
        yield path, size and size + addresses.datagram_headers_bytes(each.family)
    for ways in program_ways(plan.graph, plan.routes, plan.programs):
        for path in ways:
            yield path, None
