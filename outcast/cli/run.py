"""`outcast run`: one experiment, from its configuration to its figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from outcast.cli import shared, terminal
from outcast.errors import UntrustedError

if TYPE_CHECKING:
    from outcast.records.run_directory import RunDirectory


@shared.verb(
    "run",
    "outcast run configs/fig3c.yaml -o results/fig3c",
    "outcast run configs/fig3c.yaml --set queue.limit=64KB --set seed=2",
)
@click.argument("config", type=click.Path(path_type=Path))
@shared.engine
@shared.overrides
@shared.output("DIR", "The run directory [default: results/NAME-DATE-TIME].")
def command(
    config: Path,
    engine: str | None,
    overrides: tuple[str, ...],
    output: Path | None,
) -> None:
    """Run the experiment that CONFIG describes.

    Builds the network, verifies its settings, captures the traffic, analyses and draws it.

    Exit status 4 if the captures and counters contradict each other.
    """
    from outcast.api import making

    shared.end_as_interrupted()
    chosen = shared.chosen(config, engine, overrides)
    path = making.make(chosen, output, progress=True, on_analysed=_show)
    # Only now, because the run imports most of this while its guest is busy.
    from outcast.api.runs import Run

    run = Run(path)
    shared.print_drawn(path)
    if not run.trusted:
        raise UntrustedError(
            f"{run.path}: captures and counters do not agree: {'; '.join(run.reasons)}"
        )


def _show(directory: RunDirectory) -> None:
    """Prints the result, before its figures are drawn."""
    from outcast.records.run import Run
    from outcast.view.terminal import tables

    terminal.console().print(tables.screen(Run(directory), notes_shown=True))
