"""The controller with a real Open vSwitch, in namespaces of its own, under both frameworks."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import networkx as nx
import pytest

from controllers import entries, routes
from controllers.graph import Graph, dumps
from controllers.hashing import FiveTuple
from tests.deadlines import HANG_S
from tests.unit.plan.test_routes import fat_tree, hosts

FRAMEWORKS = ("ryu", "os_ken")
PORT = 6653
REPOSITORY = Path(__file__).parents[2]

# /run/netns is also private, so that `ip netns` names nothing outside.
START = f"""
set -e
mkdir -p /run/netns
mount -t tmpfs tmpfs /run/openvswitch
mount -t tmpfs tmpfs /run/netns
ip link set lo up
cd /run/openvswitch
ovsdb-tool create conf.db /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server conf.db --remote=punix:db.sock --detach --pidfile -vconsole:off
ovs-vsctl --no-wait init
ovs-vswitchd --detach --pidfile -vconsole:off
echo started
exec sleep {int(HANG_S)}
"""

Record = dict[str, Any]


class Controller:
    """A running `python -m controllers` and what it reports."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.records: list[Record] = []
        self._rest = b""

    def wait_for(self, event: str, count: int = 1, within_s: float = HANG_S) -> Record:
        """The `count`-th record of that event, counted from the start."""
        deadline = time.monotonic() + within_s
        while True:
            found = [record for record in self.records if record["event"] == event]
            if len(found) >= count:
                return found[count - 1]
            left = deadline - time.monotonic()
            assert left > 0, f"no {event!r} within {within_s} s, only {self.records}"
            if select.select([self.process.stdout], [], [], left)[0]:
                data = os.read(self.process.stdout.fileno(), 65536)
                assert data, f"the controller ended before {event!r}: {self.records}"
                *lines, self._rest = (self._rest + data).split(b"\n")
                self.records += [json.loads(line) for line in lines]

    def events(self) -> list[str]:
        return [record["event"] for record in self.records]


@dataclass
class Sandbox:
    """Namespaces with their own Open vSwitch. Nothing of it is visible outside, or left over."""

    inside: int
    directory: Path
    started: list[subprocess.Popen[bytes]]

    def command(self, *arguments: str) -> list[str]:
        target = f"--target={self.inside}"
        return ["nsenter", target, "--net", "--mount", "--pid", f"--wd={REPOSITORY}", *arguments]

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            self.command(*arguments), capture_output=True, text=True, timeout=HANG_S, check=False
        )
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    def controller(self, framework: str, graph: Graph, *options: str) -> Controller:
        path = self.directory / "graph.json"
        path.write_text(dumps(graph))
        process = subprocess.Popen(
            self.command(
                sys.executable,
                "-m",
                "controllers",
                "--graph",
                str(path),
                f"--port={PORT}",
                *options,
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"OUTCAST_OPENFLOW": framework},
        )
        self.started.append(process)
        return Controller(process)

    def add_switches(
        self, graph: Graph, protocol: str = "OpenFlow13", host_ports: str = "system"
    ) -> None:
        """Bridges with the userspace datapath, connected by patch ports as the graph says."""
        commands: list[str] = []
        for name, data in graph.nodes(data=True):
            if data["kind"] != "switch":
                continue
            commands += ["--", "add-br", name, "--", "set", "bridge", name, "datapath_type=netdev"]
            commands += ["fail_mode=secure", f"protocols={protocol}"]
            commands += [f"other-config:datapath-id={data['dpid']:016x}"]
            commands += ["--", "set-controller", name, f"tcp:127.0.0.1:{PORT}"]
            # A reconnect is tried after 1 s at the latest.
            commands += ["--", "set", "controller", name, "max_backoff=1000"]
        for one, two, data in graph.edges(data=True):
            for node, peer in ((one, two), (two, one)):
                if graph.nodes[node]["kind"] == "switch":
                    port = f"{node}-eth{data['ports'][node]}"
                    other = f"{peer}-eth{data['ports'][peer]}"
                    commands += ["--", "add-port", node, port]
                    commands += ["--", "set", "interface", port]
                    commands += [f"ofport_request={data['ports'][node]}"]
                    if graph.nodes[peer]["kind"] == "switch":
                        commands += ["type=patch", f"options:peer={other}"]
                    else:
                        commands += [f"type={host_ports}"]
        self.run("ovs-vsctl", *commands[1:])

    def add_hosts(self, graph: Graph) -> None:
        """A namespace for each host, and a veth pair to its future switch port."""
        for name, data in graph.nodes(data=True):
            if data["kind"] == "host":
                (switch,) = graph.adj[name]
                port = f"{switch}-eth{graph.edges[name, switch]['ports'][switch]}"
                self.run("ip", "netns", "add", name)
                ends = ("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0")
                self.run(*ends, "netns", name)
                self.run("ip", "link", "set", port, "up")
                self.run("ip", "-n", name, "address", "add", f"{data['ip']}/8", "dev", "eth0")
                self.run("ip", "-n", name, "link", "set", "eth0", "up")

    def entries(self, switch: str, protocol: str = "OpenFlow13") -> frozenset[entries.Entry]:
        dump = ("dump-flows", "--no-stats", "--no-names", switch)
        return entries.parse_dump(self.run("ovs-ofctl", "-O", protocol, *dump))


@pytest.fixture(autouse=True)
def _is_installed(request) -> None:
    framework = (
        request.node.callspec.params["framework"] if hasattr(request.node, "callspec") else ""
    )
    if framework and not find_spec(framework):
        pytest.skip(f"{framework} is not installed, as on Debian 13")


@pytest.fixture
def sandbox(tmp_path) -> Iterator[Sandbox]:
    namespaces = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    with subprocess.Popen(
        ["unshare", *namespaces, "sh", "-c", START], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "started\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        made = Sandbox(int(children), tmp_path, [])
        yield made
        process.kill()
        for started in made.started:
            started.wait(HANG_S)
            for stream in (started.stdout, started.stderr):
                stream.close()


def ring() -> Graph:
    """Three switches, each linked to the others, with a host on each."""
    graph: Graph = nx.Graph()
    for number in (1, 2, 3):
        switch, host = f"s{number}", f"h{number}"
        graph.add_node(switch, kind="switch", dpid=number, layer="edge")
        mac = f"02:00:00:00:00:0{number}"
        graph.add_node(host, kind="host", ip=f"10.0.0.{number}", mac=mac)
        graph.add_edge(host, switch, ports={host: 0, switch: 1})
    for one, two in ((1, 2), (2, 3), (3, 1)):
        graph.add_edge(f"s{one}", f"s{two}", ports={f"s{one}": 2, f"s{two}": 3})
    return graph


@pytest.mark.parametrize(("framework", "kind"), [("ryu", "shortest"), ("os_ken", "spanning_tree")])
def test_when_it_is_ready_every_switch_has_what_is_planned_and_forwards(sandbox, framework, kind):
    graph = ring()
    planned = entries.planned(graph, routes.compute(graph, kind))
    controller = sandbox.controller(framework, graph, f"--routing={kind}")
    assert controller.wait_for("listening") == {
        "event": "listening",
        "address": "127.0.0.1",
        "port": PORT,
        "framework": framework,
    }
    sandbox.add_hosts(graph)
    sandbox.add_switches(graph)
    assert controller.wait_for("ready") == {
        "event": "ready",
        "switches": 3,
        "entries": 3 * (2 * 3 + 1),
        "routing": kind,
    }
    assert sorted(controller.events()) == sorted(
        ["listening", *3 * ["connected", "installed"], "ready"]
    )
    for switch, expected in planned.items():
        assert sandbox.entries(switch) == expected
    # With ARP, in a network with a loop.
    for source, last in permutations((1, 2, 3), 2):
        ping = ("ping", "-c1", "-W60", f"10.0.0.{last}")
        sandbox.run("ip", "netns", "exec", f"h{source}", *ping)


def traced(sandbox: Sandbox, graph: Graph, src: str, packet: FiveTuple) -> list[str]:
    """The switches that a packet passes, according to Open vSwitch."""
    (switch,) = graph.adj[src]
    flow = f"in_port={graph.edges[src, switch]['ports'][switch]},tcp"
    flow += f",nw_src={packet.src},nw_dst={packet.dst},tp_src={packet.sport},tp_dst={packet.dport}"
    shown = sandbox.run("ovs-appctl", "ofproto/trace", switch, flow)
    return re.findall(r'^ *bridge\("(.+)"\)', shown, re.MULTILINE)


@pytest.mark.parametrize(
    ("framework", "kind"),
    [("ryu", "equal_length"), ("os_ken", "hashed"), ("ryu", "equal_length_random")],
)
def test_flows_go_where_it_was_computed_that_they_go(sandbox, framework, kind):
    graph = fat_tree(4)
    computed = routes.compute(graph, kind, 3)
    controller = sandbox.controller(framework, graph, f"--routing={kind}", "--hash-seed=3")
    controller.wait_for("listening")
    protocol = "OpenFlow15" if computed.choices else "OpenFlow13"
    sandbox.add_switches(graph, protocol, "internal")
    controller.wait_for("ready")
    for switch, expected in entries.planned(graph, computed).items():
        assert sandbox.entries(switch, protocol) == expected
    groups = entries.planned_groups(graph, computed)
    for switch in groups if computed.choices else ():
        dump = sandbox.run("ovs-ofctl", "-O", protocol, "dump-groups", switch)
        assert entries.parse_groups(dump) == groups[switch]
    random = Random(1)
    for _ in range(40):
        src, dst = random.sample(hosts(graph), 2)
        addresses = (graph.nodes[src]["ip"], graph.nodes[dst]["ip"])
        packet = FiveTuple(addresses[0], random.randrange(1024, 65536), addresses[1], 5001)
        passed = traced(sandbox, graph, src, packet)
        assert passed == routes.path(computed, graph, src, dst, packet)[1:-1]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_switch_that_cannot_be_told_how_to_choose_is_refused(sandbox, framework):
    graph = fat_tree(4)
    controller = sandbox.controller(framework, graph, "--routing=hashed")
    controller.wait_for("listening")
    sandbox.add_switches(graph, "OpenFlow13", "internal")
    assert "OpenFlow 1.5" in controller.wait_for("error")["message"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_a_switch_held_before_is_deleted_also_when_it_comes_back(sandbox, framework):
    graph = ring()
    planned = entries.planned(graph, routes.compute(graph, "shortest"))
    sandbox.add_switches(graph)
    foreign = ("ovs-ofctl", "-O", "OpenFlow13", "add-flow", "s2")
    sandbox.run(*foreign, "table=0,priority=7,actions=drop")
    sandbox.run(*foreign, "table=3,priority=7,actions=drop")
    controller = sandbox.controller(framework, graph)
    controller.wait_for("ready")
    assert sandbox.entries("s2") == planned["s2"]
    sandbox.run(*foreign, "table=0,priority=7,actions=drop")
    sandbox.run("ovs-vsctl", "del-controller", "s2")
    assert controller.wait_for("disconnected")["switch"] == "s2"
    sandbox.run("ovs-vsctl", "set-controller", "s2", f"tcp:127.0.0.1:{PORT}")
    controller.wait_for("ready", count=2)
    assert sandbox.entries("s2") == planned["s2"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_switch_that_is_not_in_the_graph_is_reported_and_left_alone(sandbox, framework):
    graph = ring()
    sandbox.add_switches(graph)
    fewer = graph.copy()
    fewer.remove_nodes_from(["s3", "h3"])
    sandbox.run("ovs-ofctl", "-O", "OpenFlow13", "add-flow", "s3", "priority=7,actions=drop")
    controller = sandbox.controller(framework, fewer)
    assert controller.wait_for("error") == {
        "event": "error",
        "switch": None,
        "dpid": 3,
        "message": "the switch is not in the graph",
    }
    assert controller.wait_for("ready")["switches"] == 2
    assert sandbox.entries("s3") == {entries.Entry(7)}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_switch_that_refuses_an_entry_is_reported_and_never_ready(sandbox, framework):
    graph = ring()
    # A port number above OFPP_MAX, which no switch can have.
    graph.edges["h2", "s2"]["ports"]["s2"] = 0xFFFFFF05
    sandbox.add_switches(ring())
    controller = sandbox.controller(framework, graph)
    error = controller.wait_for("error")
    assert error["switch"] == "s2"
    assert "OFPBAC_BAD_OUT_PORT" in error["message"]
    controller.wait_for("installed", count=2)
    with pytest.raises(AssertionError, match="no 'ready'"):
        controller.wait_for("ready", within_s=1.0)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_port_that_is_taken_is_a_clear_error(sandbox, framework):
    sandbox.controller(framework, ring()).wait_for("listening")
    second = sandbox.controller(framework, ring()).process
    out, err = second.communicate(timeout=HANG_S)
    assert second.returncode == 1
    assert out == b""
    assert err.decode() == (
        f"controllers: error: cannot listen on 127.0.0.1 port {PORT}: Address already in use\n"
    )


@pytest.mark.parametrize(
    ("framework", "number"), [("ryu", signal.SIGTERM), ("os_ken", signal.SIGINT)]
)
def test_it_ends_when_told_to(sandbox, framework, number):
    controller = sandbox.controller(framework, ring())
    controller.wait_for("listening")
    # nsenter --pid forks, so the program itself is its child.
    parent = controller.process.pid
    child = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    os.kill(int(child), number)
    assert controller.process.wait(HANG_S) == 0


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_ryu_manager_runs_the_application_on_either_framework(sandbox, framework):
    graph = ring()
    path = sandbox.directory / "graph.json"
    path.write_text(dumps(graph))
    manager = Path(sys.executable).with_name("ryu-manager")
    process = subprocess.Popen(
        sandbox.command(str(manager), "controllers/static_routes.py"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"OUTCAST_OPENFLOW": framework, "OUTCAST_GRAPH": str(path)},
    )
    sandbox.started.append(process)
    sandbox.add_switches(graph)
    assert Controller(process).wait_for("ready")["switches"] == 3
