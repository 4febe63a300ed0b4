"""Draws how long the executions of programs took."""

from __future__ import annotations

import polars as pl
from matplotlib.figure import Figure

from outcast.records.run import Run
from outcast.view.figures.parts import draw_shares
from outcast.view.figures.style import OWN, Canvas, heading
from outcast.view.palette import series_colour


def execution_times(run: Run, on: Canvas = OWN) -> Figure | None:
    """Draws the cumulative distribution of the times that executions took, a curve per program.

    A curve ends below 1 if executions failed. Returns None if no program ran twice.
    """
    if "programs" not in run.tables:
        return None
    clients = run.table("programs").filter(~pl.col("server"))
    names = [
        name
        for name in clients["program"].unique(maintain_order=True)
        if clients.filter(pl.col("program") == name).height > 1
    ]
    if not names:
        return None
    figure = on.new((5.4, 4.2))
    axes = figure.subplots()
    for place, name in enumerate(names):
        mine = clients.filter(pl.col("program") == name)
        well = mine.filter(pl.col("status") == 0, pl.col("ended_by") == "itself")
        label = f"{name}: {well.height} of {mine.height} ended well"
        draw_shares(
            axes, well["duration_ns"].to_numpy() / 1e6, series_colour(place), label, mine.height
        )
    axes.set_xlabel("time of an execution (ms)")
    axes.set_ylabel("share of executions")
    axes.set_xlim(left=0)
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.17), fontsize=8)
    axes.grid(alpha=0.25)
    heading(figure, f"{run.summary.name}: how long programs took")
    return figure
