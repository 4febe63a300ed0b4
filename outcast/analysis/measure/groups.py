"""What the groups of flows did: losses, timeouts, round trips, completion times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from outcast.analysis.measure.blackout import length_counts
from outcast.analysis.measure.completions import times_summary
from outcast.analysis.measure.flows import FlowMeasures
from outcast.analysis.measure.kernel_counts import KernelCounts
from outcast.analysis.measure.spreads import in_unit, spread_of
from outcast.analysis.run_analysis import Analysis
from outcast.records.flows import FlowRecord
from outcast.records.port_summaries import SpreadSummary
from outcast.records.summary import TimesSummary


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
