"""Changes a drawn figure: it looks as somebody asks, and its texts get room."""

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
from outcast.view.figures.style import HEADING, OWN, Canvas, ShownFigure


def finished(figure: Figure, look: Look | None, name: str, on: Canvas) -> Figure:
    """Changes a drawn figure as asked; what belongs to the caller, as the size, is left alone.

    Raises ConfigError: the figure has no such axis, or several of it.
    """
    panels = [on.axes] if on.axes is not None else _panels(figure)
    if look is not None:
        if on.wide_inches is not None:
            width, height = figure.get_size_inches()
            figure.set_size_inches(width * look.letters, height * look.letters)
        elif look.size_inches is not None and on == OWN:
            figure.set_size_inches(look.size_inches)
        _change(figure, panels, look, name)
    return figure if on.axes is None else whole(on.axes)


def _panels(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.axison and axes.get_label() != "<colorbar>"]


def whole(axes: Axes) -> Figure:
    """The figure that axes stand in, also where they stand in a subfigure."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def _change(figure: Figure, panels: list[Axes], look: Look, name: str) -> None:
    if look.log_x:
        _logarithmic(panels, "x", name)
    if look.log_y:
        _logarithmic(panels, "y", name)
    if look.xlabel is not None:
        for axes in [axes for axes in panels if axes.get_xlabel()] or panels[-1:]:
            axes.set_xlabel(look.xlabel)
    if look.ylabel is not None:
        labelled = [axes for axes in panels if axes.get_ylabel()] or panels[:1]
        if len(labelled) != 1:
            raise ConfigError(
                f"figure {name}: ylabel: it has {len(labelled)} panels with a label of their own; "
                "allowed are figures with one"
            )
        labelled[0].set_ylabel(look.ylabel)
    if look.title is not None:
        _title(figure, panels, look.title)
    if look.font_points is not None:
        # Axes have letters of their own; those of a borrowed one do not stand in its figure.
        for text in {text for part in (figure, *panels) for text in part.findobj(Text)}:
            text.set_fontsize(float(text.get_fontsize()) * look.letters)
    if look.legend is not None:
        _legend(figure, panels, look.legend, look.font_points)
    elif look.size_inches is not None and _too_wide(figure):
        _legend(figure, panels, "outside lower center", look.font_points)
    if look.size_inches is not None:
        for axes in panels:
            turn_names(axes)
            _fold(axes.yaxis.label)


def _fold(label: Text) -> None:
    """Gives a label along the y axis two lines if it is longer than the figure is high."""
    figure, text = label.get_figure(root=True), label.get_text()
    if figure is not None and "\n" not in text:
        _draw(figure)
        box, bounds = label.get_window_extent(), figure.bbox
        if box.y0 < bounds.y0 or box.y1 > bounds.y1:
            label.set_text(textwrap.fill(text, len(text) // 2 + 4))


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
                getattr(axes, f"set_{which}scale")("log", nonpositive="clip")
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
    """Makes room in a figure just drawn, and returns it.

    A legend gets fewer columns, names along an axis are turned, and a long heading gets lines.
    Texts are measured only where their letters may be too many, because that takes a tenth of a
    second.
    """
    # Of a part of a figure the bounding box tells the width.
    wide_inches = figure.bbox.width / figure.dpi
    for base in _bases(figure):
        # Names are in the first line; what stands below it has its place.
        first, line, below = base.get_suptitle().partition("\n")
        if _inches(first, 10) > wide_inches:
            most = int(wide_inches / _inches("m", 10))
            base.suptitle(textwrap.fill(first, most) + line + below, **HEADING)
    for legend in list(figure.legends):
        labels = [text.get_text() for text in legend.get_texts()]
        columns = min(getattr(legend, "_ncols", 1), len(labels))
        widest = max((_inches(label, 9) for label in labels), default=0.0) + _MARGIN_INCHES
        if columns > 1 and columns * widest > wide_inches:
            _narrow(figure, legend, columns)
    for axes in _panels(figure):
        turn_names(axes)
    return figure


def _inches(text: str, points: float) -> float:
    return max(map(len, text.split("\n"))) * points * _EM_SHARE / 72


def _narrow(figure: Figure, legend: Legend, columns: int) -> None:
    """Gives a legend below a figure as many columns as fit; the figure grows by the lines."""
    entries, title = _entries([legend]), _titled([legend])
    rows = -(-len(entries[0]) // columns)
    while columns > 1 and _too_wide(figure):
        columns -= 1
        legend.remove()
        legend = figure.legend(*entries, loc="outside lower center", ncols=columns, title=title)
    more = -(-len(entries[0]) // columns) - rows
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
            longest = max(_inches(name, points) for name in names)
            turns = {"rotation": 25, "ha": "right", "rotation_mode": "anchor"}
            if longest > whole_inches / 4:
                # Slanted they would take the width from what is shown.
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


def _legend(figure: Figure, panels: list[Axes], place: Any, points: float | None) -> None:
    """Puts the legends elsewhere; an empty place takes them away. Letters are of this size."""
    of_figure = [legend for base in _bases(figure) for legend in base.legends]
    of_panels = [(axes, legend) for axes in panels if (legend := axes.get_legend()) is not None]
    legends = [*of_figure, *(legend for _, legend in of_panels)]
    for legend in legends:
        legend.remove()
    if not place:
        return
    if place.startswith("outside"):
        entries = _entries(legends)
        for columns in (1,) if "right" in place else (4, 3, 2, 1):
            outside = figure.legend(
                *entries,
                **{"loc": place, "ncols": columns, "fontsize": points, "title": _titled(legends)},
                title_fontsize=points,
            )
            if columns == 1 or not _too_wide(figure):
                return
            outside.remove()
    for axes, legend in of_panels:
        title = _titled([legend])
        axes.legend(*_entries([legend]), loc=place, fontsize=points, title=title)
    if of_figure and panels:
        panels[0].legend(*_entries(of_figure), loc=place, fontsize=points)


def _too_wide(figure: Figure) -> bool:
    """Whether a legend of the figure is wider than the figure."""
    if not figure.legends:
        return False
    _draw(figure)
    width = figure.get_window_extent().width
    return any(legend.get_window_extent().width > width for legend in figure.legends)


def _draw(figure: Figure) -> None:
    """Gives all texts their places."""
    with warnings.catch_warnings():
        # Too small a size is refused when the figure is stored.
        warnings.simplefilter("ignore", UserWarning)
        figure.draw_without_rendering()


def _titled(legends: list[Legend]) -> str | None:
    """The first title among legends."""
    return next((text for legend in legends if (text := legend.get_title().get_text())), None)


def _entries(legends: list[Legend]) -> tuple[list[Any], list[str]]:
    """The handles and labels of legends, each label once."""
    entries: dict[str, Any] = {}
    for legend in legends:
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            entries.setdefault(text.get_text(), handle)
    return [*entries.values()], [*entries]
