"""`outcast figure`: a figure of a run or a sweep, as PNG, SVG or PDF."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from outcast import files
from outcast.cli import shared, terminal
from outcast.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
def command(
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


def save(figure: Figure, path: Path, dpi: int | None = None) -> None:
    """Writes a figure to the file of -o, and prints its path."""
    from outcast.view.figures import style

    try:
        style.save(figure, path, dpi)
    except (OSError, ValueError) as error:
        why = files.describe(error) if isinstance(error, OSError) else f"{path}: {error}"
        raise ConfigError(f"-o {why}") from None
    terminal.echo_path(path)
