"""The checks of a run, without a network."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from outcast.emulation import instants
from outcast.emulation import manifest as records
from outcast.emulation.kernel import counters, sockets
from outcast.errors import ReadBackError
from outcast.experiment import load
from outcast.plan.make import make_plan
from tests.flows import FLOW, RECEIVER, SAMPLE

FIG3C = Path(__file__).parents[3] / "configs/fig3c.yaml"


def test_a_flow_that_is_over_by_the_middle_is_read_back_when_it_has_connected(monkeypatch):
    early = replace(FLOW, duration_ns=None, size_bytes=1000)
    for control, fits in (("cubic", True), ("reno", False)):
        shown = [replace(end, congestion_control=control) for end in (SAMPLE, RECEIVER)]
        monkeypatch.setattr(sockets, "sample_sockets", lambda _netns, _families, shown=shown: shown)
        sockets.check_sockets([], sockets.sample_flows([], lambda host: 0))
        found = sockets.sample_flows([early], lambda host: 0)
        if fits:
            sockets.check_sockets([early], found)
        else:
            with pytest.raises(ReadBackError, match="requested cubic, the kernel shows reno"):
                sockets.check_sockets([early], found)


def test_all_studied_queues_are_to_be_empty(monkeypatch):
    flows = "flows=[{from: h0_0_3, to: h0_0_2}, {from: h1_0_3, to: h1_0_2, per_host: 2}]"
    plan = make_plan(load(FIG3C, [flows]))
    other = plan.others[0].egress

    def counted(qlen: int) -> Callable[..., dict[str, dict[str, int]]]:
        return lambda network, ports: {port: {"qlen": qlen * (port == other)} for port in ports}

    studied = [port.egress for port in (plan.bottleneck, *plan.others)]
    monkeypatch.setattr(counters.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(counters, "EMPTY_DEADLINE_S", 0.01)
    monkeypatch.setattr(counters, "port_counters", counted(0))
    assert counters.await_empty(cast(Any, None), studied) == ""
    monkeypatch.setattr(counters, "port_counters", counted(1))
    full = counters.await_empty(cast(Any, None), studied)
    assert full == f"{other}: packets were still queued 0 s after the flows' end"


def test_a_group_of_flows_is_among_what_was_requested():
    own = {"congestion_control": "reno"}
    found = records.requested(load(FIG3C, ["flows.1.transport={congestion_control: reno}"]))
    assert found["flows.1"]["transport"] == own
    assert found["flows.0"]["from"] == "2-hop"


# --- The fixed instants at which parts of a run begin


STEP_NS, OFFSET_NS = instants.STEP_NS, instants.OFFSET_NS


@pytest.mark.parametrize(
    ("now_ns", "instant_ns"),
    [
        (0, OFFSET_NS),
        (OFFSET_NS - 1, OFFSET_NS),
        (OFFSET_NS, STEP_NS + OFFSET_NS),
        (11 * STEP_NS, 11 * STEP_NS + OFFSET_NS),
        (11 * STEP_NS + 60_000_000, 11 * STEP_NS + OFFSET_NS),
        (11 * STEP_NS + OFFSET_NS + 1, 12 * STEP_NS + OFFSET_NS),
    ],
)
def test_an_instant_follows_however_long_the_part_before_took(now_ns, instant_ns):
    assert instants.following(now_ns, STEP_NS) == instant_ns


def test_a_set_up_that_takes_longer_gets_the_next_instant():
    step_ns = instants.CONNECT_STEP_NS
    early, late = (instants.following(now_ns, step_ns) for now_ns in (11 * 10**9, 14 * 10**9))
    assert early == late == 3 * step_ns + OFFSET_NS
    assert instants.following(early + 1, step_ns) == early + step_ns


def test_it_sleeps_to_the_instant():
    before_ns = time.monotonic_ns()
    instant_ns = instants.sleep_to(STEP_NS // 10)
    assert before_ns < instant_ns <= time.monotonic_ns()
    assert instant_ns % (STEP_NS // 10) == OFFSET_NS % (STEP_NS // 10)
