"""Tables of the folder trace/: of the kernel's events, and of senders and drops worked out of them.

`senders` and `event_tables` make them. Times count from the traffic's start. A table of events is
`trace/<event>.parquet`. It has COLUMNS first, then the event's own fields under the kernel's names.
A field whose name is one of COLUMNS gets a `_` at its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from outcast.records import write_table

VERSION = 1
"""Rises when a column gets another meaning; an event's file has it as `outcast.trace`."""

COLUMNS = {
    "t_ns": pl.Int64,
    "order": pl.Int64,
    "host": pl.String,
    "port": pl.String,
    "flow": pl.Int64,
    "packet": pl.UInt32,
}
"""The first columns of every table of events:

- `t_ns`: when it happened, after the traffic's start; negative before it.
- `order`: its place among all events that the run recorded, of any kind. Virtual time stands still
  while the kernel computes, so this shows which of two events at one time came first.
- `host`: the node that it happened at, a host or a switch; null if the event does not say.
- `port`: the interface; null if it does not say.
- `flow`: the flow of flows.parquet; null if it concerns none.
- `packet`: the row of packets.parquet, counted from 0; null if it concerns none of them.
"""

STATES = ("open", "disorder", "cwr", "recovery", "loss")
"""enum tcp_ca_state (linux/tcp.h), by its number."""

TCP = {
    "t_ns": pl.Int64,
    "flow": pl.Int64,
    "cwnd": pl.UInt32,
    "ssthresh": pl.UInt32,
    "srtt_us": pl.UInt32,
    "rto_us": pl.UInt32,
    "in_flight": pl.UInt32,
    "state": pl.String,
}
"""trace/tcp.parquet: a sender after each acknowledgement that it took in, by flow and time.

A flow of Multipath TCP has its first connection here, as in the samples.

- `cwnd`, `ssthresh`, `in_flight`: segments. `ssthresh` is null until it is set.
- `srtt_us`, `rto_us`: the smoothed round trip, and the timeout with its backoff.
- `state`: one of STATES.
"""

RETRANSMISSIONS = {
    "t_ns": pl.Int64,
    "flow": pl.Int64,
    "seq": pl.UInt32,
    "cause": pl.String,
    "t_drop_ns": pl.Int64,
    "drop_packet": pl.UInt32,
    "t_detect_ns": pl.Int64,
    "state_before": pl.String,
    "state_after": pl.String,
    "timer": pl.String,
    "rto_ns": pl.Int64,
    "undone": pl.Boolean,
    "end_seq": pl.UInt32,
    "segments": pl.UInt32,
    "counter": pl.String,
    "detected_by": pl.String,
    "error": pl.Int32,
}
"""trace/retransmissions.parquet: a row per segment that was sent again, or tried to be, by time.

- `seq`, `end_seq`: its first byte, and the first byte after it, as in the TCP header.
- `segments`: 1; 0 if the attempt gave up before it was sent, so that RetransSegs does not count it.
- `cause`: one of `outcast.uses.why.causes.CAUSES`.
- `counter`: the kernel's counter of this cause (nstat's name without TcpExt), null if it has none.
- `t_drop_ns`, `drop_packet`: when the copy sent before was dropped, and its row in packets.parquet;
  null if it was not dropped where the run sees it.
- `t_detect_ns`, `detected_by`: when and by what the kernel took the segment for lost; null for a
  probe, which is sent without that.
- `state_before`: the congestion state before what led to it (acknowledgement or timer).
- `state_after`: the state in which it was sent.
- `timer`: the timer that fired; null if an acknowledgement led to it.
- `rto_ns`: the timeout then, with its backoff.
- `undone`: whether the kernel later took back the reduction of the window that it belongs to.
- `error`: 0, or the kernel's error number if nothing was sent.
"""

DROPS = {
    "t_ns": pl.Int64,
    "host": pl.String,
    "port": pl.String,
    "flow": pl.Int64,
    "seq": pl.UInt32,
    "reason": pl.String,
    "where": pl.String,
    "qdisc": pl.String,
    "packet": pl.UInt32,
}
"""trace/drops.parquet: a row per packet dropped anywhere, by time.

- `host`, `port`: the node and interface; null if the event does not say.
- `seq`: its first byte; null if it is not TCP.
- `reason`: the kernel's (enum skb_drop_reason), without SKB_DROP_REASON_.
- `where`: the kernel's function.
- `qdisc`: the kind of queue that dropped it; null if none did.
- `packet`: its row in packets.parquet; null if it is not there.
"""

TABLES: Mapping[str, Mapping[str, type[pl.DataType]]] = {
    "tcp": TCP,
    "retransmissions": RETRANSMISSIONS,
    "drops": DROPS,
}
"""Every table by the name of its file without the ending."""


def empty(name: str) -> pl.DataFrame:
    """A table without rows. `name` is one of TABLES."""
    return pl.DataFrame(schema=dict(TABLES[name]))


def write_sender_table(folder: Path, name: str, frame: pl.DataFrame) -> None:
    """Writes one of TABLES with its declared columns and types to the folder trace/."""
    schema = TABLES[name]
    typed = frame.select(pl.col(column).cast(kind) for column, kind in schema.items())
    write_table(typed, folder / f"{name}.parquet")


def column_name(field: str) -> str:
    """The column of a field of an event."""
    return f"{field}_" if field in COLUMNS else field
