"""Hosts with several links: each further interface has a name and an address of its own."""

from pathlib import Path

from outcast import experiment
from outcast.emulation import manifest
from outcast.networks import resolve
from outcast.plan import stored
from outcast.plan.make import make_plan
from outcast.plan.model import Plan
from outcast.records.run import Run

EXAMPLE = Path(__file__).parents[3] / "configs" / "examples" / "two-links.yaml"


TWO = "flows=[{from: phone, to: server}, {from: cell, to: server}]"


def plan_of(*settings: str) -> Plan:
    return make_plan(resolve.experiment_of(experiment.read(EXAMPLE, settings)))


def test_a_further_interface_is_of_its_host(verb, tmp_path):
    plan = plan_of()
    assert plan.hosts == ["cell", "phone", "server"]
    assert [plan.machine(host) for host in plan.hosts] == ["phone", "phone", "server"]
    assert plan.interfaces("cell") == plan.interfaces("phone") == ["phone", "cell"]
    assert plan.interfaces("server") == ["server"]
    assert "  cell  10.0.0.1  a further interface of phone\n" in verb("topo", EXAMPLE, "--all").out
    (tmp_path / "plan.json").write_text(stored.dumps(plan))
    assert stored.read_plan(tmp_path / "plan.json").interfaces("phone") == ["phone", "cell"]


def test_subflows_have_the_paths_of_both_interfaces():
    plan = plan_of()
    assert ("cell", "server") in plan.pairs
    assert plan.bottleneck.ingress == ("s3-eth2", "s3-eth3")
    # Their counters are those of one flow.
    assert plan.counted_hosts == ["phone", "server"]
    plan = plan_of("queue.limit=1 bdp")
    assert plan.base_rtts_ns["s2", "s3"] > 60_000_000 > plan.base_rtts_ns["s1", "s3"]


def test_flows_of_two_interfaces_are_counted_by_captures_alone():
    plan = plan_of(TWO)
    paths = [flow.path for flow in plan.flows]
    assert paths == [("phone", "s1", "s3", "server"), ("cell", "s2", "s3", "server")]
    assert plan.counted_hosts == ["server"]


def test_classes_of_hosts_leave_further_interfaces_out():
    plan = plan_of("flows=[{from: 3-hop, to: server}]")
    assert [flow.src for flow in plan.flows] == ["phone"]
    workload = "workloads=[{kind: shuffle, bytes: 1MB}]"
    generated = plan_of("flows=[]", workload, "bottleneck=null").generated
    assert {flow.src for flow in generated} == {"phone", "server"}


def test_a_record_has_the_address_of_each_subflow():
    plan = plan_of()
    (flow,) = plan.flows
    (record,) = manifest.flows(plan, {0: ((50123, flow.dport, "10.0.0.1"),)})
    assert record.connections == [
        ("10.0.0.2", 20001, "10.0.0.3", flow.dport),
        ("10.0.0.1", 50123, "10.0.0.3", flow.dport),
    ]
    assert [sub.src_ip for sub in record.subflows] == ["10.0.0.1"]


def test_a_port_has_the_flows_whose_subflows_come_in_by_it(tmp_path):
    plan = plan_of()
    (record,) = manifest.flows(plan, {0: ((50123, plan.flows[0].dport, "10.0.0.1"),)})
    run = Run(tmp_path)
    vars(run)["plan"] = plan
    assert run._enters_by(record, "s3-eth1", "s3-eth3")
    assert not run._enters_by(record, "s3-eth1", "s3-eth4")
    alone = record.model_copy(update={"subflows": []})
    assert not run._enters_by(alone, "s3-eth1", "s3-eth3")
