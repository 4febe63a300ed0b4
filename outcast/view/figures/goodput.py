"""Draws goodput of flows and classes, and fairness, over time.

Figure 3 of the Outcast paper, and figure 16 of TCPRand's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from outcast.analysis.machine_code import Array
from outcast.quantities import format_ratio
from outcast.records.run import Run
from outcast.records.summary import Summary, Window
from outcast.units import format_bps, format_time
from outcast.view.figures.parts import Bars, Line, draw_bars, draw_lines, shown_groups
from outcast.view.figures.senders import MOST_LINES, flow_label
from outcast.view.figures.style import heading, name_ticks, new
from outcast.view.palette import GREY, ramp, run_colours, shaded
from outcast.view.summary_words import main_ratio, noun, ratio_name

MOST_CURVES = 40
"""The most curves. Of more flows, those of each sender are added up; of more senders, 40 show."""

FEW_CURVES = 6
"""With more curves, each gets less height and overlaps the next one."""


@dataclass(frozen=True)
class Curve:
    """Goodput over time of one flow or sender; `mean_bps` is the value in the run's tables."""

    label: str
    hops: int | None
    group: str
    flows: int
    goodput_bps: Array
    mean_bps: float


def flow_rates(run: Run) -> tuple[Array, dict[int, Array]]:
    """The edges of the bins in seconds, and by flow the goodput in each bin in bit/s."""
    frame = run.table("throughput").sort("flow", "t")
    starts = frame["t"].unique().sort().to_numpy() / 1e9
    bin_s = float(starts[1] - starts[0]) if starts.size > 1 else run.summary.duration_s
    last = starts[-1] + bin_s if starts.size else bin_s
    # The run may end within the last bin.
    edges = np.append(starts, min(last, run.summary.duration_s))
    rates = frame["goodput_bps"].to_numpy().reshape(-1, starts.size)
    flows = frame["flow"].unique(maintain_order=True).to_list()
    return edges, dict(zip(flows, rates, strict=True))


def goodput_curves(run: Run) -> tuple[Array, list[Curve]]:
    """The edges of the bins in seconds, and the curves, those of the marked group last."""
    edges, rates = flow_rates(run)
    together = len(run.manifest.flows) > MOST_CURVES
    grouped: dict[tuple[str, int | None, str], list[int]] = {}
    for flow in run.manifest.flows:
        key = flow.src if together else f"{flow.src} #{flow.flow}"
        grouped.setdefault((run.group_of[flow.flow], flow.hops, key), []).append(flow.flow)
    titles = {group.label: group.title for group in run.groups}
    means = dict(run.table("flows").select("flow", "goodput_bps").iter_rows())
    curves = []
    for (group, hops, key), flows in grouped.items():
        label = f"{key}, {titles[group]}" if run.summary.group_by != "sender" else titles[group]
        goodput_bps = np.sum([rates[flow] for flow in flows], axis=0)
        mean_bps = sum(means[flow] for flow in flows)
        curves.append(Curve(label, hops, group, len(flows), goodput_bps, mean_bps))
    order = [group.label for group in run.groups]
    if run.marked is not None:
        order.insert(0, order.pop(order.index(run.marked)))
    # Drawn from below, the first flow of a group stands above the others.
    curves = sorted(reversed(curves), key=lambda curve: -order.index(curve.group))
    if len(curves) > MOST_CURVES:
        # The choice is even, and includes the first and the last curve.
        curves = [curves[at] for at in np.linspace(0, len(curves) - 1, MOST_CURVES).astype(int)]
    return edges, curves


def draw_rows(
    axes: Axes,
    edges: Array,
    curves: Sequence[Curve],
    fair_bps: float | None,
    colours: Mapping[str, str],
    marked: str | None,
    fontsize: float = 9,
) -> None:
    """Draws curves one above the other in Mbps, each from its own 0."""
    peak = max(float(np.percentile(curve.goodput_bps, 99)) for curve in curves) / 1e6
    step = max(peak, 1e-6) * 1.1
    ticks: list[float] = []
    level = _round_near(step / 2)
    equal: dict[str, Any] = {"label": "an equal share", "color": "black"}
    for index, curve in enumerate(curves):
        base, colour = index * step, colours[curve.group]
        lone = curve.group == marked
        top, order = base + curve.goodput_bps / 1e6, 2 * (len(curves) - index)
        alpha = 0.85 if lone else 0.45
        axes.stairs(top, edges, baseline=base, fill=True, color=colour, alpha=alpha, zorder=order)
        axes.stairs(top, edges, baseline=None, color=colour, linewidth=0.9, zorder=order + 1)
        axes.axhline(base, color=GREY, linewidth=0.5, zorder=1)
        if fair_bps is not None:
            share = base + fair_bps * curve.flows / 1e6
            axes.axhline(share, **equal, linewidth=0.7, linestyle=":", zorder=order + 2)
            equal.pop("label", None)
        letters: Any = {"fontsize": fontsize, "fontweight": "bold" if lone else "normal"}
        words = f"{curve.label}: {format_bps(curve.mean_bps)}"
        place = (1.01, base + step * 0.1, words)
        axes.text(*place, color=colour, transform=axes.get_yaxis_transform(), **letters)
        ticks += [base, base + level]
    axes.set_yticks(ticks, ["0", f"{level:g}"] * len(curves), fontsize=min(7, fontsize))
    axes.set(xlim=(0, edges[-1]), xlabel="time (s)", ylabel="goodput (Mbps)")
    highest = (len(curves) - 1) * step + max(peak, curves[-1].goodput_bps.max() / 1e6) * 1.05
    axes.set_ylim(0, highest or 1)


def _round_near(amount: float) -> float:
    """The number with one digit that is nearest to a positive amount."""
    power = 10.0 ** np.floor(np.log10(amount))
    return float(round(amount / power) * power)


def goodput_over_time(run: Run) -> Figure | None:
    """Draws figure 3(a)-(c): every flow's goodput over time, one above the other."""
    if not run.manifest.flows:
        return None
    edges, curves = goodput_curves(run)
    figure = new((8, 1.2 + (0.65 if len(curves) <= FEW_CURVES else 0.32) * len(curves)))
    axes = figure.subplots()
    draw_rows(axes, edges, curves, run.fair_bps, run_colours(run), run.marked)
    senders = len({flow.src for flow in run.manifest.flows})
    what = "every flow"
    if len(run.manifest.flows) > MOST_CURVES:
        what = "every sender" if senders <= MOST_CURVES else f"{len(curves)} of {senders} senders"
    ratio = ""
    if (value := main_ratio(run.summary)) is not None:
        ratio = f"; {ratio_name(run.summary)}: {format_ratio(value)}"
    heading(
        figure,
        f"{run.summary.name}: goodput of {what} in bins of {(edges[1] - edges[0]) * 1000:g} ms, "
        f"and its mean over {run.summary.start_s:g} to {run.summary.end_s:g} s{ratio}",
    )
    return figure


def goodput_by_class(run: Run) -> Figure | None:
    """Draws figure 3(d)-(f): the mean goodput of each class in each window."""
    if not run.summary.classes:
        return None
    windows: list[Window | Summary] = [*run.summary.windows.values()]
    whole = run.summary
    if all((window.start_s, window.end_s) != (whole.start_s, whole.end_s) for window in windows):
        windows.append(whole)
    groups_inches = max(1.4, 0.3 * len(shown_groups(run)))
    figure = new((2.4 + groups_inches * len(windows), 3.4))
    axes = figure.subplots()
    groups = []
    colours = run_colours(run)
    for group in shown_groups(run):
        parts = [window.grouped(run.summary.group_by)[group.label] for window in windows]
        means = np.array([part.mean_goodput_bps / 1e6 for part in parts])
        groups.append(Bars(group.counted, colours[group.label], means))
    ratios = [
        "" if (of := main_ratio(window)) is None else f"\nratio {format_ratio(of)}"
        for window in windows
    ]
    ticks = [
        f"{window.start_s:g}-{window.end_s:g} s{of}"
        for window, of in zip(windows, ratios, strict=True)
    ]
    draw_bars(axes, groups, ticks, written=True)
    for index, window in enumerate(windows):
        equal = window.total_goodput_bps / sum(part.flows for part in window.classes.values()) / 1e6
        label = "an equal share" if index == 0 else ""
        axes.hlines(
            equal, index - 0.45, index + 0.45, color="black", linestyle=":", lw=1, label=label
        )
    top = max(float(group.heights.max()) for group in groups)
    axes.set(ylim=(0, (top or 1) * 1.12), ylabel="mean goodput of a flow (Mbps)")
    compare = run.summary.compare
    compared = "" if compare is None else f"; ratio: {' over '.join(compare.groups)}"
    heading(figure, f"{run.summary.name}: mean goodput per {noun(run)}{compared}")
    return figure


def goodput_by_flow(run: Run) -> Figure | None:
    """Draws the mean goodput of every flow as a bar. Flows of a group stand together."""
    order = {flow: place for place, flow in enumerate(run.group_of)}
    flows = run.table("flows").sort(pl.col("flow").replace_strict(order, default=len(order)))
    if not 1 < flows.height <= MOST_CURVES:
        return None
    figure = new((2.2 + 0.42 * flows.height, 3.2))
    axes = figure.subplots()
    for group in run.groups:
        places = flows["flow"].is_in(list(group.flows)).arg_true()
        values = flows["goodput_bps"].gather(places) / 1e6
        colour = run_colours(run)[group.label]
        axes.bar(places, values, 0.75, color=colour, label=group.title)
    if run.fair_bps is not None:
        axes.axhline(run.fair_bps / 1e6, color="black", ls=":", lw=1, label="an equal share")
    names = [f"{src} #{flow}" for src, flow in flows["src", "flow"].rows()]
    name_ticks(axes, names)
    axes.set(xlim=(-0.6, flows.height - 0.4), ylabel="goodput (Mbps)")
    heading(figure, f"{run.summary.name}: goodput of every flow")
    return figure


def fairness_over_time(run: Run) -> Figure | None:
    """Draws Jain's index over sliding windows, with a curve for each length of window."""
    if "fairness" not in run.tables:
        return None
    figure = new((8, 3))
    axes = figure.subplots()
    _indices(run, axes)
    few = run.table("fairness")["t_end"].n_unique() == 1
    more = "\nonly one window fits; more do with a shorter analysis.bin" if few else ""
    axes.set_xlabel(f"end of the window (s){more}")
    heading(figure, f"{run.summary.name}: fairness of the active flows over sliding windows")
    return figure


def _indices(run: Run, axes: Axes) -> None:
    frame = run.table("fairness").with_columns(width=pl.col("t_end") - pl.col("t_start"))
    lines = []
    parts = [*frame.sort("width", maintain_order=True).group_by("width", maintain_order=True)]
    for ((width,), part), colour in zip(parts, ramp(len(parts)), strict=True):
        # The curve has a gap while fewer than two flows were active.
        time_s = part["t_end"].to_numpy() / 1e9
        steps_s = np.diff(time_s)
        gaps = np.flatnonzero(steps_s > 1.5 * steps_s.min(initial=np.inf)) + 1
        x, jain = (np.insert(column, gaps, np.nan) for column in (time_s, part["jain"].to_numpy()))
        label = f"windows of {format_time(int(width))}"
        lines.append(Line(label, colour, x, jain))
    draw_lines(axes, lines)
    axes.axhline(1, color=GREY, lw=0.5, ls=":", label="all equal")
    axes.set(xlim=(0, run.summary.duration_s), ylim=(0, 1.05), ylabel="Jain's index")
    _mark_changes(run, axes)


def _mark_changes(run: Run, axes: Axes) -> None:
    for change in run.summary.convergence:
        if change.t_s > 0:
            look: Any = {"color": GREY, "lw": 0.7, "ls": "--", "zorder": 0}
            axes.axvline(change.t_s, **look, label="a flow joins or leaves")


def convergence(run: Run) -> Figure | None:
    """Draws TCPRand's figure 16: goodput of every flow while flows join and leave, and fairness."""
    flows = run.manifest.flows
    if len({(flow.start_ns, flow.duration_ns) for flow in flows}) < 2:
        return None
    if len(flows) > MOST_LINES or "fairness" not in run.tables:
        return None
    edges, rates = flow_rates(run)
    colours = shaded(run.group_of, run_colours(run))
    figure = new((8, 5))
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    lines = []
    for flow in flows:
        begin_s, end_s = flow.start_ns / 1e9, run.summary.duration_s
        if flow.duration_ns is not None:
            end_s = begin_s + flow.duration_ns / 1e9
        active = (edges[:-1] >= begin_s) & (edges[:-1] < end_s)
        x, y = edges[:-1][active], rates[flow.flow][active] / 1e6
        lines.append(Line(flow_label(run, flow), colours[flow.flow], x, y))
    draw_lines(upper, lines)
    upper.set(ylabel="goodput (Mbps)", ylim=(0, None))
    _mark_changes(run, upper)
    _indices(run, lower)
    lower.set_xlabel("time (s)")
    heading(figure, f"{run.summary.name}: flows that join and leave")
    return figure
