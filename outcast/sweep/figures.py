"""Figures of a sweep, by their names, of the runs and values that are requested."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from outcast.analysis.machine_code import Array
from outcast.analysis.statistics import Interval, Kind
from outcast.errors import ConfigError, InputError, did_you_mean
from outcast.sweep import dataset, groups
from outcast.sweep.dataset import is_compared
from outcast.sweep.groups import Group, grouped, numbers
from outcast.sweep.render import Axis, Labels, heading, scale, value_text
from outcast.sweep.store import SweepDirectory
from outcast.view.figures.parts import (
    DASHES,
    Bars,
    Line,
    bounds,
    draw_bars,
    draw_lines,
    draw_shares,
    set_amounts,
)
from outcast.view.figures.style import legend_below, log_scale, name_ticks, new, styled
from outcast.view.palette import GREY, SERIES, ramp, series_colour

MARKS = ("o", "s", "^", "D", "v", "P", "X")
_INCHES = (6.4, 4.0)
_LONG = 16
"""A name beside a heat map that has more letters has several lines."""


def ordered_first(groups: Sequence[Group], labels: Labels) -> list[Group]:
    """The same groups; the first key whose values are amounts comes first, along the axis."""
    keys = list(groups[0].at) if groups else []
    amounts = [key for key in keys if labels.axis(key, _different(groups, key)).amounts is not None]
    order = dict.fromkeys((*amounts[:1], *keys))
    return [replace(group, at={key: group.at[key] for key in order}) for group in groups]


def line(groups: Sequence[Group], value: str, labels: Labels) -> Figure:
    """Draws a line for each combination of the other keys over the first key, with 95 % bands."""
    figure = new(_INCHES)
    axes = figure.subplots()
    x_key, at, axis = _first_axis(groups, labels)
    places = axis.amounts or tuple(float(place) for place in range(len(at)))
    place_of = dict(zip(at, places, strict=True))
    if axis.amounts is None:
        name_ticks(axes, axis.ticks)
    else:
        set_amounts(axes, places, axis.ticks)
    lines = []
    series = _series(groups, labels)
    colours = _colours(groups, labels, len(series))
    for number, (label, members) in enumerate(series.items()):
        members = sorted(members, key=lambda group: place_of[group.at[x_key]])
        x = np.array([place_of[group.at[x_key]] for group in members])
        mark = MARKS[number % len(MARKS)]
        centers, low, high = _bounds(members, value)
        lines.append(Line(label or None, colours[number], x, centers, low, high, marker=mark))
    draw_lines(axes, lines)
    return _labelled(figure, axes, groups, value, labels, axis.label)


def bar(groups: Sequence[Group], value: str, labels: Labels) -> Figure:
    """Draws a bar for each combination of the other keys over the first key, with 95 % errors."""
    figure = new(_INCHES)
    axes = figure.subplots()
    x_key, at, axis = _first_axis(groups, labels)
    bars = []
    series = _series(groups, labels)
    colours = _colours(groups, labels, len(series))
    for colour, (label, members) in zip(colours, series.items(), strict=True):
        by_value = {group.at[x_key]: group for group in members}
        in_order = [by_value.get(of_key) for of_key in at]
        bars.append(Bars(label or None, colour, *_bounds(in_order, value)))
    draw_bars(axes, bars, axis.ticks)
    if _is_ratio(value):
        for drawn in axes.containers:
            for patch in drawn.patches if isinstance(drawn, BarContainer) else ():
                patch.set(y=1, height=patch.get_height() - 1)
    return _labelled(figure, axes, groups, value, labels, axis.label)


def heat(groups: Sequence[Group], value: str, labels: Labels) -> Figure:
    """Draws two keys as axes, and the value as colour and number.

    Raises ConfigError if the groups have another number of keys than two.
    """
    keys = list(groups[0].at) if groups else []
    if len(keys) != 2:
        raise ConfigError(f"figure heat: allowed are two keys with --by, not {len(keys)}")
    columns, rows = (_different(groups, key) for key in keys)
    factor, _ = scale(value)
    values = np.full((len(rows), len(columns)), np.nan)
    for group in groups:
        center = group.cells[value].value
        column, row = (group.at[key] for key in keys)
        place = rows.index(row), columns.index(column)
        values[place] = np.nan if center is None else center / factor
    figure = new(_INCHES)
    axes = figure.subplots()
    image = axes.imshow(values, cmap="viridis", aspect="auto", origin="lower")
    axes.figure.colorbar(image, ax=axes, label=_axis(value))
    middle = (np.nanmin(values) + np.nanmax(values)) / 2 if np.isfinite(values).any() else 0.0
    for (row, column), center in np.ndenumerate(values):
        text = "-" if np.isnan(center) else f"{center:.3g}"
        colour = "black" if center > middle else "white"
        axes.text(column, row, text, ha="center", va="center", color=colour)
    across, up = (labels.axis(key, at) for key, at in zip(keys, (columns, rows), strict=True))
    name_ticks(axes, across.ticks)
    names = [text if len(text) <= _LONG else text.replace(", ", ",\n") for text in up.ticks]
    axes.set_yticks(range(len(rows)), names)
    axes.set(xlabel=across.label, ylabel=up.label)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
    return figure


def cdf(frame: pl.DataFrame, by: Sequence[str], value: str, labels: Labels) -> Figure:
    """Draws the share of rows (runs or flows) up to each value, a step curve for each group."""
    figure = new(_INCHES)
    axes = figure.subplots()
    factor, _ = scale(value)
    drawn_any = False
    parts = grouped(frame, by)
    ordered = len(by) == 1 and labels.axis(by[0], [at[by[0]] for at, _ in parts]).amounts
    colours = ramp(len(parts)) if ordered else SERIES
    for number, (at, rows) in enumerate(parts):
        of_rows = np.array(numbers(rows, value)) / factor
        if not of_rows.size:
            continue
        text = ", ".join(value_text(of_key) for key, of_key in at.items())
        label = f"{text} ({of_rows.size})" if text else str(of_rows.size)
        dash = DASHES[number // len(colours) % len(DASHES)]
        draw_shares(axes, of_rows, colours[number % len(colours)], label, dash=dash)
        drawn_any = True
    axes.set_xlabel(_axis(value))
    if _is_ratio(value):
        _from_one(axes, "x")
    axes.set_ylabel("share of flows" if "flow" in frame.columns else "share of runs")
    if by and drawn_any:
        legend_below(figure, ", ".join(map(labels.key, by)))
    return figure


def _axis(value: str) -> str:
    return f"{value} (ratio of goodputs)" if is_compared(value) else heading(value)


def _is_ratio(value: str) -> bool:
    return value.endswith("outcast_ratio") or is_compared(value)


def _from_one(axes: Axes, which: Literal["x", "y"]) -> None:
    """Makes the axis of a ratio logarithmic, with a line at 1, where both sides got the same."""
    log_scale(axes, which, nonpositive="clip")
    draw = axes.axhline if which == "y" else axes.axvline
    draw(1, color=GREY, linewidth=1, linestyle="--", label="1: both the same")


def _colours(groups: Sequence[Group], labels: Labels, count: int) -> list[str]:
    """A colour for each series: shades of one where the key that differs is ordered."""
    others = [*groups[0].at][1:]
    if len(others) == 1 and labels.axis(others[0], _different(groups, others[0])).amounts:
        return ramp(count)
    return [series_colour(number) for number in range(count)]


def _first_axis(groups: Sequence[Group], labels: Labels) -> tuple[str, list[Any], Axis]:
    """The key along the axis, its values, and the axis. Raises ConfigError without a key."""
    if not groups or not groups[0].at:
        raise ConfigError("figure: the axis needs a key; name one with --by")
    x_key = next(iter(groups[0].at))
    at = _different(groups, x_key)
    return x_key, at, labels.axis(x_key, at)


def _different(groups: Sequence[Group], key: str) -> list[Any]:
    """The different values of a key, in the order of the groups."""
    return list(dict.fromkeys(group.at[key] for group in groups))


def _series(groups: Sequence[Group], labels: Labels) -> dict[str, list[Group]]:
    """The groups by the values of all keys but the first, in words."""
    series: dict[str, list[Group]] = {}
    for group in groups:
        label = ", ".join(value_text(group.at[key]) for key in [*group.at][1:])
        series.setdefault(label, []).append(group)
    return series


def _bounds(groups: Sequence[Group | None], value: str) -> tuple[Array, Array, Array]:
    """Centres, lows and highs in the unit for people; all are NaN for None instead of a group."""
    nothing = Interval(0, None, None, None)
    intervals = [nothing if group is None else group.cells[value] for group in groups]
    return bounds(intervals, scale(value)[0])


def _labelled(
    figure: Figure, axes: Axes, groups: Sequence[Group], value: str, labels: Labels, x_label: str
) -> Figure:
    axes.set_xlabel(x_label)
    axes.set_ylabel(_axis(value))
    if _is_ratio(value):
        _from_one(axes, "y")
    else:
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    others = [*groups[0].at][1:]
    legend_below(figure, ", ".join(map(labels.key, others)))
    return figure


OF_GROUPS: Mapping[str, Callable[[Sequence[Group], str, Labels], Figure]] = {
    "line": line,
    "bar": bar,
    "heat": heat,
}
FIGURES: Mapping[str, str] = {
    "line": "a value over the first key, a line for each combination of the other keys",
    "bar": "the same as bars",
    "heat": "a value over two keys, as colour and as a number",
    "cdf": "the share of runs, or of flows, up to each value",
}
"""The content of each figure of a sweep."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The part of a sweep that is drawn.

    None as `value` is the first of those that `outcast results` shows. The first key of `by` is
    along the axis; without any, all swept keys count, and one whose values are amounts is first.
    Keys of `over` may differ in a group.
    """

    value: str | None = None
    by: Sequence[str] = ()
    where: Sequence[str] = ()
    center: Kind = "mean"
    disagreeing: bool = False
    over: Sequence[str] = ()


def chosen(runs: pl.DataFrame, where: Sequence[str], disagreeing: bool) -> pl.DataFrame:
    """The runs that meet the conditions. Raises ConfigError as `groups.where` does."""
    kept = groups.where(runs, where)
    return kept if disagreeing else groups.agreeing(kept)


def figure(path: Path, name: str, choice: Choice) -> Figure:
    """Draws a figure of the sweep in a folder.

    Raises:
        ConfigError: there is no such figure, column, key or run.
        InputError: the folder holds no sweep, or no run has finished yet.
    """
    if name not in FIGURES:
        raise ConfigError(
            f"figure {name}: of a sweep allowed are {', '.join(FIGURES)}"
            f"{did_you_mean(name, FIGURES)}"
        )
    results = dataset.load(path)
    if not results.runs.height:
        raise InputError(f"{path}: no run has finished yet")
    labels = Labels(SweepDirectory(path).read_experiment())
    keys = list(choice.by) or groups.default_by(results, choice.over)
    value = choice.value
    rows = results.runs
    if name == "cdf" and value in results.flows.columns and value not in rows.columns:
        # Only the table of flows has it.
        of_runs = rows.select("run", pl.exclude(results.flows.columns))
        rows = results.flows.join(of_runs, on="run")
    rows = chosen(rows, choice.where, choice.disagreeing)
    groups.pooled(rows, results.keys, keys, choice.over)
    value = value or groups.default_values(rows)[0]
    if name == "cdf":
        with styled():
            return cdf(rows, keys, value, labels)
    summed = groups.summarize(rows, keys, [value], choice.center)
    if not choice.by:
        summed = ordered_first(summed, labels)
    return of_groups(summed, name, value, labels)


def of_groups(summed: Sequence[Group], name: str, value: str, labels: Labels) -> Figure:
    """Draws `line`, `bar` or `heat` of groups. Raises ConfigError if their keys do not fit it."""
    with styled():
        return OF_GROUPS[name](summed, value, labels)
