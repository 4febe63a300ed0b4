"""The rate of a link over time, by what was read back."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from outcast.records.effective import AppliedChange
from outcast.records.link_rate import FIRST_NS, LinkRate, down_spans_ns, link_rate, steps_of
from outcast.records.run_directory import Manifest, PortRates, Rates, TrafficRecord


def change(at: int | None, what: str, value: int, port: str = "s1-eth1") -> AppliedChange:
    shown = None if at is None else value
    return AppliedChange(0, 0, at, "s1", "h1", port, what, value, shown)


def manifest(*changes: AppliedChange) -> Manifest:
    traffic = TrafficRecord(t_start_ns=1000, t_end_ns=2000, duration_ns=900)
    return Manifest.model_construct(changes=list(changes), traffic=traffic)


def test_a_rate_without_changes_is_constant() -> None:
    rate = link_rate(manifest(change(5, "rate_bps", 80, "s1-eth2")), Rates(), "s1-eth1", 100)
    assert rate.is_constant
    assert rate.mean_bps(np.array([0, 7, 9])).tolist() == [100.0, 100.0]


def test_events_and_traces_change_it_from_their_actual_times_on() -> None:
    trace = PortRates(
        port="s1-eth1", trace="t.csv", t_ns=[300], rate_bps=[60], latest_ns=0, skipped=0
    )
    rate = link_rate(
        manifest(
            change(100, "rate_bps", 80), change(None, "rate_bps", 40), change(2, "delay_ns", 5)
        ),
        Rates(ports=[trace]),
        "s1-eth1",
        100,
    )
    assert (rate.t_ns, rate.rate_bps) == ((FIRST_NS, 100, 300), (100, 80, 60))
    assert rate.at(np.array([0, 99, 100, 300, 999])).tolist() == [100, 100, 80, 60, 60]
    assert rate.mean_bps(np.array([0, 200, 400])).tolist() == [90, 70]


def test_the_delays_that_events_gave_a_port() -> None:
    of = manifest(change(5, "delay_ns", 80), change(6, "rate_bps", 1), change(None, "delay_ns", 7))
    assert steps_of(of, "s1-eth1", "delay_ns") == [(5, 80)]
    assert steps_of(of, "s1-eth2", "delay_ns") == []


def test_a_link_that_is_down_carries_nothing_and_has_its_new_rate_afterwards() -> None:
    of = manifest(change(100, "up", 0), change(150, "rate_bps", 80), change(200, "up", 1))
    rate = link_rate(of, Rates(), "s1-eth1", 100)
    assert (rate.t_ns, rate.rate_bps) == ((FIRST_NS, 100, 200), (100, 0, 80))
    assert down_spans_ns(of, "s1-eth1") == [(100, 200)]
    assert down_spans_ns(of, "s1-eth2") == []
    assert down_spans_ns(manifest(change(100, "up", 0)), "s1-eth1") == [(100, 1000)]


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 10**9)), max_size=8),
    st.lists(st.integers(-10, 1010), min_size=2, max_size=8, unique=True),
)
def test_means_are_those_of_a_sum_over_every_nanosecond(
    steps: list[tuple[int, int]], edges: list[int]
) -> None:
    by_time = dict(sorted(steps))
    rate = LinkRate((FIRST_NS, *by_time), (7, *by_time.values()))
    edges_ns = np.array(sorted(edges))
    every = rate.at(np.arange(edges_ns[0], edges_ns[-1]))
    means = [every[a - edges_ns[0] : b - edges_ns[0]].mean() for a, b in pairwise(edges_ns)]
    assert np.allclose(rate.mean_bps(edges_ns), means)
