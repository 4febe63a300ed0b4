"""The section on a full queue: who comes first in a packet time, and who is lost."""

from __future__ import annotations

import io

from outcast.records.run import Run
from outcast.view.figures.phase import arrivals_in_a_packet_time, contests_by_port
from outcast.view.figures.style import styled
from outcast.view.report.markup import Element, Part, element, table
from outcast.view.report.page import section
from outcast.view.report.pictures import picture

_DPI = 100


def phase(run: Run) -> Element | None:
    """Returns the section with the picture of arrivals; None where nothing contends for places."""
    with styled():
        drawn = arrivals_in_a_packet_time(run)
        if drawn is None:
            return None
        stream = io.BytesIO()
        # No version, so that the same run gives the same page.
        drawn.savefig(stream, format="png", dpi=_DPI, metadata={"Software": None})
    rows: list[list[Part]] = []
    for port, seen in contests_by_port(run).items():
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
        table("Full frames that reached the nearly full queue", head, rows),
        picture(
            "Arrivals within a packet time",
            "A circle for each input port: the angle is the time since the last departure; packets "
            "that were lost are in the outer ring. The table above has the shares.",
            stream.getvalue(),
            "image/png",
            width=100 * round(drawn.get_size_inches()[0]),
        ),
    )
