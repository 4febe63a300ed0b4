"""Lists blackouts as text, each with the number that other options and the report use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import polars as pl

from outcast.analysis import selection
from outcast.analysis.export import with_drops
from outcast.analysis.selection import Selection, Source
from outcast.errors import ConfigError
from outcast.view.terminal import forms
from outcast.view.terminal.listing import milliseconds

_HEADS = {
    "blackout": "blackout",
    "ingress": "ingress",
    "egress": "egress",
    "from_ms": "from (ms)",
    "lasts_us": "lasts (us)",
    "drops": "drops",
    "flows": "flows",
    "others_through": "others through",
    "longest_gap_us": "longest gap (us)",
    "before_gap": "drops before it",
}


def lines(source: Source, wanted: Selection, form: str) -> Iterator[str]:
    """Gives the blackouts with a dropped packet that fits the filters, in the order of time.

    Raises ConfigError if a filter names something absent, or no blackout fits.
    """
    rows = [_row(source, row) for row in _chosen(source, wanted).iter_rows(named=True)]
    if form == "json":
        rows = [row | {"from_ms": float(row["from_ms"])} for row in rows]
    if form != "table":
        yield from forms.records(rows, [*_HEADS], form)
    elif not rows:
        yield "there was no blackout: no chain of drops while packets of other ports got through"
    else:
        cells = ([str(row[name]) for name in _HEADS] for row in rows)
        yield from forms.aligned([[*_HEADS.values()], *cells], left=(1, 2))


def _chosen(source: Source, wanted: Selection) -> pl.DataFrame:
    if source.run is None:
        selection.blackout(source, 0)  # which says that a table alone has none
    assert source.run is not None
    every = selection.blackouts(source.run, wanted.whole)
    if replace(wanted, whole=False) == Selection() or every.is_empty():
        return every
    selection.condition(source, wanted)  # which refuses a port that is not there
    fits = selection.condition(source, replace(wanted, port=None))
    with selection.refusing_table(source.path):
        dropped = (
            source.table.with_row_index("packet")
            .filter(fits & (pl.col("verdict").cast(pl.String) == "dropped"))
            .select("packet", "t_in", "verdict", "ingress", "egress")
            .collect()
        )
    numbers = with_drops(source, dropped)["blackout"].drop_nulls().unique().implode()
    chosen = every.filter(pl.col("blackout").is_in(numbers))
    if wanted.port is not None:
        ports = (pl.col(name).cast(pl.String) for name in ("ingress", "egress"))
        chosen = chosen.filter(pl.any_horizontal(port == wanted.port for port in ports))
    if chosen.is_empty():
        raise ConfigError(f"--blackouts: none of {every.height} fits all filters")
    return chosen


def _row(source: Source, row: dict[str, Any]) -> dict[str, Any]:
    values = {
        **row,
        "from_ms": milliseconds(row["t_start"] - source.start_ns),
        "lasts_us": round((row["t_end"] - row["t_start"]) / 1e3, 3),
        "longest_gap_us": round(row["longest_gap_ns"] / 1e3, 3),
    }
    return {name: values[name] for name in _HEADS}
