"""Prints groups of runs, and names swept keys and their values for people."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group as Blocks
from rich.console import RenderableType
from rich.text import Text

from outcast import quantities, units
from outcast.experiment import Experiment
from outcast.records.tables import csv_text
from outcast.sweep.dataset import is_compared
from outcast.sweep.groups import Group
from outcast.sweep.points import as_text
from outcast.view.terminal import forms


@dataclass(frozen=True)
class Axis:
    """The axis of a swept key; `amounts` is None if one of the values is not a number."""

    label: str
    ticks: tuple[str, ...]
    amounts: tuple[float, ...] | None


class Labels:
    """The names of a sweep's keys for people: its `labels`, or the keys themselves."""

    def __init__(self, experiment: Experiment) -> None:
        self._own = experiment.sweep.labels if experiment.sweep is not None else {}

    def key(self, key: str) -> str:
        return self._own.get(key, key)

    def axis(self, key: str, values: Sequence[object]) -> Axis:
        found = [part for value in values if (part := amount(value)) is not None]
        is_amount = len(found) == len(values) and len({kind for kind, _ in found}) == 1
        amounts = tuple(number for _, number in found) if is_amount else None
        return Axis(self.key(key), tuple(map(value_text, values)), amounts)


def value_text(value: object) -> str:
    """A value as text; a point that does not set the key leaves it as configured."""
    return "as configured" if value is None else as_text(value)


def amount(value: object) -> tuple[str, float] | None:
    """The kind and the number of `16KB`, `1gbit`, `2ms`, `11 packets`, `1 bdp` or a number.

    Sizes are in bytes, rates in bit/s, times in nanoseconds. None of anything else.
    """
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return "number", float(value)
    text = str(value)
    first, _, rest = text.partition(" ")
    if rest in ("packets", "packet", "p") and first.isdigit():
        return "packets", float(first)
    if products := re.fullmatch(r"\s*([0-9.]+)\s*bdp\s*", text, re.IGNORECASE):
        return "bdp", float(products[1])
    parsers: tuple[tuple[str, Any], ...] = (
        ("size", units.parse_size_bytes),
        ("rate", units.parse_rate_bps),
        ("time", units.parse_time_ns),
    )
    for kind, parse in parsers:
        try:
            return kind, float(parse(text))
        except ValueError:
            continue
    return None


def table(groups: Sequence[Group], center: str, labels: Labels) -> RenderableType:
    """A table for each value, with a row per group; `center` is the heading of the average.

    A key's column is headed by its own label, if it has one, and below it by the key itself.
    """
    parts: list[RenderableType] = []
    for value in groups[0].cells if groups else ():
        tested = any(group.tested for group in groups)
        names = [(labels.key(key), key) for key in _keys(groups)]
        heads = [name if name == key else f"{name}\n{key}" for name, key in names]
        numbers = ("runs", *(["stationary"] if tested else []), center, "95 % interval")
        made = forms.table(*heads, *numbers, left=heads, style="bold")
        made.title, made.title_justify = Text(heading(value), style="bold"), "left"
        for group in groups:
            made.add_row(
                *map(value_text, group.at.values()),
                str(group.cells[value].n),
                *([stationary(group)] if tested else []),
                *interval_texts(value, group),
            )
        parts += [made, ""]
    return Blocks(*parts)


def as_csv(groups: Sequence[Group]) -> str:
    """A line per group and value, with its interval; unrounded, in the unit of the value's name.

    The last two columns are of the group's runs: how many were stationary, of how many known.
    """
    head = ["value", "runs", "center", "low", "high", "stationary", "tested"]
    rows: list[list[object]] = [[*_keys(groups), *head]]
    for group in groups:
        for value, interval in group.cells.items():
            bounds = [interval.value, interval.low, interval.high]
            trend = [group.stationary, group.tested]
            rows.append([*group.at.values(), value, interval.n, *bounds, *trend])
    return csv_text(rows)


def as_json(groups: Sequence[Group]) -> str:
    """The same as `as_csv`, as a list of objects."""
    keys = ("runs", "center", "low", "high")
    trees = [
        {
            "at": group.at,
            "runs": group.runs,
            "stationary": group.stationary,
            "tested": group.tested,
            "values": {
                name: dict(zip(keys, (each.n, each.value, each.low, each.high), strict=True))
                for name, each in group.cells.items()
            },
        }
        for group in groups
    ]
    return json.dumps(trees, indent=1)


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


def stationary(group: Group) -> str:
    """How many runs of a group were stationary: `8 of 10`."""
    return f"{group.stationary} of {group.tested}" if group.tested else "-"


def interval_texts(value: str, group: Group) -> tuple[str, str]:
    """The centre of a value and its interval, `5.2` and `[4.3, 6.3]`; `-` for what is missing."""
    factor, _ = scale(value)
    interval = group.cells[value]
    if interval.value is None:
        return "-", "-"
    center = _number(interval.value / factor)
    if interval.low is None or interval.high is None:
        return center, "-"
    return center, f"[{_number(interval.low / factor)}, {_number(interval.high / factor)}]"


def _number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
