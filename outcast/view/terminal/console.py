"""Consoles that escape the text of strangers, and a run's progress on one moving line."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from outcast.units import format_bps

if TYPE_CHECKING:
    from rich.status import Status


class PlainConsole(Console):
    """A console without markup whose texts pass through `printable`. Only styles set colours."""

    def __init__(self, *, stderr: bool = False, quiet: bool = False) -> None:
        super().__init__(stderr=stderr, quiet=quiet, markup=False, highlight=False)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


class NotebookLine:
    """One line of a notebook's output whose text changes. Unlike rich's, it needs only IPython."""

    def __init__(self) -> None:
        self._handle: Any = None

    def update(self, text: str) -> None:
        content = {"text/plain": printable(text)}
        if self._handle is None:
            from IPython.display import display

            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


_NOT_ASCII = re.compile(r"[^\n\t\x20-\x7e]")


def printable(text: str) -> str:
    r"""Escapes characters that a terminal would act on or not show. It writes them as `\x1b`.

    These are control characters, direction marks, and the bytes of a name that is not UTF-8.
    """

    def escaped(match: re.Match[str]) -> str:
        found = match[0]
        return found if found.isprintable() else found.encode("unicode_escape").decode("ascii")

    return _NOT_ASCII.sub(escaped, text)


PHASES = {
    "setup": "building the network",
    "verify": "verifying tables and paths",
    "capture_start": "starting captures",
    "connect": "connecting flows",
    "traffic": "flows are running",
    "capture_end": "ending captures",
    "analysis": "joining the captures",
    "figures": "drawing, and writing the report",
}

MOST_GROUPS = 6
"""The most groups in the line that shows goodput during a run."""


class Progress:
    """Shows a run's events: on one line that changes, or in a file on a line each."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._notebook: NotebookLine | None = None
        self._began = time.monotonic()
        self._phase = ""

    def __enter__(self) -> Progress:
        if self._console.is_jupyter:
            self._notebook = NotebookLine()
        elif self._console.is_terminal:
            self._status = self._console.status("starting")
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if self._status is not None:
            self._status.stop()
        elif self._notebook is not None:
            how = "done" if kind is None else "stopped"
            self._notebook.update(f"{how} after {time.monotonic() - self._began:.1f} s")

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Takes the moving line away, so that others can print."""
        if self._status is not None:
            self._status.stop()
        try:
            yield
        finally:
            if self._status is not None:
                self._status.start()

    def __call__(self, event: Mapping[str, Any]) -> None:
        match event.get("event"):
            case "phase":
                self._phase = PHASES.get(str(event["phase"]), str(event["phase"]))
                self._show(self._phase)
            case "note":
                self._console.print(f"note: {event['text']}", highlight=False)
            # At the end of a run no flow may be left that has a number.
            case "goodput" if event.get("groups") or event["classes"]:
                self._show(f"{self._phase}: {describe_goodput(event)}")

    def _show(self, text: str) -> None:
        if (line := self._status or self._notebook) is not None:
            line.update(text)
        else:
            self._console.print(f"{time.monotonic() - self._began:6.1f} s  {text}", highlight=False)


def describe_goodput(event: Mapping[str, Any]) -> str:
    """The goodput of each group: `1.5 s: 2-hop 4.10 Mbps, 6-hop 7.70 Mbps a flow`.

    It counts bytes in order. A packet that fills a gap brings all bytes that had come after the
    gap, so the rate can be zero for a while, and then exceed the link's.
    """
    groups: Mapping[str, float] = event.get("groups") or {
        f"{hops}-hop": rate_bps for hops, rate_bps in event["classes"].items()
    }
    words = [f"{label} {format_bps(rate_bps)}" for label, rate_bps in groups.items()]
    if len(words) > MOST_GROUPS:
        words = [*words[:MOST_GROUPS], "..."]
    t_s = event["t_s"]
    when = f"{t_s:.1f}" if t_s >= 1 else f"{t_s:.3f}"
    waits = "" if all(groups.values()) else " (bytes behind a lost packet count once it has come)"
    return f"{when} s: {', '.join(words)} a flow, in order{waits}"
