"""Rows as lines of text: in columns for people, as CSV or JSON for programs."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from rich.table import Table

from outcast.view.listings import Listing


def table(
    *columns: str,
    left: Iterable[str] | None = None,
    wrapped: Iterable[str] | None = (),
    style: str = "",
) -> Table:
    """A table for the terminal, without rows.

    Args:
        columns: the headings.
        left: columns aligned to the left; None is the first alone.
        wrapped: columns that take several lines in a narrow terminal, as those on the left do;
            None is all. So no number is cut off while a name can be broken.
        style: of the headings.
    """
    lefts = set(columns[:1] if left is None else left)
    made = Table(box=None, pad_edge=False, header_style=style)
    broken = columns if wrapped is None else {*lefts, *wrapped}
    for column in columns:
        made.add_column(
            column,
            justify="left" if column in lefts else "right",
            no_wrap=column not in broken,
            overflow="fold" if column in broken else "ellipsis",
        )
    return made


def listing(made: Listing) -> Table:
    """A table of a run; its marked rows are yellow."""
    heads = [column.head for column in made.columns]
    texts = [column.head for column in made.columns if column.is_text]
    shown = table(*heads, left=texts, style="bold")
    for place, row in enumerate(made.rows):
        shown.add_row(*row, style="yellow" if place in made.marked else None)
    return shown


def aligned(rows: Sequence[Sequence[str]], left: Iterable[int]) -> Iterator[str]:
    """Rows of text in columns, the first of which is the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lefts = set(left)
    for row in rows:
        cells = (
            text.ljust(width) if place in lefts else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()


def records(rows: Sequence[Mapping[str, Any]], fields: Sequence[str], form: str) -> Iterator[str]:
    """All rows as one `json` array, or as `csv` with these fields."""
    if form == "json":
        yield json.dumps(rows, indent=1)
        return
    yield csv_line(fields)
    yield from (csv_line([row[field] for field in fields]) for row in rows)


def csv_line(values: Iterable[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(values)
    return text.getvalue()


def frame(table: pl.DataFrame, form: str) -> Iterator[str]:
    if form == "csv":
        yield from table.write_csv().splitlines()
    else:
        yield from (json.dumps(row) for row in table.iter_rows(named=True))
