"""The report's parts on what a run may have measured besides; none where it has not."""

from __future__ import annotations

from outcast.report.markup import Element
from outcast.report.tables import RunTables


def sections(run: RunTables) -> list[Element]:
    """Those for which the run has a table."""
    return []
