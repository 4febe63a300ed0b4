"""`outcast root`: what `outcast guest` does, for the guest's root alone."""

from __future__ import annotations

from typing import Any

import click

from outcast.cli import guest, shared, terminal


@click.group("root", hidden=True, epilog=shared.examples("outcast root build"))
def command() -> None:
    """Make or show what the virtual engine's guest sees as its `/`. It is made once."""


@command.command(
    "build",
    epilog=shared.examples(
        "outcast root build",
        "outcast root build --mirror http://mirror.example.org/debian",
        "outcast root build --packages FOLDER",
    ),
)
@guest.from_where
@guest.again
def build(**options: Any) -> None:
    """Fetch and unpack the packages of the lock; no root needed.

    Besides the guest's root there is one with a compiler, for the kernel and our programs.
    """
    guest.build_roots(**options)


@command.command("share", epilog=shared.examples("outcast root share"))
def share() -> None:
    """Unpack the wheel outcast-guest once for all users of this Python.

    Each user's cache then has links to it instead of copies of 230 MB.
    """
    from outcast.engines import shipped

    for folder in shipped.share():
        terminal.echo(str(folder))


@command.command("info", epilog=shared.examples("outcast root info", "outcast root info --verify"))
@click.option("--packages", "listed", is_flag=True, help="List its packages with their versions.")
@click.option("--verify", is_flag=True, help="Hash every file and compare it with the root's list.")
def info(listed: bool, verify: bool) -> None:
    """Show the root that guests boot from, and the one with the compiler."""
    guest.show_roots(listed=listed, verify=verify)
