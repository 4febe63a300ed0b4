"""`outcast why`: why segments were sent again and packets dropped."""

from pathlib import Path

import click

from outcast import cli


@cli.verb(
    "why",
    "outcast why results/fig3c",
    "outcast why results/fig3c --flow 0",
)
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@cli.option("--flow F", "Only this flow, by its number.", type=int)
@cli.flag("--whole", "Of the whole run, in place of the interval that its numbers are of.", "whole")
@cli.form
def command(directory: Path, flow: int | None, whole: bool, form: str) -> None:
    """Say why, by the kernel's own events of a run (DIR).

    Without options: why segments were sent again, and whether this agrees with the kernel's
    counters. With --flow: from each drop to its repair. `outcast trace DIR` records the events of a
    run that ended.
    """
    from outcast.records import Run
    from outcast.uses.why import overview

    run = Run(directory)
    lines = (
        overview.overview(run, form, whole)
        if flow is None
        else overview.chains(run, flow, form, whole)
    )
    cli.echo_lines(lines)
