"""Draws curves, bars, distributions and marks for the figures of runs, sweeps, reproductions."""

import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from outcast.analysis.machine_code import Array
from outcast.analysis.statistics import Interval
from outcast.records.flows import BottleneckRecord
from outcast.records.run import FlowsOfGroup, Run
from outcast.records.summary import Summary
from outcast.view.events import Moment, doubt_bytes
from outcast.view.figures.style import log_scale, name_ticks, new
from outcast.view.palette import GREY

MOST_GROUPS = 24
"""The most groups in one figure; grouped by sender there can be hundreds."""
LOGARITHMIC_FROM = 20.0
"""An axis is logarithmic if its greatest amount is at least this many times its least amount."""


@dataclass(frozen=True)
class Line:
    """A curve, with a band from `low` to `high` where there is one."""

    label: str | None
    colour: str
    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None
    marker: str = ""
    width: float = 1.2
    steps: bool = False
    dash: str = "-"


DASHES = ("-", "--", ":", "-.")
"""Dashes keep curves of one colour apart."""


@dataclass(frozen=True)
class Bars:
    """A bar at every tick of an axis, with an error from `low` to `high` where there is one."""

    label: str | None
    colour: str
    heights: Array
    low: Array | None = None
    high: Array | None = None


@dataclass(frozen=True)
class Marks:
    """Marks of one kind. For each mark, `lanes` has its lane and `x` its place in this lane."""

    label: str | None
    marker: str
    colour: str
    lanes: Sequence[str]
    x: Array
    lift: float = 0.0


def bounds(intervals: Sequence[Interval], factor: float = 1.0) -> tuple[Array, Array, Array]:
    """Centres, lows and highs, divided by `factor`; a value without an interval is all three."""
    rows = []
    for interval in intervals:
        center = np.nan if interval.value is None else interval.value
        low = center if interval.low is None else interval.low
        high = center if interval.high is None else interval.high
        rows.append((center, low, high))
    center, low, high = np.array(rows, np.float64).reshape(-1, 3).T / factor
    return center, low, high


def draw_lines(axes: Axes, lines: Sequence[Line]) -> None:
    """Draws curves. The first one is on top."""
    for place, line in enumerate(lines):
        order = 3 - place / len(lines)
        if line.low is not None and line.high is not None:
            band = line.x, line.low, line.high
            axes.fill_between(*band, color=line.colour, alpha=0.2, lw=0, zorder=order)
        axes.plot(
            line.x,
            line.y,
            color=line.colour,
            lw=line.width,
            linestyle=line.dash,
            # A curve of one point would be drawn as nothing, and at the run's end as half a dot.
            marker=line.marker or ("o" if len(line.x) == 1 else None),
            clip_on=len(line.x) > 1,
            markersize=4,
            label=line.label,
            zorder=order,
            drawstyle="steps-post" if line.steps else "default",
        )


def draw_bars(
    axes: Axes, groups: Sequence[Bars], ticks: Sequence[str], *, written: bool = False
) -> None:
    """Draws the bars of all groups side by side at every tick; `written` puts values above them."""
    width = 0.8 / len(groups)
    for place, group in enumerate(groups):
        error = None
        if group.low is not None and group.high is not None:
            # No whisker without an interval, because a whisker of no length would mean certainty.
            reach = [group.heights - group.low, group.high - group.heights]
            error = np.where(group.high > group.low, reach, np.nan)
        drawn = axes.bar(
            np.arange(len(ticks)) + (place - (len(groups) - 1) / 2) * width,
            group.heights,
            width * 0.92,
            color=group.colour,
            label=group.label,
            yerr=error,
            capsize=2,
            error_kw={"elinewidth": 0.8},
        )
        if written:
            box = {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none"}
            words = [f"{of:,.0f}" if of >= 99.95 else f"{of:.3g}" for of in group.heights]
            axes.bar_label(drawn, words, padding=2, fontsize=8, bbox=box, zorder=5)
    name_ticks(axes, ticks)


def draw_shares(
    axes: Axes, values: Array, colour: str, label: str, of: int | None = None, dash: str = "-"
) -> None:
    """Draws the cumulative distribution of values; `of` also counts missing values."""
    x = np.sort(values)
    shares = np.arange(x.size + 1) / (of or max(1, x.size))
    x, y = np.append(x[:1], x), shares if x.size else x
    axes.step(x, y, where="post", color=colour, linestyle=dash, label=label)
    axes.set_ylim(0, 1.02)


def draw_lanes(axes: Axes, lanes: Sequence[str], marks: Sequence[Marks]) -> None:
    height = {name: len(lanes) - 1 - place for place, name in enumerate(lanes)}
    for kind in marks:
        y = np.array([height[lane] for lane in kind.lanes]) + kind.lift
        axes.scatter(
            kind.x, y, s=22, linewidths=1.2,
            marker=kind.marker, color=kind.colour, label=kind.label,
        )  # fmt: skip
    axes.set_yticks(range(len(lanes)), list(reversed(lanes)))
    axes.set_ylim(-0.6, len(lanes) - 0.4)


MOST_LANES = 12
"""The most input ports in one figure: with more, their names would overlap."""


def busiest(names: Sequence[str], counts: Mapping[str, int]) -> list[str]:
    """The names with the highest counts that a figure has space for, in the order given."""
    chosen = sorted(names, key=lambda name: -counts.get(name, 0))[:MOST_LANES]
    return [name for name in names if name in chosen]


def lane_inches(lanes: int) -> float:
    return 0.15 * max(0, lanes - 6)


def draw_doubt(axes: Axes, run: Run, record: BottleneckRecord, x: Any, y: Any) -> None:
    """Draws the uncertainty of a queue in KiB, which can seem above its limit."""
    doubt = doubt_bytes(run, record) / 1024
    look: Any = {"color": GREY, "alpha": 0.4, "lw": 0, "step": "post"}
    words = f"uncertain by timestamps: {doubt:.3g} KiB"
    axes.fill_between(x, np.maximum(0, y - doubt), y + doubt, **look, label=words)


MOST_OUTPUTS = 4
"""The most output ports in one figure."""


def of_each_output(
    run: Run,
    records: Sequence[BottleneckRecord],
    draw: Callable[[Run, BottleneckRecord, SubFigure], None],
    inches: tuple[float, float],
) -> Figure:
    """Draws the same figure for every output; of many, for those that lost most."""
    lost: Counter[str] = Counter()
    for key, way in run.ways.items():
        lost[way.egress] += run.summary.drops[key].dropped
    most = sorted(lost, key=lambda port: -lost[port])[:MOST_OUTPUTS]
    drawn = [record for record in records if record.egress in most] or [*records[:1]]
    figure = new((inches[0], inches[1] * len(drawn)))
    if len(most) < len(lost):
        figure.supxlabel(f"the {len(most)} of {len(lost)} output ports that lost most")
    parts: Any = figure.subfigures(len(drawn), 1, squeeze=False)[:, 0]
    for part, record in zip(parts, drawn, strict=True):
        draw(run, record, part)
    return figure


MOST_NAMED_EVENTS = 12
"""With more events, lines mark them and no numbers do."""


def _panels_of_all(figure: Figure, duration_s: float) -> list[Axes]:
    by_place: dict[object, Axes] = {}
    for axes in figure.axes:
        low, high = axes.get_xlim()
        if abs(low) < 1e-9 and abs(high / duration_s - 1) < 0.01:
            # A panel's second scale is not another panel.
            by_place.setdefault(axes.get_subplotspec(), axes)
    return list(by_place.values())


def mark_left_out(figure: Figure, summary: Summary) -> None:
    """Greys the times that the summary leaves out, in every panel of the whole duration."""
    if summary.interval == "whole":
        return
    why = "analysis.from and to" if summary.interval == "asked" else "not all flows active"
    label: str | None = f"left out of the summary ({why})"
    for axes in _panels_of_all(figure, summary.duration_s):
        for start_s, end_s in ((0, summary.start_s), (summary.end_s, summary.duration_s)):
            if start_s < end_s:
                look: Any = {"color": GREY, "alpha": 0.25, "lw": 0, "zorder": 0, "label": label}
                axes.axvspan(start_s, end_s, **look)
                label = None


def mark_events(figure: Figure, events: Sequence[Moment], duration_s: float) -> None:
    """Marks events in panels of the whole duration: a dotted line, and grey while a link was down.

    Numbers in the first panel lead to a list below the figure.
    """
    panels = _panels_of_all(figure, duration_s)
    if not events or not panels:
        return
    label = "event" if len(events) == 1 else f"{len(events)} events"
    for axes in panels:
        for event in events:
            look: Any = {"color": GREY, "linestyle": ":", "linewidth": 1, "zorder": 2.5}
            axes.axvline(event.t_s, **look, label=label)
            if event.down_until_s is not None:
                axes.axvspan(event.t_s, event.down_until_s, color=GREY, alpha=0.2, lw=0, zorder=0)
    if len(events) > MOST_NAMED_EVENTS:
        return
    box = {"boxstyle": "circle,pad=0.15", "fc": "white", "ec": GREY, "lw": 0.6}
    letters: Any = {"fontsize": 7, "bbox": box, "zorder": 50, "ha": "center", "va": "center"}
    where: Any = {"xycoords": ("data", "axes fraction"), "annotation_clip": False}
    for number, event in enumerate(events, 1):
        panels[0].annotate(str(number), (event.t_s, 1), **where, **letters)
    listed = [f"({number}) {event.text}" for number, event in enumerate(events, 1)]
    lines = textwrap.wrap("   ".join(listed), width=int(figure.bbox.width / figure.dpi * 15))
    # A legend may stand below the label of the x axis.
    panels[-1].set_xlabel("\n".join([panels[-1].get_xlabel(), *lines]))


def set_amounts(axes: Axes, amounts: Sequence[float], labels: Sequence[str]) -> None:
    """Labels the x axis at these amounts, and makes a wide axis logarithmic."""
    if min(amounts) > 0 and max(amounts) >= LOGARITHMIC_FROM * min(amounts):
        log_scale(axes, "x")
    axes.set_xticks(amounts, labels)
    axes.set_xticks([], minor=True)


def shown_groups(run: Run) -> list[FlowsOfGroup]:
    first = list(run.groups[:MOST_GROUPS])
    if run.marked is not None and all(group.label != run.marked for group in first):
        first[-1] = next(group for group in run.groups if group.label == run.marked)
    return first
