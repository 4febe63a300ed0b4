"""The recorded events of a run in their order, all or those of a flow and a span of time."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import merge
from typing import Any

import polars as pl

from outcast.analysis.selection import Span
from outcast.errors import ConfigError, InputError
from outcast.records.run import Run
from outcast.records.sender_tables import COLUMNS
from outcast.records.trace import table_name

SLICE_ROWS = 20_000

_IN_MEMORY = (
    *("skbaddr", "skaddr", "qdisc", "txq", "rx_sk", "location", "function", "hrtimer", "timer"),
    *("req", "sock_cookie"),
)
"""Fields that are addresses of the kernel's memory, which mean nothing to a reader."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events are meant; None takes all. `events` is the kinds, as `tcp:tcp_probe`."""

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
    """The rows of one kind of event that are meant, in their order."""
    table = run.scan(f"trace/{table_name(event)}")
    if wanted.flow is not None:
        table = table.filter(pl.col("flow") == wanted.flow)
    if wanted.span is not None:
        table = table.filter(pl.col("t_ns").is_between(wanted.span.from_ns, wanted.span.to_ns))
    return table


def rows(run: Run, wanted: Wanted) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events that are meant, with their kinds, as they happened; read in slices.

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
    """Raises ConfigError if the run has no flow of this number."""
    known = [record.flow for record in run.manifest.flows]
    if flow is not None and known and flow not in known:
        raise ConfigError(f"--flow {flow}: there are {min(known)} to {max(known)}")


def require_some(run: Run, wanted: Wanted) -> None:
    """Raises ConfigError if no event fits; the message says when there are some."""
    kinds = wanted.events or events_of(run)
    with run.reading_events():
        if any(scan(run, event, wanted).head(1).collect().height for event in kinds):
            return
        always = replace(wanted, span=None)
        times = pl.concat(scan(run, event, always).select("t_ns") for event in kinds)
        first, last = times.select(pl.col("t_ns").min(), last=pl.col("t_ns").max()).collect().row(0)
    options = [] if wanted.flow is None else [f"--flow {wanted.flow}"]
    options += [] if wanted.span is None else [wanted.span.asked]
    there = "" if first is None else f"; there are some from {first / 1e6:g} to {last / 1e6:g} ms"
    raise ConfigError(f"no event fits {' and '.join(options) or ', '.join(kinds)}{there}")


def own_fields(row: dict[str, Any]) -> dict[str, Any]:
    """What an event says besides COLUMNS, without addresses of memory; names stand for numbers."""
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
