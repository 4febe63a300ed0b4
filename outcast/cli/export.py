"""`outcast export`: the packets of a run for Wireshark."""

from __future__ import annotations

from pathlib import Path

import click

from outcast.cli import shared, terminal


@shared.verb("export", "outcast export results/fig3c --pcapng fig3c.pcapng")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@shared.path("--pcapng FILE", "The .pcapng file to write.", required=True)
def command(directory: Path, pcapng: Path) -> None:
    """Write the captured packets of all ports of a run, or of joined captures, for Wireshark.

    Each packet has its verdict as a comment.
    """
    from outcast.api.captures import export

    terminal.echo_path(pcapng, f": {export(directory, pcapng):,} packets")
