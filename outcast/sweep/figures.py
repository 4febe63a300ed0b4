"""The figures of a sweep: lines with bands, bars with errors, heat map, distribution."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from outcast import units
from outcast.analysis.compiled import Array
from outcast.analysis.statistics import Interval
from outcast.errors import ConfigError
from outcast.sweep.groups import Group, grouped, numbers
from outcast.sweep.render import heading, scale
from outcast.view.figures.parts import (
    Bars,
    Line,
    bounds,
    draw_bars,
    draw_lines,
    draw_shares,
    set_amounts,
)
from outcast.view.figures.style import styled
from outcast.view.palette import SERIES, series_colour

MARKS = ("o", "s", "^", "D", "v", "P", "X")
_LETTERS_SIDE_BY_SIDE = 60
"""More letters than these overlap along the axis, so the labels are turned."""
_PAGE_INCHES = (4.6, 3.1)
"""At this size the letters keep about their size in a page, even in a narrow one."""


@dataclass(frozen=True)
class Drawn:
    """A figure for a page: as SVG, and in words for readers who cannot see it."""

    svg: bytes
    description: str


def drawn(rows: pl.DataFrame, groups: Sequence[Group], value: str) -> Drawn | None:
    """Draws the kind of figure that fits the swept keys; None if no kind fits.

    Lines need three or more quantities along the axis; otherwise there are bars. Two keys that
    would give too many lines or bars become a heat map. Without any key the figure is the
    distribution over the runs.

    Args:
        rows: the runs.
        groups: the averages of the runs by the keys.
        value: the name of the value to draw.
    """
    name = heading(value)
    with styled({"svg.hashsalt": "outcast"}):
        if not groups or not groups[0].at:
            figure = cdf(rows, [], value)
            return Drawn(_svg(figure), f"The distribution of {name} over {rows.height} runs.")
        x_key, series = _series(groups)
        places = {_label(group.at[x_key]): quantity(group.at[x_key]) for group in groups}
        amounts = [amount for amount in places.values() if amount is not None]
        if len(series) > len(MARKS):
            if len(groups[0].at) != 2:
                return None
            kind, figure = "A heat map", heat(groups, value)
        elif len(amounts) == len(places) and len(set(amounts)) >= 3:
            kind, figure = "Lines", line(groups, value)
        else:
            kind, figure = "Bars", bar(groups, value)
        others = list(groups[0].at)[1:]
        per_series = f", for each {', '.join(others)}" if others else ""
        text = f"{kind}: {name} over {x_key}{per_series}; the table of the points has the numbers."
        return Drawn(_svg(figure), text)


def _svg(figure: Figure) -> bytes:
    figure.set_size_inches(_PAGE_INCHES)
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return stream.getvalue()


def line(groups: Sequence[Group], value: str) -> Figure:
    """Draws a line for each combination of the other keys over the first key, with 95 % bands."""
    figure, axes = _axes()
    x_key, series = _series(groups)
    places = _place(axes, [group.at[x_key] for group in groups])
    lines = []
    for number, (label, members) in enumerate(series.items()):
        members = sorted(members, key=lambda group: places(group.at[x_key]))
        x = np.array([places(group.at[x_key]) for group in members])
        mark = MARKS[number % len(MARKS)]
        lines.append(Line(label, series_colour(number), x, *_bounds(members, value), marker=mark))
    draw_lines(axes, lines)
    return _labelled(figure, axes, x_key, value, series)


def bar(groups: Sequence[Group], value: str) -> Figure:
    """Draws a bar for each combination of the other keys over the first key, with 95 % errors."""
    figure, axes = _axes()
    x_key, series = _series(groups)
    ticks = list(dict.fromkeys(_label(group.at[x_key]) for group in groups))
    bars = []
    for number, (label, members) in enumerate(series.items()):
        by_label = {_label(group.at[x_key]): group for group in members}
        in_order = [by_label.get(tick) for tick in ticks]
        bars.append(Bars(label, series_colour(number), *_bounds(in_order, value)))
    draw_bars(axes, bars, ticks)
    return _labelled(figure, axes, x_key, value, series)


def heat(groups: Sequence[Group], value: str) -> Figure:
    """Draws two keys as axes, and the value as colour and number.

    Raises:
        ConfigError: if the groups have another number of keys than two.
    """
    keys = list(groups[0].at) if groups else []
    if len(keys) != 2:
        raise ConfigError(f"--figure heat: allowed are two keys with --by, not {len(keys)}")
    columns, rows = (list(dict.fromkeys(_label(group.at[key]) for group in groups)) for key in keys)
    factor, _ = scale(value)
    values = np.full((len(rows), len(columns)), np.nan)
    for group in groups:
        center = group.cell(value).interval.value
        column, row = (_label(group.at[key]) for key in keys)
        values[rows.index(row), columns.index(column)] = (
            np.nan if center is None else center / factor
        )
    figure, axes = _axes()
    image = axes.imshow(values, cmap="viridis", aspect="auto", origin="lower")
    figure.colorbar(image, ax=axes, label=heading(value))
    middle = (np.nanmin(values) + np.nanmax(values)) / 2 if np.isfinite(values).any() else 0.0
    for (row, column), center in np.ndenumerate(values):
        text = "-" if np.isnan(center) else f"{center:.3g}"
        colour = "black" if center > middle else "white"
        axes.text(column, row, text, ha="center", va="center", color=colour)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlabel(keys[0])
    axes.set_ylabel(keys[1])
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
    return figure


def cdf(frame: pl.DataFrame, by: Sequence[str], value: str) -> Figure:
    """Draws the share of rows (runs or flows) up to each value, a step curve for each group."""
    figure, axes = _axes()
    factor, _ = scale(value)
    labels = []
    for number, (at, rows) in enumerate(grouped(frame, by)):
        of_rows = np.array(numbers(rows, value)) / factor
        if not of_rows.size:
            continue
        labels.append(", ".join(f"{k}={_label(v)}" for k, v in at.items()))
        label = f"{labels[-1]} ({of_rows.size})" if labels[-1] else str(of_rows.size)
        dash = ("-", "--", ":", "-.")[number // len(SERIES) % 4]
        draw_shares(axes, of_rows, series_colour(number), label, dash=dash)
    axes.set_xlabel(heading(value))
    axes.set_ylabel("share of flows" if "flow" in frame.columns else "share of runs")
    if by and labels:
        axes.legend(fontsize="small")
    return figure


def _axes() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _series(groups: Sequence[Group]) -> tuple[str, dict[str, list[Group]]]:
    """The first key, and the groups by the values of all other keys."""
    if not groups or not groups[0].at:
        raise ConfigError("--figure: the axis needs a key; name one with --by")
    x_key, *others = groups[0].at
    series: dict[str, list[Group]] = {}
    for group in groups:
        label = ", ".join(f"{key.rpartition('.')[2]} {_label(group.at[key])}" for key in others)
        series.setdefault(label, []).append(group)
    return x_key, series


def _bounds(groups: Sequence[Group | None], value: str) -> tuple[Array, Array, Array]:
    """Centres, lows and highs in the unit for people; all are NaN for None instead of a group."""
    nothing = Interval(0, None, None, None)
    intervals = [nothing if group is None else group.cell(value).interval for group in groups]
    return bounds(intervals, scale(value)[0])


def _labelled(
    figure: Figure, axes: Axes, x_key: str, value: str, series: dict[str, list[Group]]
) -> Figure:
    axes.set_xlabel(x_key)
    labels = axes.get_xticklabels()
    if sum(len(label.get_text()) for label in labels) > _LETTERS_SIDE_BY_SIDE:
        for label in labels:
            label.set(rotation=25, ha="right")
    axes.set_ylabel(heading(value))
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    if any(series):
        axes.legend(fontsize="small")
    return figure


def _place(axes: Axes, values: Sequence[Any]) -> Callable[[Any], float]:
    """The place of each value on the x axis: by quantity if all are quantities, else in a row."""
    quantities = {_label(value): quantity(value) for value in values}
    amounts = [amount for amount in quantities.values() if amount is not None]
    if len(amounts) < len(quantities):
        order = list(quantities)
        axes.set_xticks(range(len(order)), order)
        return lambda value: float(order.index(_label(value)))
    set_amounts(axes, amounts, list(quantities))
    return lambda value: quantities[_label(value)] or 0.0


def quantity(value: Any) -> float | None:
    """The number that `16KB`, `1gbit`, `2ms`, `11 packets` or a number means; else None."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return float(value)
    text = str(value)
    first, _, rest = text.partition(" ")
    if rest in ("packets", "packet", "p") and first.isdigit():
        return float(first)
    for parse in (units.parse_size_bytes, units.parse_rate_bps, units.parse_time_ns):
        try:
            return float(parse(text))
        except ValueError:
            continue
    return None


def _label(value: Any) -> str:
    return "none" if value is None else str(value)
