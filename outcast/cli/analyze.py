"""`outcast analyze`: repeats everything that follows the captures."""

from __future__ import annotations

from pathlib import Path

import click

from outcast.cli import shared, terminal


@click.command("analyze", epilog=shared.examples("outcast analyze results/fig3c"))
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
def command(directory: Path) -> None:
    """Analyse the run in DIR again: tables, summary, figures and report.

    Exit status 4 if its captures and counters contradict each other.
    """
    from outcast import analysis
    from outcast.records.run_directory import RunDirectory
    from outcast.view import figures, report
    from outcast.view.terminal import tables

    run = RunDirectory(directory)
    summary = analysis.analyze(run)
    drawn = [*figures.draw(run), report.write(run)]
    console = terminal.console()
    console.print(tables.render(run))
    shared.print_drawn(drawn)
    analysis.require_trusted(summary)
