"""Which drops have to do with a full queue."""

from __future__ import annotations

import numpy as np
import pytest

from outcast.analysis.measure.random_loss import _is_even


@pytest.mark.parametrize("share_of_bursts", [0.0, 0.1])
def test_drops_by_chance_are_even_also_where_bursts_begin(share_of_bursts: float) -> None:
    rng = np.random.default_rng(1)
    found = rng.integers(0, 10**6, 20_000).astype(np.int32)
    dropped = rng.choice(found, 500)
    dropped = np.concatenate([dropped, np.sort(found)[: int(500 * share_of_bursts)]])
    assert _is_even(found, dropped)


def test_a_full_queue_drops_what_finds_much() -> None:
    rng = np.random.default_rng(2)
    found = rng.integers(0, 10**6, 20_000).astype(np.int32)
    assert not _is_even(found, np.sort(found)[-300:])
    assert not _is_even(found, rng.choice(found[found > 600_000], 300))
