"""Flows of programs: whose they are, between which hosts, and which flows are nobody's."""

from typing import Any

import pytest

from outcast import analysis
from outcast.analysis import program_flows
from outcast.analysis.capture.headers import FlowKey
from outcast.plan import schedule
from outcast.records.flows import (
    ControlRecord,
    ExecutionRecord,
    FlowRecord,
    PeerRecord,
    ProgramRecord,
)
from outcast.records.run import Run
from outcast.records.run_directory import Manifest, RunDirectory
from tests.golden.run_directory import make_run

ENDS = ("src_ip", "sport", "dst_ip", "dport")


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return make_run(tmp_path / "run", 100_000_000, 7, 2_000)


def program(
    name: str, own: FlowRecord, *, server: bool, times_ns: tuple[int, int]
) -> ProgramRecord:
    """A program at one end of a flow: at its receiver if it is a server."""
    there, back = ["h1", "s1", own.src], [own.src, "s1", "h1"]
    peer = (
        PeerRecord(host=own.src, ip=own.src_ip, hops=2, path=there, return_path=back)
        if server
        else PeerRecord(host="h1", ip=own.dst_ip, hops=2, path=back, return_path=there)
    )
    execution = ExecutionRecord(
        number=0,
        t_start_ns=times_ns[0],
        t_end_ns=times_ns[1],
        status=0,
        ended_by="itself",
        output_bytes=0,
        kept_bytes=0,
    )
    return ProgramRecord(
        name=name,
        host="h1" if server else own.src,
        ip=own.dst_ip if server else own.src_ip,
        command=["program"],
        server=server,
        port=own.dport if server else None,
        repeat=1,
        peers=[peer],
        executions=[execution],
    )


def parts(
    run: RunDirectory,
) -> tuple[Manifest, list[FlowRecord], FlowRecord, tuple[int, int], ProgramRecord]:
    """The manifest, its flows but the last, that one, the traffic's times, and who sends it."""
    manifest = run.read_manifest()
    *others, last = manifest.flows
    whole = (manifest.traffic.t_start_ns, manifest.traffic.t_end_ns)
    return manifest, others, last, whole, program("get", last, server=False, times_ns=whole)


def analysed(run: RunDirectory, manifest: Manifest, **changes: Any) -> list[FlowRecord]:
    """The flows of programs that the analysis finds where the manifest is changed so."""
    run.write_manifest(manifest.model_copy(update=changes))
    analysis.analyze(run)
    return [flow for flow in Run(run).manifest.flows if flow.of_program]


def test_an_unplanned_flow_is_that_of_the_program_at_its_sender(run):
    manifest, planned, taken, _, get = parts(run)
    (flow,) = analysed(run, manifest, flows=planned, programs=[get], requested={})
    assert (flow.name, flow.src, flow.dst) == ("get", taken.src, "h1")
    assert flow.model_copy(update=taken.model_dump(include={*ENDS})) == flow
    assert (flow.path, flow.return_path) == ([taken.src, "s1", "h1"], ["h1", "s1", taken.src])
    assert flow.ingress == taken.ingress
    assert flow.flow == max(record.flow for record in planned) + 1
    assert flow.group == max(record.group for record in planned) + 1
    assert flow.congestion_control is None
    assert 0 <= flow.start_ns < flow.start_ns + (flow.duration_ns or 0) <= 100_000_000


def test_a_servers_flow_comes_from_its_peer_and_has_the_control_of_its_socket(run):
    manifest, planned, taken, whole, _ = parts(run)
    web = program("web", taken, server=True, times_ns=whole)
    usual = {"transport.congestion_control": "cubic"}
    changes = {"flows": planned, "programs": [web], "requested": usual}
    (flow,) = analysed(run, manifest, **changes)
    assert (flow.name, flow.src, flow.dst) == ("web", taken.src, "h1")
    assert (flow.path, flow.return_path) == ([taken.src, "s1", "h1"], ["h1", "s1", taken.src])
    assert flow.congestion_control == "cubic"
    own = ControlRecord(
        host=taken.src, port=taken.sport, peer_port=taken.dport, congestion_control="bbr"
    )
    (flow,) = analysed(run, manifest, **changes, program_controls=[own])
    assert flow.congestion_control == "bbr"


def test_of_two_programs_the_one_that_was_running_sent_it(run):
    manifest, planned, taken, (start, end), _ = parts(run)
    before = program("before", taken, server=False, times_ns=(start - 2, start - 1))
    during = program("during", taken, server=False, times_ns=(start, end))
    (flow,) = analysed(run, manifest, flows=planned, programs=[before, during])
    assert flow.name == "during"
    assert flow.group == max(record.group for record in planned) + 2
    also = program("also", taken, server=False, times_ns=(start, end))
    (flow,) = analysed(run, manifest, flows=planned, programs=[during, also])
    assert flow.name == "during or also"
    after = program("after", taken, server=False, times_ns=(end + 1, end + 2))
    (flow,) = analysed(run, manifest, flows=planned, programs=[before, after])
    assert flow.name == "before or after"


def test_ping_has_no_flows_and_a_server_those_of_its_port(run):
    manifest, planned, taken, whole, get = parts(run)
    ping = program("ping", taken, server=False, times_ns=whole)
    ping.command[:] = ["/usr/bin/ping", "10.0.0.1"]
    (flow,) = analysed(run, manifest, flows=planned, programs=[ping, get])
    assert flow.name == "get"
    assert analysed(run, manifest, flows=planned, programs=[ping]) == []
    web = program("web", taken, server=True, times_ns=whole)
    other = web.model_copy(update={"name": "other", "port": (web.port or 0) + 1})
    (flow,) = analysed(run, manifest, flows=planned, programs=[other, web])
    assert flow.name == "web"
    (flow,) = analysed(run, manifest, flows=planned, programs=[other])
    assert flow.name == "other"


def test_planned_flows_and_those_of_workloads_belong_to_no_program(run):
    manifest, planned, _, whole, get = parts(run)
    assert analysed(run, manifest, programs=[get]) == []
    elsewhere = program("get", planned[0], server=False, times_ns=whole)
    assert analysed(run, manifest, flows=planned, programs=[elsewhere]) == []


def test_a_workloads_flow_is_told_by_both_its_ports(run, monkeypatch):
    manifest, planned, taken, _, get = parts(run)
    changes = {"flows": planned, "programs": [get], "generated_hosts": [taken.src]}
    assert [flow.name for flow in analysed(run, manifest, **changes)] == ["get"]
    monkeypatch.setattr(schedule, "TCP_PORT", taken.dport)
    monkeypatch.setattr(schedule, "FIRST_SOURCE_PORT", taken.sport)
    assert analysed(run, manifest, **changes) == []
    monkeypatch.setattr(schedule, "FIRST_SOURCE_PORT", taken.sport + 1)
    assert [flow.name for flow in analysed(run, manifest, **changes)] == ["get"]


def test_acknowledgements_and_requests_carry_no_data(run, monkeypatch):
    manifest, _, taken, whole, get = parts(run)
    there = FlowKey(taken.src_ip, 1000, taken.dst_ip, 80, 6)
    back = FlowKey(taken.dst_ip, 80, taken.src_ip, 1000, 6)

    def carrying(payload: int, other: int | None) -> list[bool]:
        seen = [(there, payload), *([(back, other)] if other is not None else [])]
        made = [
            program_flows._Seen(key, "s1-eth2", whole[0] + n, whole[0] + n + 1, bytes_)
            for n, (key, bytes_) in enumerate(seen)
        ]
        monkeypatch.setattr(program_flows, "_flows", lambda _joined: made)
        changed = manifest.model_copy(update={"flows": [], "programs": [get]})
        joins: Any = [(manifest.bottlenecks[0], None)]
        return [flow.carries_data for flow in program_flows.program_flows(changed, joins)]

    assert carrying(100, 0) == [True, False]
    assert carrying(99, 1000) == [False, True]
    assert carrying(100, 1000) == [True, True]
    assert carrying(0, None) == [False]
    assert carrying(1, None) == [True]


def test_a_programs_goodput_is_over_its_active_time(run):
    manifest, _, _, _, get = parts(run)
    (flow,) = analysed(run, manifest, flows=[], programs=[get], requested={})
    opened = Run(run)
    (row,) = opened.table("flows").to_dicts()
    active_s = (flow.duration_ns or 0) / 1e9
    assert 0 < active_s < 0.1
    assert row["goodput_bps"] == pytest.approx(8 * row["goodput_bytes"] / active_s)
    assert row["share"] == 1
    group = opened.summary.groups["name"]["get"]
    assert group.mean_goodput_bps == group.min_goodput_bps == row["goodput_bps"]
    # The total is over the whole interval, as that of all runs.
    assert opened.summary.total_goodput_bps == pytest.approx(8 * row["goodput_bytes"] / 0.1)
