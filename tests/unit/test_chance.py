"""Chains of drops against those by lot."""

from __future__ import annotations

import numpy as np
import pytest

from outcast.analysis.measure import chance


def lost(text: str) -> np.ndarray:
    return np.array([letter == "x" for letter in text])


@pytest.mark.parametrize(
    ("packets", "count"), [("", 0), ("...", 0), ("xx", 1), ("x.x", 2), (".xx.x", 2), ("xx..xx", 2)]
)
def test_chains_are_counted(packets: str, count: int) -> None:
    assert chance.chains(lost(packets)) == count


def test_drops_without_memory_are_as_by_lot() -> None:
    dropped = np.random.default_rng(3).random(20_000) < 0.2
    blocks = np.arange(20_000) // 64
    assert chance.chains_by_lot(dropped, blocks, 0) / chance.chains(dropped) == pytest.approx(
        1, abs=0.03
    )


def test_drops_in_threes_are_longer_than_by_lot() -> None:
    dropped = np.repeat(np.random.default_rng(3).random(7_000) < 0.1, 3)
    blocks = np.arange(21_000) // 64
    assert chance.chains_by_lot(dropped, blocks, 0) / chance.chains(dropped) > 2.5


def test_congestion_that_comes_and_goes_is_no_chain() -> None:
    # Every other block loses half of its packets. The lot stays within a block.
    blocks = np.arange(20_000) // 64
    dropped = (np.random.default_rng(3).random(20_000) < 0.5) & (blocks % 2 == 0)
    ratio = chance.chains_by_lot(dropped, blocks, 0) / chance.chains(dropped)
    assert ratio == pytest.approx(1, abs=0.03)


def test_a_block_of_drops_alone_stays_one_chain() -> None:
    dropped = lost("....xxxx....")
    assert chance.chains_by_lot(dropped, np.arange(12) // 4, 0) == 1
