"""The part of a run that a measure covers, and whether the run was stationary there.

Goodput of a part comes from throughput.parquet, in whole bins of `analysis.bin`. So it needs no
capture.
"""

from __future__ import annotations

from outcast.analysis.measure import fairness
from outcast.analysis.measure.fairness import FlowRates
from outcast.analysis.measure.flows import summed_up
from outcast.analysis.run_analysis import Interval as Span
from outcast.analysis.run_measures.kinds import Interval
from outcast.plan.grouping import Comparison
from outcast.records.run import Run
from outcast.records.summary import Summary, Window
from outcast.units import parse_time_ns


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
    compare = summary.compare
    return summed_up(
        run.manifest,
        goodput_bps(rates),
        rates.span,
        None if compare is None else Comparison(compare.by, compare.groups),
    )


def rates_in(run: Run, span: Span) -> FlowRates | None:
    """The bins of a run that lie entirely in a span; None without such bins or without flows."""
    return fairness.rates_in(run.table("throughput"), round(run.summary.duration_s * 1e9), span)


def goodput_bps(rates: FlowRates) -> dict[int, float]:
    totals = rates.goodput_bytes.sum(axis=1).tolist()
    seconds = rates.span.seconds
    return {flow: 8 * total / seconds for flow, total in zip(rates.flows, totals, strict=True)}


def is_stationary(run: Run, interval: Interval | None) -> bool | None:
    """Whether a run is stationary over an interval; see `fairness.is_stationary`."""
    return fairness.is_stationary(
        rates_in(run, span_of(run, interval)), run.manifest.compared_flows
    )
