"""Shortest paths: for every switch and every destination host, the nearest next hops.

Pure functions over the graph that controllers/graph.py describes.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address

import networkx as nx

from controllers.graph import Graph

Ports = Mapping[str, Mapping[str, int]]
"""`ports[switch][host]` is the number of the port by which `switch` forwards to `host`."""

LAYERS = ("edge", "aggregation", "core")
"""From the hosts up: a layer's index is the digit of the address that its switches look at."""


class RouteError(ValueError):
    """There is no route, or the routes do not lead where they should."""


def shortest(graph: Graph) -> Ports:
    """Fewest hops; ties by the destination address, as in section 3.1 of the Outcast paper.

    Of n next hops that are equally near, ordered from left to right by datapath id, a switch of
    layer i (0 edge, 1 aggregation, 2 core, 0 any other) takes the one at position n - 1 - d,
    where d is digit i (0 the last) of the destination's 32-bit address written in base n. With
    n = 2 this is the paper's rule: an edge switch looks at the last bit and takes the right
    aggregation switch if it is 0, the left if it is 1; an aggregation switch looks at the second
    last bit. (The paper does not say which core switch a 0 stands for; here it is the right one.)

    Raises:
        RouteError: some host cannot be reached from some switch.
    """
    dpids = switch_dpids(graph)
    routes: dict[str, dict[str, int]] = {switch: {} for switch in dpids}
    towards: dict[str, dict[str, list[str]]] = {}
    for host, data in graph.nodes(data=True):
        if data["kind"] != "host":
            continue
        (attached,) = graph.adj[host]
        if attached not in towards:
            towards[attached] = _next_hops(graph, dpids, attached)
        address = int(IPv4Address(data["ip"]))
        for switch in dpids:
            if switch == attached:
                following = host
            elif switch in towards[attached]:
                nearest = towards[attached][switch]
                following = nearest[-1 - digit(address, graph.nodes[switch], len(nearest))]
            else:
                raise RouteError(f"no path from {switch} to {host}")
            routes[switch][host] = port_to(graph, switch, following)
    return routes


def spanning_tree(graph: Graph) -> Ports:
    """The only paths in the tree that IEEE 802.1D bridges of equal priority and cost agree on.

    The root is the switch with the lowest datapath id; every other switch keeps, of its
    neighbours nearest the root, the one with the lowest datapath id.

    Raises:
        RouteError: some host cannot be reached from some switch.
    """
    dpids = switch_dpids(graph)
    tree = graph.copy()
    tree.remove_edges_from([(one, two) for one, two in graph.edges if {one, two} <= dpids.keys()])
    if dpids:
        root = min(dpids, key=dpids.__getitem__)
        for switch, (parent, *_others) in _next_hops(graph, dpids, root).items():
            tree.add_edge(switch, parent, **graph.edges[switch, parent])
    return shortest(tree)


def equally_near(graph: Graph) -> dict[str, dict[str, tuple[int, ...]]]:
    """For every switch the hosts towards which several next hops are equally near: their ports.

    Ordered from left to right by datapath id.
    """
    dpids = switch_dpids(graph)
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for attached in dpids:
        hosts = [name for name in graph.adj[attached] if graph.nodes[name]["kind"] == "host"]
        if not hosts:
            continue
        for switch, nearest in _next_hops(graph, dpids, attached).items():
            if len(nearest) > 1:
                ports = tuple(port_to(graph, switch, neighbour) for neighbour in nearest)
                found.setdefault(switch, {}).update(dict.fromkeys(hosts, ports))
    return found


def switch_dpids(graph: Graph) -> dict[str, int]:
    """The datapath id of every switch."""
    return {name: data["dpid"] for name, data in graph.nodes(data=True) if data["kind"] == "switch"}


def _next_hops(graph: Graph, dpids: Mapping[str, int], target: str) -> dict[str, list[str]]:
    """For every other switch that reaches `target`: its neighbours nearest to it, by dpid."""
    switches = graph.subgraph(dpids).copy()
    distance = dict(nx.single_source_shortest_path_length(switches, target))
    return {
        switch: sorted(
            (other for other in switches.adj[switch] if distance[other] < distance[switch]),
            key=dpids.__getitem__,
        )
        for switch in distance
        if switch != target
    }


def digit(address: int, switch: Mapping[str, object], base: int) -> int:
    """The digit of an address, written in the base, that a switch of that layer looks at."""
    layer = switch.get("layer")
    position = LAYERS.index(layer) if layer in LAYERS else 0
    return address // base**position % base if base > 1 else 0


def port_to(graph: Graph, node: str, neighbour: str) -> int:
    """The port of `node` that leads to `neighbour`."""
    port: int = graph.edges[node, neighbour]["ports"][node]
    return port
