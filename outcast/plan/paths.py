"""Paths of an experiment's packets through the graph: which routes, and where they lead."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from controllers import routes
from controllers.graph import Graph
from controllers.hashing import FiveTuple
from outcast.errors import ConfigError, refusals_at
from outcast.experiment import Experiment

if TYPE_CHECKING:
    from outcast.plan.flows import Flow


Way = tuple[list[str], list[str]]
"""The path between two hosts, with the path back."""
Ways = list[Way]


def compute_routes(experiment: Experiment, graph: Graph) -> routes.Routes:
    """The routes that the experiment asks for.

    Raises ConfigError where the topology has none of that kind.
    """
    routing = experiment.routing
    with refusals_at("routing"):
        return routes.compute(graph, routing.routes_kind, routing.hash_seed_of(experiment.seed))


def there_and_back(
    graph: Graph, table: routes.Routes, src: str, dst: str, packet: FiveTuple | None = None
) -> Way:
    """The path between two hosts of a packet with these headers, and the path of its answers."""
    there = routes.path(table, graph, src, dst, packet)
    return there, routes.path(table, graph, dst, src, packet and packet.reversed())


def subflow_ways(graph: Graph, table: routes.Routes, flows: Sequence[Flow]) -> Ways:
    """The paths of subflows from further interfaces, each with that of its acknowledgements.

    Raises ConfigError: switches choose by ports, which nobody knows beforehand.
    """
    pairs = {
        (name, flow.dst)
        for flow in flows
        if flow.transport.mptcp is not None and flow.transport.mptcp.over == "interfaces"
        for name in graph
        if graph.nodes[name].get("of") == flow.src
    }
    try:
        return [there_and_back(graph, table, *pair) for pair in sorted(pairs)]
    except routes.RouteError as error:
        raise ConfigError(
            f"routing: subflows over interfaces: {error}; allowed is routing.kind: shortest"
        ) from None


def hashed_paths(graph: Graph, table: routes.Routes, flows: Sequence[Flow]) -> list[list[str]]:
    """Every path that a subflow's ports may give it where switches choose by them, and those back.

    The sender's kernel draws these ports, so nobody knows beforehand which it will be.
    """
    several = [flow for flow in flows if table.choices and flow.transport.mptcp is not None]
    ends = dict.fromkeys(pair for f in several for pair in ((f.src, f.dst), (f.dst, f.src)))
    return [way for src, dst in [*ends][::-1] for way in every_way(graph, table, src, dst)]


def every_way(graph: Graph, table: routes.Routes, src: str, dst: str) -> list[list[str]]:
    """Every path that switches may choose for a packet from one host to another."""
    begun = [[src, next(iter(graph.adj[src]))]]
    found = []
    while begun:
        nodes = begun.pop()
        *_, before, node = nodes
        if node == dst:
            found.append(nodes)
            continue
        in_port = graph.edges[node, before]["ports"][node]
        from_above = in_port in table.upper.get(node, ())
        ports = () if from_above else table.choices.get(node, {}).get(dst, ())
        ports = ports or (table.next_port(graph, node, in_port, dst, None),)
        names = [name for name, data in graph.adj[node].items() if data["ports"][node] in ports]
        begun += [[*nodes, name] for name in names]
    return found


def ingress_port(graph: Graph, path: Sequence[str], egress: str) -> str | None:
    """The port by which a packet on a path enters the switch that it leaves by `egress`."""
    for before, (switch, following) in zip(path, pairwise(path[1:]), strict=False):
        if port_name(graph, switch, following) == egress:
            return port_name(graph, switch, before)
    return None


def port_name(graph: Graph, node: str, neighbour: str) -> str:
    """The interface of `node` that leads to `neighbour`, as Mininet names it."""
    return f"{node}-eth{graph.edges[node, neighbour]['ports'][node]}"


def receiver(graph: Graph, where: str) -> str:
    """The host that receives many-to-one flows unless the configuration names another.

    Raises ConfigError: the topology has none; its text begins with `where`, the key that could
    name one.
    """
    for name, data in graph.nodes(data=True):
        if data.get("role") == "receiver":
            return str(name)
    raise ConfigError(
        f"{where}: is missing, and no host of this topology has role: receiver; allowed is a "
        "host's name"
    )
