"""The filters of `outcast inspect`: packets of a run, of joined captures or of a joined table."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from outcast.analysis.capture.headers import SYN
from outcast.analysis.measure.blackout import is_blackout
from outcast.errors import ConfigError, InputError, did_you_mean
from outcast.records.run import IN_INTERVAL, Run
from outcast.records.tables import refusing, scan_table

COLUMNS = (
    *("flow", "src", "sport", "dst", "dport", "ip_id", "seq", "payload", "ingress", "t_in"),
    *("verdict", "egress", "t_out", "queue_bytes"),
)
"""The columns of every table of packets, also of a foreign one."""
_TEXTS = ("src", "dst", "ingress", "verdict", "egress")
"""Columns that hold text. All others hold whole numbers."""

_MOST_NAMED = 20
"""The most flows or ports that a message lists."""

AROUND_BLACKOUT_NS = 1_000_000
"""The default margin before and after a blackout."""


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time since the traffic's start, both ends included.

    `option` is for messages, as `--around 12ms`.
    """

    from_ns: int
    to_ns: int
    option: str


@dataclass(frozen=True, slots=True)
class Selection:
    """The wanted packets; None takes all.

    Attributes:
        port: a port that the packet came in by or left by.
        flow: a flow's number, or its source as `address:port`.
        dst: an address, `address:port`, or the name of a run's host.
        blackout: a row of blackouts.parquet. It takes the packets to the same output that came in
            during the blackout, and `margin_ns` before and after.
        whole: also packets outside the interval of the run's summary.
    """

    port: str | None = None
    flow: str | None = None
    dst: str | None = None
    verdict: str | None = None
    span: Span | None = None
    blackout: int | None = None
    margin_ns: int = AROUND_BLACKOUT_NS
    whole: bool = False


@dataclass(frozen=True)
class Source:
    """An opened table of packets with COLUMNS, in the order of arrival within each output.

    Times count from `start_ns`: a run's start of traffic, or the first packet of a table. `run` may
    be joined captures; it is None for a table alone.
    """

    path: Path
    table: pl.LazyFrame
    start_ns: int
    run: Run | None

    @cached_property
    def chains(self) -> pl.DataFrame:
        """The chains of drops; a blackout's number is its row. Raises ConfigError for a table."""
        if self.run is None:
            raise ConfigError(
                f"--blackout: {self.path} has no blackouts; allowed is the folder of a run, or of "
                "`outcast join ... -o DIR`"
            )
        return self.run.table("blackouts", whole=True)


def blackouts(run: Run, whole: bool = False) -> pl.DataFrame:
    """The blackouts of the interval by time, or all; `blackout` is the row in blackouts.parquet."""
    return (
        run.table("blackouts", whole=True)
        .with_row_index("blackout")
        .filter(is_blackout(), pl.col(IN_INTERVAL) | whole)
        .sort("t_start", maintain_order=True)
    )


def open_source(path: Path) -> Source:
    """Opens the packets of a run's folder or of a joined table."""
    run = Run(path) if path.is_dir() else None
    file = path if run is None else path / "packets.parquet"
    table = scan_table(file) if run is None else run.scan("packets", whole=True)
    with refusing_table(file):
        schema = table.collect_schema()
        for name in COLUMNS:
            if name not in schema:
                raise InputError(f"{file}: not a table of joined packets: no column {name}")
            kind = schema[name]
            fits = kind in (pl.String, pl.Enum, pl.Categorical)
            # In CSV an empty column has no type, for example `egress` if no packet left.
            if kind != pl.Null and not (fits if name in _TEXTS else kind.is_integer()):
                what = "text" if name in _TEXTS else "whole numbers"
                raise InputError(f"{file}: column {name} has other values than {what}")
        first = table.select("t_in").head(1).collect()
    if run is not None:
        return Source(path, table, run.manifest.traffic.t_start_ns, run)
    return Source(path, table, first.item() if first.height else 0, None)


def refusing_table(path: Path) -> AbstractContextManager[None]:
    """Turns errors from a table of packets into InputError."""
    return refusing(f"{path}: cannot be read as a table of packets")


def condition(source: Source, wanted: Selection) -> pl.Expr:
    """The condition for the wanted rows.

    Raises ConfigError if a filter has a value that the table lacks; it lists the values that exist.
    """
    table = source.table
    chosen = pl.lit(True)
    if not wanted.whole and IN_INTERVAL in table.collect_schema():
        chosen &= pl.col(IN_INTERVAL)
    if wanted.port is not None:
        ports = _ports(table)
        if wanted.port not in ports:
            raise ConfigError(
                f"--port {wanted.port}: {_named(ports)}{did_you_mean(wanted.port, ports)}"
            )
        chosen &= (text("ingress") == wanted.port) | (
            (text("egress") == wanted.port) & (text("verdict") == "forwarded")
        )
    if wanted.flow is not None:
        chosen &= _of_flow(table, wanted.flow)
    if wanted.dst is not None:
        chosen &= _to_destination(source, wanted.dst)
    if wanted.verdict is not None:
        chosen &= text("verdict") == wanted.verdict
    if wanted.span is not None:
        require_time(source, wanted.span)
        chosen &= _within(source, wanted.span.from_ns, wanted.span.to_ns)
    if wanted.blackout is not None:
        chain = blackout(source, wanted.blackout)
        from_ns = chain["t_start"] - source.start_ns - wanted.margin_ns
        to_ns = chain["t_end"] - source.start_ns + wanted.margin_ns
        chosen &= _within(source, from_ns, to_ns) & (text("egress") == chain["egress"])
    return chosen


def span_of(source: Source, wanted: Selection) -> tuple[int, int] | None:
    """The span of epoch time of the wanted rows; None if no filter limits it."""
    if wanted.blackout is not None:
        chain = blackout(source, wanted.blackout)
        return chain["t_start"] - wanted.margin_ns, chain["t_end"] + wanted.margin_ns
    if wanted.span is not None:
        return source.start_ns + wanted.span.from_ns, source.start_ns + wanted.span.to_ns
    return None


def blackout(source: Source, number: int) -> dict[str, Any]:
    rows = source.chains
    if not 0 <= number < rows.height:
        there = f"there are 0 to {rows.height - 1}" if rows.height else "there are none"
        raise ConfigError(f"--blackout {number}: {there}, the rows of blackouts.parquet")
    return rows.row(number, named=True)


def require_some(source: Source, wanted: Selection) -> None:
    """Raises ConfigError if no packet fits all filters."""

    def fits(selection: Selection) -> bool:
        return bool(source.table.filter(condition(source, selection)).head(1).collect().height)

    with refusing_table(source.path):
        if fits(wanted):
            return
        if source.run is not None and not wanted.whole and fits(replace(wanted, whole=True)):
            summary = source.run.summary
            raise ConfigError(
                f"the packets that fit are outside the interval of the run's numbers, "
                f"{summary.start_s:g} to {summary.end_s:g} s; --whole takes all of the captures"
            )
    raise ConfigError(f"{source.path}: no packet fits all filters")


def text(name: str) -> pl.Expr:
    """A column of text, also if the table holds an enumeration."""
    return pl.col(name).cast(pl.String)


def _within(source: Source, from_ns: int, to_ns: int) -> pl.Expr:
    return pl.col("t_in").is_between(source.start_ns + from_ns, source.start_ns + to_ns)


def _ports(table: pl.LazyFrame) -> list[str]:
    """The ports that `--port` takes: a dropped packet has no output."""
    forwarded = table.filter(text("verdict") == "forwarded")
    return sorted({*_values(table, text("ingress")), *_values(forwarded, text("egress"))})


def _values(table: pl.LazyFrame, column: pl.Expr) -> list[Any]:
    return table.select(column.unique().sort()).collect().to_series().drop_nulls().to_list()


def _named(values: Sequence[Any]) -> str:
    """Lists values for a message: `there are 0, 1, 2, ..., 12`."""
    texts = [str(value) for value in values]
    if len(texts) > _MOST_NAMED:
        texts = [*texts[: _MOST_NAMED - 1], "...", texts[-1]]
    return f"there are {', '.join(texts) or 'none'}"


def _of_flow(table: pl.LazyFrame, flow: str) -> pl.Expr:
    address, separator, port = flow.rpartition(":")
    if flow.isdecimal():
        numbers = _values(table, pl.col("flow"))
        if int(flow) not in numbers:
            raise ConfigError(f"--flow {flow}: no such flow; {_named(numbers)}")
        return pl.col("flow") == int(flow)
    if not separator or not port.isdecimal():
        raise ConfigError(
            f"--flow {flow}: allowed is a flow's number or its source, as 10.0.0.2:20001"
        )
    sources = _values(table, pl.format("{}:{}", text("src"), pl.col("sport")))
    if flow not in sources:
        raise ConfigError(
            f"--flow {flow}: no such source; {_named(sources)}{did_you_mean(flow, sources)}"
        )
    return (text("src") == address) & (pl.col("sport") == int(port))


def _to_destination(source: Source, wanted: str) -> pl.Expr:
    flows = [] if source.run is None else source.run.manifest.flows
    hosts = {flow.dst: flow.dst_ip for flow in flows}
    address = hosts.get(wanted, wanted)
    addresses = _values(source.table, text("dst"))
    if address in addresses:
        return text("dst") == address
    ends = _values(source.table, pl.format("{}:{}", text("dst"), pl.col("dport")))
    if address in ends:
        host, _, port = address.rpartition(":")
        return (text("dst") == host) & (pl.col("dport") == int(port))
    raise ConfigError(
        f"--dst {wanted}: no such destination; {_named(ends or addresses)}"
        f"{did_you_mean(wanted, [*addresses, *ends, *hosts])}"
    )


def _first_and_last(table: pl.LazyFrame) -> tuple[int | None, int | None]:
    column = pl.col("t_in")
    first, last = table.select(column.min().alias("a"), column.max().alias("b")).collect().row(0)
    return first, last


def require_time(source: Source, span: Span) -> None:
    """Raises ConfigError if all packets came in before the span or after it."""
    first, last = _first_and_last(source.table)
    if first is None or last is None:
        raise ConfigError(f"{span.option}: there are no packets")
    from_ns, to_ns = first - source.start_ns, last - source.start_ns
    if span.from_ns > to_ns or from_ns > span.to_ns:
        there = f"from {from_ns / 1e6:.12g}ms to {to_ns / 1e6:.12g}ms"
        raise ConfigError(f"{span.option}: nothing came in then; packets came in {there}")


def first_numbers(source: Source) -> pl.LazyFrame:
    """The origin `base` of each flow's sequence numbers: a SYN has number 0, the first byte 1.

    Without a SYN the first packet has number 1.
    """
    first = source.table.group_by("flow").agg(
        pl.col("seq", "flags").sort_by("t_in", maintain_order=True).first()
    )
    is_syn = (pl.col("flags").cast(pl.Int64) & SYN) != 0
    base = pl.col("seq").cast(pl.Int64) - pl.when(is_syn).then(0).otherwise(1)
    return first.select("flow", base=base)
