"""Charts as inline SVG that stretches with the page.

The labels are HTML and not SVG, because text that stretches would be hard to read. They are placed
over the drawing in per cent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outcast.analysis.compiled import Array
from outcast.view.report.markup import Element, element

UNITS = 1000
"""A drawing's own coordinates go from 0 to this in both directions."""


@dataclass(frozen=True)
class Line:
    """One curve: a value for each x, or one for each interval between two x (drawn as steps)."""

    label: str
    colour: str
    y: Array
    dash: str | None = None
    filled: bool = False


def dash(place: int) -> str | None:
    """Returns the dash pattern of the curve at this place, because colour alone may not do."""
    return (None, "8 4", "2 3", "10 3 2 3")[place % 4]


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Returns about `count` round numbers from `low` to `high`."""
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(at * step, 12) for at in range(first, last + 1)]


def _svg(label: str, *parts: Element | None) -> Element:
    return element(
        "svg",
        *parts,
        viewBox=f"0 0 {UNITS} {UNITS}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )


def _path(points: Sequence[tuple[float, float]], closed: bool = False) -> str:
    text = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f"M{text}Z" if closed else f"M{text}"


def line_chart(
    title: str,
    description: str,
    x: Array,
    lines: Sequence[Line],
    x_label: str,
    y_label: str,
    least_top: float = 0.0,
    top: float | None = None,
    limits: Sequence[tuple[str, float]] = (),
    height: int = 220,
) -> Element:
    """Draws curves over x. The y axis begins at 0.

    Args:
        title: the text above the chart.
        description: what the chart shows, for readers who cannot see it.
        x: positions. If there is one more position than values, the curves are drawn as steps.
        lines: the curves.
        x_label: what the x axis shows, with its unit.
        y_label: what the y axis shows, with its unit.
        least_top: the y axis reaches at least this value.
        top: the y axis ends exactly here; None fits it to the curves.
        limits: named levels, drawn as dashed lines.
        height: the height of the drawing in CSS pixels.
    """
    # A line of a flow that nothing was seen of has no numbers at all.
    highest = max((float(np.nanmax(line.y, initial=0.0)) for line in lines), default=0.0)
    highest = max([highest, least_top, *(level for _, level in limits)])
    ceiling = top if top is not None else (highest * 1.06 or 1.0)
    low, high = float(x[0]), float(x[-1])
    span = (high - low) or 1.0

    def at(x_value: float, y_value: float) -> tuple[float, float]:
        return (x_value - low) / span * UNITS, UNITS - min(y_value, ceiling) / ceiling * UNITS

    parts: list[Element] = []
    y_ticks = ticks(0, ceiling, 4)
    for level in y_ticks:
        _, y = at(low, level)
        parts.append(element("path", d=f"M0 {y:.1f}H{UNITS}", class_="grid"))
    for line in lines:
        parts += _curve(x, line, at)
    for _, level in limits:
        _, y = at(low, level)
        parts.append(element("path", d=f"M0 {y:.1f}H{UNITS}", class_="limit"))
    plot = element("div", _svg(description, *parts), class_="plot", style=f"height:{height}px")
    for level in y_ticks:
        plot.append(
            element("span", f"{level:g}", class_="y", style=f"bottom:{level / ceiling * 100:.2f}%")
        )
    for name, level in limits:
        side = "level below" if _crowded_above(lines, level, ceiling) else "level"
        plot.append(
            element("span", name, class_=side, style=f"bottom:{level / ceiling * 100:.2f}%")
        )
    for place in ticks(low, high, 5):
        left = (place - low) / span * 100
        plot.append(element("span", f"{place:g}", class_="x", style=f"left:{left:.2f}%"))
    plot.append(element("span", y_label, class_="y-label"))
    plot.append(element("span", x_label, class_="x-label"))
    return element("figure", element("figcaption", title), legend(lines), plot, class_="chart")


def _crowded_above(lines: Sequence[Line], level: float, ceiling: float) -> bool:
    """Returns whether a level's name would hide more of the curves above it than below it.

    The name stands at the right end.
    """
    ends = np.concatenate([line.y[-max(1, line.y.size // 8) :] for line in lines] or [np.zeros(0)])
    away = (ends - level) / ceiling
    return int(np.sum((away > 0) & (away < 0.12))) > int(np.sum((away < 0) & (away > -0.12)))


def _curve(x: Array, line: Line, at: object) -> list[Element]:
    assert callable(at)
    points: list[tuple[float, float]] = []
    runs: list[list[tuple[float, float]]] = [points]
    steps = x.size == line.y.size + 1
    for place, value in enumerate(line.y.tolist()):
        if value is None or math.isnan(value):
            if points:
                points = []
                runs.append(points)
            continue
        points.append(at(float(x[place]), value))
        if steps:
            points.append(at(float(x[place + 1]), value))
    drawn = []
    for run in runs:
        if not run:
            continue
        if line.filled:
            closed = [(run[0][0], float(UNITS)), *run, (run[-1][0], float(UNITS))]
            drawn.append(
                element("path", d=_path(closed, True), fill=line.colour, fill_opacity="0.3")
            )
        drawn.append(
            element(
                "path",
                d=_path(run),
                class_="curve",
                stroke=line.colour,
                stroke_dasharray=line.dash,
            )
        )
    return drawn


def legend(lines: Sequence[Line]) -> Element | None:
    """Returns a list of the curves' names; None for a single curve, which needs none."""
    if len(lines) < 2:
        return None
    return element(
        "ul",
        *(
            element(
                "li",
                element(
                    "svg",
                    element(
                        "path",
                        d="M0 5H22",
                        stroke=line.colour,
                        stroke_width="3",
                        stroke_dasharray=line.dash,
                    ),
                    width="22",
                    height="10",
                    aria_hidden="true",
                ),
                line.label,
            )
            for line in lines
        ),
        class_="legend",
    )


def sparkline(y: Array, ceiling: float, colour: str, level: float | None, label: str) -> Element:
    """Returns a small filled curve from 0 to `ceiling` for a table's cell, with a dotted level."""
    n = max(1, y.size)
    points = [(0.0, float(UNITS))]
    for place, value in enumerate(y.tolist()):
        height = UNITS - min(value / (ceiling or 1.0), 1.0) * UNITS
        points += [(place / n * UNITS, height), ((place + 1) / n * UNITS, height)]
    points.append((float(UNITS), float(UNITS)))
    dotted = None
    if level is not None and ceiling:
        dotted = element(
            "path", d=f"M0 {UNITS - level / ceiling * UNITS:.1f}H{UNITS}", class_="level-line"
        )
    curve = _svg(label, element("path", d=_path(points, True), fill=colour), dotted)
    curve.set("class", "sparkline")
    return curve


@dataclass(frozen=True)
class Bar:
    """One bar: its name, its value and how the value is written."""

    label: str
    value: float
    text: str
    colour: str


def bars(title: str, bars_: Sequence[Bar], note: str | None = None) -> Element:
    """Returns horizontal bars as a list. Each bar has its value as text."""
    most = max((bar.value for bar in bars_), default=0.0) or 1.0
    items = [
        element(
            "li",
            element("span", bar.label, class_="name"),
            element(
                "span",
                element(
                    "span",
                    class_="bar",
                    style=f"width:{max(bar.value / most * 100, 0.4):.2f}%;background:{bar.colour}",
                ),
                class_="track",
                aria_hidden="true",
            ),
            element("span", bar.text, class_="value"),
        )
        for bar in bars_
    ]
    return element(
        "figure",
        element("figcaption", title),
        element("ul", *items, class_="bars"),
        element("p", note, class_="note") if note else None,
        class_="chart",
    )
