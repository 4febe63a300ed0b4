"""The section on a full queue: who comes first in a packet time, and who is lost."""

from __future__ import annotations

import numpy as np

from outcast.analysis.measure.phase import Contests
from outcast.records.run import Run
from outcast.view.figures.phase import contests_by_port, packet_time, ports_shown, ring
from outcast.view.palette import port_colours, run_colours
from outcast.view.report.markup import Element, Part, element, table
from outcast.view.report.page import section

_RADIUS = 100
"""Of a clock, in units of its drawing; a ring's distances are shares of it."""
_DOT, _CROSS = "h0", "m-1.4-1.4l2.8 2.8m-2.8 0l2.8-2.8"
"""Marks as parts of a path, from their middle; a line of no length has round ends."""


def phase(run: Run) -> Element | None:
    """Returns the section with the clocks of arrivals; None where nothing contends for places."""
    found = contests_by_port(run)
    ports = ports_shown(found)
    if not ports:
        return None
    rows: list[list[Part]] = []
    for port, seen in found.items():
        shares = [seen.lost_share(second) for second in (False, True)]
        texts = ["-" if share is None else f"{share:.1%}" for share in shares]
        rows.append([run.port_label(port), f"{seen.second.mean():.1%}", *texts])
    head = ["input", "came second", "lost, of those that came first", "lost, of those second"]
    colours = port_colours({port: run.port_groups(port) for port in ports}, run_colours(run))
    clocks = [_clock(run.port_label(port), found[port], colours[port]) for port in ports]
    return section(
        "phase",
        "Who takes the free place",
        element(
            "p",
            "A departure from a full queue frees one place. A packet came second if a packet of "
            "another port had been taken since the last departure.",
        ),
        table("Full frames that reached the nearly full queue", head, rows),
        element(
            "figure",
            element(
                "figcaption",
                f"Arrivals at {run.manifest.bottlenecks[0].egress} within {packet_time(run)}",
            ),
            element(
                "p",
                "Dots in the inner ring were forwarded, crosses in the outer ring were lost. From "
                "the inside of a ring to its outside the run goes on.",
                class_="note",
            ),
            element("div", *clocks, class_="clocks"),
        ),
    )


def _clock(label: str, seen: Contests, colour: str) -> Element:
    """A clock of one packet time, which begins at the top with a departure, and its port."""
    marks = []
    for lost, shade, shape in ((False, colour, _DOT), (True, "#000", _CROSS)):
        angles, distances = ring(seen, lost)
        x, y = _RADIUS * distances * np.sin(angles), -_RADIUS * distances * np.cos(angles)
        # One path for all marks would not be darker where they lie upon one another.
        dots = [
            element("path", d=f"M{left:.1f} {down:.1f}{shape}")
            for left, down in zip(x.tolist(), y.tolist(), strict=True)
        ]
        marks.append(element("g", *dots, stroke=shade, class_="lost" if lost else "forwarded"))
    texts = [
        element("text", text, x=x, y=y, text_anchor=anchor)
        for text, x, y, anchor in (
            ("a packet leaves", 0, -128, "middle"),
            ("1/4", 124, 4, "start"),
            ("1/2", 0, 136, "middle"),
            ("3/4", -124, 4, "end"),
        )
    ]
    hand = element("path", d=f"M0 0V{-1.2 * _RADIUS:g}", class_="hand")
    return element(
        "div",
        element(
            "svg",
            hand,
            *marks,
            *texts,
            viewBox="-150 -145 300 290",
            role="img",
            aria_label=f"{label}: the angle is the time since the last departure; packets that "
            "were lost are in the outer ring. The table above has the shares.",
        ),
        element("p", label),
    )
