"""The graph file: what is written is read back, and each error is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controllers import graph as graph_file

GOOD: dict[str, Any] = {
    "nodes": [
        {"id": "s1", "kind": "switch", "dpid": 1, "layer": "edge"},
        {"id": "s2", "kind": "switch", "dpid": 2, "layer": "edge"},
        {"id": "h1", "kind": "host", "ip": "10.0.0.1", "mac": "02:00:00:00:00:01"},
        {"id": "h2", "kind": "host", "ip": "10.0.0.2", "mac": "02:00:00:00:00:02"},
    ],
    "edges": [
        {"source": "h1", "target": "s1", "ports": {"h1": 0, "s1": 1}},
        {"source": "h2", "target": "s2", "ports": {"h2": 0, "s2": 1}},
        {"source": "s1", "target": "s2", "ports": {"s1": 2, "s2": 2}},
    ],
}


def changed(part: str, index: int, **values: object) -> str:
    data = json.loads(json.dumps(GOOD))
    data[part][index].update(values)
    return json.dumps(data)


def test_what_is_written_is_read_back() -> None:
    graph = graph_file.loads(json.dumps(GOOD))
    assert graph.nodes["s2"] == {"kind": "switch", "dpid": 2, "layer": "edge"}
    assert graph.edges["s2", "s1"]["ports"] == {"s1": 2, "s2": 2}
    again = graph_file.loads(graph_file.dumps(graph))
    assert dict(again.nodes) == dict(graph.nodes)
    assert again.adj == graph.adj


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[]", "not a node-link graph"),
        ('{"nodes": []}', "not a node-link graph"),
        ('{"nodes": [3], "edges": []}', "not a node-link graph"),
        (changed("nodes", 0, kind="hub"), "node s1: kind 'hub'"),
        (changed("nodes", 0, dpid=0), "switch s1: dpid 0; 1 to"),
        (changed("nodes", 0, dpid="1"), "switch s1: dpid '1'; 1 to"),
        (changed("nodes", 1, dpid=1), "node s2: s1 has the same dpid 1"),
        (changed("nodes", 2, ip="10.0.0.256"), "host h1: ip '10.0.0.256'"),
        (changed("nodes", 3, ip="10.0.0.1"), "node h2: h1 has the same ip 10.0.0.1"),
        (changed("edges", 0, ports={"h1": 0}), "edge s1 - h1: `ports` must"),
        (changed("edges", 0, ports={"h1": 0, "s1": 0}), "port 0 at s1; 1 or more"),
        (changed("edges", 2, ports={"s1": 1, "s2": 2}), "port 1 of s1 is taken by s1 - h1"),
        (changed("edges", 2, source="h1", ports={"h1": 1, "s2": 2}), "host h1: 2 links"),
        (changed("edges", 2, source="s3", ports={"s3": 1, "s2": 2}), "node s3: kind None"),
    ],
)
def test_a_wrong_graph_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(graph_file.GraphError, match=message):
        graph_file.loads(text)


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    with pytest.raises(graph_file.GraphError, match=f"{path}: No such file"):
        graph_file.load(path)
    path.write_text(changed("nodes", 0, dpid=0))
    with pytest.raises(graph_file.GraphError, match=f"{path}: switch s1: dpid 0"):
        graph_file.load(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(graph_file.GraphError, match=f"{path}: .*codec"):
        graph_file.load(path)
