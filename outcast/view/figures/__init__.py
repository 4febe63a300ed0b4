"""Draws the pictures of a run from its directory alone. They follow the figures of the papers.

A picture is a function that takes a `Run`. It returns a figure, or None if the run has no data for
it. To add a picture, write its function in a file of its own here and name it in FIGURES.
"""

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from outcast import uses
from outcast.errors import InputError, did_you_mean
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.view.events import moments
from outcast.view.figures.drops import chain_lengths, drops_over_time
from outcast.view.figures.generated import datagrams_by_flow, rate_over_time
from outcast.view.figures.goodput import (
    convergence,
    fairness_over_time,
    goodput_by_class,
    goodput_by_flow,
    goodput_over_time,
)
from outcast.view.figures.link import link_over_time, service_classes
from outcast.view.figures.parts import mark_events, mark_left_out
from outcast.view.figures.phase import arrivals_in_a_packet_time, gaps_and_batches
from outcast.view.figures.queue import draw_queue, queue_in_blackout
from outcast.view.figures.senders import rtt_over_time, timeouts_by_class, windows_over_time
from outcast.view.figures.style import legend_below, save, styled
from outcast.view.figures.times import completion_times, execution_times, probe_round_trips

__all__ = ["FIGURES", "draw", "draw_one", "draw_queue", "figure"]

Drawing = Callable[[Run], Figure | None]


FIGURES: dict[str, Drawing | str] = {
    "goodput": goodput_over_time,
    "flows": goodput_by_flow,
    "classes": goodput_by_class,
    "fairness": fairness_over_time,
    "convergence": convergence,
    "rtt": rtt_over_time,
    "cwnd": windows_over_time,
    "timeouts": timeouts_by_class,
    "probes": probe_round_trips,
    "link": link_over_time,
    "service": service_classes,
    "chains": chain_lengths,
    "drops": drops_over_time,
    "queue": queue_in_blackout,
    "phase": arrivals_in_a_packet_time,
    "noise": gaps_and_batches,
    "completions": completion_times,
    "programs": execution_times,
    "workloads": rate_over_time,
    "streams": datagrams_by_flow,
    **uses.FIGURES,
}
"""Every picture of a run, by the stem of its file's name, in the order of display.

A use's picture is the place that it is loaded from.
"""
OVER_TIME = frozenset(
    {"goodput", "fairness", "rtt", "cwnd", "probes", "link", "drops", "workloads"}
)
"""Pictures of the whole duration, in which events are marked, and what the summary leaves out."""
ON_REQUEST = frozenset({"chains", "noise"})
"""Pictures that `outcast figure` draws, and no run by itself."""
BY_ITSELF = tuple(name for name in FIGURES if name not in ON_REQUEST)


def _drawing(name: str) -> Drawing:
    drawing: Drawing | str = FIGURES[name]
    return uses.find(drawing) if isinstance(drawing, str) else drawing


def drawn(run: Run, name: str) -> Figure | None:
    """One of FIGURES with its legend; None if the run has no data for it."""
    figure = _drawing(name)(run)
    if figure is None:
        return None
    if name in OVER_TIME:
        mark_left_out(figure, run.summary)
        mark_events(figure, moments(run), run.summary.duration_s)
    legend_below(figure)
    return figure


def described() -> dict[str, str]:
    """The first sentence of each picture's docstring, by its name."""
    return {
        name: (_drawing(name).__doc__ or "").partition(".\n")[0].partition("\n")[0].rstrip(".")
        for name in FIGURES
    }


def figure(run: Run, name: str) -> Figure:
    """Draws a picture of an analysed run.

    Raises InputError: no picture has that name, or the run has no data for it.
    """
    if name not in FIGURES:
        raise InputError(
            f"figure {name}: of a run allowed are {', '.join(FIGURES)}{did_you_mean(name, FIGURES)}"
        )
    with run.reading(), styled():
        picture = drawn(run, name)
    if picture is None:
        raise InputError(f"{run.directory.path}: it measured nothing for the figure {name}")
    return picture


def draw(directory: RunDirectory) -> list[Path]:
    """Draws every picture of BY_ITSELF that an analysed run has data for. Raises InputError."""
    run = Run(directory)
    paths = [draw_one(run, name) for name in BY_ITSELF]
    return [path for path in paths if path is not None]


def draw_one(run: Run, name: str) -> Path | None:
    """Draws one of FIGURES into the run's folder, or removes it without data. Raises as `draw`."""
    path = run.directory.path / f"{name}.png"
    with run.reading(), styled():
        picture = drawn(run, name)
        try:
            if picture is not None:
                return save(picture, path)
            path.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    return None
