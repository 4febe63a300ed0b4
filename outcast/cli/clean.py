"""`outcast clean`: removes what a crashed run left, and only what a run of ours made."""

from __future__ import annotations

import click

from outcast import ledger
from outcast.cli import terminal


@click.command("clean")
def command() -> None:
    """Remove what a crashed or killed run left behind, and nothing else."""
    done = ledger.clean(ledger.default_folder())
    for line in done:
        terminal.echo(line)
    if not done:
        terminal.echo("nothing was left behind")
