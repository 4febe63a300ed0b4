"""The colours of every figure and report.

Each is told apart from each other by people without one kind of cone, and has a contrast of 3:1
or more against white (WCAG 2.2, 1.4.11). A unit test computes both. Nothing is told by colour
alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outcast.records.run_directory import FlowRecord

VERMILION, BLUE, GREEN, WINE, VIOLET, BROWN = (
    *("#C44E00", "#0072B2", "#32A645", "#591B30", "#BA49F2", "#806346"),
)
MORE = (*("#001580", "#441B59", "#7900F2", "#800000", "#A6008A", "#F200CA", "#315359", "#8800CC"),)
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
    return {
        count: series_colour(place - 1) if place else VERMILION
        for place, count in enumerate(ordered)
    }


def flow_colours(flows: Sequence[FlowRecord]) -> dict[int, str]:
    """A colour for every flow.

    A flow that is its whole class has the colour of the class. The others have colours that no
    class has, in turn.
    """
    hops = [flow.hops for flow in flows]
    of_class = class_colours(hops)
    spare = [colour for colour in PALETTE if colour not in of_class.values()] or list(PALETTE)
    colours: dict[int, str] = {}
    shared = 0
    for flow in flows:
        if hops.count(flow.hops) == 1:
            colours[flow.flow] = of_class[flow.hops]
        else:
            colours[flow.flow] = spare[shared % len(spare)]
            shared += 1
    return colours


def port_colours(ports: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """A colour for every input port: that of its nearest class, where no port before has it.

    `ports` has by name the hop counts of the flows that come in there.
    """
    of_class = class_colours([hops for counts in ports.values() for hops in counts])
    colours: dict[str, str] = {}
    for port, counts in ports.items():
        free = [colour for colour in SERIES if colour not in colours.values()] or list(SERIES)
        colour = of_class[min(counts)] if counts else free[0]
        colours[port] = free[0] if colour in colours.values() else colour
    return colours
