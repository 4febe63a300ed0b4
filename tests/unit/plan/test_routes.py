"""Routes are loop-free and shortest, go up then down, and break ties as in the paper (3.1)."""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from ipaddress import IPv4Address
from itertools import pairwise, permutations, product
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args, get_origin

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers import routes
from controllers.graph import Graph, check
from controllers.hashing import FiveTuple
from outcast.emulation.network import forwarding
from outcast.errors import FeatureMissingError
from outcast.experiment import Experiment, load
from outcast.experiment.topology import KINDS, RoutingKind
from outcast.plan import flows, topology
from outcast.plan.make import make_plan
from outcast.plan.topology import make_graph, make_topo


def add_switch(graph: Graph, name: str, dpid: int, layer: str = "edge") -> None:
    graph.add_node(name, kind="switch", dpid=dpid, layer=layer)


def add_host(graph: Graph, name: str, ip: str, switch: str, port: int) -> None:
    graph.add_node(name, kind="host", ip=ip, mac="02:00:00:00:00:01")
    graph.add_edge(name, switch, ports={name: 0, switch: port})


@cache
def fat_tree(k: int, first_host: int = 2) -> Graph:
    """Datapath ids grow from left to right within each layer."""
    graph: Graph = nx.Graph()
    half = k // 2
    for pod in range(k):
        for i in range(half):
            add_switch(graph, f"e{pod}_{i}", 1000 + pod * half + i, "edge")
            add_switch(graph, f"a{pod}_{i}", 2000 + pod * half + i, "aggregation")
    for group in range(half):
        for i in range(half):
            add_switch(graph, f"c{group}_{i}", 3000 + group * half + i, "core")
    for pod in range(k):
        for i in range(half):
            for j in range(half):
                add_host(
                    graph, f"h{pod}_{i}_{j}", f"10.{pod}.{i}.{first_host + j}", f"e{pod}_{i}", j + 1
                )
                edge, aggregation, core = f"e{pod}_{i}", f"a{pod}_{j}", f"c{j}_{i}"
                graph.add_edge(edge, aggregation, ports={edge: half + 1 + j, aggregation: 1 + i})
                graph.add_edge(aggregation, core, ports={aggregation: half + 1 + i, core: 1 + pod})
    check(graph)
    return graph


def hosts(graph: Graph) -> list[str]:
    return [name for name, data in graph.nodes(data=True) if data["kind"] == "host"]


def following(graph: Graph, table: routes.Routes, switch: str, host: str) -> str:
    port = table.to[switch][host]
    (name,) = [n for n, data in graph.adj[switch].items() if data["ports"][switch] == port]
    return name


@st.composite
def networks(draw: st.DrawFn) -> Graph:
    """A random connected network of switches, with a host or two on some of them."""
    count = draw(st.integers(1, 8))
    dpids = draw(st.permutations(range(1, count + 1)))
    graph: Graph = nx.Graph()
    for index, dpid in enumerate(dpids):
        add_switch(graph, f"s{index}", dpid, draw(st.sampled_from([*routes.LAYERS, "spine"])))
    links = {(draw(st.integers(0, one - 1)), one) for one in range(1, count)}
    every = [(one, two) for one in range(count) for two in range(one + 1, count)]
    if every:
        links |= set(draw(st.lists(st.sampled_from(every))))
    free = Counter({f"s{index}": 1 for index in range(count)})

    def port(switch: str) -> int:
        free[switch] += 1
        return free[switch] - 1

    for one, two in sorted(links):
        ends = (f"s{one}", f"s{two}")
        graph.add_edge(*ends, ports={end: port(end) for end in ends})
    attached = draw(st.lists(st.integers(0, count - 1), min_size=2, max_size=8))
    last = draw(st.lists(st.integers(1, 254), unique=True, min_size=8, max_size=8))
    for index, switch in enumerate(attached):
        add_host(graph, f"h{index}", f"10.0.0.{last[index]}", f"s{switch}", port(f"s{switch}"))
    check(graph)
    return graph


@pytest.mark.parametrize(("k", "first_host"), [(4, 0), (4, 5), (6, 2), (8, 2)])
def test_ties_use_the_digits_of_the_address_in_the_base_of_the_choices(k, first_host):
    """For k = 4: "the right aggregate switch if the bit is 0, and the left if the bit is 1"."""
    graph = fat_tree(k, first_host)
    table = routes.compute(graph, "shortest")
    half = k // 2
    for host in hosts(graph)[:: 1 if k == 4 else 3]:
        address = int(IPv4Address(graph.nodes[host]["ip"]))
        own_pod, own_edge, _ = host[1:].split("_")
        for pod, number in product(range(k), range(half)):
            if (str(pod), str(number)) != (own_pod, own_edge):
                aggregation = following(graph, table, f"e{pod}_{number}", host)
                assert aggregation == f"a{pod}_{half - 1 - address % half}"
            if str(pod) != own_pod:
                core = following(graph, table, f"a{pod}_{number}", host)
                assert core == f"c{number}_{half - 1 - address // half % half}"


ANY_NETWORK = ("shortest", "spanning_tree", "hashed")
"""The kinds that need no layers."""


@given(networks(), st.sampled_from(ANY_NETWORK))
def test_every_path_of_any_network_arrives_without_a_loop(graph, kind):
    table = routes.compute(graph, kind)
    assert table.to.keys() == {n for n, data in graph.nodes(data=True) if data["kind"] == "switch"}
    used: Graph = nx.Graph()
    for source, destination in permutations(hosts(graph), 2):
        ends = (graph.nodes[source]["ip"], graph.nodes[destination]["ip"])
        packet = FiveTuple(ends[0], 20001, ends[1], 5001)
        nodes = routes.path(table, graph, source, destination, packet)
        assert (nodes[0], nodes[-1]) == (source, destination)
        assert len(set(nodes)) == len(nodes)
        assert all(graph.has_edge(*hop) for hop in pairwise(nodes))
        used.add_edges_from(pairwise(nodes))
        if kind != "spanning_tree":
            assert len(nodes) - 1 == nx.shortest_path_length(graph, source, destination)
    if kind == "spanning_tree":
        assert nx.is_forest(used)


@given(networks(), st.randoms(use_true_random=False))
def test_routes_do_not_depend_on_the_order_of_nodes_and_links(graph, random):
    shuffled: Graph = nx.Graph()
    for items, add in (
        (list(graph.nodes(data=True)), shuffled.add_nodes_from),
        (list(graph.edges(data=True)), shuffled.add_edges_from),
    ):
        random.shuffle(items)
        add(items)
    for kind in ANY_NETWORK:
        assert routes.compute(shuffled, kind) == routes.compute(graph, kind)


def test_the_spanning_tree_keeps_the_way_over_the_lowest_datapath_ids():
    graph: Graph = nx.Graph()
    for name, dpid in (("root", 1), ("low", 2), ("high", 3), ("far", 4)):
        add_switch(graph, name, dpid)
    for number, (one, two) in enumerate(
        [("root", "low"), ("root", "high"), ("low", "high"), ("low", "far"), ("high", "far")], 1
    ):
        graph.add_edge(one, two, ports={one: number, two: number})
    add_host(graph, "a", "10.0.0.1", "far", 9)
    add_host(graph, "b", "10.0.0.2", "high", 9)
    table = routes.compute(graph, "spanning_tree")
    assert routes.path(table, graph, "a", "b") == ["a", "far", "low", "root", "high", "b"]


def test_switches_that_are_not_connected_are_refused():
    graph: Graph = nx.Graph()
    for index in (1, 2):
        add_switch(graph, f"s{index}", index)
        add_host(graph, f"h{index}", f"10.0.0.{index}", f"s{index}", 1)
    for kind in ANY_NETWORK:
        with pytest.raises(routes.RouteError, match="no path from s2 to h1"):
            routes.compute(graph, kind)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"s1": {"h2": 2}, "s2": {"h2": 2}}, "loop h1 s1 s2 s1"),
        ({"s1": {"h2": 2}, "s2": {}}, "no route at s2"),
        ({"s1": {"h2": 7}}, "s1 has no port 7"),
        ({"s1": {"h2": 1}}, "loop h1 s1 h1"),
    ],
)
def test_a_path_that_does_not_arrive_is_told_apart(wrong, message):
    graph: Graph = nx.Graph()
    for index in (1, 2):
        add_switch(graph, f"s{index}", index)
        add_host(graph, f"h{index}", f"10.0.0.{index}", f"s{index}", 1)
    graph.add_edge("s1", "s2", ports={"s1": 2, "s2": 2})
    with pytest.raises(routes.RouteError, match=message):
        routes.path(routes.Routes("shortest", wrong), graph, "h1", "h2")


FAT_TREE = Path(__file__).parents[3] / "configs" / "fig3c.yaml"


def experiments() -> Iterator[Experiment]:
    """A fat-tree with each kind of routing, and with each value of its keys."""
    for kind in KINDS:
        (name,) = get_args(kind.model_fields["kind"].annotation)
        yield load(FAT_TREE, [f"routing={{kind: {name}}}"])
        for key, field in kind.model_fields.items():
            is_word = get_origin(field.annotation) is Literal and key != "kind"
            for word in get_args(field.annotation) if is_word else ():
                yield load(FAT_TREE, [f"routing={{kind: {name}, {key}: {word}}}"])


def named(value: object) -> str:
    return "-".join(map(str, value.routing.model_dump().values()))


@pytest.mark.parametrize("experiment", list(experiments()), ids=named)
def test_a_kind_says_what_its_switches_need(experiment):
    routing = experiment.routing
    table = topology.compute_routes(experiment, make_graph(make_topo(experiment)))
    assert table.kind == routing.routes_kind
    assert table.hash_seed == routing.hash_seed_of(experiment.seed)
    assert routing.by_address_alone == (not table.choices and not table.depends_on_input)
    if routing.by_address_alone:
        forwarding.require(routing)
    else:
        with pytest.raises(FeatureMissingError, match=f"{routing.kind}: .*--engine virtual"):
            forwarding.require(routing)


def test_every_kind_of_routes_is_asked_for_by_some_routing():
    assert {experiment.routing.routes_kind for experiment in experiments()} == set(routes.KINDS)


def test_a_kind_that_does_not_say_what_its_switches_need_is_refused_when_it_is_defined():
    parts: dict[str, Any] = {"__annotations__": {"kind": Literal["mine"]}}
    with pytest.raises(TypeError, match="routing kind Mine: no by_address_alone"):
        type("Mine", (RoutingKind,), parts)
    whole = {"__annotations__": {**parts["__annotations__"], "by_address_alone": ClassVar[bool]}}
    assert type("Mine", (RoutingKind,), {**whole, "by_address_alone": True})


def test_every_input_of_subflows_is_captured_where_their_ports_choose():
    """A sender's kernel draws the ports of its subflows, so each may come by either link."""
    flow = "flows=[{from: [h0_0_2], to: h1_0_2}, {from: [h1_0_2], to: h0_0_2}]"
    asked = [flow, "routing={kind: hashed}", "analysis.compare=null"]
    plain = make_plan(load(FAT_TREE, asked))
    assert flows.hashed_paths(plain.graph, plain.routes, plain.flows) == []
    assert len(plain.bottleneck.ingress) == 1
    several = make_plan(load(FAT_TREE, [*asked, "transport={mptcp: {subflows: 2}}"]))
    taken = flows.hashed_paths(several.graph, several.routes, several.flows)
    assert len({*map(tuple, taken)}) == len(taken) == 8
    assert {(path[0], path[-1]) for path in taken} == {("h0_0_2", "h1_0_2"), ("h1_0_2", "h0_0_2")}
    for port in (several.bottleneck, *several.others):
        switch = port.egress.partition("-")[0]
        assert {*port.ingress} == {f"{switch}-eth3", f"{switch}-eth4"}
