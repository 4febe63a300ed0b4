"""Every topology has its size, and a right path for every pair of hosts."""

import inspect
import runpy
from functools import cache
from importlib import import_module
from ipaddress import IPv4Address
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from mininet.topo import Topo
from mininet.util import customClass

from controllers import routes
from controllers.graph import LAYERS, Graph, check
from outcast import experiment
from outcast.emulation.network import transport
from outcast.emulation.traffic import capture
from outcast.errors import FeatureMissingError
from outcast.experiment import Layers, OwnTopology, Topology
from outcast.plan.addresses import ipv4_of, ipv6_of
from outcast.plan.make import make_plan
from outcast.plan.model import Plan
from outcast.plan.topology import make_graph
from topologies.fattree import FatTreeTopo
from topologies.linear import LinearTopo
from topologies.star import StarTopo
from topologies.three_sender import ThreeSenderTopo
from topologies.vl2 import Vl2Topo

FOLDER = Path(__file__).parents[3] / "topologies"
HEIGHT = {"edge": 1, "aggregation": 2, "core": 3}


def fattree_links(one: str, two: str) -> int:
    (pod, edge, _), (other_pod, other_edge, _) = one[1:].split("_"), two[1:].split("_")
    if pod != other_pod:
        return 6
    return 2 if edge == other_edge else 4


def vl2_links(racks_to_a_pair: int, one: str, two: str) -> int:
    rack, other = (int(name[1:].split("_")[0]) for name in (one, two))
    if rack == other:
        return 2
    return 4 if rack // racks_to_a_pair == other // racks_to_a_pair else 6


def linear_links(one: str, two: str) -> int:
    sides = [int(name[1:]) > 2 for name in (one, two)]
    return 2 if sides[0] == sides[1] else 3


def three_sender_links(one: str, two: str) -> int:
    place = {"r": 0, "s1": 0, "s2": 1, "s4": 2}
    low, high = sorted((place[one], place[two]))
    return 2 if low == high else 6 if high == 2 else 4


ROOT = Path(__file__).parents[3]
NETWORKS = {
    "linear": (LinearTopo(rivals=12), linear_links),
    "fattree-2": (FatTreeTopo(k=2), fattree_links),
    "fattree-4": (FatTreeTopo(k=4), fattree_links),
    "fattree-6": (FatTreeTopo(k=6), fattree_links),
    "fattree-8": (FatTreeTopo(k=8), fattree_links),
    "vl2-4-4": (Vl2Topo(), lambda one, two: vl2_links(2, one, two)),
    "vl2-6-4": (
        Vl2Topo(aggregation_ports=6, intermediate_ports=4, hosts_per_rack=5),
        lambda one, two: vl2_links(3, one, two),
    ),
    "vl2-4-8": (
        Vl2Topo(aggregation_ports=4, intermediate_ports=8, hosts_per_rack=3),
        lambda one, two: vl2_links(2, one, two),
    ),
    "three_sender": (ThreeSenderTopo(), three_sender_links),
    "star": (StarTopo(hosts=41), lambda _one, _two: 2),
}


@cache
def graph_of(name: str) -> Graph:
    graph = make_graph(NETWORKS[name][0])
    check(graph)
    return graph


def hosts(graph: Graph) -> list[str]:
    return [name for name, data in graph.nodes(data=True) if data["kind"] == "host"]


@pytest.mark.parametrize("kind", ["shortest", "spanning_tree"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_pair_has_a_path_without_a_loop_up_then_down(name, kind):
    graph, length = graph_of(name), NETWORKS[name][1]
    table = routes.compute(graph, kind)
    ends = hosts(graph)
    # In larger ones every third receiver, which covers all last bits of addresses and all pods.
    for destination in ends if len(ends) <= 54 else ends[::3]:
        for source in ends:
            if source == destination:
                continue
            nodes = routes.path(table, graph, source, destination)
            assert (nodes[0], nodes[-1]) == (source, destination)
            assert len(set(nodes)) == len(nodes)
            assert all(graph.has_edge(*hop) for hop in pairwise(nodes))
            if kind == "shortest":
                assert len(nodes) - 1 == length(source, destination)
            heights = [0, *(HEIGHT[graph.nodes[node]["layer"]] for node in nodes[1:-1]), 0]
            top = heights.index(max(heights))
            assert heights[: top + 1] == sorted(heights[: top + 1])
            assert heights[top:] == sorted(heights[top:], reverse=True)


NAMES = {
    get_args(kind.model_fields["kind"].annotation)[0]: kind
    for kind in get_args(get_args(Topology)[0])
    if not issubclass(kind, OwnTopology)
}
"""The topologies that a configuration names."""


@pytest.mark.parametrize("name", NAMES)
def test_a_kind_of_the_configuration_is_a_file_that_takes_its_keys(name):
    topos = import_module(f"topologies.{name}").topos
    tried = any(isinstance(network, topos[name]) for network, _ in NETWORKS.values())
    assert tried, f"{name}: has no line in NETWORKS, so its paths are not checked"
    page = (ROOT / "docs" / "topologies.md").read_text(encoding="utf-8")
    assert f"| `{{kind: {name}" in page, f"{name}: has no row in docs/topologies.md"
    keys = set(NAMES[name].model_fields) - {"kind"}
    arguments = inspect.signature(topos[name].build).parameters.values()
    assert keys == {each.name for each in arguments if each.kind is each.POSITIONAL_OR_KEYWORD} - {
        "self"
    }


def test_links_are_named_by_layers_that_there_are_the_lower_first():
    layers = ["host", *LAYERS]
    for field in Layers.model_fields.values():
        lower, upper = str(field.alias).split("-")
        assert layers.index(lower) <= layers.index(upper)


@pytest.mark.parametrize(("d_a", "d_i", "size"), [(4, 4, 4), (6, 4, 20), (2, 2, 1), (8, 6, 3)])
def test_vl2_has_the_switches_and_ports_of_its_paper(d_a, d_i, size):
    graph = make_graph(Vl2Topo(aggregation_ports=d_a, intermediate_ports=d_i, hosts_per_rack=size))
    layers = [data.get("layer") for _, data in graph.nodes(data=True)]
    assert layers.count("core") == d_a // 2
    assert layers.count("aggregation") == d_i
    assert layers.count("edge") == d_a * d_i // 4
    assert len(hosts(graph)) == size * d_a * d_i // 4
    ports = {"core": d_i, "aggregation": d_a, "edge": size + 2}
    for name, data in graph.nodes(data=True):
        if data["kind"] == "switch":
            numbers = sorted(graph.edges[name, other]["ports"][name] for other in graph[name])
            assert numbers == list(range(1, ports[data["layer"]] + 1))


@pytest.mark.parametrize(
    ("topology", "options"),
    [
        (FatTreeTopo, {"k": 3}),
        (FatTreeTopo, {"k": 0}),
        (LinearTopo, {"rivals": 0}),
        (StarTopo, {"hosts": 1}),
        (StarTopo, {"hosts": 251}),
        (Vl2Topo, {"aggregation_ports": 3}),
        (Vl2Topo, {"intermediate_ports": 0}),
        (Vl2Topo, {"hosts_per_rack": 0}),
    ],
)
def test_impossible_topologies_are_refused(topology, options):
    with pytest.raises(ValueError, match="allowed"):
        topology(**options)


ALONE = {
    "linear": ("rivals=3", 5),
    "fattree": ("k=4", 16),
    "vl2": ("aggregation_ports=4,intermediate_ports=6,hosts_per_rack=2", 12),
    "three_sender": ("", 4),
    "star": ("hosts=7", 7),
}
"""Arguments of each file, and how many hosts it then has."""


@pytest.mark.parametrize("name", NAMES)
def test_each_file_works_alone_under_mininet(name):
    """As `mn --custom FILE --topo ARGUMENT` takes it."""
    options, count = ALONE[name]
    topos = runpy.run_path(str(FOLDER / f"{name}.py"))["topos"]
    made: Topo = customClass(topos, f"{name},{options}".rstrip(","))()
    assert len(made.hosts()) == count
    roles = [made.nodeInfo(host)["role"] for host in made.hosts()]
    assert roles.count("receiver") == 1
    ports = [
        f"{node}-eth{info[port]}"
        for _, _, info in made.links(withInfo=True)
        for node, port in ((info["node1"], "port1"), (info["node2"], "port2"))
    ]
    assert len(set(ports)) == len(ports)
    assert max(map(len, ports)) <= 15


# --- IPv6 addresses: they follow from IPv4 addresses, and the plan has them where it should


CONFIG = {
    "name": "addresses",
    "topology": {"kind": "linear", "rivals": 2},
    "links": {"rate": "100mbit", "delay": "5us"},
    "queue": {"kind": "pfifo", "limit": "20 packets"},
    "duration": "100ms",
    "flows": [{"name": "one", "from": ["h2"]}, {"name": "other", "from": ["h3"]}],
}


def planned(folder: Path, *settings: str, **keys: Any) -> Plan:
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({**CONFIG, **keys}))
    return make_plan(experiment.load(file, settings))


@given(st.integers(0, 2**32 - 1))
def test_an_address_of_either_family_tells_the_other(number):
    ipv4 = str(IPv4Address(number))
    assert ipv4_of(ipv6_of(ipv4)) == ipv4_of(f"::ffff:{ipv4}") == ipv4_of(ipv4) == ipv4


def test_other_addresses_stay():
    for address in ("fd01::1", "2001:db8::a00:1", "fd00:0:0:1::a00:1", "::1"):
        assert ipv4_of(address) == address


def test_flows_have_the_family_that_is_asked_for(tmp_path):
    def ends(*settings: str) -> list[tuple[str, str, int]]:
        flows = planned(tmp_path, *settings).flows
        return [(flow.src_ip, flow.dst_ip, flow.dport) for flow in flows]

    assert ends() == [("10.0.0.2", "10.0.0.1", 5001), ("10.0.0.3", "10.0.0.1", 5001)]
    both = ends("addressing=both", "flows.1.addressing=ipv6")
    # Each family has a receiver of its own.
    assert both == [("10.0.0.2", "10.0.0.1", 5001), ("fd00::a00:3", "fd00::a00:1", 5004)]
    assert {src for src, _, _ in ends("addressing=ipv6")} == {"fd00::a00:2", "fd00::a00:3"}


def test_hosts_of_programs_have_a_probe_for_each_family(tmp_path):
    program = {"name": "get", "host": "h2", "command": ["curl", "{h1.url}"]}
    for addressing, sources in (
        ("ipv4", {"10.0.0.1", "10.0.0.2"}),
        ("ipv6", {"fd00::a00:1", "fd00::a00:2"}),
        ("both", {"10.0.0.1", "10.0.0.2", "fd00::a00:1", "fd00::a00:2"}),
    ):
        plan = planned(tmp_path, f"addressing={addressing}", flows=[], programs=[program])
        assert {packet.src for packet in plan.path_probes()} == sources
    assert plan.host_of["fd00::a00:2"] == plan.host_of["10.0.0.2"] == "h2"


def test_a_kernel_without_ipv6_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(transport, "_SYSCTL", tmp_path)
    with pytest.raises(FeatureMissingError, match="this kernel has no IPv6") as raised:
        transport.require_ipv6()
    assert raised.value.exit_status == 3
    (tmp_path / "ipv6/conf/all").mkdir(parents=True)
    (tmp_path / "ipv6/conf/all/disable_ipv6").write_text("1\n")
    transport.require_ipv6()


def test_a_run_captures_the_families_that_hosts_have():
    assert capture.wanted(["ipv4"]) == "ip"
    assert capture.wanted(["ipv4", "ipv6"]) == "ip or (ip6 and not dst host ff02::16)"
