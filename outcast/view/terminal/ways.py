"""Where flows lose packets, as text, CSV or JSON."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from outcast.records.port_summaries import LossSummary
from outcast.view.summary_words import share
from outcast.view.terminal import forms

_HEADS = ("in the whole captures", "flows", "packets", "lost", "share", "most of")
_OF_FLOW = ("step", "in the whole captures", "packets", "lost", "share", "median (ms)", "99 % (ms)")


def lines(table: pl.DataFrame, is_of_flow: bool, form: str) -> Iterator[str]:
    """Gives the steps of one flow, or sums of each place; csv and json have all flows' steps."""
    if form != "table":
        yield from forms.records(table.to_dicts(), table.columns, form)
    elif is_of_flow:
        yield from forms.aligned([_OF_FLOW, *map(_step, table.to_dicts())], left=(1,))
        yield _sum(table)
    else:
        yield from forms.aligned([_HEADS, *_places(table)], left=(0, 5))


def elsewhere(table: pl.DataFrame, losses: LossSummary | None) -> str | None:
    """What the kernel counted as lost at ports that are no point of a step, which the table lacks.

    None where there is nothing of it, or where a step spans more than a queue or a link.
    """
    if table["where"].str.starts_with("between").any():
        return None
    points = {point.partition(" ")[0] for name in ("begins", "ends") for point in table[name]}
    lost = {
        port: sum(part.lost.values())
        for port, part in (losses.ports.items() if losses is not None else ())
        if port not in points and part.lost
    }
    if not lost:
        return None
    ports = ", ".join(f"{port} {count:,}" for port, count in sorted(lost.items()))
    return (
        f"besides, {sum(lost.values()):,} packets were lost in the duration at ports that are not "
        f"captured, so flows are not told apart: {ports}; `capture: {{ports: all}}` captures them"
    )


def _step(row: dict[str, int | str | None]) -> list[str]:
    packets, lost = int(row["packets"] or 0), int(row["lost"] or 0)
    waits = (row["wait_p50_ns"], row["wait_p99_ns"])
    return [
        *(str(row["step"]), str(row["where"]), f"{packets:,}", f"{lost:,}"),
        share(lost, packets),
        *("-" if value is None else f"{int(value) / 1e6:.4f}" for value in waits),
    ]


def _sum(table: pl.DataFrame) -> str:
    lost = int(table["lost"].sum())
    if not lost:
        return "no packet was lost between these points"
    worst = table.sort("lost", descending=True, maintain_order=True).row(0, named=True)
    return f"{lost:,} lost, {worst['lost']:,} of them at the {worst['where']}"


def _places(table: pl.DataFrame) -> Iterator[list[str]]:
    """The sums of each place; those of a queue that several inputs feed are followed by theirs."""
    for place in _sums(table, "where"):
        yield [place["where"], *_cells(place)]
        steps = table.filter(where=place["where"])
        if place["where"].startswith("queue") and steps["begins"].n_unique() > 1:
            for part in _sums(steps, "begins"):
                yield [f"  from {part['begins'].removesuffix(' in')}", *_cells(part)]


def _sums(table: pl.DataFrame, by: str) -> list[dict[str, Any]]:
    parts = table.group_by(by, maintain_order=True).agg(
        pl.len(),
        pl.col("packets", "lost").sum(),
        worst=pl.col("flow").sort_by("lost", descending=True).first(),
        most=pl.col("lost").max(),
    )
    return parts.sort("lost", descending=True, maintain_order=True).to_dicts()


def _cells(row: dict[str, Any]) -> Iterator[str]:
    yield from (f"{count:,}" for count in (row["len"], row["packets"], row["lost"]))
    yield share(row["lost"], row["packets"])
    yield f"flow {row['worst']} ({row['most']:,})" if row["most"] > 0 else "-"
