"""The network as a graph: the engine builds it, the controller computes routes on it.

It is an undirected `networkx.Graph`. Every node has `kind`:

- `"switch"`: with `dpid` (int, the OpenFlow datapath id) and `layer` (one of LAYERS, or any other
  text);
- `"host"`: with `ip` (dotted IPv4, no prefix length) and `mac`, and with `ip6` if it also has an
  IPv6 address; a host has exactly one link;
- `"router"`: a Linux host that forwards between the subnets of its links; it gets no flow entries.

A switch or router may have `ways`: by a host's name, the neighbour that packets for it go to next,
whatever is nearest. A switch may have `carries`: the hosts that packets cross it towards. It gets
flow entries for these alone.

Every edge has `ports`: the port number at each end by node name. Port n of switch s is the
interface `s-ethn`. Other attributes are kept and ignored.

The file is networkx's node-link form in JSON:

```json
{"nodes": [{"id": "s1", "kind": "switch", "dpid": 1, "layer": "edge"},
           {"id": "h1", "kind": "host", "ip": "10.0.0.1", "mac": "02:00:00:00:00:01"}],
 "edges": [{"source": "s1", "target": "h1", "ports": {"s1": 1, "h1": 0}}]}
```
"""

from __future__ import annotations

import json
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from pathlib import Path
from typing import Any, TypeAlias

import networkx as nx

# networkx's classes are generic only for type checkers, not at run time.
Graph: TypeAlias = "nx.Graph[str]"

LAYERS = ("edge", "aggregation", "core")
"""The layers of switches that routes and drawings know, from the hosts up."""

_ENDS = ("source", "target")


class GraphError(ValueError):
    """A graph or its file breaks the rules in this module's docstring; the text says where."""


def dumps(graph: Graph) -> str:
    """The graph as the text of a graph file."""
    nodes = [{**data, "id": name} for name, data in graph.nodes(data=True)]
    edges = [
        {**data, "source": source, "target": target}
        for source, target, data in graph.edges(data=True)
    ]
    return json.dumps({"nodes": nodes, "edges": edges}, indent=1) + "\n"


def load(path: Path) -> Graph:
    """Reads and checks a graph file.

    Raises:
        GraphError: the file cannot be read, or is not a graph as described above.
    """
    try:
        return loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise GraphError(f"{path}: {reason}") from error
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error


def loads(text: str) -> Graph:
    """Reads and checks the text of a graph file.

    Raises:
        GraphError: it is not a graph as described above.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise GraphError(f"not JSON: {error}") from error
    graph: Graph = nx.Graph()
    try:
        for node in data["nodes"]:
            graph.add_node(node["id"], **{key: node[key] for key in node if key != "id"})
        for link in data["edges"]:
            ends = (link["source"], link["target"])
            graph.add_edge(*ends, **{key: link[key] for key in link if key not in _ENDS})
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise GraphError(f"not a node-link graph with `nodes` and `edges`: {error!r}") from error
    check(graph)
    return graph


def check(graph: Graph) -> None:
    """Checks the rules in this module's docstring.

    Raises:
        GraphError: it names the first node or edge that breaks one.
    """
    seen: dict[tuple[str, object], str] = {}
    for name, data in graph.nodes(data=True):
        for key, value in _identity(name, data).items():
            other = seen.setdefault((key, value), name)
            if other != name:
                raise GraphError(f"node {name}: {other} has the same {key} {value}")
        if data["kind"] == "host" and graph.degree(name) != 1:
            raise GraphError(f"host {name}: {graph.degree(name)} links; exactly one is allowed")
    for source, target, data in graph.edges(data=True):
        ports = data.get("ports")
        if not isinstance(ports, dict) or set(ports) != {source, target}:
            raise GraphError(f"edge {source} - {target}: `ports` must have a number for each end")
        for node, port in ports.items():
            lowest = 1 if graph.nodes[node]["kind"] == "switch" else 0
            if type(port) is not int or port < lowest:
                raise GraphError(
                    f"edge {source} - {target}: port {port!r} at {node}; "
                    f"{lowest} or more is allowed"
                )
            other = seen.setdefault((node, port), f"{source} - {target}")
            if other != f"{source} - {target}":
                raise GraphError(
                    f"edge {source} - {target}: port {port} of {node} is taken by {other}"
                )


def _identity(name: str, data: dict[str, Any]) -> dict[str, object]:
    """The attributes that must be unique among nodes. Raises GraphError for a malformed one."""
    match data.get("kind"):
        case "switch":
            dpid = data.get("dpid")
            if type(dpid) is not int or not 0 < dpid < 2**64:
                raise GraphError(f"switch {name}: dpid {dpid!r}; 1 to 2^64 - 1 is allowed")
            return {"dpid": dpid}
        case "router":
            return {}
        case "host":
            try:
                ip = IPv4Address(str(data.get("ip")))
            except AddressValueError as error:
                raise GraphError(
                    f"host {name}: ip {data.get('ip')!r}; an IPv4 address is allowed"
                ) from error
            if data.get("ip6") is None:
                return {"ip": ip}
            try:
                return {"ip": ip, "ip6": IPv6Address(str(data["ip6"]))}
            except AddressValueError as error:
                raise GraphError(
                    f"host {name}: ip6 {data['ip6']!r}; an IPv6 address is allowed"
                ) from error
        case kind:
            raise GraphError(f"node {name}: kind {kind!r}; 'switch', 'host' or 'router' is allowed")
