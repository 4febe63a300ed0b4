import json
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import configs
import outcast
from outcast import experiment
from outcast.api import experiments, making
from outcast.engines import ledger
from outcast.errors import ConfigError, RunError
from outcast.plan import make, stored
from outcast.plan.make import make_plan
from outcast.plan.model import Plan, Planned
from outcast.plan.schedule import FIRST_SOURCE_PORT
from outcast.plan.stored import dumps
from outcast.plan.topology import ingress_port, make_graph
from topologies.fattree import FatTreeTopo


def plan_of(name: str, *overrides: str) -> Plan:
    return make_plan(experiment.load(configs.find(name), overrides))


def test_linear():
    plan = plan_of("linear-12")
    assert [flow.hops for flow in plan.flows] == [2] + [3] * 12
    assert plan.flows[0].path == ("h2", "s1", "h1")
    assert plan.bottleneck.egress == "s1-eth1"
    assert plan.bottleneck.ingress == ("s1-eth2", "s1-eth3")
    assert plan.capture_ports == (("s1-eth1", "out"), ("s1-eth2", "in"), ("s1-eth3", "in"))


def test_a_class_leaves_out_hosts_that_send_already():
    def senders(flows: str) -> list[str]:
        return [flow.src for flow in plan_of("fattree-12", f"flows={flows}").flows]

    assert senders("[{from: 4-hop, hosts: 1}, {from: h0_1_2}]") == ["h0_1_3", "h0_1_2"]
    assert senders("[{from: 4-hop, hosts: 1}, {from: 4-hop}]") == ["h0_1_2", "h0_1_3"]
    # Who sends to another host is free.
    assert senders("[{from: h0_1_2, to: h3_1_3}, {from: 4-hop}]")[1:] == ["h0_1_2", "h0_1_3"]


def test_flows_that_do_not_fit_are_named_with_their_line(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(configs.find("fig3c").read_text().replace("hosts: 12", "hosts: 99"))
    with pytest.raises(ConfigError, match=r"c\.yaml:11: flows\.1\.hosts: 99 senders asked for"):
        outcast.load(path)
    with pytest.raises(
        ConfigError, match=r"c\.yaml:11 with override topology\.k: flows\.1\.hosts: 99 senders"
    ):
        outcast.load(path, {"topology.k": 6})


def test_more_captures():
    everything = plan_of("linear-12", "capture.ports=all").capture_ports
    assert len(everything) == len(set(everything)) == 2 * (3 + 13)
    some = plan_of("linear-12", "capture.ports=[s2-eth1]").capture_ports
    assert ("s2-eth1", "out") in some
    assert ("s1-eth1", "out") in some


@pytest.mark.parametrize("addressing", ["ipv4", "ipv6", "both"])
def test_all_that_leaves_by_a_studied_output_takes_part(addressing):
    plan = plan_of(
        "linear-12",
        "flows=[{from: h4, to: h1}, {from: h2, to: h5}]",
        "links.layers={edge-edge: {rate: 10mbit}}",
        f"addressing={addressing}",
    )
    paths = [path for flow in plan.flows for path in (flow.path, flow.return_path)]
    assert plan.others
    for port in (plan.bottleneck, *plan.others):
        leaving = [path for path in paths if port.egress in plan.ports_on(path)]
        assert len(leaving) == 2
        for path in leaving:
            assert ingress_port(plan.graph, path, port.egress) in port.ingress
            assert {*plan.addresses(path[-1])} <= {*port.destinations}
        assert {(name, "in") for name in port.ingress} <= {*plan.capture_ports}


@given(st.sampled_from([2, 4, 6, 8]))
@settings(deadline=None, max_examples=4)
def test_a_fat_tree_has_the_size_and_addresses_it_should(k):
    graph = make_graph(FatTreeTopo(k=k))
    kinds = [data["kind"] for _, data in graph.nodes(data=True)]
    assert kinds.count("host") == k**3 // 4
    assert kinds.count("switch") == 5 * k * k // 4
    for name, data in graph.nodes(data=True):
        if data["kind"] == "switch":
            assert sorted(graph.edges[name, other]["ports"][name] for other in graph[name]) == list(
                range(1, k + 1)
            )
        else:
            _, pod, edge, number = name.replace("h", "_").split("_")
            assert data["ip"] == f"10.{pod}.{edge}.{number}"
    addresses = [data["ip"] for _, data in graph.nodes(data=True) if data["kind"] == "host"]
    assert len(set(addresses)) == len(addresses)


def test_a_name_is_that_of_all_flows_of_its_entries():
    plan = plan_of("fig3c", "flows.0.name=near", "flows.1.name=far", "flows.1.hosts=2")
    assert [flow.name for flow in plan.flows] == ["near", "far", "far"]
    shared = plan_of("fig3c", "flows.0.name=all", "flows.1.name=all")
    assert {flow.name for flow in shared.flows} == {"all"}


def test_flows_of_a_group_start_one_after_the_other():
    plan = plan_of("linear-12", "flows.1.stagger=10ms", "flows.1.per_host=2", "flows.1.start=1s")
    rivals = [flow for flow in plan.flows if flow.group == 1]
    assert [flow.start_ns for flow in rivals] == [10**9 + n * 10**7 for n in range(24)]
    assert {flow.start_ns + (flow.duration_ns or 0) for flow in rivals} == {10**10}


def test_where_rates_differ_the_bottleneck_is_where_each_flow_has_least():
    assert plan_of("fattree-12").bottleneck.egress == "e0_0-eth1"
    # 12 of 13 flows come down from the aggregation switch at a fifth of the rate.
    plan = plan_of("fattree-12", "links.layers={edge-aggregation: {rate: 20mbit}}")
    assert plan.ends[plan.bottleneck.egress] == ("a0_1", "e0_0")
    assert plan.ingress(plan.flows[0]) == "e0_0-eth2"
    assert plan.ingress(plan.flows[1]) in plan.bottleneck.ingress
    # A sender's own link has a tenth of the rate for one flow, but it is no switch's port.
    plan = plan_of("fattree-12", "links.layers={host-edge: {rate: 10mbit}}")
    assert plan.bottleneck.egress == "e0_0-eth1"


def test_of_ports_alike_it_is_the_one_whose_inputs_are_faster():
    alone = "flows=[{from: h3, to: h1}]"
    fast = "links.overrides=[{between: [h3, s2], rate: 10gbit}]"
    # Alike means the links of a chain: the last of them is as good as any where none has a queue.
    assert plan_of("linear-12", alone).bottleneck.egress == "s1-eth1"
    assert plan_of("linear-12", alone, fast).bottleneck.egress == "s2-eth1"
    # Other traffic that comes in beside the flow is what fills a queue.
    beside = "workloads=[{kind: constant_rate, from: h4, to: h1, rate: 100mbit}]"
    assert plan_of("linear-12", alone, beside).bottleneck.egress == "s2-eth1"


def test_a_large_fat_tree_is_planned_without_all_its_routes():
    """There are ten million pairs of switch and host. All took a minute; the plan takes 3 s."""
    began = time.process_time()
    plan = plan_of("fig3c", "topology.k=32")
    assert (len(plan.hosts), len(plan.switches)) == (8192, 1280)
    # As long as the kernel allows for an interface's name.
    assert max(map(len, (*plan.switch_ports(), *(f"{host}-eth0" for host in plan.hosts)))) <= 15
    assert [flow.hops for flow in plan.flows] == [2] + [6] * 12
    assert time.process_time() - began < 20


def test_flows_that_miss_the_bottleneck_are_measured_elsewhere():
    plan = plan_of(
        "fattree-12",
        "flows=[{from: 6-hop}, {from: [h0_0_2, h0_0_3], to: [h1_0_2, h2_0_2]}, {from: 2-hop}]",
    )
    assert plan.bottleneck.egress == "e0_0-eth1"
    # Both leave their switch by the same port, which no other flow takes.
    assert [each.egress for each in plan.others] == ["e0_0-eth4"]
    assert None not in [plan.ingress(flow) for flow in plan.flows]
    crossed = [
        [
            each.egress
            for each in (plan.bottleneck, *plan.others)
            if each.egress in plan.ports_on(flow.path)
        ]
        for flow in plan.flows
    ]
    assert all(len(ports) == 1 for ports in crossed)
    captured = {port for port, _ in plan.capture_ports}
    assert captured >= {port for each in plan.others for port in (each.egress, *each.ingress)}


def test_the_source_ports_of_flows_lie_below_those_of_generated_ones():
    hosts = [f"h{pod}_{edge}_{number}" for pod in (1, 2, 3) for edge in (0, 1) for number in (2, 3)]
    groups = [{"from": hosts[: 12 - n], "to": hosts[-1 - n]} for n in range(2)]
    flows = [{**each, "from": each["from"][:10], "per_host": 1000} for each in groups]
    assert plan_of("fig3c", f"flows={json.dumps(flows)}").flows[-1].sport < FIRST_SOURCE_PORT
    one_more = [*flows, {"from": hosts[0], "to": hosts[1]}]
    with pytest.raises(ConfigError, match="at most 20000"):
        plan_of("fig3c", f"flows={json.dumps(one_more)}")


def test_generated_flows_elsewhere_and_datagrams_leave_a_group_its_transport():
    flows = "flows=[{from: 6-hop, transport: {sack: false}}]"
    apart = "workloads=[{kind: poisson, load: 0.1, sizes: [[100000, 1]], from: h0_0_3, to: h0_1_2}]"
    datagrams = "workloads=[{kind: constant_rate, from: 6-hop, rate: 10mbit}]"
    for workload in (apart, datagrams):
        assert plan_of("fig3c", flows, workload).generated


# --- plan.json: a stored plan reads back as the same plan, and a broken one is refused in one
# line


def plan(name: str) -> Plan:
    return make_plan(experiment.load(configs.find(name)))


def stored_text(document: object, folder: Path) -> Path:
    path = folder / "plan.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


SETTINGS = (
    *("addressing=ipv6", "addressing=both"),
    "probes=[{from: h3, to: h1}, {from: h2, to: h1, kind: udp}]",
    "programs=[{name: get, host: h2, command: [curl, h1], to: [h1]}]",
    "noise={profile: exact, interrupts: {least: 50us, most: 250us}}",
    "noise={profile: exact, interrupts: {per_second: 20000, below_gigabit: 4000}}",
    "links.overrides=[{between: [s1, s2], loss: 0.25, queue: {kind: fq_codel, limit: 9 packets}}, "
    "{from: s1, to: h1, rate: 10mbit, queue: {kind: pie, limit: 1 bdp}}]",
)
"""What no configuration that we ship asks for."""


@pytest.mark.parametrize(
    ("path", "settings"),
    [
        *((path, ()) for path in configs.everything()),
        *((configs.find("linear-12"), (setting,)) for setting in SETTINGS),
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else str(value)[:16],
)
def test_a_stored_plan_is_the_same_plan(path, settings, tmp_path):
    asked = experiment.load(path, settings) if settings else outcast.load(path)
    first = make_plan(asked)
    # The plan's links have them.
    for _, _, data in first.graph.edges(data=True):
        data.pop("own", None)
    text = stored.dumps(first)
    again = stored.read_plan(stored_text(text, tmp_path))
    for field in fields(Plan):
        if field.name != "graph":
            assert getattr(again, field.name) == getattr(first, field.name), field.name
    assert again.routes == first.routes
    # Interfaces are made in the order of nodes and of each node's neighbours.
    assert list(again.graph.nodes(data=True)) == list(first.graph.nodes(data=True))
    for node in first.graph:
        assert list(again.graph.adj[node].items()) == list(first.graph.adj[node].items())
    assert stored.dumps(again) == text


def test_a_stored_plan_is_read_without_mininet():
    script = "import sys, outcast.plan.stored; sys.exit('mininet' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


# --- The plan of an experiment is made once for a run, with the engine's defaults


LINEAR = configs.find("linear-12")


class Engine:
    """Keeps the plan that it is asked about, and that which it would run."""

    name = "virtual"

    def require(self, experiment, plan):
        self.asked = plan

    def run(self, directory, entry, on_event):
        self.given = directory.read_plan()
        raise RunError("there is no kernel")


def test_a_run_makes_one_plan(tmp_path, monkeypatch):
    engine, made, plan = Engine(), [], make._planned
    monkeypatch.setattr(ledger, "default_folder", lambda: tmp_path / "ledger")
    monkeypatch.setattr("outcast.api.guest.provide", lambda planned, progress: None)
    monkeypatch.setattr("outcast.engines._made", lambda name: engine)
    monkeypatch.setattr(make, "_planned", lambda asked: made.append(asked) or plan(asked))
    source = experiment.read(configs.find("fig3c"), {"engine": "virtual"})
    with pytest.raises(RunError, match="there is no kernel"):
        making.execute(experiments.checked(source), tmp_path / "run", progress=False, draw=False)
    assert len(made) == 1
    assert dumps(engine.given) == dumps(engine.asked)


def test_a_plan_has_the_defaults_of_its_engine():
    """A link of the virtual engine has 25 us of delay, by which the latency may vary."""
    planned = Planned(experiment.load(LINEAR, ["noise.switch_latency=5us"]), "here: {}".format)
    assert {link.delay_ns for link in planned.by("virtual")[1].links.values()} == {25_000}
    assert planned.by("virtual") is planned.by("virtual")
    with pytest.raises(ConfigError, match=r"^here: noise\.switch_latency: 5us: allowed is up to"):
        planned.by("realtime")
    outcast.load(LINEAR, {"engine": "virtual", "noise.switch_latency": "5us"})
