"""Distributions of measured values, and Jain's index of shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from outcast.analysis.machine_code import Array

if TYPE_CHECKING:
    from outcast.records.port_summaries import SpreadSummary
    from outcast.records.summary import TimesSummary


class Spread(NamedTuple):
    mean: float
    p50: float
    p90: float
    p99: float
    max: float


def spread_of(values: Array) -> Spread | None:
    return weighted_spread(values, np.ones(values.size, np.int64)) if values.size else None


def weighted_spread(values: Array, weights: Array) -> Spread:
    """The distribution of values with whole-numbered weights."""
    order = np.argsort(values, kind="stable")
    values, reached = values[order], np.cumsum(weights[order])
    total = int(reached[-1])
    if not total:
        return Spread(0.0, 0.0, 0.0, 0.0, 0.0)
    p50, p90, p99 = (
        float(values[np.searchsorted(reached, share * total)]) for share in (0.5, 0.9, 0.99)
    )
    mean = float(np.dot(values, weights[order])) / total
    return Spread(mean, p50, p90, p99, float(values[weights[order] > 0][-1]))


def in_unit(found: Spread | None, unit: float) -> SpreadSummary | None:
    """A distribution as the summary has it: over a unit, with a rounded mean."""
    # A join measures spreads too, and does without pydantic.
    from outcast.records.port_summaries import SpreadSummary

    if found is None:
        return None
    scaled = {name: value / unit for name, value in found._asdict().items()}
    return SpreadSummary(**scaled | {"mean": round(scaled["mean"], 6)})


def in_ms(values_ns: Array) -> SpreadSummary | None:
    return in_unit(spread_of(values_ns), 1e6)


def times_summary(flows: int, times_ns: Sequence[int]) -> TimesSummary:
    """The completion times of the flows that finished, of `flows` that had a size."""
    from outcast.records.summary import TimesSummary

    times_ms = np.array(times_ns).astype(float) / 1e6
    if not times_ms.size:
        none = dict.fromkeys(("mean_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms"))
        return TimesSummary(flows=flows, finished=0, **none)
    p50, p95, p99 = np.quantile(times_ms, [0.5, 0.95, 0.99]).tolist()
    return TimesSummary(
        flows=flows,
        finished=times_ms.size,
        mean_ms=float(times_ms.mean()),
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        max_ms=float(times_ms.max()),
    )


def jain_index(shares: Sequence[float]) -> float | None:
    """Jain's fairness index (DEC-TR-301): 1/n if one of n has everything; None if all are 0."""
    square = sum(shares) ** 2
    squares = sum(share * share for share in shares)
    return square / (len(shares) * squares) if squares else None
