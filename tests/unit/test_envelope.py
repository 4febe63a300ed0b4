"""The tested envelope: each bound is what some case of tests/physics/ reaches."""

import pytest

import configs
import outcast
from outcast import experiment
from outcast.plan.hints import BOUNDS, envelope_warnings, extents
from outcast.plan.make import make_plan
from tests.physics.cases import CASES
from tests.physics.run import configuration, experiments


def test_the_bounds_are_those_of_the_cases(tmp_path):
    tried: dict[str, list[int]] = {name: [] for name in BOUNDS}
    for cases in experiments(CASES):
        case = outcast.load(configuration(cases[0], tmp_path))
        for name, number, _ in extents(case, make_plan(case)):
            tried[name].append(number)
    assert {name: (min(numbers), max(numbers)) for name, numbers in tried.items()} == {
        name: (bound.least, bound.most) for name, bound in BOUNDS.items()
    }


def told(*overrides: str, engine: str = "virtual") -> list[str]:
    whole = experiment.load(configs.find("linear-12"), list(overrides))
    return envelope_warnings(whole, make_plan(whole), engine)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("links.rate=12gbit", "12gbit, is outside the tested envelope (100kbit to 10gbit; docs/"),
        ("links.rate=50kbit", "50kbit, is outside"),
        ("links.delay=1s", "the delay of the link from "),
        ("flows.1.per_host=50", "the number of flows, 601, is outside the tested envelope (1 to"),
        ("links.mtu=9216", "9216, is outside the tested envelope (576 to 9000;"),
        ("queue.limit=1 packets", "1 packet, is outside the tested envelope (2 packets to"),
        ("queue.limit=30000 packets", "the limit of the queue at s1-eth1, 30000 packets, is"),
        ("duration=300s", "the duration, 300s, is outside the tested envelope (100ms to 120s;"),
        ("events=[{at: 10ms, between: [s1, s2], rate: 50kbit}]", "rate of events.0, 50kbit"),
    ],
)
def test_what_lies_outside_is_told_with_its_bound(override, words):
    assert told() == []
    assert words in "\n".join(told(override))


def test_real_time_has_a_bound_of_its_own():
    assert told(engine="realtime") == []
    (line,) = told("links.rate=1gbit", engine="realtime")
    assert line.startswith("a path of 1gbit is faster than what two free cores carried in real")
