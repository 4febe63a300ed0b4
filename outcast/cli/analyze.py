"""`outcast analyze`: repeats everything that follows the captures."""

from pathlib import Path

import click

from outcast.cli import shared, terminal


@shared.verb("analyze", "outcast analyze results/fig3c")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
def command(directory: Path) -> None:
    """Analyse the run in DIR again: tables, summary, figures and report.

    Exit status 4 if its captures and counters contradict each other.
    """
    from outcast import analysis
    from outcast.api import runs
    from outcast.view.terminal import tables

    run = runs.analyze(directory)
    terminal.console().print(tables.screen(run))
    shared.print_drawn(run.path)
    analysis.require_agreement(run.summary)
