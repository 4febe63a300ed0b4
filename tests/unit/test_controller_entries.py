"""Flow entries: planned from routes, and read back from ovs-ofctl's text."""

from __future__ import annotations

import networkx as nx
import pytest

from controllers.entries import TABLE_MISS, Entry, parse_dump, planned
from controllers.graph import Graph


def test_each_destination_has_an_entry_for_ip_and_one_for_arp() -> None:
    graph: Graph = nx.Graph()
    graph.add_node("h1", kind="host", ip="10.0.0.1")
    graph.add_node("h2", kind="host", ip="10.0.0.2")
    assert planned(graph, {"s1": {"h1": 3, "h2": 1}, "s2": {"h1": 2}}) == {
        "s1": {
            TABLE_MISS,
            Entry(100, "ip", "10.0.0.1", 3),
            Entry(100, "arp", "10.0.0.1", 3),
            Entry(100, "ip", "10.0.0.2", 1),
            Entry(100, "arp", "10.0.0.2", 1),
        },
        "s2": {TABLE_MISS, Entry(100, "ip", "10.0.0.1", 2), Entry(100, "arp", "10.0.0.1", 2)},
    }


def test_a_dump_is_read_with_and_without_statistics() -> None:
    # Open vSwitch 3.1: `ovs-ofctl -O OpenFlow13 dump-flows`, with and without --no-stats.
    dump = """\
OFPST_FLOW reply (OF1.3) (xid=0x2):
 priority=100,arp,arp_tpa=10.0.0.1 actions=output:3
 cookie=0x0, priority=100,ip,nw_dst=10.0.0.1 actions=output:3
 priority=0 actions=drop
"""
    assert parse_dump(dump) == {
        Entry(100, "arp", "10.0.0.1", 3),
        Entry(100, "ip", "10.0.0.1", 3),
        TABLE_MISS,
    }


@pytest.mark.parametrize(
    "line",
    [
        "priority=100,ip,nw_dst=10.0.0.1 actions=output:3,output:4",
        "priority=100,ip,nw_dst=10.0.0.1 actions=CONTROLLER:65535",
        "priority=100,ip,nw_src=10.0.0.1 actions=output:3",
        "priority=100,ip,in_port=1,nw_dst=10.0.0.1 actions=output:3",
        "priority=100,tcp,nw_dst=10.0.0.1 actions=output:3",
        "priority=100,ip actions=output:3",
        "table=1, priority=0 actions=drop",
    ],
)
def test_an_entry_of_another_form_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="unexpected flow entry"):
        parse_dump(line)


def test_the_priority_that_is_left_out_is_the_default_one() -> None:
    assert parse_dump("actions=drop") == {Entry(32768)}
