"""`outcast clean`: removes what a crashed run left, and only what a run of ours made."""

from __future__ import annotations

import click

from outcast import ledger


@click.command("clean")
def command() -> None:
    """Remove what a crashed or killed run left behind, and nothing else."""
    done = ledger.clean(ledger.default_folder())
    for line in done:
        click.echo(line)
    if not done:
        click.echo("nothing was left behind")
