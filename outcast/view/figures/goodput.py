"""Goodput of every flow over time and of every class: figure 3 of the Outcast paper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from outcast.records.summary import Window
from outcast.view.figures.drawn_run import DrawnRun
from outcast.view.figures.style import GREY, heading
from outcast.view.terminal.tables import format_bps

MOST_CURVES = 40
"""Beyond this many flows, the flows of one sender are added up; of still more senders, so many are
chosen."""


@dataclass(frozen=True)
class Curve:
    """Goodput over time of one flow, or of one sender's flows added up."""

    label: str
    hops: int
    flows: int
    goodput_bps: np.ndarray


def goodput_curves(run: DrawnRun) -> tuple[np.ndarray, list[Curve]]:
    """Time in seconds and one curve per flow or, if they are many, per sender; the fewest hops
    come last, which is on top.
    """
    frame = run.table("throughput").collect()
    time_s = frame["t"].unique().sort().to_numpy() / 1e9
    rates = frame["goodput_bps"].to_numpy().reshape(-1, time_s.size)
    order = frame["flow"].to_numpy()[:: time_s.size]
    rows = {int(flow): rate for flow, rate in zip(order, rates, strict=True)}
    together = len(run.manifest.flows) > MOST_CURVES
    grouped: dict[tuple[int, str], list[int]] = {}
    for flow in run.manifest.flows:
        key = flow.src if together else f"{flow.src} #{flow.flow}"
        grouped.setdefault((flow.hops, key), []).append(flow.flow)
    curves = [
        Curve(key, hops, len(flows), np.sum([rows[flow] for flow in flows], axis=0))
        for (hops, key), flows in grouped.items()
    ]
    curves.sort(key=lambda curve: -curve.hops)
    if len(curves) > MOST_CURVES:
        # Evenly chosen, from both ends on.
        curves = [curves[at] for at in np.linspace(0, len(curves) - 1, MOST_CURVES).astype(int)]
    return time_s, curves


def goodput_over_time(run: DrawnRun) -> Figure | None:
    """Figure 3(a)-(c): every flow's goodput over time, one above the other."""
    if not run.manifest.flows:
        return None
    time_s, curves = goodput_curves(run)
    bin_s = float(time_s[1] - time_s[0]) if time_s.size > 1 else run.summary.duration_s
    edges = np.append(time_s, time_s[-1] + bin_s)
    peak = max(float(np.percentile(curve.goodput_bps, 99)) for curve in curves)
    step = max(peak, 1.0) * 0.8
    figure = Figure(figsize=(8, 1.4 + 0.3 * len(curves)), layout="constrained")
    axes = figure.subplots()
    fair = run.summary.total_goodput_bps / len(run.manifest.flows)
    for index, curve in enumerate(curves):
        base = index * step
        colour = run.colour(curve.hops)
        lone = curve.hops == run.hops[0] and len(run.hops) > 1
        axes.stairs(
            base + curve.goodput_bps,
            edges,
            baseline=base,
            fill=True,
            color=colour,
            alpha=0.85 if lone else 0.45,
            zorder=2 * (len(curves) - index),
        )
        axes.stairs(
            base + curve.goodput_bps,
            edges,
            baseline=None,
            color=colour,
            linewidth=0.9,
            zorder=2 * (len(curves) - index) + 1,
        )
        axes.axhline(base, color=GREY, linewidth=0.5, zorder=1)
        axes.axhline(base + fair * curve.flows, color=GREY, linewidth=0.5, linestyle=":", zorder=1)
        mean = format_bps(float(curve.goodput_bps.mean()))
        axes.text(
            1.01,
            base + step * 0.1,
            mean,
            color=colour,
            fontweight="bold" if lone else "normal",
            transform=axes.get_yaxis_transform(),
        )
    axes.set_yticks(
        [index * step for index in range(len(curves))],
        [f"{curve.label} ({curve.hops}-hop)" for curve in curves],
    )
    for tick, curve in zip(axes.get_yticklabels(), curves, strict=True):
        tick.set_color(run.colour(curve.hops))
        tick.set_verticalalignment("bottom")
        if curve.hops == run.hops[0] and len(run.hops) > 1:
            tick.set_fontweight("bold")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlim(0, edges[-1])
    axes.set_ylim(0, (len(curves) - 1) * step + max(peak, curves[-1].goodput_bps.max()) * 1.05)
    axes.set_xlabel("time (s)")
    senders = len({flow.src for flow in run.manifest.flows})
    what = "every flow"
    if len(run.manifest.flows) > MOST_CURVES:
        what = "every sender" if senders <= MOST_CURVES else f"{len(curves)} of {senders} senders"
    figure.suptitle(
        f"{run.summary.name}: goodput of {what}, in bins of {bin_s * 1000:g} ms, one above "
        f"the other\nspacing of the lines {format_bps(step)}; dotted: an equal share "
        f"({format_bps(fair)} a flow); at the right: the mean",
        fontsize=9.5,
        x=0.01,
        ha="left",
    )
    return figure


def goodput_by_class(run: DrawnRun) -> Figure | None:
    """Figure 3(d)-(f): mean goodput per class over the windows."""
    if not run.manifest.flows:
        return None
    main = Window(
        start_s=run.summary.start_s,
        end_s=run.summary.end_s,
        jain_index=run.summary.jain_index,
        total_goodput_bps=run.summary.total_goodput_bps,
        classes=run.summary.classes,
        outcast_ratio=run.summary.outcast_ratio,
    )
    windows = list(run.summary.windows.values())
    if all((window.start_s, window.end_s) != (main.start_s, main.end_s) for window in windows):
        windows.append(main)
    figure = Figure(figsize=(3.2 + 1.4 * len(windows), 3.4), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(run.hops)
    top = 0.0
    for place, hops in enumerate(run.hops):
        for index, window in enumerate(windows):
            mean = window.classes[str(hops)].mean_goodput_bps / 1e6
            top = max(top, mean)
            at = index - 0.4 + (place + 0.5) * width
            label = None
            if index == 0:
                count = window.classes[str(hops)].flows
                label = f"{hops}-hop ({count} flow{'s' if count > 1 else ''})"
            axes.bar(at, mean, width * 0.92, color=run.colour(hops), label=label)
            axes.annotate(
                f"{mean:.3g}",
                (at, mean),
                (0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=8,
                bbox={"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none"},
                zorder=5,
            )
    for index, window in enumerate(windows):
        flows = sum(part.flows for part in window.classes.values())
        equal = window.total_goodput_bps / flows / 1e6
        label = "an equal share" if index == 0 else ""
        axes.hlines(
            equal, index - 0.45, index + 0.45, color="black", linestyle=":", lw=1, label=label
        )
    axes.set_xticks(
        range(len(windows)),
        [
            f"{window.start_s:g}-{window.end_s:g} s"
            + (f"\nratio {window.outcast_ratio:.2f}" if window.outcast_ratio is not None else "")
            for window in windows
        ],
    )
    axes.set_ylim(0, (top or 1) * 1.12)
    axes.set_ylabel("mean goodput of a flow (Mbps)")
    figure.suptitle(
        f"{run.summary.name}: mean goodput per class",
        x=0.01,
        ha="left",
        fontsize=10,
        fontweight="bold",
    )
    figure.legend(loc="outside right center")
    return figure


def goodput_by_flow(run: DrawnRun) -> Figure | None:
    """The mean goodput of every flow as a bar, the fewest hops first."""
    flows = run.table("flows").select("flow", "src", "hops", "goodput_bps").collect()
    if not 1 < flows.height <= MOST_CURVES:
        return None
    flows = flows.sort("hops", "flow")
    figure = Figure(figsize=(2.2 + 0.42 * flows.height, 3.2), layout="constrained")
    axes = figure.subplots()
    for hops in run.hops:
        places = [n for n, found in enumerate(flows["hops"]) if found == hops]
        values = flows["goodput_bps"].gather(places) / 1e6
        axes.bar(places, values, 0.75, color=run.colour(hops), label=f"{hops}-hop")
    fair = run.summary.total_goodput_bps / flows.height / 1e6
    axes.axhline(fair, color="black", ls=":", lw=1, label="an equal share")
    axes.set_xticks(
        range(flows.height),
        [f"{row['src']} #{row['flow']}" for row in flows.iter_rows(named=True)],
        rotation=60,
        ha="right",
        rotation_mode="anchor",
        fontsize=8,
    )
    axes.set_xlim(-0.6, flows.height - 0.4)
    axes.set_ylabel("goodput (Mbps)")
    heading(figure, f"{run.summary.name}: goodput of every flow")
    figure.legend(loc="outside right center")
    return figure
