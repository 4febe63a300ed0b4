"""The kernel's events of TCP as tables, of a run that recorded them.

Patch 0011 of the guest's kernel has what Linux's own events lack: why a segment is sent
again, when it is held for lost, what the timers do and what keeps a sender from sending.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from outcast.errors import InputError
from outcast.experiment.engine import properties
from outcast.records.run_directory import Manifest, RunDirectory
from outcast.records.sender_tables import STATES
from outcast.records.tables import read_table
from outcast.records.trace import table_name

_OF_SENDERS = (
    *("retransmit_skb", "mark_lost", "cong_state_set", "timer", "timeout", "loss_probe", "undo"),
    *("ack_done", "xmit_stop", "retransmit_synack", "synack_timeout"),
)
OF_SENDERS = tuple(f"tcp:tcp_{name}" for name in _OF_SENDERS)
"""What the senders' tables are made from."""
OF_DROPS = ("skb:kfree_skb", "qdisc:qdisc_drop")
EVENTS = (*OF_SENDERS, *OF_DROPS)
"""What `outcast why` needs."""
_ALSO = ("mptcp:mptcp_retrans",)

SOCKET = ("flow", "sport")
"""The fields of a sending socket: Multipath TCP has several for a flow."""

# enum tcp_ca_state (linux/tcp.h)
OPEN, DISORDER, CWR, RECOVERY, LOSS = range(5)
# enum tcp_retrans_cause (include/net/tcp.h, patch 0011)
BY_RTO, BY_PROBE0, BY_TLP, BY_ACK, BY_REO_TIMER, BY_TSQ, BY_SIMPLE = range(1, 8)
# enum tcp_lost_cause
LOST_RACK, LOST_REO_TIMER, LOST_RTO, LOST_RENEGING, LOST_NEWRENO, LOST_SIMPLE = range(1, 7)
# enum tcp_undo_kind
UNDO_FULL, UNDO_LOSS, UNDO_FRTO, UNDO_PARTIAL, UNDO_DSACK = range(1, 6)
# enum tcp_probe_kind
PROBE_NEW_DATA, PROBE_RETRANS, PROBE_RECOVERED, PROBE_IN_QUEUE = range(1, 5)
# enum tcp_stop_cause
STOP_NO_DATA, STOP_CWND, STOP_RWND, STOP_NAGLE, STOP_TSO_DEFER, STOP_TSQ = range(1, 7)
STOP_PACING, STOP_MEMORY, STOP_DEVICE, STOP_ONE_ONLY, STOP_MTU_PROBE = range(7, 12)
# enum tcp_timer_action
ARMED, FIRED, CLEARED = range(1, 4)
# include/net/inet_connection_sock.h
TIME_RETRANS, TIME_DACK, TIME_PROBE0, TIME_LOSS_PROBE, TIME_REO_TIMEOUT = 1, 2, 3, 5, 6
# enum tcp_skb_cb_sacked_flags (include/net/tcp.h)
SACKED_RETRANS, MARKED_LOST = 0x02, 0x04
# include/net/tcp.h
SYN = 0x02
NO_THRESHOLD = 0x7FFFFFFF
"""TCP_INFINITE_SSTHRESH: no loss has happened yet."""
EBUSY = 16


@dataclass(frozen=True)
class TcpEvents:
    """The events of every socket of a run, in the kernel's order.

    `tables` are by the event's name without its system, as `tcp_mark_lost`. `order` is an event's
    place among all of them, because many share a nanosecond.
    """

    tables: Mapping[str, pl.DataFrame]

    def of_senders(self, manifest: Manifest) -> TcpEvents:
        """The events of the sockets that send the run's flows, without those that answer them."""
        sources = [(record.flow, record.src) for record in manifest.flows]
        schema = {"flow": pl.Int64, "host": pl.String}
        sending = pl.DataFrame(sources, schema=schema, orient="row")
        how: Any = {"on": [*schema], "how": "semi", "maintain_order": "left"}
        return TcpEvents({name: of.join(sending, **how) for name, of in self.tables.items()})

    def __getitem__(self, name: str) -> pl.DataFrame:
        return self.tables[name]


def named(column: str, names: Mapping[int, str] | Mapping[str, str | None]) -> pl.Expr:
    """A column's values by their names; null where a value has none."""
    return pl.col(column).replace_strict(dict(names), default=None, return_dtype=pl.String)


def state_name(column: str) -> pl.Expr:
    """A column of enum tcp_ca_state by the states' names."""
    return named(column, dict(enumerate(STATES)))


def with_last(
    rows: pl.DataFrame, /, others: pl.DataFrame, on: str, by: Sequence[str] = SOCKET, **how: Any
) -> pl.DataFrame:
    """Adds to each row the last of others up to it with the same `by`, or as `join_asof` says."""
    return rows.join_asof(others, on=on, by=list(by), check_sortedness=False, **how)


def recorded(directory: RunDirectory) -> bool:
    """Whether a run recorded all events of senders."""
    traced = directory.read_traced()
    return traced is not None and set(OF_SENDERS) <= set(traced.events)


def read_events(directory: RunDirectory) -> TcpEvents:
    """Reads the events of TCP. Raises InputError if OF_SENDERS are not all there, or broken."""
    manifest = directory.read_manifest()
    traced = directory.read_traced()
    events = {} if traced is None else traced.events
    missing = [event for event in OF_SENDERS if event not in events]
    if missing:
        why = f"has no events {missing[0]}; `outcast trace {directory.path}` records them"
        if not properties(manifest.engine).own_kernel:
            why = "ran in real time, so it has no events of the kernel; allowed are runs of the "
            why += "virtual engine"
        raise InputError(f"{directory.path}: {why}")
    names = [event for event in (*OF_SENDERS, *OF_DROPS, *_ALSO) if event in events]
    return TcpEvents({table_name(name): _table(directory.trace, name) for name in names})


def _table(folder: Path, event: str) -> pl.DataFrame:
    path = folder / f"{table_name(event)}.parquet"
    return read_table(path).sort("order")
