"""Shortest paths: for every switch and every destination host, the nearest next hops.

Pure functions over the graph that controllers/graph.py describes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address

from controllers.graph import LAYERS, Graph

Ports = Mapping[str, Mapping[str, int]]
"""`ports[switch][host]` is the number of the port by which `switch` forwards to `host`."""


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
    near = _Near(graph)
    ports = {switch: _PortsOf(near, switch) for switch in near.dpids}
    if near.hosts:
        # Whoever is reached from one switch is reached from all.
        host, (attached, _) = next(iter(near.hosts.items()))
        for switch in near.dpids:
            if switch != attached and switch not in near.towards(attached):
                raise RouteError(f"no path from {switch} to {host}")
    return ports


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
        for switch, (parent, *_others) in _Near(graph).towards(root).items():
            tree.add_edge(switch, parent, **graph.edges[switch, parent])
    return shortest(tree)


def equally_near(graph: Graph) -> dict[str, dict[str, tuple[int, ...]]]:
    """For every switch the hosts towards which several next hops are equally near: their ports.

    Ordered from left to right by datapath id.
    """
    near = _Near(graph)
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for attached in near.dpids:
        hosts = [name for name in graph.adj[attached] if graph.nodes[name]["kind"] == "host"]
        if not hosts:
            continue
        for switch, nearest in near.towards(attached).items():
            if len(nearest) > 1:
                ports = tuple(port_to(graph, switch, neighbour) for neighbour in nearest)
                found.setdefault(switch, {}).update(dict.fromkeys(hosts, ports))
    return found


def switch_dpids(graph: Graph) -> dict[str, int]:
    """The datapath id of every switch."""
    return {name: data["dpid"] for name, data in graph.nodes(data=True) if data["kind"] == "switch"}


class _Near:
    """The next hops nearest to each host; worked out when they are asked for, and kept.

    A fat-tree of 32 ports has ten million pairs of switch and host, of which a plan needs few.

    Attributes:
        dpids: the datapath id of every switch.
        hosts: the switch that each host is at, and its address.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.dpids = switch_dpids(graph)
        self.hosts = {
            name: (next(iter(graph.adj[name])), int(IPv4Address(data["ip"])))
            for name, data in graph.nodes(data=True)
            if data["kind"] == "host"
        }
        self._neighbours = {
            switch: sorted(
                (n for n in graph.adj[switch] if n in self.dpids), key=self.dpids.__getitem__
            )
            for switch in self.dpids
        }
        self._towards: dict[str, dict[str, list[str]]] = {}

    def towards(self, target: str) -> dict[str, list[str]]:
        """For every other switch that reaches `target`: its neighbours nearest to it, by dpid."""
        if target not in self._towards:
            distance = {target: 0}
            for switch in (reached := [target]):
                for other in self._neighbours[switch]:
                    if other not in distance:
                        distance[other] = distance[switch] + 1
                        reached.append(other)
            self._towards[target] = {
                switch: [n for n in self._neighbours[switch] if distance[n] < distance[switch]]
                for switch in reached[1:]
            }
        return self._towards[target]


class _PortsOf(Mapping[str, int]):
    """One switch's port towards each host."""

    def __init__(self, near: _Near, switch: str) -> None:
        self._near = near
        self._switch = switch

    def __getitem__(self, host: str) -> int:
        attached, address = self._near.hosts[host]
        graph = self._near.graph
        if attached == self._switch:
            return port_to(graph, self._switch, host)
        nearest = self._near.towards(attached)[self._switch]
        place = -1 - digit(address, graph.nodes[self._switch], len(nearest))
        return port_to(graph, self._switch, nearest[place])

    def __contains__(self, host: object) -> bool:
        return host in self._near.hosts

    def __iter__(self) -> Iterator[str]:
        return iter(self._near.hosts)

    def __len__(self) -> int:
        return len(self._near.hosts)


def digit(address: int, switch: Mapping[str, object], base: int) -> int:
    """The digit of an address, written in the base, that a switch looks at: its layer's index."""
    layer = switch.get("layer")
    position = LAYERS.index(layer) if layer in LAYERS else 0
    return address // base**position % base if base > 1 else 0


def port_to(graph: Graph, node: str, neighbour: str) -> int:
    """The port of `node` that leads to `neighbour`."""
    port: int = graph.edges[node, neighbour]["ports"][node]
    return port
