"""How long transfers, programs and probes took."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from outcast.analysis.measure.spreads import in_ms, times_summary
from outcast.analysis.measure.streams import Stream, completed, stream_summary, streams
from outcast.analysis.run_analysis import Analysis
from outcast.analysis.store import Columns, table_of
from outcast.records.flows import ExecutionRecord, ProgramRecord, read_times
from outcast.records.generated import Completed, read_answers
from outcast.records.summary import (
    LONG_BYTES,
    SHORT_BYTES,
    CompletionSummary,
    ProbeSummary,
    ProgramSummary,
    TimesSummary,
)

_COLUMNS: Columns[Completed] = {
    "flow": (pl.Int32, "planned.flow"),
    "workload": (pl.Int32, "planned.workload"),
    "kind": (pl.String, "planned.kind"),
    "src": (pl.String, "planned.src"),
    "sport": (pl.UInt16, "planned.sport"),
    "dst": (pl.String, "planned.dst"),
    "round": (pl.Int32, "planned.round"),
    "size_bytes": (pl.Int64, "planned.size_bytes"),
    "t_start": (pl.Int64, "start_ns"),
    "t_end": (pl.Int64, "end_ns"),
    "fct": (pl.Int64, "completion_ns"),
    "late": (pl.Int64, "late_ns"),
    "received_bytes": (pl.Int64, "received_bytes"),
    "datagrams_sent": (pl.Int64, "sent"),
    "datagrams_received": (pl.Int64, "received"),
    "retransmits": (pl.Int64, "retransmits"),
    "timeouts": (pl.Int64, "timeouts"),
    "congestion_control": (pl.String, "congestion_control"),
    "error": (pl.String, "error"),
}


def completion_table(analysis: Analysis) -> pl.DataFrame | None:
    """One row per generated flow; None if the run had no workloads.

    Times are in nanoseconds after the traffic's start. `fct` is from the planned start to the
    arrival of the last byte.
    """
    flows = completed(analysis)
    return table_of(_COLUMNS, flows) if flows else None


def completion_summary(analysis: Analysis) -> dict[str, CompletionSummary] | None:
    """The summary of each workload, by its index; None if the run had none."""
    flows = completed(analysis)
    if not flows:
        return None
    of_streams, answers = streams(analysis), read_answers(analysis.directory)
    return {
        str(index): _summary(
            [flow for flow in flows if flow.planned.workload == index],
            [part for part in of_streams if part.ended.planned.workload == index],
            analysis.manifest.traffic.duration_ns,
        ).model_copy(update=answers.get(index, {}))
        for index in sorted({flow.planned.workload for flow in flows})
    }


def _summary(
    flows: Sequence[Completed], of_streams: Sequence[Stream], duration_ns: int
) -> CompletionSummary:
    transfers = [flow for flow in flows if flow.planned.size_bytes is not None]
    started = [flow for flow in flows if flow.start_ns is not None]
    first_ns = min((flow.start_ns or 0 for flow in started), default=0)
    # If all is done before the end, the idle time after it would only dilute the rate.
    all_done = bool(transfers) and all(flow.end_ns is not None for flow in transfers)
    last_ns = max(flow.end_ns or 0 for flow in flows) if all_done else duration_ns
    received = sum(flow.received_bytes for flow in flows)
    goodput_bps = received * 8e9 / (last_ns - first_ns) if last_ns > first_ns else 0.0
    together = stream_summary(of_streams)
    if together is not None and len(of_streams) == len(flows):
        # What a full queue still held at the end left later.
        goodput_bps = together.received_bps
    sent, arrived = (
        sum(getattr(flow, name) or 0 for flow in flows) for name in ("sent", "received")
    )
    has_streams = len(transfers) < len(flows)
    is_loss_known = has_streams and (together is None or together.loss_share is not None)
    return CompletionSummary(
        kind=flows[0].planned.kind,
        flows=len(flows),
        unfinished=sum(flow.end_ns is None for flow in transfers),
        not_started=len(flows) - len(started),
        failed=sum(flow.error is not None for flow in flows),
        goodput_bps=goodput_bps,
        datagrams_sent=sent if has_streams else None,
        datagrams_lost=sent - arrived if is_loss_known else None,
        streams=together,
        retransmits=_total(flows, "retransmits"),
        timeouts=_total(flows, "timeouts"),
        latest_start_ms=max((flow.late_ns or 0 for flow in flows), default=0) / 1e6,
        times={
            name: spread
            for name, low, high in (
                ("all", 0, math.inf),
                ("short", 0, SHORT_BYTES),
                ("medium", SHORT_BYTES, LONG_BYTES + 1),
                ("long", LONG_BYTES + 1, math.inf),
            )
            if (spread := _times(transfers, low, high)) is not None
        },
    )


def _total(flows: Sequence[Completed], name: str) -> int | None:
    values = [value for flow in flows if (value := getattr(flow, name)) is not None]
    return sum(values) if values else None


def _times(flows: Sequence[Completed], low: int, high: float) -> TimesSummary | None:
    """Completion times of the flows with low <= size < high bytes; None without such flows."""
    mine = [flow for flow in flows if low <= (flow.planned.size_bytes or 0) < high]
    if not mine:
        return None
    times_ns = [flow.completion_ns for flow in mine if flow.completion_ns is not None]
    return times_summary(len(mine), times_ns)


_EXECUTIONS: Columns[tuple[ProgramRecord, ExecutionRecord]] = {
    "program": (pl.String, lambda row: row[0].name),
    "host": (pl.String, lambda row: row[0].host),
    "number": (pl.Int32, lambda row: row[1].number),
    "server": (pl.Boolean, lambda row: row[0].server),
    "t_start": (pl.Int64, lambda row: row[1].t_start_ns),
    "t_end": (pl.Int64, lambda row: row[1].t_end_ns),
    "duration_ns": (pl.Int64, lambda row: row[1].t_end_ns - row[1].t_start_ns),
    "status": (pl.Int32, lambda row: row[1].status),
    "ended_by": (pl.String, lambda row: row[1].ended_by),
    "output_bytes": (pl.Int64, lambda row: row[1].output_bytes),
}


def execution_table(analysis: Analysis) -> pl.DataFrame | None:
    """One row per execution of a program; None if the run had no programs.

    A server's `t_start` is before the traffic's start. `status` is negative for the signal that
    ended it. `ended_by` is `itself`, `run` or `limit`.
    """
    programs = analysis.manifest.programs
    rows = [(program, execution) for program in programs for execution in program.executions]
    since_start = pl.col("t_start", "t_end") - analysis.manifest.traffic.t_start_ns
    return table_of(_EXECUTIONS, rows).with_columns(since_start) if programs else None


def program_summary(analysis: Analysis) -> dict[str, ProgramSummary] | None:
    summaries = {}
    for program in analysis.manifest.programs:
        taken_ns = [
            execution.t_end_ns - execution.t_start_ns
            for execution in program.executions
            if execution.ended_by == "itself" and execution.status == 0
        ]
        summaries[program.name] = ProgramSummary(
            host=program.host,
            server=program.server,
            asked=program.repeat,
            executions=len(program.executions),
            failures=program.failures,
            time_ms=None if program.server else in_ms(np.array(taken_ns, np.int64)),
        )
    return summaries or None


def probe_table(analysis: Analysis) -> pl.DataFrame | None:
    """One row per packet of a probe, in the order of sending; None without probes.

    `t` is when it was sent. `rtt_ns` is null where no answer came. Raises InputError.
    """
    manifest = analysis.manifest
    if not manifest.probes:
        return None
    t_start_ns = manifest.traffic.t_start_ns
    frames = []
    for record in manifest.probes:
        times = [*read_times(analysis.directory.flows, record)]
        frames.append(
            pl.DataFrame(
                {
                    "packet": np.arange(len(times), dtype=np.int32),
                    "t": [sent_ns - t_start_ns for sent_ns, _ in times],
                    "rtt_ns": [end_ns and end_ns - sent_ns for sent_ns, end_ns in times],
                },
                schema={"packet": pl.Int32, "t": pl.Int64, "rtt_ns": pl.Int64},
            ).select(
                pl.lit(record.probe, pl.Int32).alias("probe"),
                *(pl.lit(getattr(record, name)).alias(name) for name in ("kind", "src", "dst")),
                pl.all(),
            )
        )
    return pl.concat(frames)


def probe_summary(analysis: Analysis) -> dict[str, ProbeSummary] | None:
    """Every probe's percentiles in the main interval, by its number; None without probes."""
    table = probe_table(analysis)
    if table is None:
        return None
    if not analysis.is_whole:
        table = table.filter(analysis.interval.has(table["t"].to_numpy()))
    return {
        str(record.probe): ProbeSummary(
            kind=record.kind,
            src=record.src,
            dst=record.dst,
            dscp=record.dscp,
            payload_bytes=record.payload_bytes,
            every_ms=record.every_ns / 1e6,
            sent=mine.len(),
            lost=mine.null_count(),
            base_rtt_ms=record.base_rtt_ns / 1e6,
            rtt_ms=in_ms(mine.drop_nulls().to_numpy()),
        )
        for record in analysis.manifest.probes
        for mine in [table.filter(pl.col("probe") == record.probe)["rtt_ns"]]
    }
