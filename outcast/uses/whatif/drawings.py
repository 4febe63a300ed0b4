"""Figures of `whatif` and `fate`: a changed run over its original, and an outcome's probability."""

from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from outcast.records import Run
from outcast.uses.whatif.compared import WhatIf, read_decision, read_whatif
from outcast.view import GREY, heading, log_scale, new, run_colours, series_colour


def what_if(run: Run) -> Figure | None:
    """Draws both runs over each other where one had an intervention, and how far that spread."""
    record = read_whatif(run.directory)
    if record is None:
        return None
    figure = new((8, 5))
    goodput, spread = figure.subplots(2, sharex=True, height_ratios=(3, 2))
    _goodput(run, goodput)
    _spread(run, spread)
    for axes in (goodput, spread):
        if record.parts_ns is not None:
            look: Any = {"color": GREY, "lw": 0.8, "ls": "--", "zorder": 0}
            axes.axvline(record.parts_ns / 1e9, **look, label="the runs part")
    spread.set(xlim=(0, run.summary.duration_s), xlabel="time (s)")
    heading(figure, f"{run.summary.name}: {_title(record)}")
    return figure


def _title(record: WhatIf) -> str:
    if record.parts_ns is None:
        return "the two runs never part"
    return f"the two runs part at {record.parts_ns / 1e6:.3f} ms"


def _goodput(run: Run, axes: Axes) -> None:
    """Each group's mean goodput; that of the run intervened in is thin and dashed."""
    table, colours = run.table("whatif"), run_colours(run)
    for group in run.groups:
        means = (
            table.filter(pl.col("flow").is_in(list(group.flows)))
            .group_by("t")
            .agg(pl.col("factual_bps", "counterfactual_bps").mean())
            .sort("t")
        )
        # A stair has the end of its last bin too.
        edges_s = np.append(means["t"].to_numpy() / 1e9, run.summary.duration_s)
        for column, when, style in (("factual", "before", "--"), ("counterfactual", "after", "-")):
            axes.stairs(
                means[f"{column}_bps"].to_numpy() / 1e6, edges_s, baseline=None,
                color=colours[group.label], lw=0.9 if when == "before" else 1.4, ls=style,
                label=f"{group.title}, {when}"
            )  # fmt: skip
    log_scale(axes, "y", "symlog", linthresh=1)
    axes.set(ylim=(0, None), ylabel="mean goodput (Mbps)")


def _spread(run: Run, axes: Axes) -> None:
    changed = run.table("blast").filter("other")
    both = changed.filter(pl.col("factual").is_not_null() & pl.col("counterfactual").is_not_null())
    for frame, label, style in ((changed, "all", "-"), (both, "sent in both runs", ":")):
        time_s = frame["t"].sort().to_numpy() / 1e9
        axes.step(
            time_s, np.arange(1, time_s.size + 1), where="post", color="black", ls=style,
            label=f"other fates, {label}",
        )  # fmt: skip
    axes.set(ylim=(0, None), ylabel="packets with\nanother fate")


_SURE = (0.05, 0.95)


def probability_over_time(run: Run) -> Figure | None:
    """Draws the probability of an outcome over the instant from which the noise is drawn again."""
    decision = read_decision(run.directory)
    if decision is None:
        return None
    figure = new((8, 3))
    axes = figure.subplots()
    found = decision.instants
    time_ms = np.array([instant.t_ns for instant in found]) / 1e6
    colour = series_colour(0)
    low, high = [instant.low for instant in found], [instant.high for instant in found]
    axes.fill_between(time_ms, low, high, color=colour, alpha=0.2, lw=0, label="95 % interval")
    shares = [instant.probability for instant in found]
    axes.plot(time_ms, shares, color=colour, marker="o", ms=3, label="share of the futures")
    for level in _SURE:
        axes.axhline(level, color=GREY, lw=0.5, ls=":", label="5 % and 95 %")
    if decision.decided_ns is not None:
        axes.axvline(decision.decided_ns / 1e6, color=GREY, lw=0.8, ls="--", label="decided")
    axes.set(ylim=(-0.03, 1.03), xlabel="new noise from (ms)", ylabel="probability")
    heading(figure, f"{run.summary.name}: {decision.outcome}")
    return figure
