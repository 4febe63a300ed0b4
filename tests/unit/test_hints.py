"""What makes a run answer another question than asked, told before it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from outcast import experiment, workflow
from outcast.cli.topo import describe
from outcast.plan.hints import hints
from outcast.plan.make import make_plan

LINEAR = Path(__file__).parents[2] / "configs/linear-12.yaml"
DCTCP = "transport.congestion_control=dctcp"


def told(*overrides: str) -> list[str]:
    whole = workflow.resolve(experiment.load(LINEAR, overrides), "virtual")
    return hints(whole, make_plan(whole))


def test_a_usual_run_has_none() -> None:
    assert told() == []


@pytest.mark.parametrize(
    ("queue", "remedy"),
    [
        ("{kind: tbf, limit: 1 bdp}", "give it the kind ecn_threshold"),
        ("{kind: codel, limit: 100 packets}", "give it ecn: true"),
    ],
)
def test_ecn_at_a_queue_that_never_marks(queue: str, remedy: str) -> None:
    (line,) = told(DCTCP, f"queue={queue}")
    assert line.startswith("flow 0 (and 12 more) has ECN (dctcp), but the queue of s1-eth1")
    assert line.endswith(remedy)
    assert told("transport.ecn=true", f"queue={queue}") != []


@pytest.mark.parametrize(
    "queue",
    [
        "{kind: ecn_threshold, limit: 100 packets, threshold: 20 packets}",
        "{kind: codel, limit: 100 packets, ecn: true}",
        "{kind: red, limit: 64KB, ecn: true}",
        "{kind: cake, limit: 1MB}",
        "{kind: dualpi2, limit: 100 packets}",
        "{kind: custom, qdisc: mine}",
    ],
)
def test_a_queue_that_may_mark_is_fine(queue: str) -> None:
    assert told(DCTCP, f"queue={queue}") == []


def test_a_run_shorter_than_ten_round_trips() -> None:
    (line,) = told("links.delay=50ms", "links.rate=10mbit", "duration=500ms")
    assert "lasts 500ms, which are 1.6 base round trips of 303.9 ms" in line
    assert line.endswith("for 10 of them set duration to 3040ms or more")
    assert told("links.delay=50ms", "links.rate=10mbit", "duration=4s") == []
    # A flow of a size ends when it is done.
    assert told("links.delay=50ms", "links.rate=10mbit", "flows=[{from: 2-hop, bytes: 1KB}]") == []


def test_a_buffer_that_holds_less_than_the_path() -> None:
    slow = ("links.delay=50ms", "links.rate=10mbit", "duration=10s")
    (line,) = told(*slow, "transport.receive_buffer=64KB")
    assert "set transport.receive_buffer: " in line


def test_topo_tells_them_too() -> None:
    whole = experiment.load(LINEAR, [DCTCP])
    assert any("never marks" in line for line in describe(whole, make_plan(whole)))
