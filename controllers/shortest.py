"""Shortest paths: for every switch and every destination host, the nearest next hops.

These are pure functions over the graph that controllers/graph.py describes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address

from controllers.distances import distances
from controllers.graph import LAYERS, Graph

Ports = Mapping[str, Mapping[str, int]]
"""`ports[switch][host]` is the number of the port by which `switch` forwards to `host`."""


class RouteError(ValueError):
    """There is no route, or a route leads to the wrong place."""


def shortest(graph: Graph) -> Ports:
    """Fewest hops; the destination address breaks ties (section 3.1 of the Outcast paper).

    Let n next hops be equally near, ordered from left to right by datapath id. A switch of layer i
    (0 edge, 1 aggregation, 2 core, 0 any other) takes the one at position n - 1 - d. Here d is
    digit i, counted from 0 for the last, of the destination's 32-bit address in base n.

    With n = 2 this is the paper's rule: an edge switch looks at the last bit and takes the right
    aggregation switch if it is 0, the left if it is 1. An aggregation switch looks at the second
    last bit. The paper does not say which core switch a 0 stands for; here it is the right one.

    Where a switch has `ways`, these decide instead (controllers/graph.py).

    Raises:
        RouteError: some host cannot be reached from some switch.
    """
    near = _Near(graph)
    ports = {switch: _PortsOf(near, switch) for switch in near.dpids}
    if near.hosts:
        # If every switch reaches one host's switch, all switches and hosts are connected.
        host, (attached, _) = next(iter(near.hosts.items()))
        for switch in near.dpids:
            if switch != attached and switch not in near.towards(attached):
                raise RouteError(f"no path from {switch} to {host}")
    return ports


def spanning_tree(graph: Graph) -> Ports:
    """The paths of the tree on which IEEE 802.1D bridges of equal priority and cost agree.

    The root is the switch with the lowest datapath id. Every other switch keeps one link: to the
    one with the lowest datapath id among its neighbours nearest the root.

    Raises:
        RouteError: some host cannot be reached from some switch.
    """
    dpids = switch_dpids(graph)
    tree = graph.copy()
    tree.remove_edges_from(
        [(source, target) for source, target in graph.edges if {source, target} <= dpids.keys()]
    )
    if dpids:
        root = min(dpids, key=dpids.__getitem__)
        for switch, (parent, *_others) in _Near(graph).towards(root).items():
            tree.add_edge(switch, parent, **graph.edges[switch, parent])
    return shortest(tree)


def equally_near(graph: Graph) -> dict[str, dict[str, tuple[int, ...]]]:
    """From each switch and host with several equally near next hops to the ports that lead there.

    The ports are ordered from left to right by datapath id.
    """
    near = _Near(graph)
    choices: dict[str, dict[str, tuple[int, ...]]] = {}
    for attached in near.dpids:
        hosts = [name for name in graph.adj[attached] if graph.nodes[name]["kind"] == "host"]
        if not hosts:
            continue
        for switch, nearest in near.towards(attached).items():
            if len(nearest) > 1:
                ports = tuple(port_to(graph, switch, neighbour) for neighbour in nearest)
                choices.setdefault(switch, {}).update(dict.fromkeys(hosts, ports))
    return choices


def switch_dpids(graph: Graph) -> dict[str, int]:
    """The datapath id of every switch, and 0 for every router."""
    nodes = graph.nodes(data=True)
    return {name: data.get("dpid", 0) for name, data in nodes if data["kind"] != "host"}


class _Near:
    """The next hops that are nearest to each host, computed when first needed.

    A fat-tree with 32 ports has ten million pairs of switch and host, of which a plan needs few.

    Attributes:
        dpids: the datapath id of every switch.
        hosts: from each host to its switch and its address.
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
        self._routers = {n for n, data in graph.nodes(data=True) if data["kind"] == "router"}
        self._towards: dict[str, dict[str, list[str]]] = {}

    def towards(self, target: str) -> dict[str, list[str]]:
        """From each other switch that reaches `target` to its nearest neighbours, by dpid."""
        if target not in self._towards:
            # What is in the target's own subnet goes by no router.
            stays = self._subnet(target) if self._routers else frozenset[str]()
            distance = distances(
                target,
                lambda switch: (
                    other
                    for other in self._neighbours[switch]
                    if not (other in stays and switch in self._routers)
                ),
            )
            self._towards[target] = {
                switch: [
                    n
                    for n in self._neighbours[switch]
                    if distance[n] < distance[switch]
                    and not (switch in stays and n in self._routers)
                ]
                for switch in [*distance][1:]
            }
        return self._towards[target]

    def _subnet(self, target: str) -> frozenset[str]:
        """The switches that a switch reaches without a router; none of a router."""
        if target in self._routers:
            return frozenset()
        return frozenset(
            distances(
                target,
                lambda node: (n for n in self._neighbours[node] if n not in self._routers),
            )
        )


class _PortsOf(Mapping[str, int]):
    """One switch's port towards each host."""

    def __init__(self, near: _Near, switch: str) -> None:
        self._near = near
        self._switch = switch

    def __getitem__(self, host: str) -> int:
        attached, address = self._near.hosts[host]
        graph = self._near.graph
        if (chosen := graph.nodes[self._switch].get("ways", {}).get(host)) is not None:
            return port_to(graph, self._switch, chosen)
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
    """The digit of an address in this base at which a switch looks; its layer gives the place."""
    layer = switch.get("layer")
    position = LAYERS.index(layer) if layer in LAYERS else 0
    return address // base**position % base if base > 1 else 0


def port_to(graph: Graph, node: str, neighbour: str) -> int:
    """The port of `node` that leads to `neighbour`."""
    port: int = graph.edges[node, neighbour]["ports"][node]
    return port
