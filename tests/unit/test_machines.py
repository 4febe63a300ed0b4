"""When a setting counts as giving the same result on unlike machines."""

import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from benchmarks import machines
from outcast.records.run import Run


def runs(ratios: Sequence[float | None]) -> list[Run]:
    return [
        cast("Run", SimpleNamespace(summary=SimpleNamespace(outcast_ratio=ratio)))
        for ratio in ratios
    ]


QUIET = [5.0, 5.5, 6.0, 4.8, 5.2]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        pytest.param([5.1, 5.6, 6.1, 4.9, 5.3], True, id="alike"),
        pytest.param([1.0, 1.1, 0.9, 1.2, 1.0], False, id="apart"),
        # An interval that is so wide overlaps any other.
        pytest.param([0.1, 90.0, 2.0, 60.0, 70.0], False, id="wide"),
        pytest.param([5.1, None, 6.1, 4.9, 5.3], False, id="one is infinite"),
        pytest.param([5.1, 0.0, 6.1, 4.9, 5.3], False, id="one is zero"),
        pytest.param([5.1], False, id="no interval"),
    ],
)
def test_machines_agree(other, expected):
    assert machines.agree([runs(QUIET), runs(QUIET), runs(other)]) is expected


def test_one_core_is_given_back():
    before = os.sched_getaffinity(0)
    with machines.one_core():
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before
