"""The tables of the folder trace/: their columns, and the version of their meaning.

A table of events is `trace/<event>.parquet`. It has COLUMNS first, then the event's own fields
under the kernel's names. A field whose name is one of COLUMNS gets a `_` at its end.
"""

from __future__ import annotations

import polars as pl

VERSION = 1
"""Rises when a column gets another meaning; each file's metadata has it as `outcast.trace`."""

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
  while the kernel computes, so this tells which of two events at one time came first.
- `host`: the node that it happened at, a host or a switch; null if the event does not say.
- `port`: the interface; null if it does not say.
- `flow`: the flow of flows.parquet; null if it concerns none.
- `packet`: the row of packets.parquet, counted from 0; null if it concerns none of them.
"""


def column_name(field: str) -> str:
    """The column of a field of an event."""
    return f"{field}_" if field in COLUMNS else field
