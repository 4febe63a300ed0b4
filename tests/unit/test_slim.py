"""Packages of which a program takes only a part."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from controllers import slim
slim.slim(*slim.GRAPHS)
slim.slim(*slim.ROUTING_SOCKETS)
import networkx, pyroute2
graph = networkx.Graph()
graph.add_node(1, kind="host")
graph.add_edge(1, 2, ports={1: 0, 2: 1})
graph.add_edge(2, 3)
assert graph.degree(2) == 2 and list(graph.adj[1]) == [2] and graph.nodes[1]["kind"] == "host"
assert "networkx.algorithms" not in sys.modules
assert "pyroute2.ndb.main" not in sys.modules
assert pyroute2.IPRoute.__module__.startswith("pyroute2.iproute")
# What else is asked for is there, too.
assert networkx.shortest_path(graph, 1, 3) == [1, 2, 3]
assert pyroute2.NDB
try:
    networkx.no_such_thing
except AttributeError as error:
    print(error)
"""


def run(script: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": f"{folder}:{Path(__file__).parents[2]}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_slim_package_has_its_parts_and_becomes_whole_when_asked(tmp_path: Path) -> None:
    assert "no attribute 'no_such_thing'" in run(SCRIPT, tmp_path)


def test_a_version_without_the_parts_is_imported_as_usual(tmp_path: Path) -> None:
    package = tmp_path / "networkx"
    package.mkdir()
    (package / "__init__.py").write_text("from networkx.exception import *\nGraph = 'whole'\n")
    (package / "exception.py").write_text("NetworkXError = ValueError\n")
    script = "from controllers import slim; slim.slim(*slim.GRAPHS); import networkx as n; "
    assert run(f"{script}print(n.Graph, n.NetworkXError)", tmp_path) == (
        "whole <class 'ValueError'>\n"
    )
