"""Equal-length routing: every packet goes up to a core switch and down again.

This is the routing of section 5.4 of the Outcast paper. Packets between two hosts of one edge
switch go up too, so that the flows to a receiver mix in the core. A switch sends a packet from
below up, and a packet from above down. The way up is chosen in one of two ways:

- by the digits of the destination's address that `shortest` takes; then all flows to a host come
  down from one core switch;
- by a hash of the packet's addresses and ports; then flows spread over all core switches.

At a core switch a packet may have to go back by the port that it came in by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address

from controllers.graph import LAYERS, Graph
from controllers.shortest import Ports, RouteError, digit, port_to, switch_dpids


@dataclass(frozen=True)
class UpDown:
    """The ports for packets on their way up and down the layers.

    Attributes:
        up: each switch's port towards each host, for packets that came from below. A core switch
            uses it for all packets.
        choices: the ports from which `up` is chosen, where there are several.
        upper: the ports to the layer above, of every switch below the core.
        down: the port towards each host below the switch, for packets from above.
    """

    up: Ports
    choices: Mapping[str, Mapping[str, tuple[int, ...]]]
    upper: Mapping[str, frozenset[int]]
    down: Ports


def compute(graph: Graph) -> UpDown:
    """The ways of every switch to every host.

    Raises:
        RouteError: the network has other layers, or some core switch has no way down to some
            host; the text names them.
    """
    dpids = switch_dpids(graph)
    ranks = _ranks(graph, dpids)
    above = _neighbours(graph, dpids, ranks, 1)
    down = _ways_down(graph, dpids, ranks)
    up: dict[str, dict[str, int]] = {}
    choices: dict[str, dict[str, tuple[int, ...]]] = {}
    for switch, rank in ranks.items():
        if rank == len(LAYERS) - 1:
            up[switch] = down.pop(switch)
            continue
        higher = tuple(port_to(graph, switch, neighbour) for neighbour in above[switch])
        if not higher:
            raise RouteError(f"equal_length: {switch} has no link to the {LAYERS[rank + 1]} layer")
        up[switch] = {}
        for host, data in graph.nodes(data=True):
            if data["kind"] == "host":
                place = -1 - digit(int(IPv4Address(data["ip"])), graph.nodes[switch], len(higher))
                up[switch][host] = higher[place]
        if len(higher) > 1:
            choices[switch] = dict.fromkeys(up[switch], higher)
    upper = {
        switch: frozenset(port_to(graph, switch, neighbour) for neighbour in neighbours)
        for switch, neighbours in above.items()
        if neighbours
    }
    return UpDown(up, choices, upper, down)


def _ranks(graph: Graph, dpids: Mapping[str, int]) -> dict[str, int]:
    layers = {graph.nodes[switch].get("layer") for switch in dpids}
    if layers != set(LAYERS):
        there = ", ".join(sorted(map(str, layers)))
        raise RouteError(
            "equal_length: needs edge, aggregation and core switches, as a fattree or vl2 has; "
            f"this network has: {there}"
        )
    ranks = {switch: LAYERS.index(graph.nodes[switch]["layer"]) for switch in dpids}
    for source, target in graph.edges:
        heights = sorted(ranks.get(node, -1) for node in (source, target))
        if heights[1] - heights[0] != 1:
            raise RouteError(
                f"equal_length: the link {source} - {target} is not between adjacent layers"
            )
    return ranks


def _neighbours(
    graph: Graph, dpids: Mapping[str, int], ranks: Mapping[str, int], step: int
) -> dict[str, list[str]]:
    """From each switch to its neighbours `step` layers higher, by datapath id."""
    return {
        switch: sorted(
            (name for name in graph.adj[switch] if ranks.get(name) == rank + step),
            key=dpids.__getitem__,
        )
        for switch, rank in ranks.items()
    }


def _ways_down(
    graph: Graph, dpids: Mapping[str, int], ranks: Mapping[str, int]
) -> dict[str, dict[str, int]]:
    below = _neighbours(graph, dpids, ranks, -1)
    down: dict[str, dict[str, int]] = {}
    for switch, rank in sorted(ranks.items(), key=lambda item: item[1]):
        down[switch] = {}
        if rank == 0:
            for host in graph.adj[switch]:
                if graph.nodes[host]["kind"] == "host":
                    down[switch][host] = port_to(graph, switch, host)
            continue
        leading: dict[str, list[str]] = {}
        for neighbour in below[switch]:
            for host in down[neighbour]:
                leading.setdefault(host, []).append(neighbour)
        for host, neighbours in leading.items():
            address = int(IPv4Address(graph.nodes[host]["ip"]))
            place = -1 - digit(address, graph.nodes[switch], len(neighbours))
            down[switch][host] = port_to(graph, switch, neighbours[place])
    hosts = [name for name, data in graph.nodes(data=True) if data["kind"] == "host"]
    for switch, rank in ranks.items():
        missing = [host for host in hosts if host not in down[switch]]
        if rank == len(LAYERS) - 1 and missing:
            raise RouteError(f"equal_length: core switch {switch} has no way down to {missing[0]}")
    return down
