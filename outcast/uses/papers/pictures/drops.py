"""Drops and the queue over time, packet by packet, around a blackout."""

from __future__ import annotations

import polars as pl
from matplotlib.figure import FigureBase

from outcast.analysis import drop_measures
from outcast.uses.papers.pictures.parts import Runs, Size, flows_of_port, name_lanes, panels
from outcast.uses.papers.recipe import Recipe
from outcast.view.figures.drops import draw_packets
from outcast.view.figures.queue import draw_events, draw_length, queue_events

ZOOM_NS = 500_000
"""The span of time that figures 10(a) and (b) show."""
QUEUE_ZOOM_PACKETS = 25


def blackout_panels(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """Figure 10: packets forwarded and dropped by port, around blackouts and in the whole run."""
    run = runs[panels(recipe, runs)[0].label][0]
    ports = [port for record in run.manifest.bottlenecks for port in record.ingress]
    traffic = run.manifest.traffic
    longest = (
        drop_measures.dense_blackouts(run)
        .unique("ingress", keep="first", maintain_order=True)
        .sort("ingress")
    )
    spans = []
    for port, begin, end in longest.select("ingress", "t_start", "t_end").iter_rows():
        first = (begin + end) // 2 - ZOOM_NS // 2
        spans.append((f"a blackout of {flows_of_port(run, port)}", first, ZOOM_NS))
    spans.append(("the whole run", traffic.t_start_ns, traffic.duration_ns))
    for number, (title, first, length) in enumerate(spans):
        axes = figure.add_subplot(len(spans), 1, number + 1)
        _, unit = draw_packets(axes, run, ports, (first, first + length), first, "|")
        name_lanes(axes, run, ports)
        axes.set_title(f"({chr(97 + number)}) {title}")
        axes.set_xlabel(unit)
        axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return 7.5, 2.0 * len(spans)


def queue_in_blackout(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """Figure 12: the queue's length around the longest blackout, with every event by port."""
    run = runs[panels(recipe, runs)[0].label][0]
    worst = drop_measures.dense_blackouts(run)
    if not worst.height:
        figure.add_subplot().set_title("no blackout")
        return 7.5, 3.2
    row, frame_ns = worst.row(0, named=True), run.frame_ns
    record = next(item for item in run.manifest.bottlenecks if item.egress == row["egress"])
    begin = row["t_start"] - 4 * frame_ns
    end = min(row["t_end"] + 4 * frame_ns, begin + QUEUE_ZOOM_PACKETS * frame_ns)
    events = queue_events(run, record, (begin, end))
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[1, 1])
    draw_length(upper, events, begin, 1e3, "queue_packets")
    lanes = [*record.ingress, record.egress]
    draw_events(lower, events, lanes, begin, 1e3)
    names = [flows_of_port(run, port) for port in record.ingress]
    lower.set_yticks(range(len(lanes)), ["output", *reversed(names)])
    upper.set_title(f"a blackout of {flows_of_port(run, row['ingress'])}")
    lower.set_xlabel("µs")
    return 7.5, 3.2


def trace(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """The table of packets around the longest blackout, as the source prints it."""
    run = runs[panels(recipe, runs)[0].label][0]
    worst = drop_measures.dense_blackouts(run)
    axes = figure.add_subplot()
    axes.axis("off")
    if not worst.height:
        axes.set_title("no blackout")
        return 7.5, 1.0
    start_ns = run.manifest.traffic.t_start_ns
    begin, end = int(worst["t_start"][0]), int(worst["t_end"][0])
    rows = run.scan("packets").filter(pl.col("t_in").is_between(begin, end)).head(24).collect()
    text = [
        [
            f"{row['src']}:{row['sport']}", row["ingress"], f"{(row['t_in'] - start_ns) / 1e6:.3f}",
            "DROP" if row["verdict"] == "dropped" else "FOUND",
            row["egress"] if row["t_out"] is not None else "",
            f"{(row['t_out'] - start_ns) / 1e6:.3f}" if row["t_out"] is not None else "",
        ]
        for row in rows.iter_rows(named=True)
    ]  # fmt: skip
    names = ["src", "ingress", "ingress ms", "result", "egress", "egress ms"]
    table = axes.table(text, colLabels=names, loc="center", cellLoc="left")
    table.auto_set_font_size(False)
    table.set_fontsize(7)
    return 7.5, 0.22 * (len(text) + 2)
