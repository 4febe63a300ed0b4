"""The pictures of a run, from its directory alone, after the figures of the papers.

A picture is a function of a `DrawnRun` that returns a figure, or None where the run has nothing
of the kind. To add one, write it in a file of its own here and name it in FIGURES.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from outcast.errors import InputError
from outcast.records.run_directory import RunDirectory
from outcast.view.figures.completions import completion_times
from outcast.view.figures.drawn_run import DrawnRun
from outcast.view.figures.drops import chain_lengths, drops_over_time
from outcast.view.figures.fairness import convergence, fairness_over_time
from outcast.view.figures.goodput import goodput_by_class, goodput_by_flow, goodput_over_time
from outcast.view.figures.link import link_over_time
from outcast.view.figures.queue import draw_queue, queue_in_blackout
from outcast.view.figures.senders import rtt_over_time, timeouts_by_class, windows_over_time
from outcast.view.figures.style import STYLE, save
from outcast.view.terminal.tables import read_summary, reading

__all__ = ["FIGURES", "draw", "draw_queue"]

FIGURES: tuple[tuple[str, Callable[[DrawnRun], Figure | None]], ...] = (
    ("goodput.png", goodput_over_time),
    ("flows.png", goodput_by_flow),
    ("classes.png", goodput_by_class),
    ("fairness.png", fairness_over_time),
    ("convergence.png", convergence),
    ("rtt.png", rtt_over_time),
    ("cwnd.png", windows_over_time),
    ("timeouts.png", timeouts_by_class),
    ("link.png", link_over_time),
    ("chains.png", chain_lengths),
    ("drops.png", drops_over_time),
    ("queue.png", queue_in_blackout),
    ("completions.png", completion_times),
)
"""Every picture of a run, by its file's name, in the order in which they are shown."""


def draw(directory: RunDirectory) -> list[Path]:
    """Draws every picture that an analysed run has something for. Returns their paths.

    Raises InputError where the run has not been analysed.
    """
    run = DrawnRun(directory, directory.read_manifest(), read_summary(directory))
    paths = []
    with reading(directory), matplotlib.rc_context(STYLE):
        for name, make in FIGURES:
            path = directory.path / name
            figure = make(run)
            try:
                if figure is None:
                    path.unlink(missing_ok=True)
                else:
                    paths.append(save(figure, path))
            except OSError as error:
                raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    return paths
