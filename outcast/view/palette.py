"""The colours of every figure and report, of which none tells anything alone.

People without one kind of cone tell each from each other. Their contrast to white is 3:1 or more
(WCAG 2.2, 1.4.11). A unit test computes both.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TypeVar

from outcast.records.run import Run

_Label = TypeVar("_Label", bound=int | str)

VERMILION, BLUE, GREEN = "#C44E00", "#0072B2", "#32A645"
WINE, VIOLET, BROWN = "#591B30", "#BA49F2", "#806346"
MORE = ("#001580", "#441B59", "#7900F2", "#800000", "#A6008A", "#F200CA", "#315359", "#8800CC")
GREY = "#8C8C8C"
"""The colour of what matters least: levels, marks of time, packets of unknown fate."""
SERIES = (BLUE, GREEN, WINE, VIOLET, BROWN, *MORE)
"""For curves that are no classes, such as ports or swept values."""
PALETTE = (VERMILION, *SERIES)
FORWARDED, DROPPED, DEPARTED = BLUE, VERMILION, GREEN


def series_colour(place: int) -> str:
    """The colour of a curve by its place; after the last colour they begin again."""
    return SERIES[place % len(SERIES)]


def class_colours(hops: Sequence[int]) -> dict[int, str]:
    """A colour for every class; only the class with the fewest hops has vermilion."""
    ordered = sorted(set(hops))
    return group_colours(ordered, ordered[0]) if ordered else {}


def group_colours(labels: Sequence[_Label], marked: _Label | None) -> dict[_Label, str]:
    """A colour for every group; the marked one has vermilion, or the first one if none is."""
    bright = marked if marked in labels else next(iter(labels), None)
    others = [label for label in labels if label != bright]
    return {
        label: VERMILION if label == bright else series_colour(others.index(label))
        for label in labels
    }


def run_colours(run: Run) -> dict[str, str]:
    """A colour for every group of a run, by its label."""
    return group_colours([group.label for group in run.groups], run.marked)


def flow_colours(groups: Mapping[int, str], of_group: Mapping[str, str]) -> dict[int, str]:
    """A colour for every flow: its group's if it is alone there, else one that no group has."""
    spare = [colour for colour in PALETTE if colour not in of_group.values()] or list(PALETTE)
    sizes, in_turn = Counter(groups.values()), cycle(spare)
    return {
        flow: of_group[label] if sizes[label] == 1 else next(in_turn)
        for flow, label in groups.items()
    }


def port_colours(ports: Mapping[str, Sequence[str]], of_group: Mapping[str, str]) -> dict[str, str]:
    """A colour for every input port: that of its first group, where no port before has it."""
    colours: dict[str, str] = {}
    for port, labels in ports.items():
        free = [colour for colour in SERIES if colour not in colours.values()] or list(SERIES)
        colour = of_group[labels[0]] if labels else free[0]
        colours[port] = free[0] if colour in colours.values() else colour
    return colours
