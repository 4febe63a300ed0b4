"""Where seeds fall into two groups, how many are in which: a mean is no summary of two modes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from outcast.reproduce.result import number

APART = 4.0
"""Two groups are apart if no value lies within this factor between them."""
LEAST_OF_A_GROUP = 2


def two_modes(values: Sequence[float]) -> int | None:
    """How many ratios are in the upper of two groups; None if there are no two.

    The groups are parted at the widest gap of the logarithms. It has to be a factor of `APART`,
    wider than each group itself, and to leave `LEAST_OF_A_GROUP` values on both sides. In the
    upper group the flow with the fewest hops gets less than its share, a ratio of 1. It may in the
    lower group too.
    """
    logs = sorted(math.log(value) for value in values if value > 0)
    if len(logs) < 2 * LEAST_OF_A_GROUP:
        return None
    gaps = [after - before for before, after in itertools.pairwise(logs)]
    at = gaps.index(max(gaps))
    lower, upper = logs[: at + 1], logs[at + 1 :]
    widest = max(lower[-1] - lower[0], upper[-1] - upper[0])
    is_apart = gaps[at] >= max(math.log(APART), widest)
    is_group = min(len(lower), len(upper)) >= LEAST_OF_A_GROUP
    return len(upper) if is_apart and is_group and upper[0] > 0 else None


def share_interval(count: int, of: int, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of a share (Clopper and Pearson, Biometrika 26, 1934)."""
    from scipy.stats import beta

    tail = (1 - level) / 2
    low = 0.0 if count == 0 else float(beta.ppf(tail, count, of - count + 1))
    high = 1.0 if count == of else float(beta.ppf(1 - tail, count + 1, of - count))
    return low, high


def text(label: str, values: Sequence[float]) -> str:
    """A line about a ratio at a point whose seeds have two modes; empty if they have not."""
    count = two_modes(values)
    if count is None:
        return ""
    known = sorted(value for value in values if value > 0)
    low, high = share_interval(count, len(known))
    return (
        f"{label}: the seeds have two modes, so the mean is no summary. {count} of {len(known)} "
        f"have a ratio from {number(known[-count])} on, a share of {number(count / len(known))} "
        f"[{number(low)}, {number(high)}]; the others have {number(known[-count - 1])} at most"
    )
