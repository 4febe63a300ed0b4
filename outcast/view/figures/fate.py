"""Draws from when on an outcome of a run was decided."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from outcast.records.run import Run
from outcast.view.figures.style import OWN, Canvas, heading
from outcast.view.palette import GREY, series_colour

_SURE = (0.05, 0.95)


def probability_over_time(run: Run, on: Canvas = OWN) -> Figure | None:
    """Draws the probability of an outcome over the instant from which the noise is drawn anew."""
    decision = run.directory.read_decision() if run.captured is None else None
    if decision is None:
        return None
    figure = on.new((8, 3))
    axes = figure.subplots()
    found = decision.instants
    time_ms = np.array([instant.t_ns for instant in found]) / 1e6
    colour = series_colour(0)
    low, high = [instant.low for instant in found], [instant.high for instant in found]
    axes.fill_between(time_ms, low, high, color=colour, alpha=0.2, lw=0, label="95 % interval")
    shares = [instant.probability for instant in found]
    axes.plot(time_ms, shares, color=colour, marker="o", ms=3, label="share of the futures")
    for level in _SURE:
        axes.axhline(level, color=GREY, lw=0.5, ls=":")
    if decision.decided_ns is not None:
        axes.axvline(
            decision.decided_ns / 1e6, color=GREY, lw=0.8, ls="--", label="decided, by the shares"
        )
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("noise drawn anew from (ms)")
    axes.set_ylabel("probability")
    heading(figure, f"{run.summary.name}: {decision.outcome}")
    figure.legend(loc="outside lower center", ncols=3)
    return figure
