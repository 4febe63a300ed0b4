"""Drops and the queue over time, packet by packet, around a blackout."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase

from outcast.reproduce import measures
from outcast.reproduce.pictures.parts import Runs, Size, panels
from outcast.reproduce.recipe import Recipe
from outcast.view.figures.style import CLASS_COLOURS

ZOOM_NS = 500_000
"""What figures 10(a) and (b) show."""
QUEUE_ZOOM_PACKETS = 25


def drops_over_time(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """Figure 10: what each port got through and lost, around a blackout of each and at large."""
    point = panels(recipe, runs)[0]
    run = runs[point.label][0]
    packets = run.table("packets")
    start_ns = run.directory.read_manifest().traffic.t_start_ns
    longest = (
        measures.dense_blackouts(run)
        .unique("ingress", keep="first", maintain_order=True)
        .sort("ingress")
    )
    ports = sorted(packets["ingress"].cast(pl.String).unique())
    for number, (port, begin, end) in enumerate(
        longest.select("ingress", "t_start", "t_end").iter_rows()
    ):
        middle = (begin + end) // 2
        axes = figure.add_subplot(longest.height + 1, 1, number + 1)
        inside = packets.filter(
            pl.col("t_in").is_between(middle - ZOOM_NS / 2, middle + ZOOM_NS / 2)
        )
        _marks(axes, inside, ports, (middle - ZOOM_NS // 2), 1e3, "µs")
        axes.set_title(f"({chr(97 + number)}) a blackout of {port}")
    axes = figure.add_subplot(longest.height + 1, 1, longest.height + 1)
    _marks(axes, packets, ports, start_ns, 1e9, "s")
    axes.set_xlim(0, run.summary.duration_s)
    axes.set_title(f"({chr(97 + longest.height)}) the whole run")
    return 7.5, 2.0 * (longest.height + 1)


def _marks(
    axes: Axes, packets: pl.DataFrame, ports: list[str], zero_ns: int, unit_ns: float, unit: str
) -> None:
    for place, port in enumerate(ports):
        mine = packets.filter(pl.col("ingress").cast(pl.String) == port)
        for verdict, marker, colour, lift in (
            ("forwarded", "|", CLASS_COLOURS[1], 0.15),
            ("dropped", "x", CLASS_COLOURS[0], -0.15),
        ):
            at = (
                mine.filter(pl.col("verdict").cast(pl.String) == verdict)["t_in"].to_numpy()
                - zero_ns
            ) / unit_ns
            axes.plot(
                at, np.full(at.size, place + lift), marker, color=colour, markersize=4,
                markeredgewidth=0.8, rasterized=True,
                label=verdict if place == 0 else None,
            )  # fmt: skip
    axes.set_yticks(range(len(ports)), ports, fontsize=7)
    axes.set_ylim(-0.6, len(ports) - 0.4)
    axes.set_xlabel(unit)
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def queue_over_time(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """Figure 12: the queue's length around the longest blackout, with every event by port."""
    point = panels(recipe, runs)[0]
    run = runs[point.label][0]
    worst = measures.dense_blackouts(run)
    axes = figure.add_subplot()
    if not worst.height:
        axes.set_title("no blackout")
        return 7.5, 3.2
    packet_ns = measures.packet_ns(run)
    begin = int(worst["t_start"][0]) - 4 * packet_ns
    end = min(int(worst["t_end"][0]) + 4 * packet_ns, begin + QUEUE_ZOOM_PACKETS * packet_ns)
    queue = run.table("queue").filter(pl.col("t").is_between(begin, end))
    packets = run.table("packets").with_row_index("packet").select("packet", "ingress")
    seconds = (queue["t"].to_numpy() - begin) / 1e3
    axes.step(seconds, queue["queue_packets"].to_numpy(), where="post", color="0.3", linewidth=1)
    axes.set_xlabel("µs")
    axes.set_ylabel("queue, packets")
    lowest, highest = queue["queue_packets"].min(), queue["queue_packets"].max()
    assert isinstance(lowest, int)
    assert isinstance(highest, int)
    axes.set_ylim(lowest - 3 * (highest - lowest + 1), highest + 1)
    axes.set_yticks(range(lowest, highest + 1))
    joined = queue.with_columns(pl.col("packet").cast(pl.UInt32)).join(
        packets, on="packet", how="left"
    )
    lanes = axes.twinx()
    ports = sorted(packets["ingress"].cast(pl.String).unique())
    rows = [*ports, "out"]
    for event, marker, colour in (
        ("enqueue", "^", CLASS_COLOURS[1]), ("drop", "x", CLASS_COLOURS[0]),
        ("dequeue", "v", CLASS_COLOURS[2]),
    ):  # fmt: skip
        mine = joined.filter(pl.col("event").cast(pl.String) == event)
        at = (mine["t"].to_numpy() - begin) / 1e3
        lane = [
            rows.index("out" if event == "dequeue" else str(port))
            for port in mine["ingress"].cast(pl.String).to_list()
            if event == "dequeue" or port is not None
        ]
        lanes.plot(at[: len(lane)], lane, marker, color=colour, markersize=5, label=event)
    lanes.set_yticks(range(len(rows)), rows, fontsize=7)
    lanes.set_ylim(-0.5, 1.7 * len(rows))
    figure.legend(
        *lanes.get_legend_handles_labels(), fontsize=7, ncols=3, loc="outside upper right"
    )
    return 7.5, 3.2


def trace(figure: FigureBase, recipe: Recipe, runs: Runs) -> Size:
    """The printed table of packets around the longest blackout."""
    point = panels(recipe, runs)[0]
    run = runs[point.label][0]
    worst = measures.dense_blackouts(run)
    axes = figure.add_subplot()
    axes.axis("off")
    if not worst.height:
        axes.set_title("no blackout")
        return 7.5, 1.0
    start_ns = run.directory.read_manifest().traffic.t_start_ns
    begin, end = int(worst["t_start"][0]), int(worst["t_end"][0])
    rows = run.table("packets").filter(pl.col("t_in").is_between(begin, end)).head(24)
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
