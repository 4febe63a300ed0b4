"""The manual page outcast(1), made from the command line's own help.

`python scripts/manual.py FILE` writes it; scripts/install.sh and scripts/docs.sh call it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from outcast import __version__, cli

_EXIT_STATUS = {
    0: "Done.",
    1: "The run failed.",
    2: "Bad usage or configuration; one line says where, what is wrong and what is allowed.",
    3: "The machine lacks a feature, which is named.",
    4: "The run finished, but its captures and counters do not agree.",
}
_FILES = {
    "results/": "Runs and sweeps, unless -o names another place.",
    "$XDG_CACHE_HOME/outcast/kernels/": "The kernels of the virtual engine that this user built.",
}


def commands(
    group: click.Group, ctx: click.Context | None = None
) -> Iterator[tuple[click.Context, click.Command]]:
    """Yields every command at or below a group that can be called, in the group's order.

    Yields:
        The command's context, whose `command_path` is what a user types, and the command.
    """
    ctx = ctx or click.Context(group, info_name="outcast", **group.context_settings)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if command is None or command.hidden:
            continue
        inner = click.Context(command, info_name=name, parent=ctx)
        if isinstance(command, click.Group):
            yield from commands(command, inner)
        else:
            yield inner, command


def page(root: click.Group = cli.whole) -> str:
    """Returns the manual page in the markup of man(7)."""
    lines = [
        f'.TH OUTCAST 1 "" "outcast {__version__}" "User Commands"',
        ".SH NAME",
        f"outcast \\- {_text(root.help or '').rstrip('.')}",
        ".SH SYNOPSIS",
        ".B outcast",
        _text("VERB [OPTIONS] [ARGUMENTS]"),
        ".SH VERBS",
    ]
    for ctx, command in commands(root):
        lines += _command(ctx, command)
    lines.append(".SH EXIT STATUS")
    for status, meaning in _EXIT_STATUS.items():
        lines += _item(str(status), meaning)
    lines.append(".SH FILES")
    for path, meaning in _FILES.items():
        lines += _item(path, meaning)
    lines += [".SH SEE ALSO", ".BR tc (8),", ".BR tcpdump (8),", ".BR mn (1),", ".BR iperf (1)"]
    return "\n".join(lines) + "\n"


def _command(ctx: click.Context, command: click.Command) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(ctx))
    yield f".SS {_text(f'{ctx.command_path} {usage}')}"
    for number, paragraph in enumerate((command.help or "").split("\n\n")):
        yield from [".PP"] * (number > 0)
        yield from _paragraph(paragraph)
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        # An argument has no help of its own; the command's usage names it.
        if record is not None and record[1]:
            yield from _item(record[0], record[1])
    if command.epilog:
        yield ".PP"
        yield from _paragraph(command.epilog)


def _paragraph(text: str) -> Iterator[str]:
    """A paragraph of help. As in click, its lines are kept if it begins with a backspace."""
    kept = text.lstrip().startswith("\b")
    yield from [".nf"] * kept
    for line in text.replace("\b", "").strip().splitlines():
        yield _text(line.strip())
    yield from [".fi"] * kept


def _item(term: str, meaning: str) -> Iterator[str]:
    yield ".TP"
    yield f"\\fB{_text(term)}\\fR"
    yield _text(" ".join(meaning.split()))


def _text(text: str) -> str:
    """Escapes text for roff, so that hyphens stay hyphens and no line is taken for a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def main(argv: list[str]) -> None:
    """Writes the page to the named file."""
    (name,) = argv
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(page())
    unfinished.replace(path)


if __name__ == "__main__":
    main(sys.argv[1:])
