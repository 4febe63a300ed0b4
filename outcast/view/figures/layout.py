"""Arranges a figure's panels as matplotlib's constrained layout does, in less time.

That measures every panel twice, because other ticks may stand on an axis once its length has
changed. Measuring is what takes long. So a panel whose ticks are still the same is not measured
again: what stands around it is as large as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.legend import Legend
from matplotlib.transforms import Bbox, BboxBase

Measure = Callable[..., BboxBase | None]

_COLORBAR = "<colorbar>"
"""The label that matplotlib gives to a colorbar's axes."""


class Layout(ConstrainedLayoutEngine):
    """matplotlib's constrained layout, which measures a panel again only if its ticks change."""

    def execute(self, fig: Figure) -> Any:
        """Arranges the figure. Returns what matplotlib's engine returns."""
        panels = fig.axes
        if any(axes.get_label() == _COLORBAR for axes in panels):
            # What stands around it changes with the panel that it belongs to.
            return super().execute(fig)
        for axes in panels:
            axes.get_tightbbox = _once(axes)  # type: ignore[assignment]
        try:
            return super().execute(fig)
        finally:
            for axes in panels:
                # The method of its class is in force again.
                del axes.get_tightbbox


def _once(axes: Axes) -> Measure:
    """Measures a panel with its labels; later by what stood around it at the first time."""
    measure: Measure = axes.get_tightbbox
    around = np.zeros(4)
    ticks: list[list[float]] | None = None

    def measured(renderer: Any = None, **options: Any) -> BboxBase | None:
        nonlocal around, ticks
        # A panel with an aspect is smaller than its place.
        now = _ticks(axes) if axes.get_aspect() == "auto" else None
        box: BboxBase | None
        if now is not None and now == ticks:
            box = Bbox(np.reshape(np.add(axes.bbox.extents, around), (2, 2)))
        else:
            with _out_of_layout(axes.get_legend()):
                box = measure(renderer, **options)
            if box is None:
                return None
            around, ticks = np.subtract(box.extents, axes.bbox.extents), now
        return _with_legend(box, axes.get_legend(), renderer)

    return measured


def _ticks(axes: Axes) -> list[list[float]]:
    # Some locators give a list and others an array.
    return [list(map(float, axis.get_majorticklocs())) for axis in (axes.xaxis, axes.yaxis)]


@contextmanager
def _out_of_layout(legend: Legend | None) -> Iterator[None]:
    counts = legend is not None and legend.get_in_layout()
    if legend is None or not counts:
        yield
        return
    legend.set_in_layout(False)
    try:
        yield
    finally:
        legend.set_in_layout(True)


def _with_legend(box: BboxBase, legend: Legend | None, renderer: Any) -> BboxBase:
    """A box with the legend, which may stick out on one side by another length each time."""
    if legend is None or not legend.get_visible() or not legend.get_in_layout():
        return box
    extent = legend.get_tightbbox(renderer)
    return box if extent is None else Bbox.union([box, extent])
