"""Distributions in a few numbers: of a queue's length, of sojourn times, of any values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from outcast.analysis.compiled import Array, Bool
from outcast.analysis.join.join import Joined
from outcast.analysis.measure.queue import Event, Queue

if TYPE_CHECKING:
    from outcast.records.port_summaries import SpreadSummary


@dataclass(frozen=True, slots=True)
class Spread:
    """The mean, quantiles and the greatest of values, in their unit."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float


def spread_of(values: Array) -> Spread | None:
    """The distribution of values; None without any."""
    return spread(values, np.ones(values.size, np.int64)) if values.size else None


def spread(values: Array, weights: Array) -> Spread:
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


def length_spread(queue: Queue, egress: int, start_ns: int, end_ns: int) -> Spread | None:
    """The distribution over time of the queue's length in bytes; None without any event."""
    mine = queue.egress == egress
    time, held = queue.time_ns[mine], queue.bytes[mine]
    if not time.size:
        return None
    edges = np.concatenate([[start_ns], np.clip(time, start_ns, end_ns), [end_ns]])
    first = held[0] if queue.event[mine][0] == Event.DEQUEUE else 0
    return spread(np.concatenate([[first], held]), np.diff(edges).clip(min=0))


def sojourn_spread(joined: Joined, egress: int, counts: Bool | None = None) -> Spread | None:
    """The distribution of sojourn times in ns, of arrivals in `counts`; None if no packet left."""
    mine = (joined.egress == egress) & (joined.left_as >= 0)
    if counts is not None:
        mine &= counts
    if not mine.any():
        return None
    return spread_of(
        joined.departures.stamp_ns[joined.left_as[mine]] - joined.arrivals.stamp_ns[mine]
    )


def in_unit(found: Spread | None, unit: float) -> SpreadSummary | None:
    """A distribution as the summary has it: over a unit, with a rounded mean."""
    # A join measures spreads too, and has no summary.
    from outcast.records.port_summaries import SpreadSummary

    if found is None:
        return None
    return SpreadSummary(
        mean=round(found.mean / unit, 6),
        p50=found.p50 / unit,
        p90=found.p90 / unit,
        p99=found.p99 / unit,
        max=found.max / unit,
    )


def in_ms(values_ns: Array) -> SpreadSummary | None:
    """The distribution of times as the summary has it; None without any."""
    return in_unit(spread_of(values_ns), 1e6)
