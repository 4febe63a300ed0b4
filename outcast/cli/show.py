"""Verbs on what a run or a sweep has: `analyze`, `show`, `report`, `figure` and `export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from outcast import files, uses
from outcast.cli import shared, terminal
from outcast.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@shared.verb("analyze", "outcast analyze results/fig3c")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
def analyze(directory: Path) -> None:
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


@shared.verb("show", "outcast show results/fig3c", "outcast show results/fig3c --flows --ports")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@shared.flag("--flows", "Every flow and group, streams, workloads, programs and probes.")
@shared.flag("--ports", "Input ports, queues and classes of service.")
@shared.flag("--losses", "What every port of the network lost.")
@shared.flag("--limits", "What kept each flow from sending more.")
@shared.flag("--all", "All of these tables.")
def show(directory: Path, **flags: bool) -> None:
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


@shared.verb("report", "outcast report results/fig3c")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
def report(directory: Path) -> None:
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


@shared.verb(
    "figure",
    "outcast figure results/fig3c goodput -o goodput.pdf",
    "outcast figure results/limits line --by queue.limit --format svg",
    "outcast figure results/fig3c",
)
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.argument("name", required=False)
@shared.option(
    "--format",
    "The file's format [default: the ending of -o, or png].",
    "form",
    type=shared.Choice(["png", "svg", "pdf"]),
)
@shared.option("--dpi N", "Pixels per inch of a PNG.", type=click.IntRange(20, 2400))
@shared.option("--value NAME", "Of a sweep: the column to draw.")
@shared.by
@shared.over
@shared.where
@shared.output(
    "FILE", "The figure's file: .png, .svg or .pdf [default: NAME.FORMAT in the current folder]."
)
def figure(
    directory: Path,
    name: str | None,
    form: str | None,
    dpi: int | None,
    value: str | None,
    by: tuple[str, ...],
    over: tuple[str, ...],
    conditions: tuple[str, ...],
    output: Path | None,
) -> None:
    """Draw the figure NAME of the run or sweep in DIR again, as PNG, SVG or PDF.

    Without NAME, list the figures that there are. --value, --by, --over and --where are of sweeps.
    """
    from outcast.records.run import Run
    from outcast.sweep import figures as draw
    from outcast.sweep.store import SweepDirectory
    from outcast.view import figures

    is_sweep = SweepDirectory(directory).config.exists()
    if name is None:
        _list(directory, is_sweep)
        return
    if not is_sweep and (value is not None or by or over or conditions):
        raise ConfigError(
            f"--value, --by, --over, --where: {directory} is no sweep; allowed for a sweep"
        )
    path = _path(output, form, name)
    if is_sweep:
        drawn = draw.figure(directory, name, draw.Choice(value, by, conditions, over=over))
    else:
        drawn = figures.figure(Run(directory), name)
    save(drawn, path, dpi)


def _list(directory: Path, is_sweep: bool) -> None:
    from outcast.sweep import figures as draw
    from outcast.view import figures

    figures_of = draw.FIGURES if is_sweep else figures.described()
    width = max(map(len, figures_of))
    all_drawn = not is_sweep and all(any(directory.glob(kind)) for kind in ("*.html", "*.png"))
    for name, text in figures_of.items():
        had = not all_drawn or name in figures.ON_REQUEST or (directory / f"{name}.png").exists()
        terminal.echo(f"{name:{width}}  {text}{'' if had else ' (this run has none)'}")


def _path(output: Path | None, form: str | None, name: str) -> Path:
    """The figure's file. Raises ConfigError if the file's ending and the format differ."""
    if output is None:
        return Path(f"{name}.{form or 'png'}")
    if form is not None and output.suffix.lower() != f".{form}":
        raise ConfigError(f"-o {output}: does not end in .{form}, as --format {form} asks")
    return output


def save(drawn: Figure, path: Path, dpi: int | None = None) -> None:
    """Writes a figure to the file of -o, and prints its path."""
    from outcast.view.figures import style

    try:
        style.save(drawn, path, dpi)
    except (OSError, ValueError) as error:
        why = files.describe(error) if isinstance(error, OSError) else f"{path}: {error}"
        raise ConfigError(f"-o {why}") from None
    terminal.echo_path(path)


@shared.verb("export", "outcast export results/fig3c --pcapng fig3c.pcapng")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@shared.path("--pcapng FILE", "The .pcapng file to write.", required=True)
def export(directory: Path, pcapng: Path) -> None:
    """Write the captured packets of all ports of a run, or of joined captures, for Wireshark.

    Each packet has its verdict as a comment.
    """
    from outcast.api import captures

    terminal.echo_path(pcapng, f": {captures.export(directory, pcapng):,} packets")
