"""`outcast show`: the result of a run again, and its tables."""

from pathlib import Path

import click

from outcast.cli import shared, terminal


@shared.verb("show", "outcast show results/fig3c", "outcast show results/fig3c --flows --ports")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@shared.flag("--flows", "Every flow and group, streams, workloads, programs and probes.")
@shared.flag("--ports", "Input ports, queues and classes of service.")
@shared.flag("--losses", "What every port of the network lost.")
@shared.flag("--limits", "What kept each flow from sending more.")
@shared.flag("--all", "All of these tables.")
def command(directory: Path, **flags: bool) -> None:
    """Show the result of the run in DIR, with its warnings in whole, or tables of it.

    DIR may also hold joined captures, as `outcast join -o DIR` writes them.
    """
    from outcast.records.run import Run
    from outcast.view.terminal import tables

    run, console = Run(directory), terminal.console()
    wanted = [name for name in tables.TABLES if flags[name]]
    with run.reading():
        if flags["all"]:
            console.print(tables.everything(run))
        elif wanted:
            console.print(tables.rest(run, wanted))
        else:
            console.print(tables.screen(run, alone=False), "", tables.sentences(run), sep="\n")
