"""The controller: its graph file, command line, flow entries and messages, without a switch."""

import json
import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import networkx as nx
import pytest

from controllers import graph as graph_file
from controllers import openflow, routes, static_routes
from controllers.entries import (
    IN_PORT,
    TABLE_MISS,
    Entry,
    Group,
    parse_dump,
    parse_groups,
    planned,
    planned_groups,
)
from controllers.graph import Graph
from controllers.routes import Routes, compute
from outcast.plan.addresses import add_ipv6
from tests.deadlines import HANG_S
from tests.unit.plan.test_routes import fat_tree


def two_switches(**h1: str) -> Graph:
    graph: Graph = nx.Graph()
    graph.add_nodes_from(("s1", "s2"), kind="switch")
    graph.add_node("h1", kind="host", ip="10.0.0.1", **h1)
    graph.add_node("h2", kind="host", ip="10.0.0.2")
    return graph


def test_each_destination_has_an_entry_for_ip_and_one_for_arp():
    graph = two_switches()
    assert planned(graph, Routes("shortest", {"s1": {"h1": 3, "h2": 1}, "s2": {"h1": 2}})) == {
        "s1": {
            TABLE_MISS,
            Entry(100, "ip", "10.0.0.1", 3),
            Entry(100, "arp", "10.0.0.1", 3),
            Entry(100, "ip", "10.0.0.2", 1),
            Entry(100, "arp", "10.0.0.2", 1),
        },
        "s2": {TABLE_MISS, Entry(100, "ip", "10.0.0.1", 2), Entry(100, "arp", "10.0.0.1", 2)},
    }


def test_a_destination_with_an_ipv6_address_has_an_entry_for_it():
    entry = Entry(100, "ipv6", "fd00::a00:1", 3)
    graph = two_switches(ip6="fd00::a00:1")
    assert entry in planned(graph, Routes("shortest", {"s1": {"h1": 3}}))["s1"]
    # Open vSwitch 3.1: `ovs-appctl bridge/dump-flows`.
    line = "duration=1s, n_packets=2, priority=100,ipv6,ipv6_dst=fd00::a00:1,actions=output:3\n"
    assert parse_dump(line) == {entry}


def test_a_dump_is_read_with_and_without_statistics():
    # Open vSwitch 3.1: `ovs-ofctl -O OpenFlow13 dump-flows`, with and without --no-stats.
    dump = """\
OFPST_FLOW reply (OF1.3) (xid=0x2):
 priority=100,arp,arp_tpa=10.0.0.1 actions=output:3
 cookie=0x0, priority=100,ip,nw_dst=10.0.0.1 actions=output:3
 priority=0 actions=drop
"""
    entries = {
        Entry(100, "arp", "10.0.0.1", 3),
        Entry(100, "ip", "10.0.0.1", 3),
        TABLE_MISS,
    }
    assert parse_dump(dump) == entries
    # Open vSwitch 3.1: `ovs-appctl bridge/dump-flows`.
    dump = """\
duration=1s, n_packets=0, n_bytes=0, priority=100,arp,arp_tpa=10.0.0.1,actions=output:3
duration=1s, n_packets=7, n_bytes=490, priority=100,ip,nw_dst=10.0.0.1,actions=output:3
duration=1s, n_packets=0, n_bytes=0, priority=0,actions=drop
table_id=254, duration=1s, n_packets=0, n_bytes=0, priority=2,recirc_id=0,actions=drop
"""
    assert parse_dump(dump) == entries


@pytest.mark.parametrize(
    "line",
    [
        "priority=100,ip,nw_dst=10.0.0.1 actions=output:3,output:4",
        "priority=100,ip,nw_dst=10.0.0.1 actions=CONTROLLER:65535",
        "priority=100,ip,nw_src=10.0.0.1 actions=output:3",
        "priority=100,ip,in_port=1,nw_dst=10.0.0.1 actions=LOCAL",
        "priority=100,tcp,nw_dst=10.0.0.1 actions=output:3",
        "priority=100,ip actions=output:3",
        "table=1, priority=0 actions=drop",
        "table_id=1, duration=1s, n_packets=0, n_bytes=0, priority=0,actions=drop",
    ],
)
def test_an_entry_of_another_form_is_refused(line):
    with pytest.raises(ValueError, match="unexpected flow entry"):
        parse_dump(line)


def test_the_priority_that_is_left_out_is_the_default_one():
    assert parse_dump("actions=drop") == {Entry(32768)}


def test_ports_matter_where_the_routes_say_so():
    graph = fat_tree(4)
    table = planned(graph, compute(graph, "equal_length"))
    # Up by the last bit of 10.0.0.2, even to a host of its own; down only from above.
    edge = [entry for entry in table["e0_0"] if entry.destination == "10.0.0.2"]
    assert set(edge) == {Entry(100, protocol, "10.0.0.2", 4) for protocol in ("ip", "arp")} | {
        Entry(200, protocol, "10.0.0.2", 1, up) for protocol in ("ip", "arp") for up in (3, 4)
    }
    assert {Entry(150, in_port=3), Entry(150, in_port=4)} <= table["e0_0"]
    # At the top, back by the port by which it came in.
    assert Entry(100, "ip", "10.0.0.2", 1) in table["c0_0"]
    assert Entry(200, "ip", "10.0.0.2", IN_PORT, 1) in table["c0_0"]


def test_hosts_that_are_reached_by_the_same_ports_share_a_group():
    graph = fat_tree(4)
    routes = compute(graph, "hashed", hash_seed=3)
    dpid = graph.nodes["e0_0"]["dpid"]
    groups = planned_groups(graph, routes)
    assert groups["e0_0"] == {Group(1, (3, 4), 3 << 32 | dpid)}
    assert groups["c0_0"] == frozenset()
    table = planned(graph, routes)["e0_0"]
    assert Entry(100, "ip", "10.3.0.2", group=1) in table
    assert Entry(100, "arp", "10.3.0.2", 4) in table
    assert Entry(100, "ip", "10.0.0.2", 1) in table


def test_a_port_that_is_drawn_for_each_packet_has_a_group_that_says_of_how_many():
    graph = fat_tree(6)
    groups = planned_groups(graph, compute(graph, "equal_length_packet"))
    # The basis of patch 0025, for three ports.
    assert groups["e0_0"] == groups["a0_0"] == {Group(1, (4, 5, 6), 0x70610003, draws=True)}
    assert groups["c0_0"] == frozenset()
    # Open vSwitch 3.1: `ovs-ofctl -O OpenFlow15 dump-groups`.
    shown = """\
 group_id=1,type=select,selection_method=dp_hash,selection_method_param=1885405187,\
bucket=bucket_id:0,actions=output:4,bucket=bucket_id:1,actions=output:5,\
bucket=bucket_id:2,actions=output:6
"""
    assert parse_groups(shown) == groups["e0_0"]
    with pytest.raises(ValueError, match="unexpected group"):
        parse_groups(shown.replace("param=1885405187", "param=1885405187,fields(ip_src)"))


def test_a_dump_with_ports_and_groups_is_read():
    # Open vSwitch 3.1: `ovs-ofctl -O OpenFlow15 dump-flows --no-stats --no-names`.
    dump = """\
 priority=200,ip,in_port=2,nw_dst=10.0.0.1 actions=IN_PORT
 priority=150,in_port=2 actions=drop
 priority=100,ip,nw_dst=10.0.0.1 actions=group:7
"""
    assert parse_dump(dump) == {
        Entry(200, "ip", "10.0.0.1", IN_PORT, 2),
        Entry(150, in_port=2),
        Entry(100, "ip", "10.0.0.1", group=7),
    }


GROUPS = """\
OFPST_GROUP_DESC reply (OF1.5) (xid=0x2):
 group_id=7,type=select,selection_method=hash,selection_method_param=12884901893,\
fields(ip_src,ip_dst,nw_proto,tcp_src,tcp_dst,udp_src,udp_dst),\
bucket=bucket_id:0,actions=output:2,bucket=bucket_id:1,actions=output:5
"""


def test_a_dump_of_groups_is_read():
    # Open vSwitch 3.1: `ovs-ofctl -O OpenFlow15 dump-groups`.
    assert parse_groups(GROUPS) == {Group(7, (2, 5), 12884901893)}
    with_ipv6 = GROUPS.replace("ip_dst", "ip_dst,ipv6_src,ipv6_dst")
    assert parse_groups(with_ipv6) == {Group(7, (2, 5), 12884901893, ipv6=True)}
    with pytest.raises(ValueError, match="unexpected group"):
        parse_groups(GROUPS.replace("ip_dst", "ip_dst,ipv6_src"))


@pytest.mark.parametrize(
    ("shown", "instead"),
    [
        ("selection_method=hash", "selection_method=dp_hash"),
        ("tcp_dst,", ""),
        ("type=select", "type=all"),
        ("bucket_id:1", "bucket_id:2"),
        ("bucket_id:1", "bucket_id:1,weight:3"),
    ],
)
def test_a_group_that_chooses_otherwise_is_refused(shown, instead):
    with pytest.raises(ValueError, match="unexpected group"):
        parse_groups(GROUPS.replace(shown, instead))


class Datapath:
    """What a message needs of a connection: the version, its parser and the next xid."""

    def __init__(self, version: Any) -> None:
        self.ofproto = version
        self.ofproto_parser = import_module(f"{version.__name__}_parser")

    def set_xid(self, message: Any) -> None:
        message.set_xid(1)


@pytest.mark.parametrize("version", openflow.versions, ids=lambda version: version.__name__[-4:])
@pytest.mark.parametrize("kind", routes.KINDS)
@pytest.mark.parametrize("has_ipv6", [False, True])
def test_flow_mods_are_as_the_framework_writes_them(version, kind, has_ipv6):
    graph = fat_tree(4)
    if has_ipv6:
        add_ipv6(graph)
    datapath = Datapath(version)
    computed = routes.compute(graph, kind, 3)
    for switch, wanted in planned(graph, computed).items():
        one_by_one = []
        for entry in wanted:
            message = static_routes._flow_mod(datapath, entry)
            message.set_xid(1)
            message.serialize()
            one_by_one.append(bytes(message.buf))
        assert list(static_routes.flow_mods(datapath, wanted)) == one_by_one, switch
        assert len(set(one_by_one)) == len(wanted)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


def test_which_framework_serves():
    show = "import sys; sys.modules['ryu'] = None; import controllers.openflow as o; "
    done = run("-c", show + "print(o.framework)")
    assert done.stdout == "os_ken\n"
    done = run("-c", "import controllers.openflow as o; print(o.framework)")
    assert done.stdout == ("ryu\n" if find_spec("ryu") else "os_ken\n")
    block = "import sys; sys.modules['ryu'] = sys.modules['os_ken'] = None; "
    done = run("-c", block + "import controllers.openflow")
    assert "no OpenFlow framework can be imported (ryu: " in done.stderr
    assert "; os_ken: " in done.stderr
    done = run("-c", "import controllers.openflow", OUTCAST_OPENFLOW="pox")
    assert "OUTCAST_OPENFLOW=pox: allowed are ryu, os_ken" in done.stderr


@pytest.mark.parametrize("framework", ["ryu", "os_ken"])
def test_a_graph_that_cannot_be_read_is_one_clear_line(tmp_path, framework):
    if not find_spec(framework):
        pytest.skip(f"{framework} is not installed, as on Debian 13")
    path = tmp_path / "graph.json"
    done = run("-m", "controllers", "--graph", str(path), OUTCAST_OPENFLOW=framework)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"controllers: error: {path}: No such file or directory\n"


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


def test_what_is_written_is_read_back():
    graph = graph_file.loads(json.dumps(GOOD))
    assert graph.nodes["s2"] == {"kind": "switch", "dpid": 2, "layer": "edge"}
    assert graph.edges["s2", "s1"]["ports"] == {"s1": 2, "s2": 2}
    again = graph_file.loads(graph_file.dumps(graph))
    assert dict(again.nodes) == dict(graph.nodes)
    assert again.adj == graph.adj
