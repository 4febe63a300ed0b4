"""Draws flow completion times of generated flows, as figure 11 of the TCPRand paper."""

from __future__ import annotations

import polars as pl
from matplotlib.figure import Figure

from outcast.records.run import Run
from outcast.records.summary import LONG_BYTES, SHORT_BYTES
from outcast.view.figures.parts import draw_shares
from outcast.view.figures.style import OWN, Canvas, heading, nothing
from outcast.view.palette import BLUE, GREEN, VERMILION

_SIZES = (
    ("short (below 100 KB)", VERMILION, pl.col("size_bytes") < SHORT_BYTES),
    ("medium", BLUE, pl.col("size_bytes").is_between(SHORT_BYTES, LONG_BYTES)),
    ("long (above 10 MB)", GREEN, pl.col("size_bytes") > LONG_BYTES),
)


def completion_times(run: Run, on: Canvas = OWN) -> Figure | None:
    """Draws the cumulative distribution of completion times by size.

    A curve ends below 1 if flows did not finish. Returns None without generated flows.
    """
    if "completions" not in run.tables:
        return None
    table = run.table("completions").filter(pl.col("size_bytes").is_not_null())
    if table.is_empty():
        return None
    workloads = table["workload"].unique().sort().to_list()
    figure = on.new((1.2 + 4.2 * len(workloads), 4.2))
    for axes, workload in zip(
        figure.subplots(1, len(workloads), squeeze=False)[0], workloads, strict=True
    ):
        mine = table.filter(pl.col("workload") == workload)
        axes.set_title(f"{mine['kind'][0]} (workload {workload})")
        if mine["fct"].drop_nulls().is_empty():
            nothing(axes, "no flow finished")
            continue
        for size, colour, chosen in _SIZES:
            of_size = mine.filter(chosen)
            if of_size.is_empty():
                continue
            times_ms = of_size["fct"].drop_nulls().to_numpy() / 1e6
            label = f"{size}: {times_ms.size} of {of_size.height} finished"
            draw_shares(axes, times_ms, colour, label, of_size.height)
        axes.set_xscale("log")
        axes.set_xlabel("flow completion time (ms)")
        axes.set_ylabel("share of flows")
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.17), fontsize=8)
        axes.grid(alpha=0.25)
    heading(figure, f"{run.summary.name}: flow completion times")
    return figure
