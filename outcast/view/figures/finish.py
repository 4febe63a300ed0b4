"""Changes a drawn figure: it gets the size, title and axes that a caller wants, and texts fit."""

import textwrap
import warnings
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator

from outcast.errors import ConfigError
from outcast.view.figures.look import Look
from outcast.view.figures.parts import legend_inches
from outcast.view.figures.style import HEADING, OWN, Canvas, ShownFigure, log_scale


def finished(figure: Figure, look: Look | None, name: str, on: Canvas) -> Figure:
    """Changes a drawn figure; what belongs to the caller, as the size, is left alone.

    Raises ConfigError: an axis cannot be logarithmic.
    """
    panels = [on.axes] if on.axes is not None else _panels(figure)
    if look is not None:
        if look.log_x:
            _logarithmic(panels, "x", name)
        if look.log_y:
            _logarithmic(panels, "y", name)
        if look.title is not None:
            _title(figure, panels, look.title)
        if look.letters != 1:
            # Axes have letters of their own; those of a borrowed one do not stand in its figure.
            for text in {text for part in (figure, *panels) for text in part.findobj(Text)}:
                text.set_fontsize(float(text.get_fontsize()) * look.letters)
        if on.wide_inches is not None:
            width, height = figure.get_size_inches()
            figure.set_size_inches(width * look.letters, height * look.letters)
        elif look.size_inches is not None and on == OWN:
            figure.set_size_inches(look.size_inches)
            fitted(figure)
    return figure if on.axes is None else whole(on.axes)


def _panels(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.axison and axes.get_label() != "<colorbar>"]


def whole(axes: Axes) -> Figure:
    """The figure that axes stand in, also where they stand in a subfigure."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def _logarithmic(panels: list[Axes], which: Literal["x", "y"], name: str) -> None:
    """Makes an axis of every panel logarithmic, and shows all data that is above zero."""
    named = {}
    for axes in panels:
        axis = getattr(axes, f"{which}axis")
        if not isinstance(axis.get_major_locator(), FixedLocator):
            continue
        places = axis.get_majorticklocs()
        texts = [tick.get_text() for tick in axis.get_majorticklabels()]
        if min(places, default=1) <= 0 or not all(map(_is_number, texts)):
            raise ConfigError(
                f"figure {name}: log-{which}: its {which} axis has names; allowed are amounts"
            )
        named[axis] = places, texts
    for axes in panels:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "Data has no positive values", UserWarning)
            try:
                # What is at or below zero is cut off at the axis's end.
                log_scale(axes, which, nonpositive="clip")
                axes.relim()
                axes.autoscale(axis=which)
                # Only now are the limits worked out.
                getattr(axes, f"get_{which}lim")()
            except UserWarning:
                raise ConfigError(
                    f"figure {name}: log-{which}: nothing in a panel is above zero"
                ) from None
    for axis, (places, texts) in named.items():
        axis.set_ticks(places, texts)
        axis.set_ticks([], minor=True)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


_EM_SHARE = 0.62
"""The width of a letter in its height; few texts have wider ones on average."""
_MARGIN_INCHES = 0.6
"""What a legend's entry takes beside its letters."""


def fitted(figure: Figure) -> Figure:
    """Makes texts of a drawn figure fit its width, and returns it.

    A legend gets fewer columns, names along an axis are turned, and a long heading gets lines. The
    widths are estimates, because a drawing to measure them takes a tenth of a second.
    """
    # Of a part of a figure the bounding box has the width.
    wide_inches = figure.bbox.width / figure.dpi
    for base in _bases(figure):
        # Names are in the first line; what stands below it has its place.
        first, line, below = base.get_suptitle().partition("\n")
        if _inches(first, 10) > wide_inches:
            most = int(wide_inches / _inches("m", 10))
            base.suptitle(textwrap.fill(first, most) + line + below, **HEADING)
    for legend in list(figure.legends):
        _narrow(figure, legend, wide_inches)
    for axes in _panels(figure):
        turn_names(axes)
    return figure


def _inches(text: str, points: float) -> float:
    return max(map(len, text.split("\n"))) * points * _EM_SHARE / 72


def _narrow(figure: Figure, legend: Legend, wide_inches: float) -> None:
    """Gives a legend below a figure as many columns as fit; the figure grows by the lines."""
    texts = legend.get_texts()
    points = float(texts[0].get_fontsize()) if texts else 0.0
    labels = [text.get_text() for text in texts]
    columns = min(getattr(legend, "_ncols", 1), len(labels))
    widest = max((_inches(label, points) for label in labels), default=0.0) + _MARGIN_INCHES
    fit = max(1, int(wide_inches / widest))
    if columns <= fit:
        return
    handles = [handle for handle in legend.legend_handles if handle is not None]
    title = legend.get_title().get_text()
    legend.remove()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=fit, title=title, fontsize=points
    )
    more = -(-len(labels) // fit) - -(-len(labels) // columns)
    if more and isinstance(figure, ShownFigure):
        figure.set_figheight(figure.get_figheight() + legend_inches(more))


def turn_names(axes: Axes) -> None:
    """Gives names along the x axis lines, and turns them, if they do not fit side by side."""
    ticks = (
        axes.get_xticklabels() if isinstance(axes.xaxis.get_major_locator(), FixedLocator) else []
    )
    if not ticks:
        return
    points = float(ticks[0].get_fontsize())
    grid = axes.get_subplotspec()
    whole_inches = whole(axes).get_figwidth() / (1 if grid is None else grid.get_gridspec().ncols)
    width = 0.8 * whole_inches / len(ticks)
    names = [tick.get_text() for tick in ticks]
    turns: dict[str, Any] = {}
    if _collide(names, points, width):
        names = [name.replace(", ", ",\n") for name in names]
        if _collide(names, points, width):
            turns = {"rotation": 90, "ha": "center", "va": "top", "rotation_mode": "default"}
        axes.set_xticks(axes.get_xticks(), names, fontsize=points, **turns)


def _collide(names: list[str], points: float, width: float) -> bool:
    widths = [_inches(name, points) for name in names]
    return any(first + second > 2 * width for first, second in pairwise(widths))


def _bases(figure: FigureBase) -> Iterator[FigureBase]:
    """The figure and its subfigures, each of which can have a heading and legends."""
    yield figure
    for part in figure.subfigs:
        yield from _bases(part)


def _title(figure: Figure, panels: list[Axes], text: str) -> None:
    """Replaces the heading; where there is none, the title of the first panel is the heading."""
    headed = [base for base in _bases(figure) if base.get_suptitle()]
    if headed:
        for base in headed:
            base.suptitle("")
        if text:
            headed[0].suptitle(text, **HEADING)
    elif panels:
        for part in figure.subfigs[1:]:
            part.axes[0].set_title("")
        panels[0].set_title(text)
