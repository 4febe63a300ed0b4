"""Prints groups of runs: as a table for the terminal, as CSV and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Group as Blocks
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from outcast import quantities
from outcast.analysis.statistics import Interval
from outcast.records.spreadsheets import csv_text
from outcast.sweep.dataset import is_compared
from outcast.sweep.groups import Cell, Group
from outcast.sweep.labels import Labels, value_text


def table(groups: Sequence[Group], center: str, labels: Labels) -> RenderableType:
    """A table for each value, with a row per group; `center` is the heading of the average.

    A key's column is headed by its own label, if it has one, and below it by the key itself.
    """
    parts: list[RenderableType] = []
    for number, cell in enumerate(groups[0].cells if groups else ()):
        table_of_values = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
        table_of_values.title = Text(heading(cell.value), style="bold")
        for key in _keys(groups):
            name = labels.key(key)
            table_of_values.add_column(name if name == key else f"{name}\n{key}", overflow="fold")
        tested = any(group.tested for group in groups)
        for column in ("runs", *(["stationary"] if tested else []), center, "95 % interval"):
            table_of_values.add_column(column, justify="right", no_wrap=True)
        for group in groups:
            table_of_values.add_row(
                *map(value_text, group.at.values()),
                str(group.cells[number].interval.n),
                *([stationary(group)] if tested else []),
                *interval_texts(group.cells[number], group),
            )
        parts += [table_of_values, ""]
    return Blocks(*parts)


def as_csv(groups: Sequence[Group]) -> str:
    """A line per group and value, with its interval; unrounded, in the unit of the value's name.

    The last two columns are of the group's runs: how many were stationary, of how many known.
    """
    head = ["value", "runs", "center", "low", "high", "stationary", "tested"]
    rows: list[list[object]] = [[*_keys(groups), *head]]
    for group in groups:
        for cell in group.cells:
            interval = cell.interval
            bounds = [interval.value, interval.low, interval.high]
            trend = [group.stationary, group.tested]
            rows.append([*group.at.values(), cell.value, interval.n, *bounds, *trend])
    return csv_text(rows)


def as_json(groups: Sequence[Group]) -> str:
    """The same as `as_csv`, as a list of objects."""
    return json.dumps(
        [
            {
                "at": group.at,
                "runs": group.runs,
                "stationary": group.stationary,
                "tested": group.tested,
                "values": {cell.value: _tree(cell.interval) for cell in group.cells},
            }
            for group in groups
        ],
        indent=1,
    )


def scale(name: str) -> tuple[float, str]:
    """The factor by which a value is divided for people, and its unit after that."""
    return (1e6, "Mbps") if name.endswith("_bps") else (1.0, "")


def heading(name: str) -> str:
    """A value's name for people: `classes.2.mean_goodput_bps` is `2-hop mean goodput, Mbps`."""
    if is_compared(name):
        return name
    _, unit = scale(name)
    found = quantities.of_column(name)
    if found is None:
        text = name.removesuffix("_bps").replace(".", " ").replace("_", " ")
        return f"{text}, {unit}" if unit else text
    unit = unit or found.form.unit
    match name.removesuffix(found.key).removesuffix(".").split("."):
        case ["classes", hops]:
            whose = f"{hops}-hop "
        case ["groups", _, *label]:
            whose = f"{'.'.join(label)} "
        case ["completions" | "probes" as part, number]:
            whose = f"{'probe' if part == 'probes' else 'workload'} {number} "
        case [_, *label]:
            whose = f"{'.'.join(label)} " if label else ""
    text = f"{whose}{found.label.removesuffix(f' ({unit})')}"
    return f"{text}, {unit}" if unit else text


def _keys(groups: Sequence[Group]) -> list[str]:
    return list(groups[0].at) if groups else []


def _tree(interval: Interval) -> dict[str, Any]:
    bounds = {"low": interval.low, "high": interval.high}
    return {"runs": interval.n, "center": interval.value, **bounds}


def stationary(group: Group) -> str:
    """How many runs of a group were stationary: `8 of 10`."""
    return f"{group.stationary} of {group.tested}" if group.tested else "-"


def interval_texts(cell: Cell, group: Group) -> tuple[str, str]:
    """The centre and the interval, `5.2` and `[4.3, 6.3]`; `-` for what is missing.

    The centre has a star if most runs of its group were not stationary.
    """
    factor, _ = scale(cell.value)
    interval = cell.interval
    if interval.value is None:
        return "-", "-"
    center = _number(interval.value / factor) + "*" * group.moves
    if interval.low is None or interval.high is None:
        return center, "-"
    return center, f"[{_number(interval.low / factor)}, {_number(interval.high / factor)}]"


def _number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
