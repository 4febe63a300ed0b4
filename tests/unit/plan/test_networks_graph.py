"""A network from a graph's file: names, settings, hostile files, and routes on any graph."""

from __future__ import annotations

import gzip
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outcast
from outcast import experiment
from outcast.errors import ConfigError
from outcast.experiment import FromGraph, Network
from outcast.networks import assemble, graph_file, resolve
from outcast.plan.make import make_plan
from outcast.plan.topology import make_graph, make_topo
from outcast.view.figures import topology as drawing

PARKING_LOT = Path(__file__).parents[3] / "configs" / "examples" / "parking-lot.yaml"

CONFIG = """
name: own
topology: {{kind: graph, path: {name}}}
links: {{rate: 100mbit, delay: 10us}}
queue: {{kind: pfifo, limit: 20 packets}}
flows: [{{from: [{one}], to: {two}}}]
duration: 100ms
"""


def config_of(folder: Path, name: str, content: bytes, one: str = "h1", two: str = "h2") -> Path:
    (folder / name).write_bytes(content)
    file = folder / "own.yaml"
    file.write_text(CONFIG.format(name=name, one=one, two=two))
    return file


def network_of(file: Path, **overrides: object) -> Network:
    topology = resolve.experiment_of(experiment.read(file, overrides)).topology
    assert isinstance(topology, FromGraph)
    assert topology.network is not None
    return topology.network


def graphml(graph: nx.Graph) -> bytes:
    return "\n".join(nx.generate_graphml(graph)).encode()


def small() -> nx.Graph:
    graph = nx.Graph()
    graph.add_node("s1", kind="switch")
    graph.add_node("h1", kind="host", ip="10.0.0.5")
    graph.add_node("h2", kind="host")
    graph.add_edge("h1", "s1", rate="10mbit", delay="2ms")
    graph.add_edge("h2", "s1")
    return graph


def test_a_graph_gives_its_network(tmp_path):
    network = network_of(config_of(tmp_path, "net.graphml", graphml(small())))
    assert [(host.name, host.ip) for host in network.hosts] == [
        ("h1", "10.0.0.5"),
        ("h2", "10.0.0.2"),
    ]
    own = {link.ends: link.own for link in network.links}
    both = {"rate": "10mbit", "delay": "2ms"}
    assert own == {("s1-eth1", "h1-eth0"): {"h1": both, "s1": both}, ("s1-eth2", "h2-eth0"): {}}


def test_a_queue_is_of_the_switchs_port_and_is_text():
    queue = {"kind": "fq_codel", "limit": "100 packets"}
    graph = changed(queue="{kind: fq_codel, limit: 100 packets}", loss="0.01", mtu="9000")
    own = graph_file.read(graphml(graph), "net.graphml", 0)["links"][0]["own"]
    both = {"rate": "10mbit", "delay": "2ms", "loss": 0.01, "mtu": 9000}
    assert own == {"h1": both, "s1": {**both, "queue": queue}}


def test_a_graph_of_switches_gets_the_hosts_that_are_added(tmp_path):
    ring = graphml(nx.Graph([("a", "b"), ("b", "c"), ("c", "a")]))
    file = config_of(tmp_path, "ring.xml", ring)
    with pytest.raises(ConfigError, match=r"topology.hosts_per_switch: 1"):
        network_of(file)
    network = network_of(file, **{"topology.hosts_per_switch": 2})
    assert [host.name for host in network.hosts] == [f"h{number}" for number in range(1, 7)]
    assert network.hosts[2].label == "a host of b"
    assert [switch.name for switch in network.switches] == ["a", "b", "c"]


ZOO = """graph [
  directed 0
  Creator "Topology Zoo Toolset"
  node [ id 0 label "New York" Latitude 40.7 Internal 1 ]
  node [ id 1 label "St. Louis" ]
  node [ id 2 label "Z\u00fcrich" ]
  node [ id 3 label "Frankfurt am Main" ]
  node [ id 4 label "New  York" ]
  node [ id 5 label "42" ]
  node [ id 6 label "???" ]
  node [ id 7 label "h1" ]
  edge [ source 0 target 1 LinkSpeed "10" LinkSpeedUnits "G" ]
  edge [ source 1 target 2 ]
  edge [ source 2 target 3 ]
  edge [ source 3 target 4 ]
  edge [ source 4 target 5 ]
  edge [ source 5 target 6 ]
  edge [ source 6 target 7 ]
]"""


def test_labels_become_names_of_interfaces(tmp_path):
    file = config_of(tmp_path, "zoo.graphml", graphml(nx.parse_gml(ZOO, label="id")))
    network = network_of(file, **{"topology.hosts_per_switch": 1})
    names = {switch.name: switch.label for switch in network.switches}
    assert names == {
        "NewYork": "New York",
        "StLouis": "St. Louis",
        "Zurich": "Zürich",
        "Frankfurta": "Frankfurt am Main",
        "NewYork2": "New York",
        "n42": "42",
        "n": "???",
        "h1": None,
    }
    # h1 is a switch's name here, so the added hosts begin with the next number.
    assert [host.name for host in network.hosts] == [f"h{number}" for number in range(2, 10)]
    assert network.notes == (
        "the attributes Latitude, Internal of nodes; read are kind, label, ip, mac, dpid, layer, "
        "role, of",
        "the attributes LinkSpeed, LinkSpeedUnits of edges; read are rate, delay, jitter, loss, "
        "mtu, queue",
    )
    assert network_of(file, **{"topology.hosts_per_switch": 1}) == network


def changed(**changes: object) -> nx.Graph:
    graph = small()
    graph.edges["h1", "s1"].update(changes)
    return graph


def with_node(name: str, **attributes: object) -> nx.Graph:
    graph = small()
    graph.add_node(name, **attributes)
    return graph


def with_edge(one: str, two: str) -> nx.Graph:
    graph = small()
    graph.add_edge(one, two)
    return graph


BOMB = b"""<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="undirected">
<node id="&b;"/></graph></graphml>"""
XXE = b"""<?xml version="1.0"?>
<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph><node id="&e;"/></graph></graphml>"""
DEEP = b"<a>" * 5000 + b"</a>" * 5000


def multigraph() -> bytes:
    graph = nx.MultiGraph(small())
    graph.add_edge("h1", "s1")
    return graphml(graph)


REFUSED = {
    "bomb": ("net.graphml", BOMB, "declares a document type"),
    "entity": ("net.graphml", XXE, "declares a document type"),
    "wide bomb": ("net.graphml", BOMB.decode().encode("utf-16"), "declares a document type"),
    "deep": ("net.graphml", DEEP, "nested more than 50 levels deep"),
    "cut off": ("net.graphml", graphml(small())[:200], "not XML"),
    "empty": ("net.graphml", b"", "not XML"),
    "packed": ("net.graphml", gzip.compress(graphml(small())), "not XML"),
    "undeclared": (
        "net.graphml",
        b'<graphml><graph><node id="a"/><edge source="a" target="z"/></graph></graphml>',
        "an edge leads to 'z', and no node has this id",
    ),
    "type": (
        "net.graphml",
        b'<graphml><key id="k" for="node" attr.type="text"/></graphml>',
        "attr.type text of a key: allowed are boolean",
    ),
    "no graph": ("net.graphml", b"<graphml/>", "cannot be read as GraphML"),
    "ending": ("net.gml", b"graph []", "nx.write_graphml(nx.read_gml("),
    "large": ("net.graphml", b" " * (graph_file.MOST_BYTES + 1), "larger than 8 MiB"),
    "directed": ("net.graphml", graphml(nx.DiGraph(small())), "is a directed graph"),
    "parallel": ("net.graphml", multigraph(), "two edges between the same nodes"),
    "to itself": ("net.graphml", graphml(with_edge("s1", "s1")), "s1 - s1: an edge from a node to"),
    "hosts only": ("net.graphml", graphml(with_edge("h1", "h3")), "a host with two links"),
    "two pieces": ("net.graphml", graphml(with_edge("s8", "s9")), "no path leads there from h1"),
    "many": ("net.graphml", graphml(nx.path_graph(1001)), "1001 nodes and 1000 edges"),
    "kind": ("net.graphml", graphml(small()).replace(b">host<", b">hots<"), "did you mean 'host'?"),
    "rate": ("net.graphml", graphml(changed(rate="fast")), "net.graphml: s1 - h1: rate"),
    "number": ("net.graphml", graphml(changed(rate=100)), "net.graphml: s1 - h1: rate"),
    "queue": ("net.graphml", graphml(changed(queue="16KB")), "as {kind: tbf, limit: 16KB}"),
    "loss": ("net.graphml", graphml(changed(loss="much")), "loss much: allowed is a number"),
    "dpid": ("net.graphml", graphml(with_node("s1", dpid="x")), "s1: dpid"),
}


@pytest.mark.parametrize(("name", "content", "refusal"), REFUSED.values(), ids=REFUSED)
def test_a_bad_file_is_one_line(tmp_path, name, content, refusal):
    with pytest.raises(ConfigError) as refused:
        outcast.load(config_of(tmp_path, name, content))
    text = str(refused.value)
    assert refusal in text
    assert name in text
    assert "\n" not in text
    assert len(text) < 600


@settings(max_examples=150)
@given(st.binary(max_size=300), st.data())
def test_any_bytes_are_a_network_or_one_line(noise, data):
    whole = graphml(small())
    cut = data.draw(st.integers(0, len(whole)))
    refusal = ""
    try:
        parts = graph_file.read(whole[:cut] + noise + whole[cut + len(noise) :], "x.graphml", 1)
        assemble.network({"path": "x", "hosts_per_switch": 1}, parts)
    except experiment.NetworkError as error:
        refusal = str(error)
    assert "\n" not in refusal


# Routes on any graph.


NO_CONTROLS = st.characters(exclude_categories=["C"])


@st.composite
def graphs(draw: st.DrawFn) -> nx.Graph:
    """A connected graph of switches, with cycles, and with hosts at some of them."""
    count = draw(st.integers(1, 9))
    graph = nx.Graph()
    names = draw(
        st.lists(
            st.text(NO_CONTROLS, min_size=1, max_size=12),
            min_size=count,
            max_size=count,
            unique=True,
        )
    )
    for number, name in enumerate(names):
        graph.add_node(number, label=name.strip() or str(number))
    for number in range(1, count):
        graph.add_edge(number, draw(st.integers(0, number - 1)))
    pairs = [(one, two) for one in range(count) for two in range(one)]
    if pairs:
        graph.add_edges_from(draw(st.lists(st.sampled_from(pairs), max_size=8)))
    for number in range(draw(st.integers(2, 6))):
        graph.add_edge(f"host{number}", draw(st.integers(0, count - 1)))
        graph.nodes[f"host{number}"]["kind"] = "host"
    return graph


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_any_graph_is_built_as_it_is_drawn(drawn):
    parts = graph_file.read(graphml(drawn), "drawn.graphml", 0)
    topology = FromGraph(kind="graph", path="drawn.graphml")
    network = assemble.network(topology.requested(), parts)
    loaded = experiment.load(PARKING_LOT)
    loaded = loaded.model_copy(update={"topology": topology.built(network, None)})
    assert nx.is_isomorphic(make_graph(make_topo(loaded)), drawn)


def test_a_graph_with_layers_has_equal_length(tmp_path):
    graph = nx.Graph()
    for name, layer in (("c1", "core"), ("a1", "aggregation"), ("e1", "edge"), ("e2", "edge")):
        graph.add_node(name, kind="switch", layer=layer)
    graph.add_edges_from([("c1", "a1"), ("a1", "e1"), ("a1", "e2"), ("e1", "h1"), ("e1", "h2")])
    for name in ("h1", "h2"):
        graph.nodes[name]["kind"] = "host"
    file = config_of(tmp_path, "net.graphml", graphml(graph))
    plan = make_plan(outcast.load(file, {"routing": {"kind": "equal_length"}}))
    assert plan.flows[0].path == ("h1", "e1", "a1", "c1", "a1", "e1", "h2")
    changes = {"links.layers": {"edge-aggregation": {"rate": "50mbit"}}}
    assert make_plan(outcast.load(file, changes)).links["e1", "a1"].rate_bps == 5 * 10**7
    assert drawing.is_layered(plan)
