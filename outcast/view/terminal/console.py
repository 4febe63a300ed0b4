"""Consoles and moving lines for text from files that others wrote."""

import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment


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
        """Replaces the text."""
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
