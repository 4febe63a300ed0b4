"""What verbs print: text from files of others cannot move the cursor, recolour or hide anything."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

_LONGEST_LINE = 4000
_NOT_ASCII = re.compile(r"[^\n\t\x20-\x7e]")


def printable(text: str) -> str:
    r"""The text with whatever a terminal would act on, or not show, as Python writes it: `\x1b`.

    That is control characters, marks of direction and the bytes of a name that is no UTF-8.
    """
    return _NOT_ASCII.sub(
        lambda found: (
            found[0]
            if found[0].isprintable()
            else found[0].encode("unicode_escape").decode("ascii")
        ),
        text,
    )


def echo(text: str, err: bool = False, nl: bool = True) -> None:
    """Prints a text."""
    click.echo(printable(text), err=err, nl=nl)


def tell(text: str) -> None:
    """Prints a notice or an error, in one line, to standard error."""
    line = " ".join(text.split())
    echo(line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}...", err=True)


def echo_path(path: Path, remark: str = "") -> None:
    """Prints the path of one file, and a remark after it, in one line."""
    echo(re.sub(r"[\n\t]", lambda found: repr(found[0])[1:-1], str(path)) + remark)


def console(stderr: bool = False) -> Console:
    """A terminal for tables; `[red]` in a name is a part of the name."""
    from outcast.cli.plain_console import PlainConsole

    return PlainConsole(stderr=stderr, markup=False, highlight=False)
