"""Where flows lose packets, as text, CSV or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import polars as pl

_HEADS = ("where", "flows", "packets", "lost", "share", "most of")
_OF_FLOW = ("step", "where", "packets", "lost", "share", "median (ms)", "99 % (ms)")


def lines(table: pl.DataFrame, is_of_flow: bool, form: str) -> Iterator[str]:
    """Gives the steps of one flow, or the sums over all flows of each place, as lines of text.

    Args:
        table: what `analysis.ways.loss_table` returns.
        is_of_flow: whether it is of one flow.
        form: `table`, `csv` or `json`. The latter two have each flow's steps in any case.
    """
    if form == "json":
        yield json.dumps(table.to_dicts(), indent=1)
    elif form == "csv":
        yield from table.write_csv().splitlines()
    elif is_of_flow:
        yield from _aligned(_OF_FLOW, [_step(row) for row in table.to_dicts()])
        yield _sum(table)
    else:
        yield from _aligned(_HEADS, list(_places(table)))


def _step(row: dict[str, int | str | None]) -> list[str]:
    packets, lost = int(row["packets"] or 0), int(row["lost"] or 0)
    waits = (row["wait_p50_ns"], row["wait_p99_ns"])
    return [
        *(str(row["step"]), str(row["where"]), f"{packets:,}", f"{lost:,}"),
        f"{lost / packets:.2%}" if packets else "-",
        *("-" if value is None else f"{int(value) / 1e6:.4f}" for value in waits),
    ]


def _sum(table: pl.DataFrame) -> str:
    lost = int(table["lost"].sum())
    if not lost:
        return "no packet was lost between these points"
    worst = table.sort("lost", descending=True, maintain_order=True).row(0, named=True)
    return f"{lost:,} lost, {worst['lost']:,} of them at the {worst['where']}"


def _places(table: pl.DataFrame) -> Iterator[list[str]]:
    parts = table.group_by("where", maintain_order=True).agg(
        pl.len(),
        pl.col("packets", "lost").sum(),
        worst=pl.col("flow").sort_by("lost", descending=True).first(),
        most=pl.col("lost").max(),
    )
    for row in parts.sort("lost", descending=True, maintain_order=True).to_dicts():
        share = f"{row['lost'] / row['packets']:.2%}" if row["packets"] else "-"
        worst = f"flow {row['worst']} ({row['most']:,})" if row["most"] > 0 else "-"
        counts = (row["len"], row["packets"], row["lost"])
        yield [row["where"], *(f"{count:,}" for count in counts), share, worst]


def _aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    table = [head, *rows]
    widths = [max(len(row[place]) for row in table) for place in range(len(head))]
    for row in table:
        cells = (
            text.ljust(width) if name in ("where", "most of") else text.rjust(width)
            for text, width, name in zip(row, widths, head, strict=True)
        )
        yield "  ".join(cells).rstrip()
