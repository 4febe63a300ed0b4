"""The kernel's counters: nstat's for each host, tc's for each captured port, and each link's."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from controllers.hashing import FiveTuple
from outcast.emulation.commands import entered
from outcast.emulation.network.network import Network
from outcast.plan.flows import subflow_ways
from outcast.plan.model import Plan
from outcast.plan.probes import probe_ways
from outcast.records import queue_statistics
from outcast.records.counters import (
    CaptureRecord,
    Cause,
    Counters,
    HostCounters,
    LinkRecord,
    LinkTotals,
    PortCounters,
)

Interfaces = Mapping[str, Mapping[str, int]]
"""Counters (ip-link(8)) of every switch port, and of the inner ends of lossy links."""
Losses = Mapping[str, Mapping[Cause, int]]
"""The packets that every port of the network has lost, by cause."""
Counted = tuple[Interfaces, Losses]
"""Both, read at one time."""


@dataclass
class Crossing:
    """The traffic that is planned to cross a link in one direction.

    `other` says whether traffic may cross it whose paths are not known flow by flow: generated
    traffic, programs' flows, probes, and MPTCP's further subflows where switches choose by ports.
    """

    flows: list[int] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    other: bool = False


def planned(plan: Plan) -> dict[tuple[str, str], Crossing]:
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
    longest_ns = max(plan.base_rtt_ns(*way) for way in [*ways, *_other_ways(plan)])
    return longest_ns + plan.host_noise.round_trip_ns


def records(
    plan: Plan, before: Counted, at_start: Counted | None, at_end: Counted | None, after: Counted
) -> list[LinkRecord]:
    """A record for each direction of each link, in the topology's order.

    A host's packets are counted at its switch's port, where they arrive; or, where its link loses
    packets, at the end of the link that is next to the host. Its losses are those of its own port.
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
    """How many flows each switch sends, or may send, by each of the ports that it chooses from."""
    uses: dict[str, Counter[str]] = {}
    for flow in plan.flows:
        for node, following in _hops(plan, flow.src, flow.dst, flow.five_tuple):
            ports = _choice(plan, node, flow.dst, following)
            if ports:
                used = uses.setdefault(node, Counter(dict.fromkeys(ports, 0)))
                used[plan.port(node, following)] += 1
    return {switch: dict(sorted(used.items())) for switch, used in sorted(uses.items())}


def _choice(plan: Plan, switch: str, host: str, following: str) -> Sequence[str]:
    """The ports from which a switch chose the one to `following`; none where it had no choice."""
    numbers = plan.routes.choices.get(switch, {}).get(host, ())
    if plan.graph.edges[switch, following]["ports"][switch] not in numbers:
        return ()
    return [f"{switch}-eth{number}" for number in numbers]


EMPTY_DEADLINE_S = 10.0
_SNMP_FILES = (Path("/proc/thread-self/net/snmp"), Path("/proc/thread-self/net/netstat"))


@dataclass(frozen=True)
class Snapshot:
    ports: Mapping[str, dict[str, Any]]
    hosts: Mapping[str, dict[str, int]]
    links: Counted


def read(network: Network) -> Snapshot:
    plan = network.plan
    return Snapshot(
        port_counters(network, sorted({port for port, _ in plan.capture_ports})),
        {host: host_counters(network, host) for host in plan.counted_hosts},
        read_links(network),
    )


def read_links(network: Network) -> Counted:
    losses = network.losses()
    return {**network.interface_counters(), **network.wire_counters()}, losses


def record(
    plan: Plan,
    before: Snapshot,
    at_start: Counted | None,
    at_end: Snapshot | None,
    after: Snapshot,
    captures: Sequence[CaptureRecord],
) -> Counters:
    def times(name: str, kind: str) -> dict[str, Any]:
        read = {"before": before, "at_end": at_end, "after": after}
        return {time: each and getattr(each, kind)[name] for time, each in read.items()}

    ends = (before.links, at_start, None if at_end is None else at_end.links, after.links)
    return Counters(
        ports={port: PortCounters(**times(port, "ports")) for port in before.ports},
        hosts={host: HostCounters(**times(host, "hosts")) for host in before.hosts},
        captures=list(captures),
        links=records(plan, *ends),
    )


def await_empty(network: Network, ports: Collection[str]) -> str:
    """Waits until these ports' queues are empty. Returns a line of distrust, or an empty text."""
    end = time.monotonic() + EMPTY_DEADLINE_S
    while full := [port for port, stats in port_counters(network, ports).items() if stats["qlen"]]:
        if time.monotonic() > end:
            return (
                f"{', '.join(full)}: packets were still queued {EMPTY_DEADLINE_S:.0f} s after the "
                "flows' end"
            )
        time.sleep(0.05)
    return ""


def host_counters(network: Network, host: str) -> dict[str, int]:
    """A host's counters under nstat(8)'s names (`TcpRetransSegs`, `TcpExtTCPTimeouts`)."""
    with entered(network.netns(host)):
        return parse_snmp("".join(path.read_text() for path in _SNMP_FILES))


def parse_snmp(text: str) -> dict[str, int]:
    """Reads /proc/net/snmp and netstat: pairs of lines, one of names and one of values."""
    counters: dict[str, int] = {}
    lines = iter(text.splitlines())
    for names, values in zip(lines, lines, strict=True):
        prefix, *keys = names.split()
        _, *numbers = values.split()
        for key, number in zip(keys, numbers, strict=True):
            counters[prefix.rstrip(":") + key] = int(number)
    return counters


def port_counters(network: Network, ports: Collection[str]) -> dict[str, dict[str, Any]]:
    """Counters of switch ports: the shaper's bytes, packets, drops, overlimits, backlog and qlen.

    `own` has those of the queue below (`records.queue_statistics.own_counters`). `rx_packets` and
    `tx_packets` are the interface's, which show whether a capture is complete.
    """
    interfaces = network.interface_counters()
    messages = network.counted_by_queues(ports)
    return {
        port: {
            **queue_statistics.counters(messages[port]),
            "own": queue_statistics.own_counters(messages[port]),
            "rx_packets": interfaces[port]["rx_packets"],
            "tx_packets": interfaces[port]["tx_packets"],
        }
        for port in ports
    }
