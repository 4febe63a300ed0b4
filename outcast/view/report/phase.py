"""The section on a full queue: who comes first in a packet time, and who is lost."""

from __future__ import annotations

from outcast.records.run import Run
from outcast.view.figures.phase import contests_by_port, ports_shown
from outcast.view.report import pictures
from outcast.view.report.markup import Element, Part, element, table
from outcast.view.report.page import section


def phase(run: Run) -> Element | None:
    """Returns the section with the clocks of arrivals; None where nothing contends for places."""
    found = contests_by_port(run)
    if not ports_shown(found):
        return None
    rows: list[list[Part]] = []
    for port, seen in found.items():
        shares = [seen.lost_share(second) for second in (False, True)]
        texts = ["-" if share is None else f"{share:.1%}" for share in shares]
        rows.append([run.port_label(port), f"{seen.second.mean():.1%}", *texts])
    head = ["input", "came second", "lost, of those that came first", "lost, of those second"]
    return section(
        "phase",
        "Who takes the free place",
        element(
            "p",
            "A departure from a full queue frees one place. A packet came second if a packet of "
            "another port had been taken since the last departure.",
        ),
        table("Full frames that reached the nearly full queue, in the whole captures", head, rows),
        pictures.drawn(run, "phase"),
    )
