"""Jain's index and the outcast ratio."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcast.analysis.measure.fairness import holder, jain_index, outcast_ratio


def test_known_values() -> None:
    assert jain_index([5, 5, 5]) == 1
    assert jain_index([1, 0, 0, 0]) == 0.25
    assert jain_index([1, 3]) == 0.8
    assert jain_index([0, 0]) is None
    assert jain_index([]) is None


@given(st.lists(st.floats(0.001, 1e9), min_size=1), st.floats(0.01, 100))
def test_jain_is_bounded_and_free_of_scale(shares: list[float], factor: float) -> None:
    index = jain_index(shares)
    assert index is not None
    assert 1 / len(shares) - 1e-9 <= index <= 1 + 1e-9
    assert jain_index([share * factor for share in shares]) == pytest.approx(index)


def test_outcast_ratio() -> None:
    assert outcast_ratio({2: 10.0, 4: 50.0, 6: 70.0}) == 7
    assert outcast_ratio({6: 30.0, 2: 60.0}) == 0.5
    assert outcast_ratio({2: 10.0}) is None
    assert outcast_ratio({2: 0.0, 6: 70.0}) is None


def test_the_flow_that_held_the_link() -> None:
    assert holder({0: 1.0, 1: 98.0, 2: 0.5}) == 1
    assert holder({0: 0.0, 1: 0.0, 2: 3.0}) == 2
    assert holder({0: 8.0, 1: 91.0, 2: 2.0}) == 1
    assert holder({0: 9.0, 1: 90.0, 2: 1.0}) is None
    assert holder({0: 1.0, 1: 98.0}) is None, "of two, one that starves is the outcast itself"
    assert holder({0: 0.0, 1: 0.0, 2: 0.0}) is None
    assert holder({}) is None
