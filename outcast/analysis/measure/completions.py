"""Generated flows: how long each took, as a table and by size.

Nothing here is read from captures: the receivers' programs wrote when the last byte arrived.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from outcast.analysis.run_analysis import Analysis
from outcast.records import generated as results
from outcast.records.generated import Completed
from outcast.records.summary import CompletionSummary, TimesSummary

SHORT_BYTES = 100_000
LONG_BYTES = 10_000_000
"""Below the one is short, above the other long (the TCPRand paper, figure 11)."""

_SCHEMA = {
    "flow": pl.Int32,
    "workload": pl.Int32,
    "kind": pl.String,
    "src": pl.String,
    "sport": pl.UInt16,
    "dst": pl.String,
    "round": pl.Int32,
    "size_bytes": pl.Int64,
    "t_start": pl.Int64,
    "t_end": pl.Int64,
    "fct": pl.Int64,
    "late": pl.Int64,
    "received_bytes": pl.Int64,
    "datagrams_sent": pl.Int64,
    "datagrams_received": pl.Int64,
    "retransmits": pl.Int64,
    "timeouts": pl.Int64,
    "congestion_control": pl.String,
    "error": pl.String,
}


def completed(analysis: Analysis) -> list[Completed]:
    """Every generated flow of a run. Raises InputError; see `results.read`."""
    return results.read(analysis.directory, analysis.manifest.traffic.t_start_ns)


def completion_table(analysis: Analysis) -> pl.DataFrame | None:
    """A row per generated flow; times in nanoseconds after the traffic's start, `fct` from the
    planned start to the last byte's arrival. None where the run had no workloads.
    """
    flows = completed(analysis)
    if not flows:
        return None
    return pl.DataFrame(
        [
            (
                *(each.planned.flow, each.planned.workload, each.planned.kind),
                *(each.planned.src, each.planned.sport, each.planned.dst, each.planned.round),
                *(each.planned.size_bytes, each.start_ns, each.end_ns, each.completion_ns),
                *(each.late_ns, each.received_bytes, each.sent, each.received),
                *(each.retransmits, each.timeouts, each.congestion_control, each.error),
            )
            for each in flows
        ],
        schema=_SCHEMA,
        orient="row",
    )


def completion_summary(analysis: Analysis) -> dict[str, CompletionSummary] | None:
    """Each workload by its index; None where the run had none."""
    flows = completed(analysis)
    if not flows:
        return None
    found = {}
    for index in sorted({each.planned.workload for each in flows}):
        mine = [each for each in flows if each.planned.workload == index]
        found[str(index)] = _summary(mine, analysis.manifest.traffic.duration_ns)
    return found


def _summary(flows: Sequence[Completed], duration_ns: int) -> CompletionSummary:
    transfers = [each for each in flows if each.planned.size_bytes is not None]
    started = [each for each in flows if each.start_ns is not None]
    first_ns = min((each.start_ns or 0 for each in started), default=0)
    # Where all is done before the end, what comes after would only dilute the rate.
    all_done = bool(transfers) and all(each.end_ns is not None for each in transfers)
    last_ns = max(each.end_ns or 0 for each in flows) if all_done else duration_ns
    received = sum(each.received_bytes for each in flows)
    sent, arrived = (
        sum(getattr(each, name) or 0 for each in flows) for name in ("sent", "received")
    )
    has_streams = len(transfers) < len(flows)
    return CompletionSummary(
        kind=flows[0].planned.kind,
        flows=len(flows),
        unfinished=sum(each.end_ns is None for each in transfers),
        not_started=len(flows) - len(started),
        failed=sum(each.error is not None for each in flows),
        goodput_bps=received * 8e9 / (last_ns - first_ns) if last_ns > first_ns else 0.0,
        datagrams_sent=sent if has_streams else None,
        datagrams_lost=sent - arrived if has_streams else None,
        retransmits=_total(flows, "retransmits"),
        timeouts=_total(flows, "timeouts"),
        latest_start_ms=max((each.late_ns or 0 for each in flows), default=0) / 1e6,
        times={
            name: spread
            for name, low, high in (
                ("all", 0, None),
                ("short", 0, SHORT_BYTES),
                ("medium", SHORT_BYTES, LONG_BYTES + 1),
                ("long", LONG_BYTES + 1, None),
            )
            if (spread := _times(transfers, low, high)) is not None
        },
    )


def _total(flows: Sequence[Completed], name: str) -> int | None:
    values = [value for each in flows if (value := getattr(each, name)) is not None]
    return sum(values) if values else None


def _times(flows: Sequence[Completed], low: int, high: int | None) -> TimesSummary | None:
    """Of the flows with so many bytes, from `low` to below `high`."""
    mine = [
        each
        for each in flows
        if low <= (each.planned.size_bytes or 0)
        and (high is None or (each.planned.size_bytes or 0) < high)
    ]
    if not mine:
        return None
    times_ms = np.array([each.completion_ns for each in mine if each.completion_ns is not None])
    times_ms = times_ms.astype(float) / 1e6
    p50, p95, p99 = (
        np.quantile(times_ms, [0.5, 0.95, 0.99]).tolist() if times_ms.size else (None,) * 3
    )
    return TimesSummary(
        flows=len(mine),
        finished=int(times_ms.size),
        mean_ms=float(times_ms.mean()) if times_ms.size else None,
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        max_ms=float(times_ms.max()) if times_ms.size else None,
    )
