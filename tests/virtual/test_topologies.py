"""Topologies in the guest, at 1 Gbps."""

import shutil
from pathlib import Path

import networkx as nx
import pytest

from outcast.records.run import Run
from tests import guest_runs
from tests.guest_runs import manifest_of
from tests.virtual.test_routing import require_links
from tests.virtual.test_run import run

EXAMPLES = Path(__file__).parents[2] / "configs" / "examples"
SHORT = ("duration=100ms", "analysis.windows=[100ms]")


@pytest.mark.parametrize(
    ("config", "classes", "inputs"),
    [("p-ports-vl2", {"2": 3, "4": 4, "6": 8}, 4), ("t12-2-4-26", {"2": 2, "4": 4, "6": 26}, 2)],
)
def test_many_to_one(config, classes, inputs, tmp_path):
    summary = run(config, tmp_path / "run", *SHORT)
    assert {hops: each["flows"] for hops, each in summary["classes"].items()} == classes
    assert summary["total_goodput_bps"] > 0.8e9
    (bottleneck,) = manifest_of(tmp_path / "run")["bottlenecks"]
    assert len(bottleneck["ingress"]) == inputs


def test_flows_of_several_receivers_are_each_measured_once(tmp_path):
    """Two flows with links of their own: each has one to itself, beside the studied queue."""
    summary = run(
        *("fig3c", tmp_path / "run", *SHORT, "topology={kind: vl2}"),
        "flows=[{from: 4-hop}, {from: [h0_3, h1_3], to: [h3_3, h2_5]}]",
        "links={rate: 1gbit, delay: 5us, layers: {edge-aggregation: {rate: 10gbit}}}",
    )
    manifest = manifest_of(tmp_path / "run")
    assert len(manifest["bottlenecks"]) == 3
    assert summary["classes"]["6"]["min_goodput_bps"] > 0.8e9
    assert 0.8e9 < 4 * summary["classes"]["4"]["mean_goodput_bps"] < 1e9


@pytest.mark.parametrize(
    ("name", "source", "bottleneck"),
    [("dumbbell", "dumbbell.py", "s1-eth1"), ("parking-lot", "parking-lot.graphml", "s1-eth1")],
)
def test_the_examples_of_own_topologies(name, source, bottleneck, tmp_path):
    """A result replays to the byte from its own config.yaml, where the user's file never was."""
    first, again = tmp_path / "first", tmp_path / "elsewhere" / "again"
    short = ("duration=100ms", "analysis.windows=[]")
    summary = guest_runs.run(EXAMPLES / f"{name}.yaml", first, *short)
    manifest = manifest_of(first)
    assert manifest["bottlenecks"][0]["egress"] == bottleneck
    assert f"sources/{source}" in manifest["files"]
    assert (first / "sources" / source).read_bytes() == (EXAMPLES / source).read_bytes()
    # Each flow of the parking lot crosses a link of 100 Mbps, and the dumbbell's share one.
    assert 70e6 < summary["total_goodput_bps"] < 300e6
    if name == "parking-lot":
        return
    own = tmp_path / "elsewhere.yaml"
    shutil.copyfile(first / "config.yaml", own)
    guest_runs.run(own, again)
    assert guest_runs.captures(again) == guest_runs.captures(first)
    assert not (again / "sources").exists()


RING = """graph [
  node [ id 0 label "Aachen" ]
  node [ id 1 label "Bad Homburg" ]
  node [ id 2 label "Chur" ]
  node [ id 3 label "Delft" ]
  edge [ source 0 target 1 delay "200us" ]
  edge [ source 1 target 2 rate "50mbit" ]
  edge [ source 2 target 3 ]
  edge [ source 3 target 0 ]
]"""


@pytest.mark.parametrize("kind", ["spanning_tree", "hashed"])
def test_packets_take_the_planned_paths_in_a_ring(kind, tmp_path):
    nx.write_graphml(nx.parse_gml(RING, label="id"), tmp_path / "ring.graphml")
    config = tmp_path / "ring.yaml"
    config.write_text(
        "name: ring\n"
        "topology: {kind: graph, path: ring.graphml, hosts_per_switch: 1}\n"
        "links: {rate: 100mbit, delay: 20us}\n"
        "queue: {kind: pfifo, limit: 50 packets}\n"
        f"routing: {{kind: {kind}}}\n"
        "flows: [{from: [h1, h2, h4], to: [h3, h4, h3]}]\n"
        "duration: 60ms\n"
    )
    guest_runs.undrawn(config, tmp_path / "run", "engine=virtual")
    manifest = require_links(tmp_path / "run")
    paths = {tuple(flow["path"]) for flow in manifest["flows"] if flow["src"] == "h4"}
    # The root is Aachen. The tree leaves out the link between the two that are farthest from it.
    assert (len(next(iter(paths))) == 6) is (kind == "spanning_tree")


NET = """
from mininet.topo import Topo

class Net(Topo):
    def build(self):
        self.addSwitch('left', dpid='ab')
        self.addSwitch('right')
        self.addLink('left', 'right', port1=9, bw=50, delay='100us', max_queue_size=25)
        self.addHost('a', ip='192.168.7.1/24', mac='02:00:00:00:00:77')
        self.addHost('b', ip='192.168.9.2')
        self.addLink('a', 'left', port2=3)
        self.addLink('b', 'right', params2=dict(bw=20))

topos = {'net': Net}
"""


def test_addresses_ports_and_queues_of_a_file_are_in_effect(tmp_path):
    (tmp_path / "net.py").write_text(NET)
    config = tmp_path / "net.yaml"
    config.write_text(
        "name: net\n"
        "topology: {kind: file, path: net.py, topo: net}\n"
        "links: {rate: 100mbit, delay: 20us}\n"
        "noise: {profile: exact}\n"
        "queue: {kind: fq_codel, limit: 100 packets}\n"
        "flows: [{from: a, to: b}]\n"
        "duration: 80ms\n"
        "capture: {ports: [left-eth9]}\n"
    )
    guest_runs.undrawn(config, tmp_path / "run", "engine=virtual")
    manifest = manifest_of(tmp_path / "run")
    (flow,) = manifest["flows"]
    assert (flow["src_ip"], flow["dst_ip"]) == ("192.168.7.1", "192.168.9.2")
    assert manifest["bottlenecks"][0]["egress"] == "right-eth2"
    assert {record["port"] for record in manifest["captures"]} >= {"left-eth9", "right-eth1"}
    effective = manifest["effective"]
    alike = {
        port: key
        for key, ports in effective.items()
        if key.startswith("ports.") and key.count(".") == 1
        for port in ports.split()
    }
    assert effective[f"{alike['right-eth2']}.rate_bps"] == 20_000_000
    assert effective[f"{alike['left-eth9']}.rate_bps"] == 50_000_000
    assert effective[f"{alike['left-eth9']}.qdisc 3:"] == "pfifo"
    assert effective[f"{alike['left-eth9']}.limit_packets"] == 25


def test_multipath_tcp_uses_both_links_of_a_host(tmp_path):
    """50 and 20 Mbps, of which a full frame's payload is 1448 of 1538 bytes."""
    summary = guest_runs.run(EXAMPLES / "two-links.yaml", tmp_path / "run", "duration=3s")
    both_bps = 70e6 * 1448 / 1538
    assert 0.9 * both_bps < summary["total_goodput_bps"] <= both_bps
    (flow,) = manifest_of(tmp_path / "run")["flows"]
    (subflow,) = flow["subflows"]
    assert (flow["src_ip"], subflow["src_ip"]) == ("10.0.0.2", "10.0.0.1")
    run = Run(tmp_path / "run")
    assert run.port_flows("s3-eth2") == run.port_flows("s3-eth3") == "3-hop, cubic"
