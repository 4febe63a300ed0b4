"""The uses of outcast: programs that are built on the rooms of outcast.

A use imports public names, and no other use. pyproject.toml lists the exceptions, all in `papers`.
The rooms import no use. They find in these tables what a use adds, and load it when needed.
"""

from __future__ import annotations

TYPE_CHECKING = False  # See outcast/__init__.py.
if TYPE_CHECKING:
    from typing import Any

    from outcast.uses.comparison.pairs import Comparison, compare
    from outcast.uses.whatif.counterfactual import Counterfactual
    from outcast.uses.whatif.decision import fate, whatif_each
    from outcast.uses.why.recording import KernelTrace, trace

__all__ = [
    "Comparison",
    "Counterfactual",
    "KernelTrace",
    "compare",
    "fate",
    "find",
    "trace",
    "whatif_each",
]

VERBS = {
    "trace": "outcast.uses.why.trace:command",
    "reproduce": "outcast.uses.papers.reproduce:command",
    "whatif": "outcast.uses.whatif.whatif:command",
    "fate": "outcast.uses.whatif.fate:command",
    "why": "outcast.uses.why.why:command",
    "compare": "outcast.uses.comparison.compare:command",
    "assignment": "outcast.uses.classroom.assignment:command",
}
"""Verbs of the command line."""
MEMBERS = {
    "Comparison": "outcast.uses.comparison.pairs:Comparison",
    "Counterfactual": "outcast.uses.whatif.counterfactual:Counterfactual",
    "KernelTrace": "outcast.uses.why.recording:KernelTrace",
    "Run.whatif": "outcast.uses.whatif.counterfactual:of_run",
    "compare": "outcast.uses.comparison.pairs:compare",
    "fate": "outcast.uses.whatif.decision:fate",
    "trace": "outcast.uses.why.recording:trace",
    "whatif_each": "outcast.uses.whatif.decision:whatif_each",
}
"""Members of `outcast`."""
FIGURES = {
    "whatif": "outcast.uses.whatif.drawings:what_if",
    "fate": "outcast.uses.whatif.drawings:probability_over_time",
}
"""Figures of a run: functions as in `outcast.view.figures.FIGURES`."""
SECTIONS = ("outcast.uses.whatif.section:section",)
"""Sections of a run's report: functions that take a `Run` and return HTML, which may be empty."""
TEXTS = {"why.txt": "outcast.uses.why.overview:text"}
"""Texts that explain a run of the virtual engine, by the end of the file's name."""
TRACE_TABLES = "outcast.uses.why.senders:write"
"""Makes the tables of the folder trace/ of an analysed run that has one."""
LANES = "outcast.uses.why.lanes:of_run"
"""Reads the lanes of the report's viewer from trace/: a `Lanes` of `outcast.view`, or None."""
INDEXES = {
    "*/result.json": "outcast.uses.papers.index:write_again",
    "*/noise/*/result.json": "outcast.uses.papers.index:write_again",
}
"""Functions that write the page of a folder, by the files that such a folder has."""


def __getattr__(name: str) -> Any:
    if name not in MEMBERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return find(MEMBERS[name])


def find(place: str) -> Any:
    """Loads what stands in one of these tables."""
    import importlib

    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
