"""An experiment's topology: as Mininet's, and as the graph that routes are computed on."""

from __future__ import annotations

from importlib import import_module

import networkx as nx
from mininet.topo import Topo

from controllers.graph import LAYERS, Graph
from outcast.experiment import Experiment

_FROM_BELOW = ("host", *LAYERS)


def make_topo(experiment: Experiment) -> Topo:
    """The Mininet topology of an experiment.

    topologies/KIND.py has it in `topos`, where `mn --custom` looks for it too; the keys of the
    configuration are the arguments of its `build`.
    """
    asked = experiment.topology
    topos = import_module(f"topologies.{asked.kind}").topos
    return topos[asked.kind](**asked.model_dump(exclude={"kind"}))


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
            key=_FROM_BELOW.index,
        )
        graph.add_edge(
            one,
            other,
            ports={info["node1"]: info["port1"], info["node2"]: info["port2"]},
            layers="-".join(between),
        )
    return graph
