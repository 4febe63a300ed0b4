"""Static routes: for every switch and every destination host, the port to send it out by.

These are pure functions over the graph that controllers/graph.py describes. Nothing here knows
OpenFlow. A kind of routes is registered by its place in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from controllers import equal_length, hashing
from controllers.graph import LAYERS, Graph
from controllers.hashing import FiveTuple
from controllers.shortest import Ports, RouteError, equally_near, port_to, shortest, spanning_tree

__all__ = ["KINDS", "LAYERS", "RouteError", "Routes", "compute", "hash_parameter", "path"]


@dataclass(frozen=True)
class Routes:
    """The port by which every switch sends a packet, by the packet's destination host.

    Attributes:
        kind: one of KINDS.
        to: the port towards each host.
        choices: where a hash of the packet's addresses and ports chooses among several ports:
            these ports. ARP has no ports and goes by `to`.
        upper: the ports of a switch to the layer above it, if packets from there go elsewhere.
        from_above: the port towards each host for packets that come in by `upper`. Packets for
            other hosts are dropped there.
        hash_seed: the seed of the choice, 0 to 2^32 - 1; see `hash_parameter`.
    """

    kind: str
    to: Ports
    choices: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    upper: Mapping[str, frozenset[int]] = field(default_factory=dict)
    from_above: Ports = field(default_factory=dict)
    hash_seed: int = 0

    @property
    def per_packet(self) -> bool:
        """Whether switches draw from `choices` for each packet, and use no hash."""
        return self.kind in PER_PACKET

    @property
    def depends_on_input(self) -> bool:
        """Whether the port by which a packet came in decides its route."""
        return bool(self.upper)

    def next_port(
        self, graph: Graph, switch: str, in_port: int, host: str, flow: FiveTuple | None
    ) -> int:
        """The port by which `switch` sends a packet that came in by `in_port` to `host`.

        Where it is drawn for each packet, that is the one that the destination address names.

        Raises:
            RouteError: there is no such port, or it depends on the flow and no flow is given.
        """
        if in_port in self.upper.get(switch, ()):
            ports: tuple[int, ...] = ()
            if host in self.from_above[switch]:
                ports = (self.from_above[switch][host],)
        elif host in self.choices.get(switch, {}) and not self.per_packet:
            ports = self.choices[switch][host]
        else:
            ports = (self.to[switch][host],) if host in self.to.get(switch, {}) else ()
        if not ports:
            raise RouteError(f"no route at {switch}")
        if len(ports) == 1:
            return ports[0]
        if flow is None:
            raise RouteError(f"{switch} chooses by the flow, and none is given")
        return hashing.choose(flow, hash_parameter(self.hash_seed, graph, switch), ports)


def hash_parameter(seed: int, graph: Graph, switch: str) -> int:
    """What a switch hashes besides the packet: the seed and its own datapath id.

    With the same parameter all switches would hash alike. A switch would then send on by a single
    port everything that a switch of the layer below sends it.
    """
    dpid: int = graph.nodes[switch]["dpid"]
    return seed << 32 | dpid & 0xFFFFFFFF


def _shortest(kind: str, graph: Graph, _hash_seed: int) -> Routes:
    """Fewest hops; see `controllers.shortest.shortest`."""
    return Routes(kind, shortest(graph))


def _spanning_tree(kind: str, graph: Graph, _hash_seed: int) -> Routes:
    """The only paths in one tree; see `controllers.shortest.spanning_tree`."""
    return Routes(kind, spanning_tree(graph))


def _hashed(kind: str, graph: Graph, hash_seed: int) -> Routes:
    """Shortest, with ties by the hash of a packet's addresses and ports (equal-cost multipath).

    See RFC 2992.
    """
    return Routes(kind, shortest(graph), equally_near(graph), hash_seed=hash_seed)


def _equal_length(kind: str, graph: Graph, _hash_seed: int) -> Routes:
    """Over a core switch that the destination address names; see controllers/equal_length.py."""
    up_down = equal_length.compute(graph)
    return Routes(kind, up_down.up, {}, up_down.upper, up_down.down)


def _equal_length_random(kind: str, graph: Graph, hash_seed: int) -> Routes:
    """Over a core switch that a hash of addresses and ports names, or that is drawn."""
    up_down = equal_length.compute(graph)
    return Routes(kind, up_down.up, up_down.choices, up_down.upper, up_down.down, hash_seed)


KINDS: Mapping[str, Callable[[str, Graph, int], Routes]] = {
    "shortest": _shortest,
    "spanning_tree": _spanning_tree,
    "hashed": _hashed,
    "equal_length": _equal_length,
    "equal_length_random": _equal_length_random,
    "equal_length_packet": _equal_length_random,
}
"""Every kind of routes by its name: what computes them from the name, a graph and a hash seed."""

PER_PACKET = frozenset({"equal_length_packet"})
"""The kinds whose switches draw a port for each packet; see `entries.drawn_basis`."""


def compute(graph: Graph, kind: str, hash_seed: int = 0) -> Routes:
    """The routes of the given kind.

    Raises:
        RouteError: some host cannot be reached from some switch, the network has no such routes,
            or the kind is unknown.
    """
    if kind not in KINDS:
        raise RouteError(f"routing {kind!r}: allowed are {', '.join(KINDS)}")
    routers = [name for name, data in graph.nodes(data=True) if data["kind"] == "router"]
    if routers and kind != "shortest":
        raise RouteError(
            f"{kind}: {routers[0]} is a router, which chooses by the destination alone; allowed is "
            "shortest"
        )
    return KINDS[kind](kind, graph, hash_seed)


def path(
    routes: Routes, graph: Graph, src: str, dst: str, flow: FiveTuple | None = None
) -> list[str]:
    """The nodes that a packet from host `src` to host `dst` visits, both included.

    Args:
        routes: the routes of all switches.
        graph: the network.
        src: the sending host.
        dst: the destination host.
        flow: the packet's addresses and ports; needed only where switches choose by them.

    Raises:
        RouteError: the routes loop, end at the wrong host, or lack an entry; the text says where.
    """
    nodes = [src]
    visited: set[tuple[str, int]] = set()
    before, node = src, next(iter(graph.adj[src]))
    while node != dst:
        in_port = port_to(graph, node, before)
        if (node, in_port) in visited or graph.nodes[node]["kind"] == "host":
            raise RouteError(f"{src} to {dst}: loop {' '.join([*nodes, node])}")
        visited.add((node, in_port))
        nodes.append(node)
        try:
            port = routes.next_port(graph, node, in_port, dst, flow)
        except RouteError as error:
            raise RouteError(f"{src} to {dst}: {error}") from error
        neighbours = graph.adj[node].items()
        following = next((name for name, data in neighbours if data["ports"][node] == port), None)
        if following is None:
            raise RouteError(f"{src} to {dst}: {node} has no port {port}")
        before, node = node, following
    return [*nodes, dst]
