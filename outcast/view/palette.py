"""The colours of every figure and report. No colour alone carries information.

Kinds have the colours that Okabe and Ito chose in 2008 for people without one kind of cone; their
yellow is left out, because it is not seen on white. Ordered values, and the flows of one group,
have shades of one of these colours.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from outcast.records.run import Run

_Label = TypeVar("_Label", bound=int | str)

VERMILION, BLUE, GREEN, PURPLE = "#D55E00", "#0072B2", "#009E73", "#CC79A7"
ORANGE, SKY_BLUE, BLACK = "#E69F00", "#56B4E9", "#000000"
GREY = "#8C8C8C"
"""The colour of what matters least: levels, marks of time, packets of unknown fate."""
SERIES = (BLUE, GREEN, PURPLE, ORANGE, SKY_BLUE, BLACK)
"""For kinds that are not compared with all others, such as ports or swept names."""
FORWARDED, DROPPED, DEPARTED = BLUE, VERMILION, GREEN
SENDER_STATES = {
    "Open": SKY_BLUE,
    "Disorder": ORANGE,
    "CWR": PURPLE,
    "Recovery": BLUE,
    "Loss": VERMILION,
}
"""TCP's congestion states."""
SENT_AGAIN = {"T": VERMILION, "A": ORANGE, "P": PURPLE, "R": BLUE}
"""Why data was sent again: by a timeout, after one, as a probe, in a recovery."""
_MOST_SHADES = 16
"""More shades would look equal to their neighbours."""


def series_colour(place: int) -> str:
    """The colour of a kind by its place; after the last colour they begin again."""
    return SERIES[place % len(SERIES)]


def ramp(count: int, colour: str = BLUE) -> list[str]:
    """Shades of one colour from light to dark, for ordered values."""
    if count == 1:
        return [colour]
    middle = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)], float)
    shades = []
    for at in np.linspace(-0.6, 0.6, count):
        mixed = middle + (255 - middle) * -at if at < 0 else middle * (1 - at)
        shades.append("#{:02X}{:02X}{:02X}".format(*np.rint(mixed).astype(int)))
    return shades


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
    return group_colours([group.label for group in run.groups], run.marked)


def shaded(groups: Mapping[_Label, str], of_group: Mapping[str, str]) -> dict[_Label, str]:
    """A colour for every flow or port: that of its group, in a shade of its own if it has several.

    Neighbours in the order given have shades far from one another.
    """
    shades = {}
    for group, size in Counter(groups.values()).items():
        count = min(size, _MOST_SHADES)
        in_order = ramp(count, of_group.get(group, GREY))
        half = (count + 1) // 2
        shades[group] = [in_order[at // 2 + (at % 2) * half] for at in range(count)]
    seen: Counter[str] = Counter()
    colours = {}
    for member, group in groups.items():
        colours[member] = shades[group][seen[group] % len(shades[group])]
        seen[group] += 1
    return colours


def port_colours(ports: Mapping[str, Sequence[str]], of_group: Mapping[str, str]) -> dict[str, str]:
    """A colour for every input port: that of its first group."""
    return shaded({port: next(iter(labels), "") for port, labels in ports.items()}, of_group)
