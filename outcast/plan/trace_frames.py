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


def smaller_frames(experiment: Experiment, plan: Plan) -> list[str]:
    """A line on each link with a trace that carries full frames of several sizes."""
    lines = []
    for end, sizes in _by_direction(experiment, plan).items():
        if len(sizes) > 1:
            most, least = max(sizes), min(sizes)
            lines.append(
                f"the trace of {plan.port(*end)} holds for frames of {most} B, as of "
                f"{sizes[most]}; with those of {sizes[least]}, {least} B, the link may send less "
                "than it lets through; allowed for exact rates is one size (workloads' datagram)"
            )
    return lines


def _by_direction(experiment: Experiment, plan: Plan) -> dict[Direction, dict[int, str]]:
    """The sizes of full frames on each link with a trace, each with a sender's name.

    Acknowledgements do not count.
    """
    found: dict[Direction, dict[int, str]] = {
        end: {}
        for override in experiment.links.overrides
        if isinstance(override.rate_bps, RateTrace)
        for end in override.directions
    }
    for name, path, packet_bytes in _senders(plan):
        hops = [*pairwise(path)]
        size = packet_bytes or min(plan.links[hop].mtu_bytes for hop in hops)
        for hop in hops:
            if hop in found:
                found[hop].setdefault(ETHERNET_HEADER_BYTES + size, name)
    return found


def _senders(plan: Plan) -> Iterator[tuple[str, Sequence[str], int | None]]:
    """Who sends data, its path, and the size of its packets, None if the path's MTU limits it."""
    for flow in plan.flows:
        yield f"flow {flow.flow}", flow.path, None
    seen = set()
    for each in plan.generated:
        packet = generated_packet(plan.graph, each)
        path = plan.path(each.src, each.dst, packet)
        size = each.datagram_bytes
        if (key := (*path, size)) not in seen:
            seen.add(key)
            kind = "what" if size is None else "UDP that"
            size = size and size + addresses.datagram_headers_bytes(each.family)
            yield f"{kind} {each.src} sends to {each.dst}", path, size
    for ways in program_ways(plan.graph, plan.routes, plan.programs):
        for path in ways:
            yield f"programs of {path[0]}", path, None
