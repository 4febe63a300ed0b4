"""Jain's index over sliding windows, and how soon it recovers after a flow joins or leaves.

A window counts the flows that are active from its beginning to its end. Windows have the lengths of
`analysis.windows` that are shorter than the run, in whole bins. Without such, they are
DEFAULT_BINS bins long. They slide by one bin. If the end of the experiment cuts the last bin short,
that bin is in no window, unless the window is the whole run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from outcast.analysis.compiled import I64, Array
from outcast.analysis.measure.bins import FlowBins, flow_bins
from outcast.analysis.measure.blackout import length_counts
from outcast.analysis.measure.completions import times_summary
from outcast.analysis.measure.flows import FlowMeasures
from outcast.analysis.measure.kernel_counts import KernelCounts
from outcast.analysis.measure.spreads import in_unit, spread_of
from outcast.analysis.run_analysis import Analysis, Interval, active
from outcast.records.flows import FlowRecord
from outcast.records.port_summaries import SpreadSummary
from outcast.records.summary import TimesSummary

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


@dataclass(frozen=True, slots=True)
class Change:
    """A time at which flows joined or left.

    `fair_after_ns` is the time until the first window of the shortest length that begins after the
    change and has an index of FAIR or more has ended. None if the next change came first.
    """

    t_ns: int
    flows: int
    fair_after_ns: int | None


def changes(analysis: Analysis, fairness: pl.DataFrame | None) -> list[Change]:
    """Every time at which flows joined or left while two or more stayed active."""
    if fairness is None:
        return []
    duration_ns = analysis.manifest.traffic.duration_ns
    spans = [active(analysis, record) for record in analysis.manifest.compared_flows]
    times = sorted({t for span in spans for t in (span.start_ns, span.end_ns) if t < duration_ns})
    lengths = fairness["t_end"] - fairness["t_start"]
    shortest = fairness.filter(lengths == lengths.min())
    result = []
    for t_ns, next_ns in zip(times, [*times[1:], duration_ns], strict=True):
        flows = sum(span.start_ns <= t_ns < span.end_ns for span in spans)
        if flows < 2:
            continue
        fair = shortest.filter(
            (pl.col("t_start") >= t_ns) & (pl.col("t_end") <= next_ns) & (pl.col("jain") >= FAIR)
        )
        after = int(fair["t_end"][0]) - t_ns if fair.height else None
        result.append(Change(t_ns, flows, after))
    return result


def more_of(
    analysis: Analysis, every: Mapping[int, FlowMeasures]
) -> Callable[[Sequence[FlowRecord]], dict[str, Any]]:
    """A function that says what flows together did besides goodput, as fields of GroupSummary."""
    kernel = KernelCounts(analysis)

    def together(records: Sequence[FlowRecord]) -> dict[str, Any]:
        carrying = [record for record in records if record.carries_data] or records
        flows, of_data = ([every[record.flow] for record in part] for part in (records, carrying))
        return kernel.of(records) | {
            "halted_s": round(sum(flow.tcp.halted_s for flow in flows), 9),
            "active_s": sum(flow.active.seconds for flow in flows),
            "rtt_ms": _spread(flows, "rtt_ns", 1e6),
            "rtt_untimed": _untimed(flows),
            "srtt_ms": _spread(flows, "srtt_us", 1e3),
            "cwnd": _spread(flows, "cwnd", 1),
            "queueing_ms": _spread(of_data, "queueing_ns", 1e6),
            "packets": sum(flow.packets for flow in flows),
            "dropped": sum(flow.dropped for flow in flows),
            "retransmissions_seen": sum(flow.tcp.retransmissions for flow in flows),
            "timeouts_seen": sum(flow.tcp.timeouts for flow in flows),
            "chains": length_counts(
                np.array([drops for flow in flows for drops in flow.chains], int)
            ),
            "times": _times(carrying, of_data),
        }

    return together


def _spread(flows: Sequence[FlowMeasures], name: str, unit: float) -> SpreadSummary | None:
    return in_unit(spread_of(np.concatenate([getattr(flow, name) for flow in flows])), unit)


def _untimed(flows: Sequence[FlowMeasures]) -> float | None:
    active_s = sum(flow.active.seconds for flow in flows)
    if not active_s or not any(flow.rtt_ns.size for flow in flows):
        return None
    return round(sum(flow.untimed_ns for flow in flows) / 1e9 / active_s, 6)


def _times(records: Sequence[FlowRecord], flows: Sequence[FlowMeasures]) -> TimesSummary | None:
    sized = sum(record.size_bytes is not None or record.of_program for record in records)
    times_ns = [flow.completion_ns for flow in flows if flow.completion_ns is not None]
    return times_summary(sized, times_ns) if sized else None
