"""An experiment's topology: as Mininet's, and as the graph that routes are computed on."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import networkx as nx

from controllers.graph import LAYERS, Graph
from outcast.errors import ConfigError
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
    """A network that an experiment carries, as Mininet's."""
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
