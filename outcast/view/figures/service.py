"""Draws what each class of service of a queue got, lost and waited."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from outcast.records.run import Run
from outcast.records.summary import ServiceClassSummary
from outcast.view.figures.parts import Bars, draw_bars
from outcast.view.figures.style import OWN, Canvas, heading
from outcast.view.palette import BLUE, BROWN, DROPPED, GREEN


def service_classes(run: Run, on: Canvas = OWN) -> Figure | None:
    """Draws rate, loss and queueing delay of each class of service, one above the other.

    Returns None where no queue has classes.
    """
    several = len(run.summary.queue) > 1
    classes = {
        f"{name}\n{port}" if several else name: part
        for port, queue in run.summary.queue.items()
        for name, part in (queue.classes or {}).items()
    }
    if not classes:
        return None
    parts = list(classes.values())
    waits = [part.queueing_ms for part in parts]
    median, most = (
        np.array([np.nan if wait is None else getattr(wait, name) for wait in waits])
        for name in ("p50", "p99")
    )
    figure = on.new((max(5.0, 1.3 * len(parts)), 5.6))
    rate, loss, wait = figure.subplots(3, 1, sharex=True)
    ticks = list(classes)
    rates = np.array([part.rate_bps / 1e6 for part in parts])
    for axes, bars, what in (
        (rate, [Bars(None, GREEN, rates)], "rate (Mbps)"),
        (loss, [Bars(None, DROPPED, np.array(list(map(_lost, parts))))], "packets lost (%)"),
        (wait, [Bars("median", BLUE, median), Bars("99 %", BROWN, most)], "queueing (ms)"),
    ):
        draw_bars(axes, bars, ticks, written=True)
        axes.set_ylabel(what)
        axes.margins(y=0.2)
        axes.set_ylim(0, None)
    wait.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.1)
    ports = ", ".join(port for port, queue in run.summary.queue.items() if queue.classes)
    heading(figure, f"{run.summary.name}: classes of service at {ports}")
    return figure


def _lost(part: ServiceClassSummary) -> float:
    return 100 * part.dropped / max(1, part.packets)
