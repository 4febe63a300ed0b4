"""`outcast report`: one page about a run, a sweep or a reproduction."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from outcast.cli import shared, terminal

if TYPE_CHECKING:
    from outcast.sweep.store import SweepDirectory


@click.command("report", epilog=shared.examples("outcast report results/fig3c"))
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
def command(directory: Path) -> None:
    """Write report.html for the analysed run in DIR: one page that opens offline in any browser.

    If DIR holds a sweep, write the reports that its runs lack, and index.html about all of them.
    If DIR holds a reproduction, write its index.html.
    """
    from outcast.records.run_directory import RunDirectory
    from outcast.sweep.store import SweepDirectory
    from outcast.view import report

    sweep = SweepDirectory(directory)
    if sweep.config.exists():
        path = _write_sweep(sweep)
    elif any(directory.glob("*/result.json")):
        path = _write_reproduction(directory)
    else:
        path = report.write(RunDirectory(directory))
    terminal.echo_path(path)


def _write_sweep(sweep: SweepDirectory) -> Path:
    from outcast.sweep import index

    names = index.without_report(sweep)
    with click.progressbar(
        length=len(names), label="reports", file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:
        refused = index.write_reports(sweep, names, lambda name: bar.update(1))
    for name, reason in refused.items():
        terminal.tell(f"no report of {name}: {reason}")
    return index.write_index(sweep, refused)


def _write_reproduction(directory: Path) -> Path:
    from outcast.reproduce import index, recipe, reproduce

    recipes = list(recipe.load_all().values())
    return index.write_index(directory, reproduce.stored(directory, recipes))
