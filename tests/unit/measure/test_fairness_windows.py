"""Jain's index, also over sliding windows, and the outcast ratio."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcast.analysis.measure.bins import FlowBins
from outcast.analysis.measure.fairness import changes, sliding, widths_in_bins
from outcast.analysis.measure.flows import holder, outcast_ratio
from outcast.analysis.measure.spreads import jain_index
from outcast.analysis.run_analysis import Interval

BIN_NS = 10


def bins_of(goodput: list[list[int]]) -> FlowBins:
    values = np.array(goodput, np.int64)
    start = np.arange(values.shape[1], dtype=np.int64) * BIN_NS
    width = np.full(start.size, BIN_NS, np.int64)
    flows = tuple(range(values.shape[0]))
    return FlowBins(flows, start, width, values, values, values)


def test_only_flows_active_all_the_while_count():
    bins = bins_of([[4, 4, 4, 4], [0, 4, 4, 0], [0, 0, 2, 2]])
    spans = [Interval(0, 40), Interval(10, 30), Interval(15, 40)]
    rows = sliding(bins, spans, 1).rows(named=True)
    found = [(row["t_start"], row["t_end"], row["flows"]) for row in rows]
    assert found == [(10, 20, 2), (20, 30, 3), (30, 40, 2)]
    assert rows[0]["jain"] == 1
    assert rows[1]["jain"] == pytest.approx(100 / 108)
    assert rows[2]["jain"] == pytest.approx(0.9)
    assert rows[0]["goodput_bps"] == pytest.approx(8 * 8e9 / 10)


def test_all_windows_are_of_one_length_where_the_last_bin_is_cut():
    bins = bins_of([[4, 4, 4, 1], [4, 0, 4, 1]])
    cut = dataclasses.replace(bins, width_ns=np.array([10, 10, 10, 3], np.int64))
    rows = sliding(cut, [Interval(0, 33)] * 2, 2)
    assert (rows["t_end"] - rows["t_start"]).to_list() == [20, 20]
    whole = sliding(cut, [Interval(0, 33)] * 2, 4)
    assert whole.select("t_start", "t_end").rows() == [(0, 33)]


def test_after_a_change_the_shortest_windows_of_the_new_flows_count():
    flows = [(0, 100), (0, 100), (40, 60)]
    records = [SimpleNamespace(start_ns=begin, duration_ns=end - begin) for begin, end in flows]
    traffic = SimpleNamespace(duration_ns=100)
    run: Any = SimpleNamespace(
        manifest=SimpleNamespace(traffic=traffic, compared_flows=records), ports=[]
    )
    rows = [
        # Windows: fair, but begun before the change; unfair; fair at last; and a longer one.
        (0, 10, 0.5),
        (10, 20, 0.95),
        (35, 45, 1.0),
        (40, 50, 0.89),
        (50, 60, 0.9),
        (55, 65, 1.0),
        (60, 70, 0.1),
        (40, 60, 1.0),
        (60, 80, 1.0),
    ]
    table = pl.DataFrame(rows, schema=["t_start", "t_end", "jain"], orient="row")
    found = [(change.t_s, change.flows, change.fair_after_s) for change in changes(run, table)]
    assert found == [(0, 2, 20e-9), (40e-9, 3, 20e-9), (60e-9, 2, None)]
    assert changes(run, None) == []


def test_two_that_got_nothing_have_no_index():
    rows = sliding(bins_of([[0, 0], [0, 0]]), [Interval(0, 20)] * 2, 2)
    assert rows["jain"].to_list() == [None]


@given(
    st.integers(2, 5).flatmap(
        lambda flows: st.lists(
            st.lists(st.integers(0, 1000), min_size=8, max_size=8), min_size=flows, max_size=flows
        )
    ),
    st.integers(1, 8),
)
def test_it_is_the_index_of_the_sums(goodput, width):
    rows = sliding(bins_of(goodput), [Interval(0, 80)] * len(goodput), width)
    assert rows.height == 8 - width + 1
    for first, found in enumerate(rows["jain"].to_list()):
        expected = jain_index([sum(flow[first : first + width]) for flow in goodput])
        assert found == pytest.approx(expected)


def test_windows_are_whole_bins_and_shorter_than_the_run():
    assert widths_in_bins([100, 200, 500], 10, 50) == [10, 20]
    assert widths_in_bins([4], 10, 50) == [1]
    assert widths_in_bins([], 10, 50) == [10]
    assert widths_in_bins([500], 10, 5) == [5]


def test_known_values():
    assert jain_index([5, 5, 5]) == 1
    assert jain_index([1, 0, 0, 0]) == 0.25
    assert jain_index([1, 3]) == 0.8
    assert jain_index([0, 0]) is None
    assert jain_index([]) is None


@given(st.lists(st.floats(0.001, 1e9), min_size=1), st.floats(0.01, 100))
def test_jain_is_bounded_and_free_of_scale(shares, factor):
    index = jain_index(shares)
    assert 1 / len(shares) - 1e-9 <= index <= 1 + 1e-9
    assert jain_index([share * factor for share in shares]) == pytest.approx(index)


def test_outcast_ratio():
    assert outcast_ratio({2: 10.0, 4: 50.0, 6: 70.0}) == 7
    assert outcast_ratio({6: 30.0, 2: 60.0}) == 0.5
    assert outcast_ratio({2: 10.0}) is None
    assert outcast_ratio({2: 0.0, 6: 70.0}) is None


def test_the_flow_that_held_the_link():
    assert holder({0: 1.0, 1: 98.0, 2: 0.5}) == 1
    assert holder({0: 0.0, 1: 0.0, 2: 3.0}) == 2
    assert holder({0: 8.0, 1: 91.0, 2: 2.0}) == 1
    assert holder({0: 9.0, 1: 90.0, 2: 1.0}) is None
    assert holder({0: 1.0, 1: 98.0}) is None, "of two, one that starves is the outcast itself"
    assert holder({0: 0.0, 1: 0.0, 2: 0.0}) is None
    assert holder({}) is None
