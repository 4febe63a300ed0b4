"""The tables of a run's analysis.

A table is a function of the Analysis that returns its rows, or None if the run has nothing of
the kind. To add one, write it in a file of its own and add it to TABLES.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from outcast.analysis import store
from outcast.analysis.measure import computed
from outcast.analysis.measure.bins import throughput_table, utilisation_table
from outcast.analysis.measure.completions import completion_table, execution_table, probe_table
from outcast.analysis.measure.estimates import Found
from outcast.analysis.measure.fairness import fairness_table
from outcast.analysis.measure.flows import (
    active_seconds,
    flow_bytes,
    flow_measures,
    packet_span_ns,
)
from outcast.analysis.measure.kernel_counts import KernelCounts
from outcast.analysis.measure.losses import link_table
from outcast.analysis.measure.spreads import spread_of
from outcast.analysis.measure.streams import stream_table, workload_table
from outcast.analysis.port_analysis import PortAnalysis
from outcast.analysis.run_analysis import Analysis
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


_FLOW_COLUMNS: dict[str, type[pl.DataType]] = {
    **{"flow": pl.Int64, "src": pl.String, "src_ip": pl.String, "sport": pl.Int64},
    **{"dst": pl.String, "dst_ip": pl.String, "dport": pl.Int64, "hops": pl.Int64},
    **{"path_links": pl.Int64, "ingress": pl.String, "start_ns": pl.Int64},
    **{"congestion_control": pl.String, "goodput_bytes": pl.Int64, "goodput_bps": pl.Float64},
    **{"throughput_bps": pl.Float64, "share": pl.Float64, "packets": pl.Int64},
    **{"dropped": pl.Int64, "longest_chain": pl.Int64, "retransmits": pl.Int64},
    **{"timeouts": pl.Int64, "retransmissions_seen": pl.Int64, "spurious_seen": pl.Int64},
    **{"timeouts_seen": pl.Int64, "halted_s": pl.Float64, "rtt_p50_ns": pl.Int64},
    **{"queueing_mean_ns": pl.Float64, "queueing_p50_ns": pl.Int64, "queueing_p99_ns": pl.Int64},
    **{"name": pl.String, "protocol": pl.String, "of_program": pl.Boolean, "t_first": pl.Int64},
    **{"t_last": pl.Int64, "completion_ns": pl.Int64},
}


def flow_table(analysis: Analysis) -> pl.DataFrame:
    """One row per flow of the run. Rates and counts are over the main interval."""
    goodput = flow_bytes(analysis, analysis.interval)
    frames = flow_bytes(analysis, analysis.interval, of="frames")
    total = sum(goodput.values())
    measures, kernel = flow_measures(analysis), KernelCounts(analysis)
    # The least RTO of captures' senders is not known.
    tells_senders = analysis.manifest.tells_senders
    rows = []
    further: dict[str, type[pl.DataType]] = {}
    for record in analysis.manifest.flows:
        did, own_bytes = measures[record.flow], goodput[record.flow]
        waited = spread_of(did.queueing_ns)
        seconds = active_seconds(analysis, record, analysis.interval)
        # When the first and the last packet came in, in the whole duration.
        first_ns, last_ns = packet_span_ns(analysis, record.flow) or (None, None)
        own = computed("flow", analysis, record)
        further |= dict.fromkeys(own, pl.Float64)
        rows.append(
            {
                **{name: getattr(record, name, None) for name in _FLOW_COLUMNS},
                "path_links": len(record.path) - 1 if record.path else None,
                "goodput_bytes": own_bytes,
                "goodput_bps": 8 * own_bytes / seconds,
                "throughput_bps": 8 * frames[record.flow] / seconds,
                "share": own_bytes / total if total else None,
                "packets": did.packets,
                "dropped": did.dropped,
                "longest_chain": max(did.chains, default=0),
                **kernel.of([record]),
                "retransmissions_seen": did.tcp.retransmissions,
                "spurious_seen": did.tcp.spurious,
                "timeouts_seen": did.tcp.timeouts if tells_senders else None,
                "halted_s": did.tcp.halted_s if tells_senders else None,
                "rtt_p50_ns": did.rtt_p50_ns,
                "queueing_mean_ns": waited and waited.mean,
                "queueing_p50_ns": waited and int(waited.p50),
                "queueing_p99_ns": waited and int(waited.p99),
                "t_first": first_ns,
                "t_last": last_ns,
                "completion_ns": did.completion_ns,
                **own,
            }
        )
    return pl.DataFrame(rows, schema={**_FLOW_COLUMNS, **further})


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
