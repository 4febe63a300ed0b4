"""The tables of a run's analysis.

A table is a function of the Analysis that returns its rows, or None if the run has nothing of
the kind. To add one, write it in a file of its own and add it to TABLES.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from outcast.analysis import store
from outcast.analysis.join.findings import Found
from outcast.analysis.measure.bins import throughput_table, utilisation_table
from outcast.analysis.measure.completions import completion_table, execution_table, probe_table
from outcast.analysis.measure.fairness import fairness_table
from outcast.analysis.measure.flows import (
    FlowMeasures,
    active_seconds,
    flow_bytes,
    flow_measures,
    packet_span_ns,
)
from outcast.analysis.measure.kernel_counts import KernelCounts
from outcast.analysis.measure.losses import link_table
from outcast.analysis.measure.queue import Spread, spread_of
from outcast.analysis.measure.streams import stream_table, workload_table
from outcast.analysis.port_analysis import PortAnalysis
from outcast.analysis.run_analysis import Analysis
from outcast.records.flows import FlowRecord
from outcast.records.run_directory import RunDirectory
from outcast.records.tables import write_table


def write_tables(directory: RunDirectory, analysis: Analysis) -> None:
    """Stores every table of TABLES for which the run has something, as NAME.parquet."""
    for name, table in TABLES:
        path = directory.path / f"{name}.parquet"
        frame = table(analysis)
        if frame is None:
            path.unlink(missing_ok=True)
        else:
            write_table(frame, path)


def packet_table(analysis: Analysis) -> pl.DataFrame:
    """One row per packet that entered a bottleneck; see `store.packet_table`."""
    if (whole := analysis.whole) is not None:
        # All outputs of joined captures number the same flows.
        return store.packet_table(whole.joined, whole.queue, analysis.ports[0].numbers)
    return _stack(
        [
            store.packet_table(
                port.joined, port.queue, port.numbers, counts=analysis.counts(port.reached_ns)
            )
            for port in analysis.ports
        ]
    )


def queue_table(analysis: Analysis) -> pl.DataFrame:
    """One row per change of a bottleneck's queue. `packet` is the row in `packet_table`."""
    frames = []
    offset = 0
    for part in _parts(analysis):
        frame = store.queue_table(part.joined, part.queue)
        frames.append(frame.with_columns(pl.col("packet") + offset))
        offset += len(part.joined.arrivals)
    return _stack(frames)


def chain_table(analysis: Analysis) -> pl.DataFrame:
    """One row per chain of drops of an input port."""
    if (whole := analysis.whole) is not None:
        return store.chain_table(whole.joined, whole.chains)
    return _stack(
        [
            store.chain_table(port.joined, port.chains, analysis.counts(port.reached_ns))
            for port in analysis.ports
        ]
    )


def _parts(analysis: Analysis) -> Sequence[Found | PortAnalysis]:
    """The ports, whose rows follow one another; joined captures as a whole, in order of time."""
    return analysis.ports if analysis.whole is None else [analysis.whole]


def _stack(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    if len(frames) == 1:
        return frames[0]
    return pl.concat([frame.with_columns(pl.col(pl.Enum).cast(pl.String)) for frame in frames])


def round_trip_table(analysis: Analysis) -> pl.DataFrame | None:
    """One row per segment whose acknowledgement was seen. `t` is when the segment came in."""
    if not any(port.round_trips.flow.size for port in analysis.ports):
        return None
    return pl.concat(
        pl.DataFrame(
            {
                "flow": np.array(port.numbers, np.int32)[port.round_trips.flow],
                "t": port.round_trips.sent_ns,
                "rtt_ns": port.round_trips.rtt_ns,
            }
        )
        for port in analysis.ports
    )


@dataclass(frozen=True, slots=True)
class _FlowRow:
    """A flow, and what is known of it in the main interval.

    `span_ns` is when its first and its last packet came in, in the whole duration.
    """

    record: FlowRecord
    did: FlowMeasures
    waited: Spread | None
    counts: Mapping[str, int | None]
    tells_senders: bool
    span_ns: tuple[int | None, int | None]
    goodput_bytes: int
    frame_bytes: int
    share: float | None
    seconds: float


_FLOW_COLUMNS: store.Columns[_FlowRow] = {
    "flow": (pl.Int64, "record.flow"),
    "src": (pl.String, "record.src"),
    "src_ip": (pl.String, "record.src_ip"),
    "sport": (pl.Int64, "record.sport"),
    "dst": (pl.String, "record.dst"),
    "dst_ip": (pl.String, "record.dst_ip"),
    "dport": (pl.Int64, "record.dport"),
    "hops": (pl.Int64, "record.hops"),
    "path_links": (pl.Int64, lambda row: len(row.record.path) - 1 if row.record.path else None),
    "ingress": (pl.String, "record.ingress"),
    "start_ns": (pl.Int64, "record.start_ns"),
    "congestion_control": (pl.String, "record.congestion_control"),
    "goodput_bytes": (pl.Int64, "goodput_bytes"),
    "goodput_bps": (pl.Float64, lambda row: 8 * row.goodput_bytes / row.seconds),
    "throughput_bps": (pl.Float64, lambda row: 8 * row.frame_bytes / row.seconds),
    "share": (pl.Float64, "share"),
    "packets": (pl.Int64, "did.packets"),
    "dropped": (pl.Int64, "did.dropped"),
    "longest_chain": (pl.Int64, lambda row: max(row.did.chains, default=0)),
    "retransmits": (pl.Int64, lambda row: row.counts["retransmits"]),
    "timeouts": (pl.Int64, lambda row: row.counts["timeouts"]),
    "retransmissions_seen": (pl.Int64, "did.tcp.retransmissions"),
    "spurious_seen": (pl.Int64, "did.tcp.spurious"),
    # The least RTO of captures' senders is not known.
    "timeouts_seen": (pl.Int64, lambda row: row.did.tcp.timeouts if row.tells_senders else None),
    "halted_s": (pl.Float64, lambda row: row.did.tcp.halted_s if row.tells_senders else None),
    "rtt_p50_ns": (pl.Int64, "did.rtt_p50_ns"),
    "queueing_mean_ns": (pl.Float64, lambda row: row.waited and row.waited.mean),
    "queueing_p50_ns": (pl.Int64, lambda row: row.waited and int(row.waited.p50)),
    "queueing_p99_ns": (pl.Int64, lambda row: row.waited and int(row.waited.p99)),
    "name": (pl.String, "record.name"),
    "protocol": (pl.String, "record.protocol"),
    "of_program": (pl.Boolean, "record.of_program"),
    "t_first": (pl.Int64, lambda row: row.span_ns[0]),
    "t_last": (pl.Int64, lambda row: row.span_ns[1]),
    "completion_ns": (pl.Int64, "did.completion_ns"),
}


def flow_table(analysis: Analysis) -> pl.DataFrame:
    """One row per flow of the run. Rates and counts are over the main interval."""
    interval = analysis.interval
    goodput = flow_bytes(analysis, interval)
    frames = flow_bytes(analysis, interval, of="frames")
    total = sum(goodput.values())
    did, kernel = flow_measures(analysis), KernelCounts(analysis)
    rows = [
        _FlowRow(
            record,
            did[record.flow],
            spread_of(did[record.flow].queueing_ns),
            kernel.of([record]),
            analysis.manifest.tells_senders,
            packet_span_ns(analysis, record.flow) or (None, None),
            goodput[record.flow],
            frames[record.flow],
            goodput[record.flow] / total if total else None,
            active_seconds(analysis, record, interval),
        )
        for record in analysis.manifest.flows
    ]
    return store.table_of(_FLOW_COLUMNS, rows)


TABLES: tuple[tuple[str, Callable[[Analysis], pl.DataFrame | None]], ...] = (
    ("packets", packet_table),
    ("queue", queue_table),
    ("blackouts", chain_table),
    ("throughput", throughput_table),
    ("bins", utilisation_table),
    ("fairness", fairness_table),
    ("flows", flow_table),
    ("rtt", round_trip_table),
    ("links", link_table),
    ("sockets", lambda analysis: analysis.sockets),
    ("ports", lambda analysis: analysis.port_samples),
    ("completions", completion_table),
    ("programs", execution_table),
    ("probes", probe_table),
    ("streams", stream_table),
    ("workloads", workload_table),
)
"""Every table of a run, by the name of its file without the ending."""
