"""An experiment's topology: Mininet's, the graph that routes are computed on, and paths in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING

import networkx as nx

from controllers import routes
from controllers.graph import LAYERS, Graph
from controllers.hashing import FiveTuple
from outcast.errors import ConfigError, refusals_at
from outcast.experiment import Experiment, Network, OwnTopology

if TYPE_CHECKING:
    from mininet.topo import Topo

_FROM_BELOW = ("host", *LAYERS)


def make_topo(experiment: Experiment) -> Topo:
    """The Mininet topology of an experiment.

    topologies/KIND.py has it in `topos`, where `mn --custom` looks for it too; the keys of the
    configuration are the arguments of its `build`. A topology of the user's own is carried by the
    experiment; nothing of the user's is read or run here.

    Raises ConfigError: the experiment names a file of the user's, and has no network.
    """
    topology = experiment.topology
    if isinstance(topology, OwnTopology):
        if topology.network is None:
            raise ConfigError(
                f"topology: the network that {topology.path} makes is not in this configuration; "
                "allowed is a configuration that outcast has read to be run, or wrote"
            )
        return _topo_of(topology.network)
    topos = import_module(f"topologies.{topology.kind}").topos
    return topos[topology.kind](**topology.model_dump(exclude={"kind"}))


def _topo_of(network: Network) -> Topo:
    # Not sooner, because a machine without Mininet gets it with the guest's root.
    from mininet.topo import Topo

    topo = Topo()
    for host in network.hosts:
        of = {} if host.of is None else {"of": host.of}
        topo.addHost(host.name, ip=f"{host.ip}/8", mac=host.mac, role=host.role or "host", **of)
    for switch in network.switches:
        topo.addSwitch(switch.name, dpid=f"{switch.dpid:016x}", layer=switch.layer)
    for router in network.routers:
        topo.addHost(router.name, kind="router")
    for link in network.links:
        first, second = link.places
        own = {"own": link.own} if link.own else {}
        topo.addLink(first.node, second.node, port1=first.port, port2=second.port, **own)
    return topo


def make_graph(topo: Topo) -> Graph:
    """A Mininet topology as the graph that controllers/graph.py documents.

    Edges have `layers` besides, the layers of their ends: `edge-aggregation`. Where the topology
    says more of a link, they have `own`: its settings by sending node, in the words of `links`.
    """
    graph: Graph = nx.Graph()
    for name in topo.nodes():
        info = topo.nodeInfo(name)
        if info.get("kind") == "router":
            graph.add_node(name, kind="router", layer=LAYERS[0])
        elif topo.isSwitch(name):
            graph.add_node(name, kind="switch", layer=info["layer"], dpid=int(info["dpid"], 16))
        else:
            ip = info["ip"].split("/")[0]
            of = {"of": info["of"]} if "of" in info else {}
            graph.add_node(name, kind="host", ip=ip, mac=info["mac"], role=info["role"], **of)
    for first, second, info in topo.links(withInfo=True):
        between = sorted(
            (str(graph.nodes[node].get("layer", "host")) for node in (first, second)),
            key=_FROM_BELOW.index,
        )
        graph.add_edge(
            first,
            second,
            ports={info["node1"]: info["port1"], info["node2"]: info["port2"]},
            layers="-".join(between),
            **({"own": info["own"]} if "own" in info else {}),
        )
    return graph


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


def every_way(graph: Graph, table: routes.Routes, src: str, dst: str) -> list[list[str]]:
    """Every path that switches may choose for a packet from one host to another."""
    begun = [[src, next(iter(graph.adj[src]))]]
    found = []
    while begun:
        nodes = begun.pop()
        *_, before, node = nodes
        if node == dst:
            found.append(nodes)
        else:
            begun += [[*nodes, name] for name in _following(graph, table, before, node, dst)]
    return found


def _following(graph: Graph, table: routes.Routes, before: str, node: str, dst: str) -> list[str]:
    """The neighbours to which a node may send a packet that came from `before`."""
    in_port = graph.edges[node, before]["ports"][node]
    from_above = in_port in table.upper.get(node, ())
    ports = () if from_above else table.choices.get(node, {}).get(dst, ())
    ports = ports or (table.next_port(graph, node, in_port, dst, None),)
    return [name for name, data in graph.adj[node].items() if data["ports"][node] in ports]


def hosts_carried(
    graph: Graph, table: routes.Routes, pairs: Iterable[tuple[str, str]]
) -> dict[str, set[str]]:
    """The destinations of the packets that may cross each node, of pairs that talk both ways."""
    carried: dict[str, set[str]] = defaultdict(set)
    seen = set()
    begun = [
        (src, next(iter(graph.adj[src])), dst) for pair in pairs for src, dst in (pair, pair[::-1])
    ]
    while begun:
        before, node, dst = hop = begun.pop()
        if node != dst and hop not in seen:
            seen.add(hop)
            carried[node].add(dst)
            following = _following(graph, table, before, node, dst)
            begun += [(node, name, dst) for name in following]
    return carried


def ingress_port(graph: Graph, path: Sequence[str], egress: str) -> str | None:
    """The port by which a packet on a path enters the switch that it leaves by `egress`."""
    for before, (switch, following) in zip(path, pairwise(path[1:]), strict=False):
        if port_name(graph, switch, following) == egress:
            return port_name(graph, switch, before)
    return None


def port_name(graph: Graph, node: str, neighbour: str) -> str:
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
