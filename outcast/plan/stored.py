"""plan.json: the plan as the run directory keeps it.

A run follows the stored plan, and the report draws it, so that nobody computes it a second time.
Only the kind and the seed of the routes are kept, because they and the graph decide the routes
(controllers/routes.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import networkx as nx

from controllers import graph as graphs
from outcast import handed_in
from outcast.experiment import Link
from outcast.experiment.measure import EventName
from outcast.experiment.parts import Family
from outcast.plan.bottleneck import Bottleneck
from outcast.plan.flows import Flow
from outcast.plan.links import Direction
from outcast.plan.model import Plan
from outcast.plan.noise import HostNoise
from outcast.plan.probes import Probe
from outcast.plan.programs import Command, Program
from outcast.plan.schedule import Generated
from outcast.plan.traces import LinkTrace


class _Network(handed_in.Record):
    """The graph in the node-link form that controllers/graph.py describes."""

    nodes: tuple[dict[str, Any], ...]
    edges: tuple[dict[str, Any], ...]


class _Alike(handed_in.Record):
    """Directions of links that have the same settings."""

    settings: Link
    directions: tuple[tuple[str, str], ...]


class _Document(handed_in.Versioned):
    format: int = 1
    graph: _Network
    routing: str
    hash_seed: int
    flows: tuple[Flow, ...]
    bottleneck: Bottleneck
    others: tuple[Bottleneck, ...]
    capture_ports: tuple[tuple[str, Literal["in", "out"]], ...]
    generated: tuple[Generated, ...]
    blackout_at: str | None
    links: tuple[_Alike, ...]
    programs: tuple[Program, ...] = ()
    command: Command | None = None
    probes: tuple[Probe, ...] = ()
    traces: tuple[LinkTrace, ...] = ()
    events: tuple[EventName, ...] = ()
    host_noise: HostNoise = HostNoise()
    families: tuple[Family, ...] = ("ipv4",)


def dumps(plan: Plan) -> str:
    document: dict[str, Any] = {
        field.name: getattr(plan, field.name)
        for field in fields(plan)
        if field.name not in ("graph", "links")
    }
    document["graph"] = _network_document(plan.graph)
    document["links"] = _links_document(plan.links)
    return _Document.model_validate(document).model_dump_json(by_alias=True) + "\n"


def _network_document(graph: graphs.Graph) -> dict[str, Any]:
    """The graph with its links in an order that gives every node its neighbours' order again.

    Interfaces are made in that order, so a run of a stored plan makes them as the first one did.
    """
    # networkx has to import all of its algorithms to sort. The inner program sorts nothing.
    from graphlib import TopologicalSorter

    earlier: TopologicalSorter[frozenset[str]] = TopologicalSorter()
    for node in graph:
        links = [frozenset((node, neighbour)) for neighbour in graph.adj[node]]
        for link in links[:1]:
            earlier.add(link)
        for link, after in pairwise(links):
            earlier.add(after, link)
    place = {link: number for number, link in enumerate(earlier.static_order())}
    edges = sorted(graph.edges(data=True), key=lambda edge: place[frozenset(edge[:2])])
    return {
        "nodes": [{"id": name, **data} for name, data in graph.nodes(data=True)],
        "edges": [
            # A link's own settings are among those of the plan's links.
            {"source": source, "target": target, "ports": data["ports"], "layers": data["layers"]}
            for source, target, data in edges
        ],
    }


def _links_document(links: Mapping[Direction, Link]) -> list[dict[str, Any]]:
    """Every setting once, with its directions, because most links of a network are alike."""
    alike: dict[Link, list[Direction]] = {}
    for direction, settings in links.items():
        alike.setdefault(settings, []).append(direction)
    return [
        {"settings": settings, "directions": directions} for settings, directions in alike.items()
    ]


def read_plan(path: Path) -> Plan:
    """The plan from a plan.json.

    Raises:
        FileNotFoundError: the file is missing.
        InputError: it cannot be read, is no stored plan, or has another format.
    """
    document = handed_in.read_model(path, _Document)
    graph: graphs.Graph = nx.Graph()
    for node in document.graph.nodes:
        graph.add_node(node["id"], **{key: node[key] for key in node if key != "id"})
    for link in document.graph.edges:
        ports, layers = dict(link["ports"]), link["layers"]
        graph.add_edge(link["source"], link["target"], ports=ports, layers=layers)
    links = {
        direction: alike.settings for alike in document.links for direction in alike.directions
    }
    same = {field.name: getattr(document, field.name) for field in fields(Plan)}
    return Plan(**{**same, "graph": graph, "links": links})
