"""Chains of consecutive drops beside those that a lot would make: are drops clustered?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

LOTS = 20
"""How often the lot is drawn. Its mean is then known to a fifth of one lot's spread."""


def chains(lost: npt.NDArray[np.bool_]) -> int:
    """How many chains of consecutive drops a series of packets has."""
    return int(np.count_nonzero(lost[1:] & ~lost[:-1])) + int(lost[0]) if lost.size else 0


def chains_by_lot(lost: npt.NDArray[np.bool_], blocks: npt.NDArray[np.int64], seed: int) -> float:
    """How many chains there are on average if a lot says which packets of a block are dropped.

    Each block keeps its number of drops, so neither a high loss rate nor congestion that comes and
    goes makes the number differ from `chains(lost)`. Packets are of one input port, in the order of
    arrival; their blocks ascend. `seed` decides the lots.
    """
    generator = np.random.default_rng(seed)
    counts = [chains(lost[np.lexsort((generator.random(lost.size), blocks))]) for _ in range(LOTS)]
    return float(np.mean(counts))
