"""Routers and their subnets, and ways that a configuration chooses."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from controllers import entries
from outcast import experiment
from outcast.emulation.kernel import rtnetlink
from outcast.emulation.network import forwarding
from outcast.errors import ConfigError, FeatureMissingError, ReadBackError
from outcast.networks import resolve
from outcast.plan import addresses
from outcast.plan.make import make_plan
from outcast.plan.model import Plan

EXAMPLE = Path(__file__).parents[3] / "configs" / "examples" / "routed.yaml"
MANY = [f"r{number}" for number in range(1, 257)]
CONFIG = """
name: own
topology: {kind: graph, path: net.graphml}
links: {rate: 100mbit}
queue: {kind: pfifo, limit: 20 packets}
flows: [{from: h1, to: h2}]
duration: 100ms
"""

AROUND = "h1 s1, h2 s5, s1 s2, s2 s3, s3 s4, s4 s5, s1 r1, r1 r2, r2 s5"


def plan_of(*settings: str) -> Plan:
    return make_plan(resolve.experiment_of(experiment.read(EXAMPLE, settings)))


def graph_plan(folder: Path, nodes: dict[str, dict[str, Any]], edges: str, *settings: str) -> Plan:
    """The plan of a graph; `edges` is as `h1 s1, s1 r1`."""
    pairs = [pair.split() for pair in edges.split(",")]
    graph = nx.Graph()
    graph.add_nodes_from(nodes.items())
    graph.add_edges_from(pairs)
    nx.write_graphml(graph, folder / "net.graphml")
    (folder / "own.yaml").write_text(CONFIG)
    return make_plan(resolve.experiment_of(experiment.read(folder / "own.yaml", settings)))


def kinds(names: str) -> dict[str, dict[str, Any]]:
    of = {"h": "host", "s": "switch", "r": "router"}
    return {name: {"kind": of[name[0]]} for name in names.split()}


def chained(folder: Path, count: int) -> Plan:
    routers = MANY[:count]
    way = ["h1", "s1", *routers, "s2", "h2"]
    edges = ",".join(f"{one} {two}" for one, two in pairwise(way))
    return graph_plan(folder, kinds(" ".join(way)), edges)


def test_a_way_is_no_longer_than_a_packet_lives(tmp_path):
    assert len(chained(tmp_path, 63).flows[0].path) == 67
    with pytest.raises(ConfigError, match=r"64 routers on the way from h1 to h2; allowed are 63,"):
        chained(tmp_path, 64)


def test_subnets_have_addresses_and_routes():
    plan = plan_of()
    assert plan.routers == ["r1", "r2", "r3"]
    assert [plan.ip(host) for host in plan.hosts] == [
        *("10.1.0.1", "10.1.0.2", "10.2.0.1", "10.2.0.2")
    ]
    assert plan.subnets.ip("r1", "s1") == "10.1.255.1"
    assert plan.subnets.mac("r1", "s1") == "02:00:0a:01:ff:01"
    assert list(plan.subnets.routes("h1")) == [addresses.Route("10.2.0.0", 16, "10.1.255.1")]
    # What is for h1 comes back over r3, and what is for h2 does not.
    back = [
        addresses.Route("10.1.0.0", 16, "10.5.255.2"),
        addresses.Route("10.1.0.2", 32, "10.3.255.1"),
    ]
    assert list(plan.subnets.routes("r2")) == back
    assert addresses.ipv6_route(back[1]) == addresses.Route("fd00::a01:2", 128, "fd00::a03:ff01")


def test_the_way_back_is_another_one():
    around, straight = plan_of().flows
    assert around.path == ("h1", "s1", "r1", "r2", "s2", "h3")
    assert around.return_path == ("h3", "s2", "r2", "r3", "r1", "s1", "h1")
    assert straight.return_path == straight.path[::-1]


def test_routers_ports_are_captured_and_have_queues():
    plan = plan_of("capture.ports=all")
    assert plan.bottleneck.egress == "r1-eth1"
    assert ("r3-eth0", "in") in plan.capture_ports
    assert "r2-eth2" in plan.switch_ports()


def test_a_switch_table_has_no_router():
    plan = plan_of()
    assert set(entries.planned(plan.graph, plan.routes)) == {"s1", "s2"}


@pytest.mark.parametrize(
    ("nodes", "edges", "reason"),
    [
        ("h1 h2 s1 s2 r1", "h1 s1, h2 s2, s1 s2, s1 r1, s2 r1", "r1: has 2 ports in one subnet"),
        ("h1 h2 s1 r1", "h1 s1, h2 s1, s1 r1", "r1: a router with one link"),
        (
            f"h1 h2 s1 {' '.join(MANY)}",
            ", ".join(" ".join(pair) for pair in pairwise(["h1", "s1", *MANY, "h2"])),
            "allowed are 254 subnets, and as many",
        ),
    ],
)
def test_routers_are_between_subnets(nodes, edges, reason, tmp_path):
    with pytest.raises(ConfigError, match=reason):
        graph_plan(tmp_path, kinds(nodes), edges)


@pytest.mark.parametrize(
    ("one", "two", "reason"),
    [
        ("10.4.0.9", "10.4.1.1", "h2: ip 10.4.1.1: allowed is a network of /16"),
        ("10.4.255.9", "10.5.0.1", "h1: ip 10.4.255.9: x.y.255.z is a router's address"),
        ("10.4", "10.5.0.1", "h1: ip '10.4': allowed is an IPv4 address"),
    ],
)
def test_addresses_follow_subnets(one, two, reason, tmp_path):
    nodes = kinds("h1 h2 s1 r1")
    nodes["h1"]["ip"], nodes["h2"]["ip"] = one, two
    with pytest.raises(ConfigError, match=reason):
        graph_plan(tmp_path, nodes, "h1 s1, s1 r1, r1 h2")


def test_given_addresses_give_the_others_their_subnet(tmp_path):
    nodes = kinds("h1 h2 h3 s1 r1")
    nodes["h3"]["ip"] = "20.7.0.1"
    plan = graph_plan(tmp_path, nodes, "h1 s1, h3 s1, s1 r1, r1 h2")
    assert [plan.ip(host) for host in ("h1", "h2", "h3")] == ["20.7.0.2", "20.1.0.1", "20.7.0.1"]
    assert plan.subnets.network("20.7.0.2") == ("20.7.0.0", 16)
    # A host may be linked to a router.
    assert plan.flows[0].path == ("h1", "s1", "r1", "h2")
    assert list(plan.subnets.routes("h2")) == [addresses.Route("20.7.0.0", 16, "20.1.255.1")]


def test_what_stays_in_a_subnet_goes_by_no_router(tmp_path):
    """By two routers the way is shorter, but they would not forward between one subnet's hosts."""
    plan = graph_plan(tmp_path, kinds("h1 h2 s1 s2 s3 s4 s5 r1 r2"), AROUND)
    assert plan.flows[0].path == ("h1", "s1", "s2", "s3", "s4", "s5", "h2")


def test_a_way_does_not_leave_its_receivers_subnet(tmp_path):
    with pytest.raises(ConfigError, match="s1 and h2 are in one subnet; allowed is no router"):
        graph_plan(
            *(tmp_path, kinds("h1 h2 s1 s2 s3 s4 s5 r1 r2"), AROUND),
            "routing={kind: shortest, ways: [[h1, s1, r1, r2, s5, h2]]}",
        )


def test_bridges_know_one_port_for_a_router(tmp_path):
    """s1 sends to h2 and h3, both behind r1, by two ports."""
    nodes = kinds("h1 h2 h3 s1 s2 s3 s4 r1")
    nodes["h3"]["ip"] = "10.3.0.2"
    edges = "h1 s1, s1 s2, s1 s3, s2 s4, s3 s4, s4 r1, r1 h2, r1 h3"
    plan = graph_plan(tmp_path, nodes, edges)
    tables = entries.planned(plan.graph, plan.routes)
    with pytest.raises(FeatureMissingError, match="s1 sends to one router by"):
        forwarding.install(plan, tables, None)


def test_mininet_files_name_routers_by_kind(tmp_path):
    text = EXAMPLE.with_suffix(".py").read_text()
    (tmp_path / "routed.py").write_text(text.replace('kind="router"', 'kind="rooter"'))
    (tmp_path / "own.yaml").write_text(EXAMPLE.read_text())
    with pytest.raises(ConfigError, match="r1: kind='rooter': allowed are host and router"):
        resolve.experiment_of(experiment.read(tmp_path / "own.yaml"))


def test_a_gateway_that_the_kernel_does_not_show_is_told():
    from outcast.emulation.network import hosts

    class Forgetful:
        def gateways(self, _family: object) -> dict[tuple[str, int, int], str]:
            return {("10.2.0.0", 16, rtnetlink.TABLE_MAIN): "10.9.255.1"}

    route = addresses.Route("10.2.0.0", 16, "10.1.255.1")
    with pytest.raises(ReadBackError, match=r"r1: gateway to 10\.2\.0\.0/16"):
        hosts.check_gateways(Forgetful(), "r1", [route])
