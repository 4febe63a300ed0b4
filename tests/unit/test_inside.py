"""The run's own checks, without a network."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from outcast.emulation import counters, inside, sockets
from outcast.emulation import manifest as records
from outcast.emulation.commands import SystemCommands
from outcast.errors import ReadBackError
from outcast.experiment import load
from outcast.plan.make import make_plan
from outcast.records.run_directory import RunDirectory
from tests.flows import FLOW, RECEIVER, SAMPLE

FIG3C = Path(__file__).parents[2] / "configs/fig3c.yaml"


def run_of(tmp_path: Path, *overrides: str) -> Any:
    experiment = load(FIG3C, overrides)
    return inside._Run(
        RunDirectory(tmp_path),
        experiment,
        make_plan(experiment),
        "virtual",
        lambda event: None,
        SystemCommands(),
        tmp_path,
    )


def test_a_flow_that_is_over_by_the_middle_is_read_back_when_it_has_connected(
    tmp_path, monkeypatch
):
    early = replace(FLOW, duration_ns=None, size_bytes=1000)
    for control, fits in (("cubic", True), ("reno", False)):
        shown = [replace(end, congestion_control=control) for end in (SAMPLE, RECEIVER)]
        monkeypatch.setattr(sockets, "sample_sockets", lambda _netns, _families, shown=shown: shown)
        run = run_of(tmp_path)
        run.network = SimpleNamespace(netns=lambda host: 0)
        run._check_connected([])
        if fits:
            run._check_connected([early])
        else:
            with pytest.raises(ReadBackError, match="requested cubic, the kernel shows reno"):
                run._check_connected([early])


def test_all_studied_queues_are_to_be_empty(tmp_path, monkeypatch):
    run = run_of(
        tmp_path, "flows=[{from: h0_0_3, to: h0_0_2}, {from: h1_0_3, to: h1_0_2, per_host: 2}]"
    )
    run.network = None
    told = run.record.manifest["distrust"] = []
    other = run.plan.others[0].egress

    def counted(qlen: int) -> Callable[..., dict[str, dict[str, int]]]:
        return lambda network, ports: {port: {"qlen": qlen * (port == other)} for port in ports}

    monkeypatch.setattr(inside.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(inside, "DRAIN_DEADLINE_S", 0.01)
    monkeypatch.setattr(counters, "port_counters", counted(0))
    run._drain()
    assert told == []
    monkeypatch.setattr(counters, "port_counters", counted(1))
    # The data are kept.
    run._drain()
    assert told == [f"{other}: packets were still queued 0 s after the flows' end"]


def test_a_group_of_flows_is_among_what_was_requested():
    own = {"congestion_control": "reno"}
    found = records.requested(load(FIG3C, ["flows.1.transport={congestion_control: reno}"]))
    assert found["flows.1"]["transport"] == own
    assert found["flows.0"]["from"] == "2-hop"
