"""Reads a GraphML file by networkx, as hosts, switches and links.

The file is data from anywhere: its size, its depth and its declarations are bounded before
networkx sees it.
"""

from __future__ import annotations

import io
import re
import unicodedata
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.parsers import expat

import networkx as nx
import yaml

from outcast import handed_in
from outcast.errors import did_you_mean, some_of
from outcast.experiment import NetworkError
from outcast.experiment.network import LONGEST_INTERFACE, MOST_LINKS, MOST_NODES, TAKEN
from outcast.networks.assemble import natural

MOST_BYTES = 8 << 20
ENDINGS = (".graphml", ".xml")
_MOST_DEPTH = 50
_OF_NODES = ("kind", "label", "ip", "mac", "dpid", "layer", "role", "of")
_KINDS = {"host": ("ip", "mac", "role"), "switch": ("dpid", "layer"), "router": ()}
"""The kinds of nodes, each with the attributes that it takes as they are."""
_OF_LINKS = ("rate", "delay", "jitter", "loss", "mtu", "queue")
_LONGEST_LABEL = 200
_TYPES = ("boolean", "int", "integer", "long", "float", "double", "string", "yfiles")
"""The types of attributes that networkx knows."""


def read(content: bytes, name: str, hosts_per_switch: int) -> dict[str, Any]:
    """The graph's hosts, switches and links, with `notes` on what was left out.

    Nodes are named by their label, or by their id where they have none. A name that no interface
    can have is changed, see `_names`.

    Raises:
        NetworkError: it is no graph, or none that can be built.
    """
    if Path(name).suffix.lower() not in ENDINGS:
        raise NetworkError(
            "",
            "no name of a GraphML file; allowed are .graphml and .xml. networkx turns other graphs "
            "into it: nx.write_graphml(nx.read_gml('NAME.gml'), 'NAME.graphml')",
        )
    _require_harmless(content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = nx.read_graphml(io.BytesIO(content))
    except Exception as error:
        # Whatever the bytes are, networkx's reader may raise nearly anything.
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise NetworkError("", f"cannot be read as GraphML: {what:.200}") from None
    return _parts(_simple(graph), hosts_per_switch)


def _require_harmless(content: bytes) -> None:
    """Raises NetworkError for XML with a document type, which can hold entities, or too deep.

    networkx would add a node for an edge's end that the file does not declare.
    """
    parser = expat.ParserCreate()
    depth = 0
    nodes: set[str] = set()
    ends: dict[str, None] = {}

    def refuse(*_declaration: object) -> None:
        raise NetworkError("", "declares a document type; allowed is plain GraphML without one")

    def begin(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _MOST_DEPTH:
            raise NetworkError("", f"nested more than {_MOST_DEPTH} levels deep")
        element = name.rpartition(":")[2]
        if element == "node":
            nodes.add(attributes.get("id", ""))
        elif element == "edge":
            ends.update(dict.fromkeys(attributes.get(end, "") for end in ("source", "target")))
        elif element == "key" and (kind := attributes.get("attr.type", "string")) not in _TYPES:
            raise NetworkError(
                "", f"attr.type {_short(kind)} of a key: allowed are {', '.join(_TYPES)}"
            )

    def end(_name: str) -> None:
        nonlocal depth
        depth -= 1

    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.StartElementHandler = begin
    parser.EndElementHandler = end
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise NetworkError("", f"not XML: {error}") from None
    if unknown := [end for end in ends if end not in nodes]:
        raise NetworkError("", f"an edge leads to {_short(unknown[0])!r}, and no node has this id")


def _simple(graph: Any) -> Any:
    """The graph without parallel links. Raises NetworkError where it has them or is directed."""
    if graph.number_of_nodes() > MOST_NODES or graph.number_of_edges() > MOST_LINKS:
        raise NetworkError(
            "",
            f"{graph.number_of_nodes()} nodes and {graph.number_of_edges()} edges; allowed are "
            f"{MOST_NODES} nodes and {MOST_LINKS} edges",
        )
    if graph.is_directed():
        raise NetworkError(
            "", "is a directed graph; allowed is an undirected one, because a link has both ways"
        )
    seen: set[frozenset[Any]] = set()
    for end, peer in graph.edges():
        subject = f"{_short(end)} - {_short(peer)}"
        if end == peer:
            raise NetworkError(subject, "an edge from a node to itself; allowed are two nodes")
        if (pair := frozenset((end, peer))) in seen:
            raise NetworkError(subject, "two edges between the same nodes; allowed is one")
        seen.add(pair)
    return nx.Graph(graph)


def _parts(graph: Any, hosts_per_switch: int) -> dict[str, Any]:
    kinds = {node: _kind(node, data) for node, data in graph.nodes(data=True)}
    hosts_there = [node for node, kind in kinds.items() if kind == "host"]
    if not hosts_there and not hosts_per_switch:
        raise NetworkError(
            "",
            "no node has the attribute kind: host, so every node is a switch; give hosts their "
            "kind, or add some by topology.hosts_per_switch: 1",
        )
    names = _names(graph, kinds, hosts_per_switch)
    by_label = {_label(node, data): names[node] for node, data in graph.nodes(data=True)}
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in _KINDS}
    for node, data in graph.nodes(data=True):
        part: dict[str, Any] = {"name": names[node]}
        label = _label(node, data)
        if label != names[node]:
            part["label"] = label[:_LONGEST_LABEL]
        part |= {
            key: _text(data[key]) for key in _KINDS[kinds[node]] if data.get(key) not in (None, "")
        }
        if kinds[node] == "host" and data.get("of") not in (None, ""):
            part["of"] = by_label.get(str(data["of"]), str(data["of"]))
        found[kinds[node]].append(part)
    ports = {
        node: {other: place for place, other in enumerate(graph.adj[node], start=kind == "switch")}
        for node, kind in kinds.items()
    }
    links = []
    for end, peer, data in graph.edges(data=True):
        words = _words(f"{names[end]} - {names[peer]}", data)
        own = {}
        for node in (end, peer):
            # A host's own queue is no part of a network.
            mine = {k: v for k, v in words.items() if k != "queue" or kinds[node] != "host"}
            if mine:
                own[names[node]] = mine
        ends = [f"{names[end]}-eth{ports[end][peer]}", f"{names[peer]}-eth{ports[peer][end]}"]
        links.append({"ends": ends, **({"own": own} if own else {})})
    added, more = _added_hosts(graph, kinds, names, hosts_per_switch)
    return {
        "hosts": [*found["host"], *added],
        "switches": found["switch"],
        "routers": found["router"],
        "links": [*links, *more],
        "notes": _notes(graph),
    }


def _added_hosts(
    graph: Any, kinds: Mapping[Any, str], names: Mapping[Any, str], hosts_per_switch: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The hosts h1, h2, ... at the switches in their order, and their links."""
    hosts, links = [], []
    taken, number = set(names.values()), 0
    switches = [node for node, kind in kinds.items() if kind == "switch"]
    if len(switches) * hosts_per_switch > MOST_NODES:
        raise NetworkError(
            "", f"{len(switches) * hosts_per_switch} hosts; allowed are {MOST_NODES} nodes"
        )
    for node in sorted(switches, key=lambda node: natural(names[node])):
        for place in range(hosts_per_switch):
            number += 1
            while f"h{number}" in taken:
                number += 1
            hosts.append({"name": f"h{number}", "label": f"a host of {names[node]}"})
            port = graph.degree(node) + 1 + place
            links.append({"ends": [f"h{number}-eth0", f"{names[node]}-eth{port}"]})
    return hosts, links


def _kind(node: object, data: Mapping[str, Any]) -> str:
    kind = str(data.get("kind", "switch")).strip().lower()
    if kind not in _KINDS:
        raise NetworkError(
            _short(node),
            f"kind {_short(data['kind'])}: allowed are {', '.join(_KINDS)}"
            f"{did_you_mean(kind, _KINDS)}",
        )
    return kind


def _label(node: object, data: Mapping[str, Any]) -> str:
    label = data.get("label")
    return " ".join(str(node if label in (None, "") else label).split())


def _names(graph: Any, kinds: Mapping[Any, str], hosts_per_switch: int) -> dict[Any, str]:
    """A name for every node, which its interfaces can have.

    Accents, spaces and signs are left out, a name that would begin with a digit gets an `n` before
    it, and it is cut so that the node's last port still fits. A name that is taken gets a number.
    Labels that can stay as they are have the first choice.
    """
    fitted = {}
    for node, data in graph.nodes(data=True):
        more = hosts_per_switch if kinds[node] == "switch" else 0
        last = 0 if kinds[node] == "host" else graph.degree(node) + more
        most_letters = LONGEST_INTERFACE - len(f"-eth{last}")
        label = _label(node, data)
        plain = unicodedata.normalize("NFKD", label).encode("ascii", "ignore").decode()
        plain = re.sub(r"[^A-Za-z0-9_]", "", plain)
        if not plain or plain[0].isdigit():
            plain = f"n{plain}"
        fitted[node] = (plain[:most_letters], most_letters, plain[:most_letters] == label)
    names: dict[Any, str] = {}
    taken = set(TAKEN)
    for node in sorted(fitted, key=lambda node: not fitted[node][2]):
        name, most_letters, _ = fitted[node]
        number = 1
        while name in taken:
            number += 1
            name = f"{fitted[node][0][: most_letters - len(str(number))]}{number}"
        taken.add(name)
        names[node] = name
    return {node: names[node] for node in fitted}


def _text(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def _words(subject: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """An edge's own settings as `links` has them."""
    words: dict[str, Any] = {}
    for key in _OF_LINKS:
        value = _text(data.get(key))
        if value in (None, ""):
            continue
        if key in ("loss", "mtu") and isinstance(value, str):
            value = _number(subject, key, value)
        elif key == "queue" and isinstance(value, str):
            value = _mapping(subject, value)
        words[key] = value
    return words


def _number(subject: str, key: str, text: str) -> int | float:
    try:
        return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else float(text)
    except ValueError:
        raise NetworkError(subject, f"{key} {_short(text)}: allowed is a number") from None


def _mapping(subject: str, text: str) -> Any:
    """A queue that stands in an attribute of text, as `{kind: tbf, limit: 16KB}`."""
    try:
        value = yaml.load(text, handed_in.YamlLoader)  # a SafeLoader
    except yaml.YAMLError:
        value = None
    if not isinstance(value, dict):
        raise NetworkError(
            subject,
            f"queue {_short(text)}: allowed is a queue's keys, as {{kind: tbf, limit: 16KB}}",
        )
    return value


def _notes(graph: Any) -> list[str]:
    """The attributes that nothing reads, in two sentences at most."""
    notes = []
    for what, known, attributes in (
        ("nodes", _OF_NODES, (data for _, data in graph.nodes(data=True))),
        ("edges", _OF_LINKS, (data for _, _, data in graph.edges(data=True))),
    ):
        unknown = _unknown(attributes, known)
        if unknown:
            near = "".join(did_you_mean(name, known) for name in unknown)
            some = some_of(map(_short, unknown), 8)
            notes.append(f"the attributes {some} of {what}; read are {', '.join(known)}{near}")
    return notes


def _unknown(attributes: Iterable[Mapping[str, Any]], known: tuple[str, ...]) -> list[str]:
    names = {str(name): None for data in attributes for name in data if name not in known}
    return [name for name in names if name not in ("id", "key", "name")]


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    short = text if len(text) <= 40 else f"{text[:37]}..."
    return short if short.isprintable() else ascii(short)
