"""How a figure is arranged, against matplotlib."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from outcast.view.figures.layout import Layout
from outcast.view.figures.style import styled


def _three_rows(figure: Figure) -> None:
    for axes in figure.subplots(3, 1, sharex=True, height_ratios=[1, 1.4, 1.2]):
        axes.plot([0, 12], [0, 7e6], label="a curve")
        axes.set_ylabel("a long label of an axis")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1))
    figure.suptitle("heading")


def _legend_sticks_out(figure: Figure) -> None:
    for axes in figure.subplots(1, 2):
        axes.bar([1, 2], [0.01, 900], label="a legend here")
        axes.set_yscale("log")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1))


def _legends_outside(figure: Figure) -> None:
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], label="a curve")
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.4))
    figure.legend(loc="outside right center")


def _subfigures(figure: Figure) -> None:
    upper, lower = figure.subfigures(2, 1, height_ratios=[2, 1])
    for axes in upper.subplots(2, 1, sharex=True):
        axes.plot([0, 1], [0, 1e-9])
    upper.supylabel("label")
    lower.subplots().set_yticks([0, 1], ["a lane", "another lane with a long name"])


def _clock(figure: Figure) -> None:
    figure.add_subplot(projection="polar").set_xlabel("words\nbelow\na clock")


def _twin(figure: Figure) -> None:
    axes = figure.subplots()
    axes.plot([0, 3], [0, 3])
    axes.twinx().set_ylabel("at the right")


def _words(figure: Figure) -> None:
    figure.subplots().bar(["one word", "another word"], [1, 2])


def _colorbar(figure: Figure) -> None:
    axes = figure.subplots()
    image = axes.imshow([[1, 2e6], [3, 4]], aspect="auto")
    figure.colorbar(image, ax=axes, label="of the colours")


FIGURES = [
    *(_three_rows, _legend_sticks_out, _legends_outside, _subfigures, _clock, _twin, _words),
    _colorbar,
]


@pytest.mark.parametrize("inches", [(8, 5.2), (3.5, 4)])
@pytest.mark.parametrize("draw", FIGURES)
def test_panels_stand_where_matplotlib_puts_them(
    draw: Callable[[Figure], None], inches: tuple[float, float]
) -> None:
    places = []
    with styled():
        for layout in (Layout(), "constrained"):
            figure = Figure(figsize=inches, layout=layout, dpi=150)
            draw(figure)
            FigureCanvasAgg(figure).draw()
            places.append(np.array([axes.bbox.extents for axes in figure.axes]))
    np.testing.assert_allclose(*places, rtol=0, atol=2)


def test_a_panel_is_measured_again_only_if_its_ticks_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured = []
    measure = Axes.get_tightbbox

    def count(axes: Axes, *args: object, **options: object) -> object:
        measured.append(axes)
        return measure(axes, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Axes, "get_tightbbox", count)
    with styled():
        figure = Figure(figsize=(8, 3), layout=Layout())
        fixed, other = figure.subplots(1, 2)
        fixed.set_xticks([0, 0.5, 1])
        fixed.set_yticks([0, 1])
        other.set_ylim(0, 100)
        # It has as many ticks as there is room for.
        other.set_xlabel("\n".join(["words"] * 10))
        FigureCanvasAgg(figure).draw()
    assert (measured.count(fixed), measured.count(other)) == (1, 2)


def test_a_figure_too_small_leaves_no_trace() -> None:
    with styled():
        figure = Figure(figsize=(1, 0.5), layout=Layout())
        _three_rows(figure)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            with pytest.raises(UserWarning, match="constrained_layout not applied"):
                FigureCanvasAgg(figure).draw()
    assert all("get_tightbbox" not in vars(axes) for axes in figure.axes)
