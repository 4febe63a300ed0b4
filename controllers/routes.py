"""Static routes: for every switch and every destination host, the port to send it out by.

Pure functions over the graph that controllers/graph.py describes; OpenFlow is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address

import networkx as nx

from controllers.graph import Graph

Routes = Mapping[str, Mapping[str, int]]
"""`routes[switch][host]` is the number of the port by which `switch` forwards to `host`."""

KINDS = ("shortest", "spanning_tree")

LAYERS = ("edge", "aggregation", "core")
"""From the hosts up: a layer's index is the digit of the address that its switches look at."""


class RouteError(ValueError):
    """There is no route, or the routes do not lead where they should."""


def compute(graph: Graph, kind: str) -> Routes:
    """The routes of the given kind.

    Raises:
        RouteError: some host cannot be reached from some switch, or the kind is unknown.
    """
    match kind:
        case "shortest":
            return shortest(graph)
        case "spanning_tree":
            return spanning_tree(graph)
    raise RouteError(f"routing {kind!r}: allowed are {', '.join(KINDS)}")


def shortest(graph: Graph) -> Routes:
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
    dpids = _dpids(graph)
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
                following = nearest[-1 - _digit(address, graph.nodes[switch], len(nearest))]
            else:
                raise RouteError(f"no path from {switch} to {host}")
            routes[switch][host] = _port(graph, switch, following)
    return routes


def spanning_tree(graph: Graph) -> Routes:
    """The only paths in the tree that IEEE 802.1D bridges of equal priority and cost agree on.

    The root is the switch with the lowest datapath id; every other switch keeps, of its
    neighbours nearest the root, the one with the lowest datapath id.

    Raises:
        RouteError: some host cannot be reached from some switch.
    """
    dpids = _dpids(graph)
    tree = graph.copy()
    tree.remove_edges_from([(one, two) for one, two in graph.edges if {one, two} <= dpids.keys()])
    if dpids:
        root = min(dpids, key=dpids.__getitem__)
        for switch, (parent, *_others) in _next_hops(graph, dpids, root).items():
            tree.add_edge(switch, parent, **graph.edges[switch, parent])
    return shortest(tree)


def path(routes: Routes, graph: Graph, src: str, dst: str) -> list[str]:
    """The nodes that a packet from host `src` to host `dst` visits, both included.

    Raises:
        RouteError: the routes loop, end at the wrong host, or lack an entry; it tells where.
    """
    nodes = [src]
    node = next(iter(graph.adj[src]))
    while node != dst:
        if node in nodes:
            raise RouteError(f"{src} to {dst}: loop {' '.join([*nodes, node])}")
        nodes.append(node)
        try:
            port = routes[node][dst]
            node = next(
                other for other, data in graph.adj[node].items() if data["ports"][node] == port
            )
        except KeyError as error:
            raise RouteError(f"{src} to {dst}: no route at {node}") from error
        except StopIteration as error:
            raise RouteError(f"{src} to {dst}: {node} has no port {port}") from error
    return [*nodes, dst]


def _dpids(graph: Graph) -> dict[str, int]:
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


def _digit(address: int, switch: Mapping[str, object], base: int) -> int:
    layer = switch.get("layer")
    position = LAYERS.index(layer) if layer in LAYERS else 0
    return address // base**position % base if base > 1 else 0


def _port(graph: Graph, node: str, neighbour: str) -> int:
    port: int = graph.edges[node, neighbour]["ports"][node]
    return port
