"""The share of seeds that starve, where seeds have two modes."""

from __future__ import annotations

import math

import pytest

from scripts import reproduction_modes as modes

STARVING = [300.0, 250.0, 400.0]
FAIR = [1.2, 0.8, 1.0, 1.5, 0.9, 1.1, 1.3]


@pytest.mark.parametrize(
    ("values", "count"),
    [
        ([*FAIR, *STARVING], 3),
        (FAIR, None),
        # One outlier is no mode, and a wide spread has none.
        ([*FAIR, 300.0], None),
        ([1.0, 5.0, 25.0, 125.0, 625.0], None),
        # Both groups get their share or more.
        ([value / 500 for value in (*FAIR, *STARVING)], None),
        ([], None),
    ],
)
def test_two_modes(values: list[float], count: int | None) -> None:
    assert modes.two_modes(values) == count


@pytest.mark.parametrize("of", [5, 10])
def test_the_interval_covers_the_share_it_is_of(of: int) -> None:
    """Student's t covers less there; Clopper's and Pearson's covers 95 % whatever the share."""
    for share in (0.05, 0.1, 0.3, 0.5):
        covered = sum(
            math.comb(of, count) * share**count * (1 - share) ** (of - count)
            for count in range(of + 1)
            if modes.share_interval(count, of)[0] <= share <= modes.share_interval(count, of)[1]
        )
        assert covered >= 0.95


def test_the_line() -> None:
    assert modes.text("taildrop", FAIR) == ""
    assert modes.text("taildrop", [*FAIR, *STARVING]) == (
        "taildrop: the seeds have two modes, so the mean is no summary. 3 of 10 starve, a share of "
        "0.3 [0.0667, 0.652]"
    )
