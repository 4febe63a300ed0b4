"""Where seeds fall into two groups, how many are in which: a mean is no summary of two modes."""

from __future__ import annotations

from collections.abc import Sequence

from outcast.analysis import statistics
from outcast.uses.papers.result import number
from outcast.uses.papers.verdict import two_modes


def text(label: str, values: Sequence[float]) -> str:
    """A line about a ratio at a point whose seeds have two modes; empty if they have not.

    It is empty too where the flow with the fewest hops has its share or more in both groups.
    """
    count = two_modes(values)
    known = sorted(value for value in values if value > 0)
    if count is None or known[-count] <= 1:
        return ""
    low, high = statistics.probability(count, len(known))
    return (
        f"{label}: the seeds have two modes, so the mean is no summary. {count} of {len(known)} "
        f"have a ratio from {number(known[-count])} on, a share of {number(count / len(known))} "
        f"[{number(low)}, {number(high)}]; the others have {number(known[-count - 1])} at most"
    )
