"""Draws drops over time, and chains of drops: figures 10 and 11 of the Outcast paper."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from outcast.analysis.machine_code import Array
from outcast.analysis.measure.blackout import is_blackout, is_dense
from outcast.records.run import Run
from outcast.view.figures.parts import (
    Bars,
    Marks,
    busiest,
    draw_bars,
    draw_lanes,
    lane_inches,
)
from outcast.view.figures.style import heading, log_scale, new, nothing, time_unit
from outcast.view.palette import DROPPED, FORWARDED, GREY, port_colours, run_colours

ZOOM_PACKETS = 40
"""How many packet times of a blackout to show. With more, marks would overlap."""
ZOOM_INCHES = 2.2
MOST_MARKS = 2_000
"""The most packets that were not dropped in a zoom; beyond that, a sample is drawn."""
LONGEST_BAR = 10
"""Longer chains share one bar, and one column in the report."""
CHAIN_LENGTHS = (*map(str, range(1, LONGEST_BAR + 1)), f"> {LONGEST_BAR}")
MOST_PORTS = 6
"""The chains of more input ports or groups are added up."""


def chain_counts(chains: Mapping[str, int]) -> list[int]:
    """The number of chains of each length up to LONGEST_BAR, then the number of longer ones."""
    counts = [0] * (LONGEST_BAR + 1)
    for length, count in chains.items():
        counts[min(int(length), LONGEST_BAR + 1) - 1] += count
    return counts


def chain_lengths(run: Run) -> Figure:
    """Draws figure 11: how many chains of consecutive drops had each length."""
    # There is no second panel if all traffic is generated, because it has no groups.
    panels = 2 if run.groups else 1
    figure = new((4.2 * panels, 3.0))
    axes = figure.subplots(1, panels, squeeze=False)[0]
    _chain_bars(axes[0], _by_port(run), "chains of drops of a port")
    if run.groups:
        _chain_bars(axes[1], _by_group(run), "chains of drops of a flow")
    heading(figure, f"{run.summary.name}: consecutive drops")
    return figure


def _by_group(run: Run) -> list[Bars]:
    colours = run_colours(run)
    groups = []
    if len(run.groups) > MOST_PORTS:
        every = [chain_counts(group.summary.chains) for group in run.groups]
        flows = sum(len(group.flows) for group in run.groups)
        return [Bars(f"all {flows} flows (mean)", GREY, np.sum(every, axis=0) / flows)]
    for group in run.groups:
        flows = group.summary.flows
        label = f"{group.counted} (mean)" if flows > 1 else group.counted
        counts = np.array(chain_counts(group.summary.chains)) / flows
        groups.append(Bars(label, colours[group.label], counts))
    return groups


def _by_port(run: Run) -> list[Bars]:
    ports = {
        way.label: np.array(chain_counts(run.summary.drops[port].chains))
        for port, way in run.ways.items()
    }
    if len(ports) > MOST_PORTS:
        return [Bars(f"all {len(ports)} input ports", GREY, np.sum([*ports.values()], axis=0))]
    colours = port_colours(
        {port: run.port_groups(port) for port in run.ways}, run_colours(run)
    ).values()
    return [Bars(*row) for row in zip(ports, colours, ports.values(), strict=True)]


def _chain_bars(axes: Axes, groups: Sequence[Bars], what: str) -> None:
    used = np.flatnonzero(np.sum([group.heights for group in groups], axis=0))
    if not used.size:
        nothing(axes, "no packet was dropped")
        return
    longest = int(used[-1]) + 1
    ticks = CHAIN_LENGTHS[:longest]
    draw_bars(axes, [replace(group, heights=group.heights[:longest]) for group in groups], ticks)
    log_scale(axes, "y")
    lowest = min(group.heights[group.heights > 0].min(initial=1.0) for group in groups)
    axes.set(ylim=(lowest / 2, None), xlabel="packets dropped in a row", ylabel=what)


def arrivals(run: Run, port: str, edges_s: Array) -> tuple[Array, Array]:
    """Counts the packets that came in by a port, and those of them dropped, in each bin."""
    frame = (
        run.scan("packets", whole=True)
        .filter(pl.col("ingress").cast(pl.String) == port)
        .select("t_in", dropped=pl.col("verdict").cast(pl.String) == "dropped")
        .collect()
    )
    time_s = (frame["t_in"].to_numpy() - run.manifest.traffic.t_start_ns) / 1e9
    lost = frame["dropped"].to_numpy()
    return np.histogram(time_s, edges_s)[0], np.histogram(time_s[lost], edges_s)[0]


def drops_over_time(run: Run) -> Figure:
    """Draws figure 10: packets forwarded and dropped by input port, and two blackouts.

    The first is the longest blackout of the marked group's port, or else of the port that lost
    most. The second has the most drops of the dense blackouts of all ports.
    """
    every = list(dict.fromkeys(way.ingress for way in run.ways.values()))
    losses: Counter[str] = Counter()
    for key, part in run.summary.drops.items():
        if key in run.ways:
            losses[run.ways[key].ingress] += part.dropped
    worst = [(port, row) for port in every if (row := worst_blackout(run, port)) is not None]
    zooms = sorted(worst, key=lambda zoom: -int(zoom[1]["drops"]))[:1]
    studied = next(
        (port for port in every if run.marked in run.port_groups(port)),
        losses.most_common(1)[0][0] if losses else None,
    )
    if studied is not None and (longest := longest_blackout(run, studied)) is not None:
        zooms = [(studied, longest), *(zoom for zoom in zooms if zoom[1] != longest)]
    ports = busiest(every, {**losses, **{port: sys.maxsize for port, _ in zooms}})
    high, low = 1.15 * len(ports), ZOOM_INCHES + lane_inches(len(ports)) if zooms else 0.3
    figure = new((9, 0.9 + high + low))
    halves: Any = figure.subfigures(2, 1, height_ratios=[high, low])
    upper, lower = halves
    begin = run.manifest.traffic.t_start_ns
    duration_s = run.summary.duration_s
    overview = upper.subplots(len(ports), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    bins = 400
    edges = np.linspace(0, duration_s, bins + 1)
    width_ms = duration_s / bins * 1e3
    for axes, port in zip(overview, ports, strict=True):
        packets, dropped = arrivals(run, port, edges)
        sent = packets - dropped
        axes.stairs(
            sent / width_ms, edges, fill=True, color=FORWARDED, alpha=0.55, label="forwarded"
        )
        axes.stairs(-dropped / width_ms, edges, fill=True, color=DROPPED, label="dropped")
        axes.axhline(0, color="black", linewidth=0.5)
        axes.set_title(_titled(run, port), fontsize=9, pad=3)
        axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    overview[-1].set(xlim=(0, duration_s), xlabel="time (s)")
    upper.supylabel("packets per ms", fontsize=9)
    most = ""
    if len(ports) < len(every):
        most = f": the {len(ports)} of {len(every)} that lost most"
    heading(upper, f"{run.summary.name}: packets forwarded and dropped, by input port{most}")
    if not zooms:
        nothing(lower.subplots(), "no blackout: no chain of drops while other ports got through")
        return figure
    panels = lower.subplots(1, len(zooms), squeeze=False)[0]
    for axes, (port, row) in zip(panels, zooms, strict=True):
        _zoom(run, axes, every, port, row)
        for mark in overview:
            look: Any = {"color": "black", "lw": 0.6, "ls": ":", "label": "a blackout shown below"}
            mark.axvline((row["t_start"] - begin) / 1e9, **look)
    return figure


def _titled(run: Run, port: str) -> str:
    """An input port's label, with the outputs that it feeds if the run has several outputs."""
    ways = run.ways.values()
    fed = ", ".join(way.egress for way in ways if way.ingress == port)
    several = len({way.egress for way in ways}) > 1
    return run.port_label(port) + (f", to {fed}" if several else "")


def worst_blackout(run: Run, port: str, egress: str | None = None) -> dict[str, Any] | None:
    """The port's blackout with the most drops, as a row of the table; None without any.

    Dense blackouts come first; of several with equal drops, the shortest. With `egress`, only
    blackouts of packets to this output count.
    """
    to_output = pl.lit(True) if egress is None else pl.col("egress").cast(pl.String) == egress
    order = {"dense": True, "drops": True, "lasts": False, "t_start": False}
    return _first_blackout(run, port, to_output, order)


def longest_blackout(run: Run, port: str) -> dict[str, Any] | None:
    return _first_blackout(run, port, pl.lit(True), {"lasts": True, "t_start": False})


def _first_blackout(
    run: Run, port: str, chosen: pl.Expr, order: Mapping[str, bool]
) -> dict[str, Any] | None:
    """The first of a port's blackouts by these columns; True sorts in descending order."""
    rows = (
        run.scan("blackouts")
        .filter(pl.col("ingress") == port, is_blackout(), chosen)
        .with_columns(lasts=pl.col("t_end") - pl.col("t_start"), dense=is_dense(run.frame_ns))
        .sort([*order], descending=[*order.values()])
        .head(1)
        .collect()
    )
    return rows.row(0, named=True) if rows.height else None


def around(run: Run, row: dict[str, Any]) -> tuple[int, int]:
    """The span in ns to show of a blackout: at most ZOOM_PACKETS packets and margins."""
    lasts = min(row["t_end"] - row["t_start"], ZOOM_PACKETS * run.frame_ns)
    margin = max(lasts * 3 // 10, 5 * run.frame_ns)
    return row["t_start"] - margin, row["t_start"] + lasts + margin


def draw_packets(
    axes: Axes, run: Run, ports: Sequence[str], span_ns: tuple[int, int], zero_ns: int, marker: str
) -> tuple[float, str]:
    """Draws a mark for each packet that came in within a span of time, in a lane for each port.

    `marker` is the mark of a forwarded packet. The x axis counts from `zero_ns`. Returns the unit
    of this axis: its nanoseconds and its name.
    """
    frame = (
        run.scan("packets", whole=True)
        .filter(pl.col("t_in").is_between(*span_ns))
        .select("t_in", pl.col("ingress", "verdict").cast(pl.String))
        .filter(pl.col("ingress").is_in(list(ports)))
        .collect()
    )
    scale, unit = time_unit(span_ns[1] - span_ns[0])
    marks = []
    for verdict, shape, colour, lift in (
        ("forwarded", marker, FORWARDED, -0.12),
        ("dropped", "x", DROPPED, 0.12),
        ("unknown", "d", GREY, -0.12),
    ):
        rows = frame.filter(verdict=verdict)
        x = (rows["t_in"].to_numpy() - zero_ns) / scale
        label = verdict if rows.height else None
        every = 1 if verdict == "dropped" else max(1, -(-rows.height // MOST_MARKS))
        lanes_of = rows["ingress"].to_list()[::every]
        marks.append(Marks(label, shape, colour, lanes_of, x[::every], lift))
    draw_lanes(axes, ports, marks)
    axes.set_xlim(*((edge - zero_ns) / scale for edge in span_ns))
    return scale, unit


def _zoom(run: Run, axes: Axes, every: list[str], port: str, row: dict[str, Any]) -> None:
    lasts = row["t_end"] - row["t_start"]
    is_long = not row["dense"] and lasts > ZOOM_PACKETS * run.frame_ns
    # A blackout that is not dense lasts for round trips, so its beginning shows nothing.
    whole = row["t_start"] - lasts // 20, row["t_end"] + lasts // 20
    span_ns = whole if is_long else around(run, row)
    came = run.scan("packets", whole=True).filter(pl.col("t_in").is_between(*span_ns))
    counts = came.group_by(pl.col("ingress").cast(pl.String)).len().collect()
    ports = busiest(every, {**dict(counts.iter_rows()), port: sys.maxsize})
    scale, unit = draw_packets(axes, run, ports, span_ns, row["t_start"], "|" if is_long else "o")
    axes.axvspan(0, lasts / scale, color=GREY, alpha=0.15, lw=0, label="blackout")
    most = f"\nthe {len(ports)} of {len(every)} ports with most packets here"
    few = len(ports) == len(every)
    axes.set_xlabel(f"time after the first of these drops ({unit}){'' if few else most}")
    at_ms = (row["t_start"] - run.manifest.traffic.t_start_ns) / 1e6
    axes.set_title(
        f"{port}, {row['drops']} dropped from {at_ms:.4f} ms on, for {lasts / 1e6:.4g} ms;\n"
        f"{row['others_through']:,} of other ports through",
        fontsize=8.5,
    )
