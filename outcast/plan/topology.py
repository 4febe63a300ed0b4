"""An experiment's topology: as Mininet's, and as the graph that routes are computed on."""

from __future__ import annotations

import networkx as nx
from mininet.topo import Topo

from controllers.graph import Graph
from outcast.experiment import Experiment, FatTree, Linear, Star, ThreeSender, Vl2
from outcast.experiment.links import LAYERS
from topologies.fattree import FatTreeTopo
from topologies.linear import LinearTopo
from topologies.star import StarTopo
from topologies.three_sender import ThreeSenderTopo
from topologies.vl2 import Vl2Topo


def make_topo(experiment: Experiment) -> Topo:
    """The Mininet topology of an experiment."""
    match experiment.topology:
        case Linear(rivals=rivals):
            return LinearTopo(rivals=rivals)
        case FatTree(k=k):
            return FatTreeTopo(k=k)
        case Vl2() as vl2:
            return Vl2Topo(**vl2.model_dump(exclude={"kind"}))
        case ThreeSender():
            return ThreeSenderTopo()
        case Star(hosts=hosts):
            return StarTopo(hosts=hosts)


def make_graph(topo: Topo) -> Graph:
    """A Mininet topology as the graph that controllers/graph.py documents.

    Edges have `layers` besides, the layers of their ends: `edge-aggregation`.
    """
    graph: Graph = nx.Graph()
    for name in topo.nodes():
        info = topo.nodeInfo(name)
        if topo.isSwitch(name):
            graph.add_node(name, kind="switch", layer=info["layer"], dpid=int(info["dpid"], 16))
        else:
            ip = info["ip"].split("/")[0]
            graph.add_node(name, kind="host", ip=ip, mac=info["mac"], role=info["role"])
    for one, other, info in topo.links(withInfo=True):
        between = sorted(
            (str(graph.nodes[node].get("layer", "host")) for node in (one, other)),
            key=LAYERS.index,
        )
        graph.add_edge(
            one,
            other,
            ports={info["node1"]: info["port1"], info["node2"]: info["port2"]},
            layers="-".join(between),
        )
    return graph


def receiver(graph: Graph) -> str:
    """The host that many-to-one flows go to unless the configuration names another."""
    return str(
        next(name for name, data in graph.nodes(data=True) if data.get("role") == "receiver")
    )
