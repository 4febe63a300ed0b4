"""The part of a run that a measure covers, and whether the run was stationary there.

Goodput of a part comes from throughput.parquet, in whole bins of `analysis.bin`. So it needs no
capture.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from outcast.analysis.measure.run_goodput import summed_up
from outcast.analysis.run_analysis import Interval as Span
from outcast.plan.grouping import Comparison
from outcast.records.run import Run
from outcast.records.summary import Summary, Window
from outcast.reproduce.recipe import Interval
from outcast.units import parse_time_ns

PARTS = 10
"""Into so many equal parts `is_stationary` cuts an interval."""
SIGNIFICANT = 0.05
"""The level of the test, on two sides."""


@dataclass(frozen=True, slots=True)
class FlowRates:
    """What each flow of a run got in every bin of a part of it.

    Attributes:
        goodput_bytes: array of [flow, bin], in the order of `flows`.
        flows: the flows' numbers.
        span: from the first bin's start to the last bin's end, after the traffic's start.
    """

    flows: tuple[int, ...]
    goodput_bytes: npt.NDArray[np.float64]
    span: Span


def span_of(run: Run, interval: Interval | None) -> Span:
    """An interval in nanoseconds after the traffic's start; None is `all_active`."""
    begin, end = round(run.summary.start_s * 1e9), round(run.summary.end_s * 1e9)
    match interval:
        case "whole":
            return Span(0, round(run.summary.duration_s * 1e9))
        case "second_half":
            return Span((begin + end) // 2, end)
        case None | "all_active":
            return Span(begin, end)
        case first, last:
            return Span(begin + parse_time_ns(first), begin + parse_time_ns(last))


def covered(run: Run, interval: Interval | None) -> Summary | Window | None:
    """Goodput by class and group in a part of a run; None if no bin lies in it as a whole."""
    summary, span = run.summary, span_of(run, interval)
    parts: tuple[Summary | Window, ...] = (summary, *summary.windows.values())
    for known in parts:
        if (round(known.start_s * 1e9), round(known.end_s * 1e9)) == (span.start_ns, span.end_ns):
            return known
    rates = rates_in(run, span)
    if rates is None:
        return None
    seconds = rates.span.seconds
    totals = rates.goodput_bytes.sum(axis=1).tolist()
    compare = summary.compare
    return summed_up(
        run.manifest,
        {flow: 8 * total / seconds for flow, total in zip(rates.flows, totals, strict=True)},
        rates.span,
        None if compare is None else Comparison(compare.by, compare.groups),
    )


def rates_in(run: Run, span: Span) -> FlowRates | None:
    """The bins that lie in a span as a whole; None if there is none, or no flow."""
    table = run.table("throughput").select("flow", "t", "goodput_bps")
    starts = table["t"].unique().sort().to_numpy()
    edges = np.append(starts, round(run.summary.duration_s * 1e9))
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
        flows, bps * widths_s / 8, Span(int(edges[inside[0]]), int(edges[inside[-1] + 1]))
    )


def is_stationary(run: Run, interval: Interval | None) -> bool | None:
    """Whether the division of the link shows no trend over an interval.

    The interval is cut into ten parts. In each, we take the share of all goodput that the flows
    with the fewest hops have, and each flow's own. The run is stationary if every flow gets
    something, and no series of ten shares has a trend (`has_trend`). The first series has half of
    the level of 5 %, and the flows share the other half.

    Returns:
        None if the interval has fewer than ten bins, or if nothing arrived in a part of it.
    """
    rates = rates_in(run, span_of(run, interval))
    if rates is None or rates.goodput_bytes.shape[1] < PARTS:
        return None
    edges = np.linspace(0, rates.goodput_bytes.shape[1], PARTS + 1).astype(int)[:-1]
    parts = np.add.reduceat(rates.goodput_bytes, edges, axis=1)
    hops = {flow.flow: flow.hops for flow in run.manifest.compared_flows}
    known = {count for count in hops.values() if count is not None}
    total = parts.sum(axis=0)
    compared = [row for row, flow in enumerate(rates.flows) if flow in hops]
    if not parts[compared].sum(axis=1).all():
        return False
    if len(known) < 2:
        widths = np.diff(np.append(edges, rates.goodput_bytes.shape[1]))
        together = total / widths
    elif not total.all():
        return None
    else:
        nearest = [row for row, flow in enumerate(rates.flows) if hops.get(flow) == min(known)]
        together = parts[nearest].sum(axis=0) / total
    if has_trend(together, SIGNIFICANT / 2):
        return False
    with np.errstate(invalid="ignore"):
        shares = np.nan_to_num(parts[compared] / total)
    return not any(has_trend(share, SIGNIFICANT / 2 / len(compared)) for share in shares)


def has_trend(values: npt.NDArray[np.float64], level: float = SIGNIFICANT) -> bool:
    """Whether values in the order of time rise or fall, by the test of Mann and Kendall.

    Mann, "Nonparametric tests against trend", Econometrica 13 (1945). It asks no distribution of
    the values, and a flow's share has none that is known. Values that depend on one another make it
    find trends too often. Means of ten parts do so little: docs/steady-state.md has the shares.
    """
    # scipy takes half a second to import, and `outcast reproduce` imports this module for --help.
    from scipy.stats import kendalltau

    # Equal values give no number, and show no trend.
    return bool(kendalltau(np.arange(values.size), values).pvalue < level)
