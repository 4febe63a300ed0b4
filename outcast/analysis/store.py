"""The tables of an analysis as data frames; `outcast.records.tables` writes and reads them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from outcast.analysis.compiled import Array
from outcast.analysis.join.join import Joined
from outcast.analysis.measure.blackout import Chains
from outcast.analysis.measure.queue import Queue

VERDICTS = ("forwarded", "dropped", "unknown")
NOTES = ("", "reordered", "in flight", "before output")
EVENTS = ("enqueue", "drop", "dequeue")


def names(codes: Array, texts: Sequence[str]) -> pl.Series:
    """Turns codes into an enumeration of texts. A negative code becomes null."""
    distinct = sorted(set(texts))
    place = np.array([*(distinct.index(text) for text in texts), 0], np.uint32)
    values = pl.Series(distinct or [""], dtype=pl.Enum(distinct or [""])).gather(place[codes])
    if not (codes < 0).any():
        return values
    return values.set(pl.Series(codes < 0), None)


def nullable(values: Array) -> pl.Series:
    """Turns negative integers into null."""
    series = pl.Series(values)
    return series if not (values < 0).any() else series.set(pl.Series(values < 0), None)


def flow_numbers(joined: Joined) -> list[int]:
    """Numbers the flows of a join from 0, in the order in which they first came in."""
    flow = joined.arrivals.flow
    first = np.full(len(joined.flows), flow.size, np.int64)
    first[flow[::-1]] = np.arange(flow.size)[::-1]
    numbers = np.empty(first.size, np.int64)
    numbers[np.argsort(first, kind="stable")] = np.arange(first.size)
    return [int(number) for number in numbers]


def packet_table(joined: Joined, queue: Queue, flow_numbers: Sequence[int]) -> pl.DataFrame:
    """One row per packet that came in, in the order of arrival; times in nanoseconds."""
    arrivals = joined.arrivals
    numbers = np.array(flow_numbers, np.int32)

    def per_flow(values: Sequence[int]) -> Array:
        return np.array(values, np.uint16)[arrivals.flow]

    return pl.DataFrame(
        {
            "flow": numbers[arrivals.flow],
            "src": names(arrivals.flow, [flow.src for flow in joined.flows]),
            "sport": per_flow([flow.sport for flow in joined.flows]),
            "dst": names(arrivals.flow, [flow.dst for flow in joined.flows]),
            "dport": per_flow([flow.dport for flow in joined.flows]),
            "ip_id": arrivals.ip_id,
            "seq": arrivals.seq,
            "payload": arrivals.payload_bytes,
            "ingress": names(arrivals.port, joined.inputs),
            "t_in": arrivals.stamp_ns,
            "verdict": names(joined.verdict, VERDICTS),
            "egress": names(joined.egress, joined.outputs),
            "t_out": nullable(joined.t_out_ns),
            "queue_bytes": nullable(queue.found_bytes),
            "queue_packets": nullable(queue.found_packets),
            "frame": arrivals.frame_bytes,
            "flags": arrivals.flags,
            "note": names(joined.note, NOTES),
        }
    )


def queue_table(joined: Joined, queue: Queue) -> pl.DataFrame:
    """One row per change of a queue.

    `packet` is the row in the packets' table; null if the packet was queued when the capture
    began. `queue_bytes` and `queue_packets` are the content after the change.
    """
    return pl.DataFrame(
        {
            "t": queue.time_ns,
            "egress": names(queue.egress, joined.outputs),
            "event": names(queue.event, EVENTS),
            "packet": nullable(queue.packet),
            "queue_bytes": queue.bytes,
            "queue_packets": queue.packets,
        }
    )


def chain_table(joined: Joined, chains: Chains) -> pl.DataFrame:
    """One row per chain of drops of one input port."""
    return pl.DataFrame(
        {
            "ingress": names(chains.ingress, joined.inputs),
            "egress": names(chains.egress, joined.outputs),
            "t_start": chains.t_start_ns,
            "t_end": chains.t_end_ns,
            "drops": chains.drops,
            "flows": chains.flows,
            "others_through": chains.others_through,
        }
    )
