"""plan.json: the plan as the run directory keeps it.

A run follows the stored plan, and the report draws it, so that nobody computes it a second time.
Of the routes the kind and the seed are kept, because the graph and these two decide them
(controllers/routes.py).

A run directory may come from somebody else. So everything that the file says of the network is
checked: each path follows links, and each port is a port of its switch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from ipaddress import IPv4Address, IPv6Address
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import networkx as nx
from pydantic import AfterValidator, Field

from controllers import graph as graphs
from controllers import routes
from outcast import handed_in
from outcast.errors import InputError
from outcast.experiment import Link
from outcast.experiment.measure import MOST_EVENTS, EventName
from outcast.experiment.noise import LEAST_PER_SECOND, MOST_INTERVAL_NS, MOST_PER_SECOND
from outcast.experiment.parts import Family
from outcast.experiment.probes import MOST_PROBES
from outcast.plan import addresses
from outcast.plan.bottleneck import Bottleneck
from outcast.plan.flows import MOST_FLOWS, Flow
from outcast.plan.links import Direction
from outcast.plan.model import Plan
from outcast.plan.noise import HostNoise
from outcast.plan.probes import Probe
from outcast.plan.programs import Command, Program
from outcast.plan.schedule import MOST_FLOWS as MOST_GENERATED
from outcast.plan.schedule import Generated
from outcast.plan.traces import LinkTrace

MOST_NODES = 32_768
"""More than the largest topology that an experiment can ask for."""


def _member_of(allowed: Collection[str]) -> AfterValidator:
    def check(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"allowed are {', '.join(allowed)}")
        return text

    return AfterValidator(check)


_Name = Annotated[str, Field(pattern=r"^\S+$", max_length=255)]
_Address = Annotated[str, AfterValidator(lambda text: str(IPv4Address(text)))]


class _Switch(handed_in.Record):
    id: _Name
    kind: Literal["switch"] = "switch"
    layer: Annotated[str, _member_of(graphs.LAYERS)]
    dpid: int = Field(gt=0)
    ways: dict[_Name, _Name] | None = None


class _Router(handed_in.Record):
    id: _Name
    kind: Literal["router"] = "router"
    layer: Annotated[str, _member_of(graphs.LAYERS)]
    ways: dict[_Name, _Name] | None = None


class _Host(handed_in.Record):
    id: _Name
    kind: Literal["host"] = "host"
    ip: _Address
    ip6: Annotated[str, AfterValidator(lambda text: str(IPv6Address(text)))] | None = None
    mac: _Name
    role: _Name
    of: _Name | None = None


class _Link(handed_in.Record):
    source: _Name
    target: _Name
    ports: dict[_Name, int]
    layers: _Name


class _Network(handed_in.Record):
    """The graph in the node-link form that controllers/graph.py describes."""

    nodes: tuple[Annotated[_Switch | _Host | _Router, Field(discriminator="kind")], ...] = Field(
        min_length=1, max_length=MOST_NODES
    )
    edges: tuple[_Link, ...]


def _possible(noise: HostNoise) -> HostNoise:
    """Refuses times that no configuration has, because the file may come from somebody else."""
    for name, span in (("interrupts", noise.interrupts), ("sender", noise.sender)):
        if span is not None and not 0 <= span.least_ns <= span.most_ns <= MOST_INTERVAL_NS:
            raise ValueError(
                f"{name}: allowed is 0 <= least_ns <= most_ns <= {MOST_INTERVAL_NS}, "
                f"not {span.least_ns} and {span.most_ns}"
            )
    throttle = noise.throttle
    for rate in (throttle.per_second, throttle.below_gigabit) if throttle is not None else ():
        if not LEAST_PER_SECOND <= rate <= MOST_PER_SECOND:
            raise ValueError(
                f"throttle: allowed is from {LEAST_PER_SECOND} to {MOST_PER_SECOND}, not {rate}"
            )
    return noise


class _Alike(handed_in.Record):
    """Directions of links that have the same settings."""

    settings: Link
    directions: tuple[tuple[_Name, _Name], ...]


class _Document(handed_in.Versioned):
    """The file's keys, in their order."""

    format: int = 1
    graph: _Network
    routing: Annotated[str, _member_of(routes.KINDS)]
    hash_seed: int = Field(ge=0, lt=1 << 32)
    flows: tuple[Flow, ...] = Field(max_length=MOST_FLOWS)
    bottleneck: Bottleneck
    others: tuple[Bottleneck, ...]
    capture_ports: tuple[tuple[_Name, Literal["in", "out"]], ...]
    generated: tuple[Generated, ...] = Field(max_length=MOST_GENERATED)
    blackout_at: _Name | None
    links: tuple[_Alike, ...]
    programs: tuple[Program, ...] = Field(default=(), max_length=MOST_NODES)
    command: Command | None = None
    probes: tuple[Probe, ...] = Field(default=(), max_length=MOST_PROBES)
    traces: tuple[LinkTrace, ...] = Field(default=(), max_length=MOST_NODES)
    events: tuple[EventName, ...] = Field(default=(), max_length=MOST_EVENTS)
    host_noise: Annotated[HostNoise, AfterValidator(_possible)] = HostNoise()
    families: Annotated[tuple[Family, ...], Field(min_length=1)] = ("ipv4",)


def dumps(plan: Plan) -> str:
    """The plan as the text of plan.json."""
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
        FileNotFoundError: there is none.
        InputError: it cannot be read, is no stored plan, or has another format.
    """
    document = handed_in.read_model(path, _Document)
    try:
        graph = _graph(document.graph)
        _require_fitting(document, graph)
        links = _links(document, graph)
    except (graphs.GraphError, _MisfitError) as error:
        raise InputError(f"{path}: {error}") from None
    same = {field.name: getattr(document, field.name) for field in fields(Plan)}
    return Plan(**{**same, "graph": graph, "links": links})


class _MisfitError(ValueError):
    """Something in the plan does not fit its graph; the text says what."""


def _graph(network: _Network) -> graphs.Graph:
    graph: graphs.Graph = nx.Graph()
    for node in network.nodes:
        graph.add_node(node.id, **node.model_dump(exclude={"id"}, exclude_none=True))
    if len(graph) < len(network.nodes):
        raise _MisfitError("graph.nodes: two have the same id")
    for number, link in enumerate(network.edges):
        ends = (link.source, link.target)
        if link.source == link.target or not all(node in graph for node in ends):
            raise _MisfitError(f"graph.edges.{number}: does not lead from one node to another")
        if graph.has_edge(*ends):
            raise _MisfitError(f"graph.edges.{number}: these nodes are linked already")
        graph.add_edge(*ends, ports=dict(link.ports), layers=link.layers)
    graphs.check(graph)
    for name, data in graph.nodes(data=True):
        for host, following in data.get("ways", {}).items():
            if host not in graph or not graph.has_edge(name, following):
                raise _MisfitError(f"graph.nodes: {name} has ways that are none of the graph")
    return graph


def _links(document: _Document, graph: graphs.Graph) -> dict[Direction, Link]:
    """The settings by direction."""
    stored: dict[Direction, Link] = {}
    for number, alike in enumerate(document.links):
        for direction in alike.directions:
            if not graph.has_edge(*direction) or direction in stored:
                raise _MisfitError(f"links.{number}: {direction} is no link, or is named twice")
            stored[direction] = alike.settings
    if len(stored) != 2 * graph.number_of_edges():
        raise _MisfitError("links: some directions have no settings")
    return stored


def _require_fitting(document: _Document, graph: graphs.Graph) -> None:
    """Raises _MisfitError where flows, ports or paths are not in the graph."""
    hosts = {name: str(data["ip"]) for name, data in graph.nodes(data=True) if "ip" in data}
    ports = {
        switch: {f"{switch}-eth{data['ports'][switch]}" for data in graph.adj[switch].values()}
        for switch in graph
        if switch not in hosts
    }
    for number, flow in enumerate(document.flows):
        where = f"flows.{number}"
        if flow.flow != number or flow.hops < 1:
            raise _MisfitError(f"{where}: is not numbered {number}, or has no hops")
        ends = tuple(addresses.ipv4_of(address) for address in (flow.src_ip, flow.dst_ip))
        if (hosts.get(flow.src), hosts.get(flow.dst)) != ends:
            raise _MisfitError(f"{where}: its src or dst is no host of the graph with that address")
        _require_path(f"{where}.path", graph, flow.path, (flow.src, flow.dst))
        _require_path(f"{where}.return_path", graph, flow.return_path, (flow.dst, flow.src))
    for number, generated in enumerate(document.generated):
        if generated.src not in hosts or generated.dst not in hosts:
            raise _MisfitError(f"generated.{number}: its src or dst is no host of the graph")
    for number, program in enumerate(document.programs):
        if not hosts.keys() >= {program.host, *program.peers}:
            raise _MisfitError(f"programs.{number}: names a host that the graph does not have")
    for number, probe in enumerate(document.probes):
        both = ((probe.src, probe.src_ip), (probe.dst, probe.dst_ip))
        if not all(host in hosts and ip in addresses.of_host(graph, host) for host, ip in both):
            raise _MisfitError(f"probes.{number}: its src or dst is no host with that address")
    for where, bottleneck in (
        ("bottleneck", document.bottleneck),
        *((f"others.{number}", other) for number, other in enumerate(document.others)),
    ):
        own = ports.get(bottleneck.switch, set())
        if bottleneck.egress not in own or not own.issuperset(bottleneck.ingress):
            raise _MisfitError(f"{where}: its ports are not those of a switch of the graph")
    every = set().union(*ports.values())
    for number, trace in enumerate(document.traces):
        if not all(graph.has_edge(*direction) for direction in trace.directions):
            raise _MisfitError(f"traces.{number}: names a link that is not in the graph")
        ascending = all(later > earlier for earlier, later in pairwise(trace.t_ns))
        if len(trace.t_ns) != len(trace.rate_bps) or not ascending:
            raise _MisfitError(f"traces.{number}: has no rate for each time, in the order of time")
    for number, (port, _) in enumerate(document.capture_ports):
        if port not in every:
            raise _MisfitError(f"capture_ports.{number}: is no port of a switch of the graph")
    if document.blackout_at not in (None, *document.bottleneck.ingress):
        raise _MisfitError("blackout_at: is no input of the bottleneck")


def _require_path(
    where: str, graph: graphs.Graph, path: Sequence[str], ends: tuple[str, str]
) -> None:
    linked = all(graph.has_edge(*link) for link in pairwise(path))
    if len(path) < 2 or (path[0], path[-1]) != ends or not linked:
        raise _MisfitError(f"{where}: does not lead over links from its one end to the other")
