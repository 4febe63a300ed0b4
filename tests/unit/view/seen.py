"""What a reviewer of a paper would refuse in a figure, by matplotlib's own boxes of its texts."""

import re
from itertools import combinations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator
from matplotlib.transforms import Bbox

WITHOUT_UNIT = re.compile(
    r"share|index|number|count|ratio|probability|drops|packets|runs|flows|timeouts|correlation|"
    r"chains|over|phase|distribution|executions"
)
"""Words of what has no unit, because it is counted or is a ratio."""
UNIT = re.compile(r"\((s|ms|µs|ns|%|[kMG]?bps|[kMKG]i?B|segments|packets|packet times)\)")


def faults(figure: Figure) -> list[str]:
    """Texts that are cut off, texts that overlap, and axes with numbers but no unit."""
    figure.draw_without_rendering()
    texts = _texts(figure)
    whole = figure.bbox.padded(1.5)
    wrong = [
        f"cut off: {text!r}"
        for text, box in texts
        if box.x0 < whole.x0 or box.x1 > whole.x1 or box.y0 < whole.y0 or box.y1 > whole.y1
    ]
    for (one, box), (other, its) in combinations(texts, 2):
        if box.padded(-1).overlaps(its.padded(-1)):
            wrong.append(f"overlap: {one!r} and {other!r}")
    for axes in figure.axes:
        wrong += _without_unit(figure, axes)
    return wrong


def _texts(figure: Figure) -> list[tuple[str, Bbox]]:
    """All upright texts that are drawn; ticks beyond an axis's limits have labels that are not."""
    hidden = set()
    for axes in figure.axes:
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            low, high = sorted(limits)
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not (axes.axison and low <= tick.get_loc() <= high):
                    hidden |= {tick.label1, tick.label2}
            hidden |= set() if axes.axison else {axis.label}
    return [
        (text.get_text(), text.get_window_extent())
        for text in figure.findobj(Text)
        if text.get_text().strip()
        and text.get_visible()
        and text not in hidden
        and text.get_rotation() in (0, 90)
    ]


def _without_unit(figure: Figure, axes: Axes) -> list[str]:
    wrong = []
    for axis in (axes.xaxis, axes.yaxis) if axes.axison else ():
        label = axis.get_label().get_text()
        names = isinstance(axis.get_major_locator(), FixedLocator)
        if names or not axis.get_visible() or not len(axis.get_majorticklocs()):
            continue
        if not any(tick.get_text() for tick in axis.get_majorticklabels()):
            continue
        # Panels over one another have one label together.
        together = not label and len(figure.axes) > 1
        if not together and not UNIT.search(label) and not WITHOUT_UNIT.search(label):
            wrong.append(f"no unit: {label!r}")
    return wrong
