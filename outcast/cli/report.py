"""`outcast report`: the run as one page."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("report")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
def command(directory: Path) -> None:
    """Write report.html of the analysed run in DIR: one page that opens offline in any browser."""
    from outcast import report
    from outcast.run import RunDirectory

    click.echo(str(report.write(RunDirectory(directory))))
