"""The events that a run recorded: those of TCP as tables, or any in their order.

Patch 0011 of the guest's kernel has what Linux's own events lack: why a segment is sent
again, when it is held for lost, what the timers do and what keeps a sender from sending.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from typing import Any

import polars as pl

from outcast.analysis import Span
from outcast.errors import ConfigError, InputError
from outcast.experiment import properties
from outcast.records import Manifest, Run, RunDirectory, read_table, table_name
from outcast.uses.why.sender_tables import COLUMNS, STATES
from outcast.view import forms

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
    return named(column, dict(enumerate(STATES)))


def with_last(
    rows: pl.DataFrame, /, others: pl.DataFrame, on: str, by: Sequence[str] = SOCKET, **how: Any
) -> pl.DataFrame:
    """Adds to each row the last of others up to it with the same `by`, or as `join_asof` says."""
    return rows.join_asof(others, on=on, by=list(by), check_sortedness=False, **how)


def recorded(directory: RunDirectory) -> bool:
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
    tables = {}
    for name in map(table_name, names):
        tables[name] = read_table(directory.trace / f"{name}.parquet").sort("order")
    return TcpEvents(tables)


SLICE_ROWS = 20_000

_IN_MEMORY = (
    *("skbaddr", "skaddr", "qdisc", "txq", "rx_sk", "location", "function", "hrtimer", "timer"),
    *("req", "sock_cookie"),
)
"""Fields that are addresses of the kernel's memory."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The events that are wanted; None takes all. `events` has kinds, as `tcp:tcp_probe`."""

    events: tuple[str, ...] | None = None
    flow: int | None = None
    span: Span | None = None


def events_of(run: Run) -> tuple[str, ...]:
    """The kinds of events of which a run has tables. Raises InputError if it has none."""
    traced = run.directory.read_traced()
    if traced is None:
        raise InputError(
            f"{run.directory.path}: recorded no events of the kernel; "
            f"`outcast trace {run.directory.path}` records them"
        )
    return tuple(traced.events)


def scan(run: Run, event: str, wanted: Wanted) -> pl.LazyFrame:
    table = run.scan(f"trace/{table_name(event)}")
    if wanted.flow is not None:
        table = table.filter(pl.col("flow") == wanted.flow)
    if wanted.span is not None:
        table = table.filter(pl.col("t_ns").is_between(wanted.span.from_ns, wanted.span.to_ns))
    return table


def rows(run: Run, wanted: Wanted) -> Iterator[tuple[str, dict[str, Any]]]:
    """The wanted events, with their kinds, as they happened; read in slices.

    Raises ConfigError without such a flow, and InputError without events or for a broken table.
    """
    kinds = wanted.events or events_of(run)
    require_flow(run, wanted.flow)
    with run.reading_events():
        yield from merge(
            *(_rows(run, event, wanted) for event in kinds), key=lambda row: row[1]["order"]
        )


def _rows(run: Run, event: str, wanted: Wanted) -> Iterator[tuple[str, dict[str, Any]]]:
    table = scan(run, event, wanted)
    for batch in table.collect_batches(chunk_size=SLICE_ROWS, maintain_order=True):
        for row in batch.iter_rows(named=True):
            yield event, row


def require_flow(run: Run, flow: int | None) -> None:
    known = [record.flow for record in run.manifest.flows]
    if flow is not None and known and flow not in known:
        raise ConfigError(f"--flow {flow}: there are {min(known)} to {max(known)}")


def require_some(run: Run, wanted: Wanted) -> None:
    """Raises ConfigError if no event fits; the message says when other events happened."""
    kinds = wanted.events or events_of(run)
    with run.reading_events():
        if any(scan(run, event, wanted).head(1).collect().height for event in kinds):
            return
        always = replace(wanted, span=None)
        times = pl.concat(scan(run, event, always).select("t_ns") for event in kinds)
        first, last = times.select(pl.col("t_ns").min(), last=pl.col("t_ns").max()).collect().row(0)
    options = [] if wanted.flow is None else [f"--flow {wanted.flow}"]
    options += [] if wanted.span is None else [wanted.span.option]
    there = "" if first is None else f"; there are some from {first / 1e6:g} to {last / 1e6:g} ms"
    raise ConfigError(f"no event fits {' and '.join(options) or ', '.join(kinds)}{there}")


def own_fields(row: dict[str, Any]) -> dict[str, Any]:
    """An event's fields besides COLUMNS, without addresses of memory; names stand for numbers."""
    fields = {name: value for name, value in row.items() if name not in COLUMNS}
    for name in [*fields]:
        if f"{name}_name" in fields and (named := fields.pop(f"{name}_name")) is not None:
            fields[name] = named
    return {
        name: value
        for name, value in fields.items()
        if not (value is None or isinstance(value, bytes))
        and not (name in _IN_MEMORY and isinstance(value, int))
    }


_COLUMNS = ("t_ns", "event", "host", "port", "flow", "packet")


_FORMS = ("{:>14}", "{:28}", "{:9}", "{:10}", "{:>4}", "{:>7}")


_LEFT_OUT = (
    *("dev", "ifindex", "txq_state", "saddr_v6", "daddr_v6", "family", "mark", "protocol"),
    *("saddr", "sport", "daddr", "dport"),
)
"""Fields that a table for people leaves out: the columns and the addresses say the same."""


def lines(run: Run, wanted: Wanted, form: str) -> Iterator[str]:
    """Gives the events as lines of text. Raises as `rows`, and ConfigError if no event fits."""
    require_some(run, wanted)
    if form == "table":
        yield _line(("time (ms)", "event", "host", "port", "flow", "packet"), "what")
    if form == "csv":
        yield forms.csv_line([*_COLUMNS, "fields"])
    for event, row in rows(run, wanted):
        if form == "json":
            own = {name: value for name, value in row.items() if not isinstance(value, bytes)}
            yield json.dumps({"event": event, **own})
        elif form == "csv":
            first = {"event": event, **row}
            yield forms.csv_line([*(first[name] for name in _COLUMNS), json.dumps(own_fields(row))])
        else:
            first = {**row, "event": event, "t_ns": f"{row['t_ns'] / 1e6:.6f}"}
            yield _line(tuple(first[name] for name in _COLUMNS), _what(row))


def _what(row: dict[str, Any]) -> str:
    fields = own_fields(row)
    ends = [fields.get(name) for name in ("saddr", "sport", "daddr", "dport")]
    between = [] if None in ends else ["{}:{}>{}:{}".format(*ends)]
    for name in ("handle", "parent"):
        if name in fields:
            fields[name] = _handle(fields[name])
    rest = [f"{name}={value}" for name, value in fields.items() if name not in _LEFT_OUT]
    return " ".join([*between, *rest])


def _handle(number: int) -> str:
    """A qdisc's handle as tc(8) writes it."""
    major, minor = divmod(number, 1 << 16)
    if number == 0xFFFF_FFFF:
        return "root"
    return f"{major:x}:{minor:x}" if minor else f"{major:x}:"


def _line(cells: tuple[Any, ...], last: str) -> str:
    texts = ["" if cell is None else str(cell) for cell in cells]
    padded = [form.format(text) for form, text in zip(_FORMS, texts, strict=True)]
    return "  ".join([*padded, last]).rstrip()
