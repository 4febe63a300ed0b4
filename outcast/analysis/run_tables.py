"""The tables of a run's analysis.

A table is a function of the Analysis that returns its rows, or None if the run has nothing of
the kind. To add one, write it in a file of its own and add it to TABLES.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from outcast.analysis import store
from outcast.analysis.compiled import Array
from outcast.analysis.join.join import Verdict
from outcast.analysis.measure.bins import throughput_table, utilisation_table
from outcast.analysis.measure.completions import completion_table
from outcast.analysis.measure.fairness_windows import fairness_table
from outcast.analysis.measure.kernel_counts import KernelCounts
from outcast.analysis.measure.links import link_table
from outcast.analysis.measure.probes import probe_table
from outcast.analysis.measure.program_runs import execution_table
from outcast.analysis.measure.queue import queueing_ns, spread_of
from outcast.analysis.measure.run_goodput import active_seconds, flow_bytes
from outcast.analysis.measure.sized_flows import completions_ns, packet_span_ns
from outcast.analysis.measure.streams import stream_table, workload_table
from outcast.analysis.run_analysis import Analysis, chains_by_flow
from outcast.analysis.run_summary import median_rtt_ns, rows_of_flow, tcp_of_flow
from outcast.records.captures import CapturesManifest
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
    whole = analysis.whole
    if whole is not None:
        return store.packet_table(whole.joined, whole.queue, whole.numbers)
    return _stack(
        [store.packet_table(port.joined, port.queue, port.numbers) for port in analysis.ports]
    )


def queue_table(analysis: Analysis) -> pl.DataFrame:
    """One row per change of a bottleneck's queue. `packet` is the row in `packet_table`."""
    if analysis.whole is not None:
        return store.queue_table(analysis.whole.joined, analysis.whole.queue)
    frames = []
    offset = 0
    for port in analysis.ports:
        frame = store.queue_table(port.joined, port.queue)
        frames.append(frame.with_columns(pl.col("packet") + offset))
        offset += len(port.joined.arrivals)
    return _stack(frames)


def chain_table(analysis: Analysis) -> pl.DataFrame:
    """One row per chain of drops of an input port."""
    if analysis.whole is not None:
        return store.chain_table(analysis.whole.joined, analysis.whole.chains)
    return _stack([store.chain_table(port.joined, port.chains) for port in analysis.ports])


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


def flow_table(analysis: Analysis) -> pl.DataFrame:
    """One row per flow of the run. Rates and counts are over the main interval.

    When its first and its last packet came in is of the whole duration.
    """
    interval = analysis.interval
    goodput = flow_bytes(analysis, interval)
    frames = flow_bytes(analysis, interval, of="frames")
    total = sum(goodput.values())
    lengths = chains_by_flow(analysis)
    times_ns = completions_ns(analysis)
    is_captured = isinstance(analysis.manifest, CapturesManifest)
    kernel = KernelCounts(analysis)
    rows = []
    for record in analysis.manifest.flows:
        packets = dropped = 0
        waits_ns: list[Array] = []
        for port in analysis.ports:
            mine = rows_of_flow(port, record.flow)
            packets += mine.size
            dropped += int((port.joined.verdict[mine] == Verdict.DROPPED).sum())
            waits_ns.append(queueing_ns(port.joined, port.sent_ns, mine, port.reached_ns))
        tcp = tcp_of_flow(analysis, record.flow)
        first_ns, last_ns = packet_span_ns(analysis, record.flow) or (None, None)
        waited = spread_of(np.concatenate(waits_ns))
        counts = kernel.of([record])
        seconds = active_seconds(analysis, record, interval)
        rows.append(
            {
                **{name: getattr(record, name) for name in _OF_RECORD},
                "path_links": len(record.path) - 1 if record.path else None,
                "goodput_bytes": goodput[record.flow],
                "goodput_bps": 8 * goodput[record.flow] / seconds,
                "throughput_bps": 8 * frames[record.flow] / seconds,
                "share": goodput[record.flow] / total if total else None,
                "packets": packets,
                "dropped": dropped,
                "longest_chain": max(lengths.get(record.flow, ()), default=0),
                "retransmits": counts["retransmits"],
                "timeouts": counts["timeouts"],
                "retransmissions_seen": tcp.retransmissions,
                "spurious_seen": tcp.spurious,
                "timeouts_seen": None if is_captured else tcp.timeouts,
                "halted_s": None if is_captured else tcp.halted_s,
                "rtt_p50_ns": median_rtt_ns(analysis, record.flow),
                "queueing_mean_ns": None if waited is None else waited.mean,
                "queueing_p50_ns": None if waited is None else int(waited.p50),
                "queueing_p99_ns": None if waited is None else int(waited.p99),
                "t_first": first_ns,
                "t_last": last_ns,
                "completion_ns": times_ns.get(record.flow),
            }
        )
    return pl.DataFrame(rows, schema=_FLOW_COLUMNS)


_OF_RECORD = (
    *("flow", "src", "src_ip", "sport", "dst", "dst_ip", "dport", "hops", "ingress", "start_ns"),
    *("congestion_control", "name", "protocol", "of_program"),
)
_FLOW_COLUMNS: dict[str, type[pl.DataType]] = {
    "flow": pl.Int64,
    **dict.fromkeys(("src", "src_ip"), pl.String),
    "sport": pl.Int64,
    **dict.fromkeys(("dst", "dst_ip"), pl.String),
    **dict.fromkeys(("dport", "hops", "path_links"), pl.Int64),
    "ingress": pl.String,
    "start_ns": pl.Int64,
    "congestion_control": pl.String,
    "goodput_bytes": pl.Int64,
    **dict.fromkeys(("goodput_bps", "throughput_bps", "share"), pl.Float64),
    **dict.fromkeys(("packets", "dropped", "longest_chain", "retransmits", "timeouts"), pl.Int64),
    **dict.fromkeys(("retransmissions_seen", "spurious_seen", "timeouts_seen"), pl.Int64),
    "halted_s": pl.Float64,
    "rtt_p50_ns": pl.Int64,
    "queueing_mean_ns": pl.Float64,
    **dict.fromkeys(("queueing_p50_ns", "queueing_p99_ns"), pl.Int64),
    **dict.fromkeys(("name", "protocol"), pl.String),
    "of_program": pl.Boolean,
    **dict.fromkeys(("t_first", "t_last", "completion_ns"), pl.Int64),
}

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
