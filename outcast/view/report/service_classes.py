"""The section on classes of service."""

from __future__ import annotations

from outcast.records.run import Run
from outcast.view.report.markup import Element, Part, element, table
from outcast.view.report.page import note, section
from outcast.view.terminal import service_classes as shown


def service_classes(run: Run) -> Element | None:
    """Returns the section with a row for each class; None where no queue has any."""
    rows: list[list[Part]] = [
        [f"{port}: {name}", points, *cells]
        for port, name, points, *cells in shown.rows(run.summary)
    ]
    if not rows:
        return None
    text = (
        "A packet's class is told by its DSCP. Queueing is the median time from the input to the "
        "output, without the link's delay. The rate is that of the frames that left."
    )
    compared = shown.counted(run.summary)
    return section(
        "classes",
        "Classes of service",
        table("What came in, was dropped and left", ["class", *shown.HEAD], rows, numbers_from=2),
        element("p", text),
        note(f"{compared[0].upper()}{compared[1:]}."),
    )
