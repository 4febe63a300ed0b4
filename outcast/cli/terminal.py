"""Printing for all verbs. Text from others' files cannot move the cursor, recolour or hide text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from outcast.view.terminal.console import printable

if TYPE_CHECKING:
    from rich.console import Console

_LONGEST_LINE = 4000


def echo(text: str, err: bool = False, nl: bool = True) -> None:
    """Prints a text, escaped by `printable`."""
    click.echo(printable(text), err=err, nl=nl)


def echo_lines(lines: Iterable[str]) -> None:
    for line in lines:
        echo(line)


def tell(text: str) -> None:
    """Prints a notice or an error on standard error, as one line of bounded length."""
    line = " ".join(text.split())
    echo(line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}...", err=True)


def echo_path(path: Path, remark: str = "") -> None:
    """Prints the path of a file and a remark after it, in one line."""
    echo(re.sub(r"[\n\t]", lambda match: repr(match[0])[1:-1], str(path)) + remark)


def console(stderr: bool = False) -> Console:
    """A console for tables. Markup is off, so `[red]` in a name is a part of the name."""
    from outcast.view.terminal.console import PlainConsole

    return PlainConsole(stderr=stderr)
