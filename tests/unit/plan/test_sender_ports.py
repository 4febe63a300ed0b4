"""Senders' own ports that keep the studied queue empty: told before a run, over a grid of rates."""

from pathlib import Path

import pytest
import yaml

from outcast.experiment import load
from outcast.plan.hints import HELD, held_at_senders
from outcast.plan.make import make_plan


def told(tmp_path: Path, **keys: object) -> list[str]:
    path = tmp_path / "one.yaml"
    path.write_text(yaml.safe_dump({"name": "one", "duration": "10s", **keys}))
    experiment = load(path)
    return held_at_senders(experiment, make_plan(experiment))


def star(own_mbps: int, rate_mbps: int, senders: int, **more: object) -> dict[str, object]:
    names = [f"h{number}" for number in range(2, 2 + senders)]
    return {
        "topology": {"kind": "star", "hosts": senders + 1},
        "links": {
            "rate": f"{own_mbps}mbit",
            "delay": "1ms",
            "overrides": [{"between": ["s1", "h1"], "rate": f"{rate_mbps}mbit"}],
        },
        "queue": {"kind": "pfifo", "limit": "20 packets"},
        "flows": [{"from": names}],
        **more,
    }


@pytest.mark.parametrize("senders", [1, 2, 5])
@pytest.mark.parametrize("own_mbps", [1, 4, 10, 20, 100])
def test_a_grid_of_rates(tmp_path, own_mbps, senders):
    for rate_mbps in (1, 4, 10, 20, 100):
        lines = told(tmp_path, **star(own_mbps, rate_mbps, senders))
        assert bool(lines) is (own_mbps * senders <= rate_mbps), (own_mbps, senders, rate_mbps)


def test_the_line_names_the_key_that_cures_it(tmp_path):
    keys = star(20, 20, 1)
    (line,) = told(tmp_path, **keys)
    assert line.startswith(
        f"{HELD}, and hardly any at s1-eth1, whatever its limit: senders can bring 20 "
    )
    cure = yaml.safe_load(line.partition("links.overrides: ")[2])
    keys["links"] = {**keys["links"], "overrides": cure}
    assert told(tmp_path, **keys) == []


@pytest.mark.parametrize(
    "more",
    [
        # What is paced, or sends at a rate of its own, fills no queue anywhere.
        {"flows": [{"from": ["h2"], "transport": {"pacing": "fq", "pacing_rate": "5mbit"}}]},
        {"flows": [], "workloads": [{"kind": "constant_rate", "from": ["h2"], "rate": "5mbit"}]},
        # The link's rate falls, so that its queue fills.
        {"events": [{"at": "1s", "between": ["s1", "h1"], "rate": "10mbit"}]},
        # Each class has less than the link.
        {
            "queue": {
                "kind": "htb_classes",
                "limit": "20 packets",
                "classes": [
                    {"name": "a", "rate": "5mbit", "ceil": "5mbit"},
                    {"name": "b", "rate": "5mbit", "dscp": 8},
                ],
            }
        },
    ],
)
def test_nothing_is_said_where_it_does_not_hold(tmp_path, more):
    assert told(tmp_path, **star(20, 20, 1, **more)) == []


def test_a_link_that_duplicates_or_bunches_packets_fills_the_queue(tmp_path):
    for fault in ({"duplicate": 0.1}, {"random_delay": {"mean": "4ms", "spread": "2ms"}}):
        keys = star(20, 20, 1)
        keys["links"] = {**keys["links"], "overrides": [{"from": "h2", "to": "s1", **fault}]}
        assert told(tmp_path, **keys) == []


def test_another_port_that_comes_first(tmp_path):
    """Two senders merge before the studied port, and packets wait there."""
    keys = {
        "topology": {"kind": "linear", "rivals": 2},
        "links": {"rate": "10mbit", "delay": "1ms"},
        "queue": {"kind": "pfifo", "limit": "20 packets"},
        "flows": [{"from": "3-hop"}],
        "bottleneck": {"port": "s1-eth1"},
    }
    assert told(tmp_path, **keys) == []
    (line,) = told(tmp_path, **{**keys, "flows": [{"from": "3-hop", "hosts": 1}]})
    assert line.startswith(HELD)
