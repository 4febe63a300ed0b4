"""Consoles and moving lines for text from files that others wrote."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment


class PlainConsole(Console):
    """A console that passes every text through `printable`. Only styles can set colours.

    Markup is off, because `[red]` in a name is a part of the name.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, highlight=False)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


class NotebookLine:
    """One line of a notebook's output whose text changes.

    Rich's own moving lines need ipywidgets in a notebook. This one needs only IPython, which every
    notebook has, because its kernel is built on it.
    """

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
    return _NOT_ASCII.sub(
        lambda match: (
            match[0]
            if match[0].isprintable()
            else match[0].encode("unicode_escape").decode("ascii")
        ),
        text,
    )
