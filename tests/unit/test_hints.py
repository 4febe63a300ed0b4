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
    assert "lasts 500ms, which are 1.6 base round trips of 303.9ms" in line
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


@pytest.mark.parametrize(
    ("queue", "words"),
    [
        ("{kind: tbf, limit: 16KB}", "tbf, limit 16KB (1.23ms at 100 Mbps)"),
        (
            "{kind: red, limit: 150KB}",
            "red, limit 150KB (12.43ms at 100 Mbps), average from 11 to 34 packets",
        ),
        (
            "{kind: codel, limit: 100 packets}",
            "codel, limit 100 packets (12.3ms at 100 Mbps), target 5ms",
        ),
        (
            "{kind: ecn_threshold, limit: 100 packets, threshold: 20 packets}",
            "ecn_threshold, limit 100 packets (12.3ms at 100 Mbps), threshold 20 packets",
        ),
        ("{kind: cake, limit: 1MB}", "cake, limit 1MB"),
        ("{kind: custom, qdisc: mine}", "custom"),
    ],
)
def test_topo_says_how_long_the_studied_queue_is(queue: str, words: str) -> None:
    whole = workflow.resolve(experiment.load(LINEAR, [f"queue={queue}"]), "virtual")
    lines = describe(whole, make_plan(whole))
    assert f"  queue: {words}" in lines
