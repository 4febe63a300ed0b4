"""`outcast report`: a run, a sweep or a reproduction as one page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from outcast.cli import terminal

if TYPE_CHECKING:
    from outcast.sweep.store import SweepDirectory


@click.command("report")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
def command(directory: Path) -> None:
    """Write report.html of the analysed run in DIR: one page that opens offline in any browser.

    Where DIR is a sweep's folder, write the report of every run that has none, and index.html over
    all of them; where it is a reproduction's, index.html.
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
    return index.write(sweep, refused)


def _write_reproduction(directory: Path) -> Path:
    from outcast.reproduce import index, recipe, reproduce

    recipes = list(recipe.load_all().values())
    return index.write_index(directory, reproduce.stored(directory, recipes))
