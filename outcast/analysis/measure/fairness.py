"""Jain's index over time, and whether the division of a link shows a trend (docs/steady-state.md).

Goodput for the trend comes from throughput.parquet, in whole bins of `analysis.bin`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

from outcast.analysis.machine_code import I64, Array
from outcast.analysis.measure.bins import FlowBins, flow_bins
from outcast.analysis.run_analysis import Analysis, Interval, active
from outcast.records.flows import FlowRecord
from outcast.records.summary import ChangeSummary

DEFAULT_BINS = 10
FAIR = 0.9
"""From this index on, shares count as fair again (the TCPRand paper, section 5.3)."""


def widths_in_bins(windows_ns: Sequence[int], bin_ns: int, bins: int) -> list[int]:
    """The windows' lengths in bins, the shortest first."""
    widths = {max(1, round(width / bin_ns)) for width in windows_ns}
    shorter = sorted(width for width in widths if width < bins)
    return shorter or [min(DEFAULT_BINS, bins)]


def fairness_table(analysis: Analysis) -> pl.DataFrame | None:
    """One row per window with two flows or more, by length and then by time.

    Returns:
        `t_start` and `t_end` (nanoseconds after the traffic's start); `flows`, how many were active
        throughout; `jain` over their goodput (null if all got nothing); `goodput_bps`, the sum of
        their goodput. None if two flows were never active at the same time.
    """
    spans = [active(analysis, record) for record in analysis.manifest.compared_flows]
    bins = flow_bins(analysis, analysis.manifest.compared_flows)
    widths = widths_in_bins(analysis.windows_ns, analysis.bin_ns, bins.start_ns.size)
    frame = pl.concat(sliding(bins, spans, width) for width in widths)
    return frame if frame.height else None


def sliding(bins: FlowBins, spans: Sequence[Interval], width: int) -> pl.DataFrame:
    """The rows of `fairness_table` for windows of one length."""
    whole = bins.start_ns.size - int(bins.width_ns[-1] < bins.width_ns[0])
    windows = max(1, whole - width + 1)
    start = bins.start_ns[:windows]
    end = (bins.start_ns + bins.width_ns)[width - 1 :][:windows]
    begins = np.array([span.start_ns for span in spans], np.int64)[:, None]
    ends = np.array([span.end_ns for span in spans], np.int64)[:, None]
    counts = (begins <= start) & (end <= ends)
    sums = np.cumsum(np.pad(bins.goodput_bytes, ((0, 0), (1, 0))), axis=1)
    shares = np.where(counts, sums[:, width : width + windows] - sums[:, :windows], 0)
    flows = counts.sum(axis=0)
    jain = _jain(shares, flows)
    rows = flows >= 2
    return pl.DataFrame(
        {
            "t_start": start[rows],
            "t_end": end[rows],
            "flows": flows[rows].astype(np.int32),
            "jain": pl.Series(jain[rows]).fill_nan(None),
            "goodput_bps": shares.sum(axis=0)[rows] * 8e9 / (end - start)[rows],
        }
    )


def _jain(shares: I64, flows: Array) -> Array:
    """Jain's index of each column; NaN for a column of zeros."""
    values = shares.astype(float)
    squares = flows * (values**2).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(squares > 0, values.sum(axis=0) ** 2 / squares, np.nan)


def changes(analysis: Analysis, fairness: pl.DataFrame | None) -> list[ChangeSummary]:
    """Every time at which flows joined or left while two or more stayed active.

    Shares are fair again at the end of the first of the shortest windows that begins after the
    change and has an index of FAIR or more.
    """
    if fairness is None:
        return []
    duration_ns = analysis.manifest.traffic.duration_ns
    spans = [active(analysis, record) for record in analysis.manifest.compared_flows]
    times = sorted({t for span in spans for t in (span.start_ns, span.end_ns) if t < duration_ns})
    lengths = fairness["t_end"] - fairness["t_start"]
    shortest = fairness.filter(lengths == lengths.min())
    result = []
    for t_ns, next_ns in pairwise([*times, duration_ns]):
        flows = sum(span.start_ns <= t_ns < span.end_ns for span in spans)
        if flows < 2:
            continue
        fair = shortest.filter(
            (pl.col("t_start") >= t_ns) & (pl.col("t_end") <= next_ns) & (pl.col("jain") >= FAIR)
        )
        after_s = (int(fair["t_end"][0]) - t_ns) / 1e9 if fair.height else None
        result.append(ChangeSummary(t_s=t_ns / 1e9, flows=flows, fair_after_s=after_s))
    return result


PARTS = 10
"""The number of equal parts into which `is_stationary` cuts an interval."""
SIGNIFICANT = 0.05
"""The level of the test, on two sides."""
_LEAST_OF_FAIRNESS = 0.01
"""A smaller change of Jain's index from one half to the other does not count."""
_MOST_EXACT = 33
"""With more values the test statistic is nearly normal."""


@dataclass(frozen=True, slots=True)
class FlowRates:
    """What each flow got in every bin of a span; `goodput_bytes` is an array of [flow, bin]."""

    flows: tuple[int, ...]
    goodput_bytes: npt.NDArray[np.float64]
    span: Interval


def rates_in(throughput: pl.DataFrame, duration_ns: int, span: Interval) -> FlowRates | None:
    """The bins that lie in a span as a whole; None if no bin or no flow does."""
    table = throughput.select("flow", "t", "goodput_bps")
    starts = table["t"].unique().sort().to_numpy()
    edges = np.append(starts, duration_ns)
    inside = np.flatnonzero((edges[:-1] >= span.start_ns) & (edges[1:] <= span.end_ns))
    if not inside.size:
        return None
    flows = tuple(sorted(table["flow"].unique().to_list()))
    bps = (
        table.filter(pl.col("t").is_between(int(starts[inside[0]]), int(starts[inside[-1]])))
        .sort("flow", "t")["goodput_bps"]
        .to_numpy()
        .reshape(len(flows), inside.size)
    )
    widths_s = np.diff(edges)[inside] / 1e9
    return FlowRates(
        flows, bps * widths_s / 8, Interval(int(edges[inside[0]]), int(edges[inside[-1] + 1]))
    )


def is_stationary(rates: FlowRates | None, records: Sequence[FlowRecord]) -> bool | None:
    """Whether the division of the link shows no trend over an interval, cut into ten parts.

    In each, we take the share of all goodput that the flows with the fewest hops have (of equal
    hops, the goodput of all), and each flow's own share. The run is stationary if every flow gets
    something, and no series of ten values has a trend (`has_trend`). The first series has half of
    the level of 5 %, and the flows share the other half.

    Returns None if the interval has fewer than ten bins, or if nothing arrived in a part of it.
    """
    found = change(rates, records)
    return None if found is None else not found


def change(rates: FlowRates | None, records: Sequence[FlowRecord]) -> str | None:
    """What `is_stationary` finds to change over an interval, in words; empty if nothing does."""
    if rates is None or rates.goodput_bytes.shape[1] < PARTS:
        return None
    parts, widths = _in_parts(rates)
    hops = {flow.flow: flow.hops for flow in records}
    known = {count for count in hops.values() if count is not None}
    total = parts.sum(axis=0)
    compared = [row for row, flow in enumerate(rates.flows) if flow in hops]
    starved = [rates.flows[row] for row in compared if not parts[row].any()]
    if starved:
        return f"{_flows(starved)} got nothing"
    if len(known) < 2:
        together, what = total / widths, "the goodput"
    elif not total.all():
        return None
    else:
        nearest = [row for row, flow in enumerate(rates.flows) if hops.get(flow) == min(known)]
        together = parts[nearest].sum(axis=0) / total
        what = f"the {min(known)}-hop flows' share of the goodput"
        named = {flow.name or "" for flow in records if flow.hops == min(known)}
        if all(named) and named.isdisjoint(f.name for f in records if f.hops != min(known)):
            what = f"the share of {' and '.join(sorted(named))} in the goodput"
    if has_trend(together, SIGNIFICANT / 2):
        return f"{what} {'rises' if _score(together) > 0 else 'falls'}"
    with np.errstate(invalid="ignore"):
        shares = np.nan_to_num(parts[compared] / total)
    level = SIGNIFICANT / 2 / max(len(compared), 1)
    moving = [
        rates.flows[row]
        for row, share in zip(compared, shares, strict=True)
        if has_trend(share, level)
    ]
    return f"the share of {_flows(moving)} in the goodput has a trend" if moving else ""


def fairness_change(rates: FlowRates | None) -> str:
    """How Jain's index of the ten parts moves, in words; empty if it has no trend.

    With many flows it shows what the test of each one's share is too weak for.
    """
    if rates is None or rates.goodput_bytes.shape[1] < PARTS:
        return ""
    parts, _ = _in_parts(rates)
    squares = len(parts) * (parts**2).sum(axis=0)
    index = parts.sum(axis=0) ** 2 / np.maximum(squares, 1)
    early, late = index[: PARTS // 2].mean(), index[PARTS // 2 :].mean()
    if abs(late - early) < _LEAST_OF_FAIRNESS or not has_trend(index, SIGNIFICANT / 2):
        return ""
    moves = "rises" if late > early else "falls"
    return f"Jain's index {moves} from {index[0]:.2f} in the first tenth to {index[-1]:.2f}"


def _in_parts(rates: FlowRates) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """What each flow got in each of the ten parts, and how many bins these have."""
    bins = rates.goodput_bytes.shape[1]
    edges = np.linspace(0, bins, PARTS + 1).astype(int)
    return np.add.reduceat(rates.goodput_bytes, edges[:-1], axis=1), np.diff(edges)


def _flows(flows: Sequence[int]) -> str:
    return f"flow {flows[0]}" if len(flows) == 1 else f"{len(flows)} flows"


def has_trend(values: npt.NDArray[np.float64], level: float = SIGNIFICANT) -> bool:
    """Whether values in the order of time rise or fall, by the test of Mann and Kendall.

    Mann, "Nonparametric tests against trend", Econometrica 13 (1945). It assumes no distribution of
    the values. If values depend on one another, it finds trends too often. Of means of ten parts
    that is rare (docs/steady-state.md).
    """
    return chance_of_trend(values) < level


def chance_of_trend(values: npt.NDArray[np.float64]) -> float:
    """The chance of as strong a trend among values without one, on two sides; 1 of equal values.

    Exact where no two of up to 33 values are equal, else by the normal distribution with the
    variance for ties (Kendall, "Rank Correlation Methods", 1975). The numbers are those of
    scipy.stats.kendalltau, whose import takes longer than the analysis of a small run.
    """
    count = values.size
    score, pairs = abs(_score(values)), count * (count - 1) // 2
    equal = [times for times in Counter(values.tolist()).values() if times > 1]
    if not equal and count <= _MOST_EXACT:
        # Orders of n values by their number of inversions: each value adds up to its place.
        orders = np.ones(1)
        for place in range(2, count + 1):
            orders = np.convolve(orders, np.ones(place) / place)
        least = (pairs - score) // 2
        return min(1.0, 2 * float(orders[: least + 1].sum()))
    ties = sum(times * (times - 1) * (2 * times + 5) for times in equal)
    variance = (count * (count - 1) * (2 * count + 5) - ties) / 18
    return math.erfc(score / math.sqrt(2 * variance)) if variance > 0 else 1.0


def _score(values: npt.NDArray[np.float64]) -> int:
    """How many pairs of values rise with time, less how many fall (Mann's statistic)."""
    rises = np.sign(values[None, :] - values[:, None])[np.triu_indices(values.size, 1)]
    return int(rises.sum())
