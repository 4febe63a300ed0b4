"""Each direction of each link: the flows planned to cross it, and the kernel's counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from controllers.hashing import FiveTuple
from outcast.plan.model import Plan
from outcast.plan.paths import subflow_ways
from outcast.plan.probes import probe_ways
from outcast.plan.round_trips import base_rtt_ns
from outcast.records.counters import Cause, LinkRecord, LinkTotals

Interfaces = Mapping[str, Mapping[str, int]]
"""The kernel's counters (ip-link(8)) of every switch port, and of the inner ends of links that lose
packets."""
Losses = Mapping[str, Mapping[Cause, int]]
"""The packets that every port of the network has lost, by cause."""
Counted = tuple[Interfaces, Losses]
"""Both, read at one time."""


@dataclass
class Crossing:
    """The traffic that is planned to cross a link in one direction.

    `other` says whether other traffic may cross it, whose paths are not known flow by flow. That is
    generated traffic, programs' flows, probes, and MPTCP's further subflows where switches choose
    by ports.
    """

    flows: list[int] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    other: bool = False


def planned(plan: Plan) -> dict[tuple[str, str], Crossing]:
    """Says what is planned to cross each link, by the nodes that it leads from and to."""
    crossings = {
        direction: Crossing()
        for first, second in plan.graph.edges
        for direction in ((first, second), (second, first))
    }
    for flow in plan.flows:
        for direction in _hops(plan, flow.src, flow.dst, flow.five_tuple):
            crossings[direction].flows.append(flow.flow)
        for direction in _hops(plan, flow.dst, flow.src, flow.five_tuple.reversed()):
            crossings[direction].acknowledged.append(flow.flow)
    for way in _other_ways(plan):
        for path in way:
            for direction in pairwise(path):
                crossings[direction].other = True
    if plan.routes.choices and any(flow.transport.mptcp for flow in plan.flows):
        for crossing in crossings.values():
            crossing.other = True
    return crossings


def _hops(plan: Plan, src: str, dst: str, packet: FiveTuple) -> list[tuple[str, str]]:
    """Every hop of a packet's path, or of all paths that it may take, once."""
    ways = plan.ways(src, dst, packet)
    return [*dict.fromkeys(hop for way in ways for hop in pairwise(way))]


def _other_ways(plan: Plan) -> list[tuple[list[str], list[str]]]:
    """The paths of generated flows, programs and probes, each with the path back."""
    return [
        *plan.loading_ways,
        *probe_ways(plan.graph, plan.routes, plan.probes),
        *subflow_ways(plan.graph, plan.routes, plan.flows),
    ]


def longest_round_trip_ns(plan: Plan) -> int:
    """The longest round trip without queues, with the time that hosts take."""
    ways: list[tuple[Sequence[str], Sequence[str]]] = [
        (flow.path, flow.return_path) for flow in plan.flows
    ]
    ways += _other_ways(plan)
    return (
        max(base_rtt_ns(plan, there, back) for there, back in ways) + plan.host_noise.round_trip_ns
    )


def records(
    plan: Plan, before: Counted, at_start: Counted | None, at_end: Counted | None, after: Counted
) -> list[LinkRecord]:
    """A record for each direction of each link, in the topology's order.

    What a host sent is read at its switch's port, where it arrives; or, where its link loses
    packets, at the end of the link that is next to the host. What it lost is read at its own port.
    """
    links = []
    read = {"before": before, "at_start": at_start, "at_end": at_end, "after": after}
    for (node, neighbour), crossing in planned(plan).items():
        at_host = plan.graph.nodes[node]["kind"] == "host"
        counted = plan.port(neighbour, node) if at_host else plan.port(node, neighbour)
        way = "rx" if at_host else "tx"
        port = plan.port(node, neighbour)
        wire = plan.wires.get(frozenset((node, neighbour)))
        if wire is not None and at_host:
            counted = wire.facing(node)
        times: dict[str, Any] = {
            time: each and _totals(each, counted, way, port) for time, each in read.items()
        }
        links.append(
            LinkRecord(
                port=port,
                node=node,
                neighbour=neighbour,
                rate_bps=plan.links[node, neighbour].rate_bps,
                overhead_bytes=plan.links[node, neighbour].framing.added_bytes,
                flows=crossing.flows,
                acknowledged=crossing.acknowledged,
                other=crossing.other,
                **times,
            )
        )
    return links


def _totals(read: Counted, counted: str, way: str, port: str) -> LinkTotals:
    interfaces, losses = read
    return LinkTotals(
        packets=interfaces[counted][f"{way}_packets"],
        bytes=interfaces[counted][f"{way}_bytes"],
        lost=dict(losses[port]),
    )


def split(plan: Plan) -> dict[str, dict[str, int]]:
    """How many flows each switch that chooses sends by each port of its choice, or may send."""
    uses: dict[str, Counter[str]] = {}
    for flow in plan.flows:
        for node, following in _hops(plan, flow.src, flow.dst, flow.five_tuple):
            ports = _choice(plan, node, flow.dst, following)
            if ports:
                used = uses.setdefault(node, Counter(dict.fromkeys(ports, 0)))
                used[plan.port(node, following)] += 1
    return {switch: dict(sorted(used.items())) for switch, used in sorted(uses.items())}


def _choice(plan: Plan, switch: str, host: str, following: str) -> Sequence[str]:
    """The ports among which a switch chose the one to `following`; none where it had no choice."""
    numbers = plan.routes.choices.get(switch, {}).get(host, ())
    if plan.graph.edges[switch, following]["ports"][switch] not in numbers:
        return ()
    return [f"{switch}-eth{number}" for number in numbers]
