"""What makes a run answer another question than asked, told before it runs."""

import pytest

import configs
import outcast
from outcast import experiment
from outcast.plan.hints import BOUNDS, beforehand, envelope_warnings, extents
from outcast.plan.make import make_plan
from outcast.view.terminal.topology import describe
from tests.physics.cases import CASES
from tests.physics.run import configuration, experiments
from tests.plans import planned

SLOW = ("links.delay=50ms", "links.rate=10mbit")
DCTCP = "transport.congestion_control=dctcp"


def told(*overrides: str) -> list[str]:
    return beforehand(*planned("linear-12", *overrides), "virtual")


def topo(*overrides: str) -> list[str]:
    return describe(*planned("linear-12", *overrides))


@pytest.mark.parametrize(
    "queue", ["{kind: tbf, limit: 1 bdp}", "{kind: codel, limit: 100 packets}"]
)
def test_ecn_at_a_queue_that_never_marks(queue):
    (line,) = told(DCTCP, f"queue={queue}")
    assert line.startswith("flow 0 has ECN (dctcp), but the queue of s1-eth1")
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
def test_a_queue_that_may_mark_is_fine(queue):
    assert told() == told(DCTCP, f"queue={queue}") == []


def test_a_buffer_that_holds_less_than_the_path():
    slow = (*SLOW, "duration=10s")
    for key in ("receive_buffer", "send_buffer"):
        (line,) = told(*slow, f"transport.{key}=64KB")
        assert line.endswith(f"; transport.{key} sets more")
    # Below a large packet it limits no further.
    (line,) = told(*slow, "transport.send_buffer=16KB")
    assert line.startswith("transport.send_buffer: below 64KB a send buffer limits no")


def test_topo_says_what_senders_can_bring_to_each_port():
    lines = topo("links.rate=100mbit", "links.overrides=[{from: s2, to: s1, rate: 50mbit}]")
    at = lines.index("offered load over rate (what senders' own ports let through)")
    assert lines[at + 1 : at + 4] == [
        "  s2-eth1: 24  (1.2 Gbps of 50 Mbps)",
        "  s1-eth1: 7  (700 Mbps of 100 Mbps)",
        "",
    ]
    paced = "workloads=[{kind: constant_rate, from: [h2, h3], to: h1, rate: 30mbit}]"
    assert "  s1-eth1: 0.6  (60 Mbps of 100 Mbps)" in topo("flows=[]", paced)


# --- The tested envelope: each bound is what some case of tests/physics/ reaches


def test_the_bounds_are_those_of_the_cases(tmp_path):
    tried: dict[str, list[int]] = {name: [] for name in BOUNDS}
    for cases in experiments(CASES):
        case = outcast.load(configuration(cases[0], tmp_path))
        for name, numbers in extents(case, make_plan(case)).items():
            tried[name] += numbers
    assert {name: (min(numbers), max(numbers)) for name, numbers in tried.items()} == {
        name: (least, most) for name, (least, most, _) in BOUNDS.items()
    }


def outside(*overrides: str, engine: str = "virtual") -> list[str]:
    whole = experiment.load(configs.find("linear-12"), list(overrides))
    return envelope_warnings(whole, make_plan(whole), engine)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("links.rate=12gbit", "12gbit is outside the tested envelope (100kbit to 10gbit; docs/"),
        ("links.rate=50kbit", "50kbit is outside"),
        ("links.delay=1s", "the delay 1s is outside"),
        ("flows.1.per_host=50", "the number of flows 601 is outside the tested envelope (1 to"),
        ("links.mtu=9216", "9216 is outside the tested envelope (576 to 9000;"),
        ("queue.limit=1 packets", "1 packet is outside the tested envelope (2 packets to"),
        ("queue.limit=30000 packets", "the limit 30000 packets is"),
        ("duration=300s", "the duration 300s is outside the tested envelope (100ms to 120s;"),
        ("events=[{at: 10ms, between: [s1, s2], rate: 50kbit}]", "the rate 50kbit is"),
    ],
)
def test_what_lies_outside_is_told_with_its_bound(override, words):
    assert outside() == []
    assert words in "\n".join(outside(override))


def test_real_time_has_a_bound_of_its_own():
    assert outside(engine="realtime") == []
    (line,) = outside("links.rate=1gbit", engine="realtime")
    assert line.startswith("a path of 1gbit is faster than what two free cores carried in real")
