"""The seam to numba."""

from __future__ import annotations

import numpy as np

from outcast.analysis import compiled


def test_the_first_value_that_is_large_enough() -> None:
    values = np.array([-5, 0, 0, 3, 9, 9, 20])
    for least in range(-7, 23):
        assert compiled.first_at_least(values, least) == np.searchsorted(values, least)
    assert compiled.first_at_least(values[:0], 1) == 0
