"""`outcast report`: one page about a run, a sweep or a reproduction."""

from pathlib import Path

import click

from outcast import uses
from outcast.cli import shared, terminal
from outcast.errors import ConfigError


@shared.verb("report", "outcast report results/fig3c")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
def command(directory: Path) -> None:
    """Write report.html for the analysed run in DIR: one page that opens offline in any browser.

    DIR may also hold joined captures, as `outcast join -o DIR` writes them.

    If DIR holds a sweep, write the reports that its runs lack; `outcast results` has its means.
    If DIR holds a reproduction, write its index.html.
    """
    from outcast.api.runs import Run
    from outcast.api.sweeps import Sweep
    from outcast.sweep.store import SweepDirectory

    if directory.is_file():
        raise ConfigError(
            f"{directory}: is a file; a report needs the captures: `outcast join ... -o DIR` makes "
            "a folder of them with a report, and `outcast inspect` prints a table of packets"
        )
    if SweepDirectory(directory).config.exists():
        Sweep(directory).write_reports(progress=True)
        path = directory / "runs"
    elif places := [of for names, of in uses.INDEXES.items() if any(directory.glob(names))]:
        path = uses.find(places[0])(directory)
    else:
        path = Run(directory).write_report()
    terminal.echo_path(path)
