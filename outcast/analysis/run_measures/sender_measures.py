"""The measures of what senders see: round trips of single segments, and retransmissions."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl

from outcast.analysis.capture.headers import ACK
from outcast.analysis.capture.pcap import read_capture
from outcast.analysis.measure.tcp import Acks, RoundTrips, round_trips
from outcast.analysis.run_measures import drop_measures, intervals
from outcast.analysis.run_measures.kinds import NOT_NEGATIVE, Measure, measure
from outcast.records.flows import FlowRecord
from outcast.records.run import Run


@measure(limits=NOT_NEGATIVE)
def retransmits_per_flow(run: Run, measure: Measure) -> float:
    """The segments that the kernel sent again, per flow of a class."""
    of_class = run.summary.classes.get(str(measure.hops))
    return drop_measures.per_flow(run, measure, of_class.retransmits if of_class else None)


@measure(limits=NOT_NEGATIVE, has_interval=True)
def segment_rtt_ms(run: Run, measure: Measure) -> float:
    """The median round trip of a class's segments in ms, from their sender's switch and back to it.

    Sockets show smoothed round trips alone, and after a timeout that of a lone segment, whose
    acknowledgement waits for a second one, lasts for many samples.
    """
    span, t_start_ns = intervals.span_of(run, measure.interval), run.manifest.traffic.t_start_ns
    flows = [flow.flow for flow in run.manifest.compared_flows if flow.hops == measure.hops]
    since_ns = pl.col("t") - t_start_ns
    inside = since_ns.is_between(span.start_ns, span.end_ns, closed="left")
    median = segments(run).filter(pl.col("flow").is_in(flows), inside)["rtt_ns"].median()
    return median / 1e6 if isinstance(median, float) else math.nan


@lru_cache(maxsize=128)
def segments(run: Run) -> pl.DataFrame:
    """The round trips of single segments, with the columns of the table rtt.

    They are of the captures of the port that a sender is at, in both directions, so `capture` has
    to name it; flows of other senders are left out. tcp.round_trips says which segments count.
    """
    files = {
        (each.port, each.direction): run.directory.path / each.file
        for each in run.manifest.captures
    }
    schema = {"flow": pl.Int64, "t": pl.Int64, "rtt_ns": pl.Int64}
    parts = [pl.DataFrame(schema=schema)]
    for flow in run.manifest.compared_flows:
        for port, direction in files:
            back = files.get((port, "out"))
            if direction == "in" and back and port.rpartition("-")[0] == flow.path[1]:
                seen = _of_flow(flow, files[port, "in"], back)
                number = np.full(seen.rtt_ns.size, flow.flow)
                parts.append(pl.DataFrame([number, seen.sent_ns, seen.rtt_ns], schema=schema))
    return pl.concat(parts)


def _of_flow(flow: FlowRecord, there: Path, back: Path) -> RoundTrips:
    """The round trips of a flow at a port that its segments come in by; none if they do not."""
    data = read_capture("in", there, frozenset({flow.dst_ip}), foreign=False)
    acks = read_capture("out", back, frozenset({flow.src_ip}), foreign=False)
    ends = (flow.src_ip, flow.sport, flow.dst_ip, flow.dport)
    trips = []
    for number, key in enumerate(data.flows):
        if (key.src, key.sport, key.dst, key.dport) == ends and key.reversed in acks.flows:
            rows = np.flatnonzero((data.columns.flow == number) & (data.columns.payload_bytes > 0))
            columns = acks.columns
            mine = columns.flow == acks.flows.index(key.reversed)
            mine &= (columns.flags & ACK) != 0
            heard = Acks(columns.ack[mine], columns.sacked[mine], columns.stamp_ns[mine])
            trips.append((number, rows, heard))
    return round_trips(data.columns, trips)
