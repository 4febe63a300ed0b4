"""Bottlenecks at no studied port are told before the run."""

from pathlib import Path

import pytest

from outcast import experiment
from outcast.plan.make import make_plan
from outcast.plan.moved import STARTS, Way, divide, moved

LINEAR = Path(__file__).parents[2] / "configs/linear-12.yaml"


def events(*changes: str, way: str = "s2, s1") -> str:
    """Changes of a link, each as `2s 50mbit`, `2s down` or `2s up`."""
    told = []
    for change in changes:
        at, what = change.split()
        if what in ("up", "down"):
            told.append(f"{{at: {at}, between: [{way}], up: {str(what == 'up').lower()}}}")
        else:
            one, two = way.split(", ")
            told.append(f"{{at: {at}, from: {one}, to: {two}, rate: {what}}}")
    return f"events=[{', '.join(told)}]"


SLOW = events("2s 50mbit")
FAR = "flow 1 (and 11 more) is"
CLASSES = "[{name: few, dscp: [ef], rate: 1mbit}, {name: rest, rate: 1mbit, ceil: 2mbit}]"
POLICED = "links.overrides=[{from: s2, to: s1, policer: {rate: 10mbit, burst: 32KB}}]"


def told(*overrides: str) -> list[str]:
    whole = experiment.load(LINEAR, overrides).resolved("virtual")
    return moved(whole, make_plan(whole))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (SLOW, f"{FAR} s2-eth1 (50 Mbps) from 2s on (events.0)"),
        (
            events("2s 50mbit", "3s 30mbit", "4s 100mbit"),
            f"{FAR} s2-eth1 (50 Mbps) from 2s to 3s (events.0), (30 Mbps) from 3s to 4s (events.1)",
        ),
        (
            events("2s 2mbit", "3s 1mbit", way="h2, s1"),
            "flow 0 is h2-eth0 (2 Mbps) from 2s to 3s (events.0), (1 Mbps) from 3s on (events.1)",
        ),
        (POLICED, f"{FAR} the policer from s2 to s1 (10 Mbps)"),
        (
            "links.overrides=[{from: s1, to: s2, rate: 500kbit}]",
            f"{FAR} s1-eth3 (500 kbps) for its acknowledgements",
        ),
        (
            "workloads=[{kind: constant_rate, from: h4, to: h3, rate: 200mbit}]",
            "UDP from h4 to h3 is h4-eth0 (100 Mbps)",
        ),
        # Less than a tenth below the studied port's rate.
        (events("2s 90mbit"), f"{FAR} s2-eth1 (90 Mbps) from 2s on (events.0)"),
        (events("2s down", "3s up"), f"{FAR} s2-eth1 (down) from 2s to 3s (events.0)"),
        (
            events("300ms down", "1200ms up", "1300ms 50mbit", "2s 100mbit"),
            f"{FAR} s2-eth1 (down) from 300ms to 1200ms (events.0), "
            "(50 Mbps) from 1300ms to 2s (events.2)",
        ),
        # The link fails while it is the bottleneck anyway.
        (
            events("1s 50mbit", "2s down", "3s up"),
            f"{FAR} s2-eth1 (50 Mbps) from 1s to 2s (events.0), (down) from 2s to 3s (events.1), "
            "(50 Mbps) from 3s on (events.2)",
        ),
        (
            events(*(f"{at}s {9 if at % 2 else 100}mbit" for at in range(1, 8))),
            f"{FAR} s2-eth1 (9 Mbps) from 1s to 2s (events.0), (9 Mbps) from 3s to 4s (events.2), "
            "(9 Mbps) from 5s to 6s (events.4), and later",
        ),
        (
            "links.overrides=[{from: s2, to: s1, queue: {kind: htb_classes, limit: 50 packets, "
            f"classes: {CLASSES}}}}}]",
            f"{FAR} class rest of s2-eth1 (2 Mbps)",
        ),
        (
            "workloads=[{kind: constant_rate, from: h4, to: h14, rate: 95mbit, start: 2s, "
            "duration: 2s}]",
            "UDP from h4 to h14 is h4-eth0 (100 Mbps) from 2s to 4s",
        ),
    ],
)
def test_a_bottleneck_elsewhere_is_named_with_its_time(override, words):
    (line,) = told(override)
    assert line.startswith(f"{STARTS}{words}; "), line


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        # As full as the studied port, so both are bottlenecks.
        ("flows=[{from: 3-hop, hosts: 12}]", SLOW.replace("50", "99.9")),
        (events("2s down", way="s1, h1"),),
        (SLOW, "transport.pacing=internal", "transport.pacing_rate=1mbit"),
        (SLOW, "flows=[{from: 3-hop, hosts: 12}]", "bottleneck.port=s2-eth1"),
        (SLOW, "flows=[{from: 2-hop, hosts: 1}]"),
        # The second flow's acknowledgements share a full link with the data of others.
        ("flows=[{from: 3-hop, hosts: 2}, {from: [h2], to: h5}]",),
        (SLOW, "flows=[{from: 2-hop, hosts: 1}, {from: 3-hop, hosts: 2, duration: 1s}]"),
    ],
)
def test_a_bottleneck_at_a_studied_port_is_not(overrides):
    assert told(*overrides) == []


def test_how_to_study_it_is_what_helps():
    (line,) = told(SLOW)
    assert "shown of s1-eth1 alone; `bottleneck: {port: s2-eth1}` studies that port" in line
    assert line.endswith(
        "with `capture: {ports: all}` `outcast inspect DIR --losses` tells where packets are lost"
    )
    (line,) = told(SLOW, "capture.ports=all")
    assert "capture" not in line
    (line,) = told(events("2s 1mbit", way="h3, s2"))
    assert line.startswith(f"{STARTS}flow 1 is h3-eth0 (1 Mbps) from 2s on (events.0); ")
    assert line.endswith("a host's own queue is not captured, and its wait is in rtt.png alone")
    (line,) = told("links.overrides=[{from: s1, to: h1, policer: {rate: 10mbit, burst: 32KB}}]")
    assert line.endswith("alone; a policer has no queue, and its drops count as lost by the link")


def test_transfers_that_arrive_count_with_their_mean_rate():
    flows = [
        "flows=[{from: 2-hop, hosts: 1}, {from: [h4, h5], to: h1}]",
        "links.overrides=[{from: s2, to: s1, rate: 80mbit}]",
    ]
    arrive = "workloads=[{{kind: poisson, from: h3, to: h2, load: {}, sizes: [[100000, 1]]}}]"
    (line,) = told(*flows, arrive.format(0.6))
    assert line.startswith(f"{STARTS}flow 1 (and 1 more) is s2-eth1 (80 Mbps); ")
    assert told(*flows, arrive.format(0.1)) == []


def test_every_segment_may_be_acknowledged():
    thin = "links.overrides=[{from: s1, to: s2, rate: 5mbit}]"
    assert told(thin) == []
    (line,) = told(thin, "transport.delayed_acks=false")
    assert "is s1-eth3 (5 Mbps) for its acknowledgements; " in line
    # No flow's data leaves by that port, so it cannot be studied.
    assert "bottleneck: {port" not in line


def test_of_many_places_three_are_named():
    slow = ", ".join(f"{{at: {n - 2}s, from: h{n}, to: s2, rate: 1mbit}}" for n in range(3, 8))
    (line,) = told(f"events=[{slow}]")
    assert line.count("that of") == 2
    assert "h5-eth0 (1 Mbps) from 3s on (events.2) (and 2 more such links); " in line


def test_a_rate_counts_from_when_it_is_in_force():
    (line,) = told(
        POLICED,
        "events=[{at: 2s, from: s2, to: s1, policer: {rate: 20mbit, burst: 16KB}}, "
        "{at: 3s, from: s2, to: s1, policer: {rate: 5mbit, burst: 64KB}}]",
    )
    assert (
        "the policer from s2 to s1 (10 Mbps) from the start to 2s, "
        "(20 Mbps) from 2s to 3s (events.0), (5 Mbps) from 3s on (events.1); "
    ) in line
    # One that lets all pass at first is no bottleneck until it changes.
    change = "events=[{at: 2s, from: s2, to: s1, policer: {rate: 10mbit, burst: 32KB}}]"
    (line,) = told(change, POLICED.replace("10mbit", "200mbit"))
    assert line.startswith(f"{STARTS}{FAR} the policer from s2 to s1 (10 Mbps) from 2s on ")


def test_a_trace_is_judged_by_its_mean_and_its_extremes(tmp_path):
    rates = tmp_path / "up.csv"
    rates.write_text("time_s,rate_mbps\n0,200\n3.2,20\n3.4,200\n")
    (line,) = told(f"links.overrides=[{{from: s2, to: s1, rate: {{trace: {rates}}}}}]")
    assert "is s2-eth1 (20 Mbps) at times, as at 3200ms (up.csv); " in line


def test_programs_count_where_a_rate_changes():
    programs = "programs=[{name: get, host: h3, command: [echo, '{h1}']}]"
    assert told("flows=[]", programs) == []
    (line,) = told("flows=[]", programs, events("2s 1mbit"))
    assert line.startswith(f"{STARTS}what h3 sends to h1 is s2-eth1 (1 Mbps) from 2s on")


def test_rates_are_divided_max_min():
    one, two = ("a", "b", "port"), ("b", "c", "port")

    def way(*hops: tuple[str, str, str], pace_bps: int | None = None) -> Way:
        return Way("", dict.fromkeys(hops, 1.0), pace_bps, 0, 1)

    ways = [way(one, two), way(one), way(two), way(two, pace_bps=10)]
    ends, left = divide(ways, {one: 60, two: 150})
    assert ends == [(30, one), (30, one), (110 - 30 + 30, two), (10, None)]
    assert left == {one: 0, two: 0}
    assert divide([], {}) == ([], {})
