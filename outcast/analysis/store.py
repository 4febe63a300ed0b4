"""The tables of an analysis as data frames; `outcast.records.tables` writes and reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import polars as pl

from outcast.analysis.join.join import Joined
from outcast.analysis.machine_code import Array, Bool
from outcast.analysis.measure.blackout import Chains
from outcast.analysis.measure.queue import Queue

VERDICTS = ("forwarded", "dropped", "unknown")
NOTES = ("", "reordered", "in flight", "before output")
EVENTS = ("enqueue", "drop", "dequeue")


Row = TypeVar("Row")
Columns = Mapping[str, tuple[type[pl.DataType], str | Callable[[Row], Any]]]
"""For each column of a table its type, and its value in a row: an attribute, or a function."""


def table_of(columns: Columns[Row], rows: Sequence[Row]) -> pl.DataFrame:
    """The table of these rows, with its columns and types also where it has no row."""
    values = {}
    for name, (_, of_row) in columns.items():
        take = attrgetter(of_row) if isinstance(of_row, str) else of_row
        values[name] = [take(row) for row in rows]
    return pl.DataFrame(values, schema={name: kind for name, (kind, _) in columns.items()})


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


ALL = slice(None)


def packet_table(
    joined: Joined,
    queue: Queue,
    flow_numbers: Sequence[int],
    rows: slice = ALL,
    counts: Bool | None = None,
) -> pl.DataFrame:
    """One row per packet that came in, in the order of arrival; of all, those in `rows`; in ns.

    `counts` says which reached the queue in the interval; None means that all did.
    """
    arrivals = joined.arrivals
    flow = arrivals.flow[rows]
    numbers = np.array(flow_numbers, np.int32)

    def per_flow(values: Sequence[int]) -> Array:
        return np.array(values, np.uint16)[flow]

    return pl.DataFrame(
        {
            "flow": numbers[flow],
            "src": names(flow, [flow.src for flow in joined.flows]),
            "sport": per_flow([flow.sport for flow in joined.flows]),
            "dst": names(flow, [flow.dst for flow in joined.flows]),
            "dport": per_flow([flow.dport for flow in joined.flows]),
            "ip_id": arrivals.ip_id[rows],
            "seq": arrivals.seq[rows],
            "payload": arrivals.payload_bytes[rows],
            "ingress": names(arrivals.port[rows], joined.inputs),
            "t_in": arrivals.stamp_ns[rows],
            "verdict": names(joined.verdict[rows], VERDICTS),
            "egress": names(joined.egress[rows], joined.outputs),
            "t_out": nullable(joined.t_out(rows)),
            "queue_bytes": nullable(queue.found_bytes[rows]),
            "queue_packets": nullable(queue.found_packets[rows]),
            "frame": arrivals.frame_bytes[rows],
            "flags": arrivals.flags[rows],
            "note": names(joined.note[rows], NOTES),
            "in_interval": np.ones(flow.size, np.bool_) if counts is None else counts[rows],
        }
    )


def queue_table(joined: Joined, queue: Queue, rows: slice = ALL) -> pl.DataFrame:
    """One row per change of a queue; `rows` are those to give, of all.

    `packet` is the row in the packets' table; null if the packet was queued when the capture
    began. `queue_bytes` and `queue_packets` are the content after the change.
    """
    return pl.DataFrame(
        {
            "t": queue.time_ns[rows],
            "egress": names(queue.egress[rows], joined.outputs),
            "event": names(queue.event[rows], EVENTS),
            "packet": nullable(queue.packet[rows]),
            "queue_bytes": queue.bytes[rows],
            "queue_packets": queue.packets[rows],
        }
    )


def chain_table(joined: Joined, chains: Chains, counts: Bool | None = None) -> pl.DataFrame:
    """One row per chain of drops of one input port; `counts` is as for `packet_table`."""
    return pl.DataFrame(
        {
            "ingress": names(chains.ingress, joined.inputs),
            "egress": names(chains.egress, joined.outputs),
            "t_start": chains.t_start_ns,
            "t_end": chains.t_end_ns,
            "drops": chains.drops,
            "flows": chains.flows,
            "others_through": nullable(chains.others_through),
            "longest_gap_ns": chains.longest_gap_ns,
            "before_gap": chains.before_gap,
            "in_interval": np.ones(len(chains), np.bool_)
            if counts is None
            else counts[chains.first],
        }
    )
