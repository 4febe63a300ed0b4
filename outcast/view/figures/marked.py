"""Figures over time that also show what happened to links and queues."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from matplotlib.figure import Figure

from outcast.records.run import Run
from outcast.view.events import moments
from outcast.view.figures.parts import mark_events, mark_left_out
from outcast.view.figures.style import OWN, Canvas

Drawing = Callable[[Run, Canvas], Figure | None]


def with_events(drawing: Drawing) -> Drawing:
    """The same figure, with the run's events marked where it shows the whole duration.

    What the summary leaves out, because of `analysis.from` and `analysis.to`, is grey there.
    """

    @wraps(drawing)
    def marked(run: Run, on: Canvas = OWN) -> Figure | None:
        figure = drawing(run, on)
        if figure is not None:
            mark_left_out(figure, run.summary)
            mark_events(figure, moments(run), run.summary.duration_s)
        return figure

    return marked
