"""Equal-length routing: up to a core switch and down, between all pairs (section 5.4)."""

from itertools import pairwise, permutations
from random import Random

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers import routes
from controllers.graph import Graph, check
from controllers.hashing import FiveTuple
from tests.unit.plan.test_routes import add_host, add_switch, fat_tree, hosts

HEIGHTS = {"edge": 1, "aggregation": 2, "core": 3}
UP_DOWN = [0, 1, 2, 3, 2, 1, 0]
KINDS = ("equal_length", "equal_length_random", "equal_length_packet")


def packet(graph: Graph, src: str, dst: str, sport: int = 20001) -> FiveTuple:
    return FiveTuple(graph.nodes[src]["ip"], sport, graph.nodes[dst]["ip"], 5001)


def heights(graph: Graph, nodes: list[str]) -> list[int]:
    return [HEIGHTS.get(graph.nodes[node].get("layer", ""), 0) for node in nodes]


def require_up_down(graph: Graph, table: routes.Routes, src: str, dst: str, sport: int) -> None:
    nodes = routes.path(table, graph, src, dst, packet(graph, src, dst, sport))
    assert (nodes[0], nodes[-1]) == (src, dst)
    assert heights(graph, nodes) == UP_DOWN
    assert all(graph.has_edge(*hop) for hop in pairwise(nodes))
    directions = list(pairwise(nodes))
    assert len(set(directions)) == len(directions)


@st.composite
def clos(draw: st.DrawFn) -> Graph:
    """Three layers, as VL2 has them: every core switch at every aggregation switch."""
    cores = draw(st.integers(1, 4))
    aggregations = draw(st.integers(1, 5))
    graph: Graph = nx.Graph()
    free: dict[str, int] = {}

    def link(one: str, two: str) -> None:
        ends = {end: free.setdefault(end, 1) for end in (one, two)}
        free[one] += 1
        free[two] += 1
        graph.add_edge(one, two, ports=ends)

    for number in range(cores):
        add_switch(graph, f"c{number}", 200 + number, "core")
    for number in range(aggregations):
        add_switch(graph, f"a{number}", 100 + number, "aggregation")
        for core in range(cores):
            link(f"a{number}", f"c{core}")
    host = 0
    for number in range(draw(st.integers(1, 4))):
        add_switch(graph, f"e{number}", 1 + number, "edge")
        above = draw(st.sets(st.integers(0, aggregations - 1), min_size=1))
        for aggregation in sorted(above):
            link(f"e{number}", f"a{aggregation}")
        for _ in range(draw(st.integers(1, 3))):
            host += 1
            add_host(graph, f"h{host}", f"10.0.0.{host}", f"e{number}", free[f"e{number}"])
            free[f"e{number}"] += 1
    check(graph)
    return graph


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [2, 4, 6, 8])
def test_every_pair_of_a_fat_tree_takes_six_links_up_and_down(k, kind):
    graph = fat_tree(k)
    table = routes.compute(graph, kind, hash_seed=k)
    for source, destination in permutations(hosts(graph), 2):
        require_up_down(graph, table, source, destination, 20001)


@settings(max_examples=60, deadline=None)
@given(clos(), st.integers(0, 2**32 - 1), st.integers(1, 65535))
def test_every_pair_of_any_clos_network_does(graph, seed, sport):
    for kind in KINDS:
        table = routes.compute(graph, kind, seed)
        for source, destination in permutations(hosts(graph), 2):
            require_up_down(graph, table, source, destination, sport)


def test_all_flows_to_a_host_come_down_from_one_core_switch():
    graph = fat_tree(4)
    table = routes.compute(graph, "equal_length")
    for destination in hosts(graph):
        ways = {
            tuple(routes.path(table, graph, source, destination)[3:])
            for source in hosts(graph)
            if source != destination
        }
        assert len(ways) == 1


def test_random_flows_spread_over_all_core_switches():
    """Each of four is within five standard deviations of a quarter of 4000 flows."""
    graph = fat_tree(4)
    table = routes.compute(graph, "equal_length_random", hash_seed=1)
    random = Random(1)
    senders = [host for host in hosts(graph) if host != "h0_0_0"]
    count = 4000
    uses = dict.fromkeys(("c0_0", "c0_1", "c1_0", "c1_1"), 0)
    for number in range(count):
        source = random.choice(senders)
        header = packet(graph, source, "h0_0_0", 20001 + number)
        uses[routes.path(table, graph, source, "h0_0_0", header)[3]] += 1
    deviation = (count * 3 / 16) ** 0.5
    assert all(abs(each - count / 4) < 5 * deviation for each in uses.values())


@pytest.mark.parametrize("layers", [("edge", "edge"), ("edge", "core"), ("spine", "edge")])
def test_a_network_without_the_three_layers_is_refused(layers):
    graph: Graph = nx.Graph()
    for number, layer in enumerate(layers, start=1):
        add_switch(graph, f"s{number}", number, layer)
    add_host(graph, "h1", "10.0.0.1", "s1", 1)
    graph.add_edge("s1", "s2", ports={"s1": 2, "s2": 2})
    with pytest.raises(routes.RouteError, match="needs edge, aggregation and core switches"):
        routes.compute(graph, "equal_length")


def test_a_core_switch_that_does_not_reach_a_host_is_named():
    graph = fat_tree(4).copy()
    graph.remove_edge("a3_0", "c0_1")
    with pytest.raises(routes.RouteError, match="core switch c0_1 has no way down to h3_0_0"):
        routes.compute(graph, "equal_length")
