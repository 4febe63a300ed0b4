"""Drops over time, and how many in a row: figures 10 and 11 of the Outcast paper."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from outcast.analysis.measure.blackout import is_dense
from outcast.view.figures.drawn_run import DrawnRun
from outcast.view.figures.style import BLUE, CLASS_COLOURS, GREY, VERMILION, nothing, time_unit

ZOOM_PACKETS = 40
"""So many packet times are shown of a blackout, that each packet can be told apart."""
LONGEST_BAR = 10
"""Chains longer than this share one bar."""


def chain_lengths(run: DrawnRun) -> Figure:
    """Figure 11: how many chains of consecutive drops there were of each length."""
    classes = [
        (
            f"{hops}-hop ({run.summary.classes[hops].flows} flows, mean)"
            if run.summary.classes[hops].flows > 1
            else f"{hops}-hop (1 flow)",
            run.colour(int(hops)),
            chains,
            run.summary.classes[hops].flows,
        )
        for hops, chains in run.summary.flow_chains.items()
    ]
    # Generated traffic alone has no classes, and then there is no second panel.
    panels = 2 if classes else 1
    figure = Figure(figsize=(4.2 * panels, 3.4), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    _chain_bars(axes[0], _by_port(run), "chains of drops of a port")
    if classes:
        _chain_bars(axes[1], classes, "chains of drops of a flow")
    figure.suptitle(
        f"{run.summary.name}: consecutive drops", x=0.01, ha="left", fontsize=10, fontweight="bold"
    )
    return figure


def _by_port(run: DrawnRun) -> list[tuple[str, str, dict[str, int], int]]:
    """Label, colour, chains by length, and how many it is the mean of: of each input port, or,
    where they are more than there are colours, of all together.
    """
    ports = run.summary.drops
    if len(ports) > len(CLASS_COLOURS):
        chains: Counter[str] = Counter()
        for part in ports.values():
            chains.update(part.chains)
        return [(f"all {len(ports)} input ports", GREY, dict(chains), 1)]
    colours = [run.port_colour(port) for port in ports]
    if len(set(colours)) < len(colours):
        colours = list(CLASS_COLOURS[: len(colours)])
    return [
        (run.port_label(port), colour, part.chains, 1)
        for (port, part), colour in zip(ports.items(), colours, strict=True)
    ]


def _chain_bars(axes: Axes, groups: list[tuple[str, str, dict[str, int], int]], what: str) -> None:
    if not any(chains for _, _, chains, _ in groups):
        nothing(axes, "no packet was dropped")
        return
    longest = min(
        max(int(length) for _, _, chains, _ in groups for length in chains), LONGEST_BAR + 1
    )
    width = 0.84 / len(groups)
    lowest = 1.0
    for place, (label, colour, chains, share) in enumerate(groups):
        heights = np.zeros(longest)
        for length, count in chains.items():
            heights[min(int(length), longest) - 1] += count / share
        at = np.arange(1, longest + 1) - 0.42 + (place + 0.5) * width
        lowest = min(lowest, *heights[heights > 0], 1.0)
        axes.bar(at, heights, width * 0.92, color=colour, label=label)
    axes.set_yscale("log")
    axes.set_ylim(lowest / 2, None)
    names = [str(length) for length in range(1, longest + 1)]
    if longest > LONGEST_BAR:
        names[-1] = f"> {LONGEST_BAR}"
    axes.set_xticks(range(1, longest + 1), names)
    axes.set_xlabel("packets dropped in a row")
    axes.set_ylabel(what)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), fontsize=8, ncols=2, borderaxespad=0.2)


def drops_over_time(run: DrawnRun) -> Figure:
    """Figure 10: packets sent and dropped per input port, and each port's densest blackout."""
    ports = [port for record in run.manifest.bottlenecks for port in record.ingress]
    zooms = [(port, row) for port in ports if (row := worst_blackout(run, port)) is not None]
    zooms = sorted(zooms, key=lambda zoom: -int(zoom[1]["drops"]))[:2]
    figure = Figure(figsize=(9, 1.1 + 1.15 * len(ports) + 2.2), layout="constrained")
    halves: Any = figure.subfigures(2, 1, height_ratios=[1.15 * len(ports), 2.2])
    upper, lower = halves
    begin = run.manifest.traffic.t_start_ns
    duration_s = run.summary.duration_s
    overview = upper.subplots(len(ports), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    bins = 400
    edges = np.linspace(0, duration_s, bins + 1)
    for axes, port in zip(overview, ports, strict=True):
        frame = (
            run.table("packets")
            .filter(pl.col("ingress") == port)
            .select("t_in", pl.col("verdict") == "dropped")
            .collect()
        )
        time_s = (frame["t_in"].to_numpy() - begin) / 1e9
        lost = frame["verdict"].to_numpy()
        width_ms = duration_s / bins * 1e3
        sent, _ = np.histogram(time_s[~lost], edges)
        dropped, _ = np.histogram(time_s[lost], edges)
        axes.stairs(sent / width_ms, edges, fill=True, color=BLUE, alpha=0.55, label="forwarded")
        axes.stairs(-dropped / width_ms, edges, fill=True, color=VERMILION, label="dropped")
        axes.axhline(0, color="black", linewidth=0.5)
        axes.set_title(run.port_label(port), fontsize=9, pad=3)
        axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    overview[0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0)
    overview[-1].set_xlim(0, duration_s)
    overview[-1].set_xlabel("time (s)")
    upper.supylabel("packets per ms", fontsize=9)
    upper.suptitle(
        f"{run.summary.name}: packets forwarded and dropped, by input port",
        x=0.01,
        ha="left",
        fontsize=10,
        fontweight="bold",
    )
    if not zooms:
        nothing(lower.subplots(), "no blackout: no chain of drops while other ports got through")
        return figure
    panels = lower.subplots(1, len(zooms), squeeze=False)[0]
    for axes, (port, row) in zip(panels, zooms, strict=True):
        _zoom(run, axes, ports, port, row)
        for mark in overview:
            mark.axvline((row["t_start"] - begin) / 1e9, color="black", lw=0.6, ls=":")
    return figure


def worst_blackout(run: DrawnRun, port: str) -> dict[str, Any] | None:
    """The port's densest blackout: of those whose drops follow each other closely the one with
    the most drops; among equals the shortest. Without such, the same of all.
    """
    rows = (
        run.table("blackouts")
        .filter((pl.col("ingress") == port) & (pl.col("others_through") > 0))
        .with_columns(lasts=pl.col("t_end") - pl.col("t_start"), dense=is_dense(run.packet_ns))
        .sort(["dense", "drops", "lasts", "t_start"], descending=[True, True, False, False])
        .head(1)
        .collect()
    )
    return rows.row(0, named=True) if rows.height else None


def around(run: DrawnRun, row: dict[str, Any]) -> tuple[int, int]:
    """A blackout's beginning, `ZOOM_PACKETS` packet times at most, and somewhat around it."""
    lasts = min(row["t_end"] - row["t_start"], ZOOM_PACKETS * run.packet_ns)
    margin = max(lasts * 3 // 10, 5 * run.packet_ns)
    return row["t_start"] - margin, row["t_start"] + lasts + margin


def _zoom(run: DrawnRun, axes: Axes, ports: list[str], port: str, row: dict[str, Any]) -> None:
    low, high = around(run, row)
    frame = (
        run.table("packets")
        .filter(pl.col("t_in").is_between(low, high))
        .select("t_in", pl.col("ingress").cast(pl.String), pl.col("verdict").cast(pl.String))
        .collect()
    )
    scale, unit = time_unit(high - low)
    axes.axvspan(0, (row["t_end"] - row["t_start"]) / scale, color=GREY, alpha=0.15, lw=0)
    for place, name in enumerate(reversed(ports)):
        for verdict, marker, colour, size in (
            ("forwarded", "o", BLUE, 18),
            ("dropped", "x", VERMILION, 26),
            ("unknown", "d", GREY, 18),
        ):
            rows = frame.filter((pl.col("ingress") == name) & (pl.col("verdict") == verdict))
            x = (rows["t_in"].to_numpy() - row["t_start"]) / scale
            y = np.full(x.size, place + (0.12 if verdict == "dropped" else -0.12))
            axes.scatter(x, y, s=size, marker=marker, color=colour, linewidths=1.2)
    axes.set_yticks(range(len(ports)), list(reversed(ports)))
    axes.set_ylim(-0.6, len(ports) - 0.4)
    axes.set_xlim((low - row["t_start"]) / scale, (high - row["t_start"]) / scale)
    axes.set_xlabel(f"time after the first of these drops ({unit})")
    at_s = (row["t_start"] - run.manifest.traffic.t_start_ns) / 1e9
    axes.set_title(
        f"blackout of {port} at {at_s:.4f} s: {row['drops']} dropped,\n"
        f"{row['others_through']} of other ports through (o forwarded, x dropped)",
        fontsize=8.5,
    )
