"""`outcast why`: what a flow waited for, and why segments were sent again and packets dropped."""

from pathlib import Path

import click

from outcast.cli import selecting, shared, terminal
from outcast.errors import ConfigError


@shared.verb(
    "why",
    "outcast why results/fig3c",
    "outcast why results/fig3c --flow 0",
    "outcast why results/fig3c --flow 0 --at 123.4ms",
)
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@shared.option("--flow F", "Only this flow, by its number.", type=int)
@shared.option("--at TIME", "What the flow waited for at this time, as 123.4ms.", "at")
@shared.form
def command(directory: Path, flow: int | None, at: str | None, form: str) -> None:
    """Say why, by the kernel's own events of a run (DIR).

    Without options: why segments were sent again, and whether this agrees with the kernel's
    counters. With --flow: from each drop to its repair. With --flow and --at: what the flow waited
    for then. `outcast trace DIR` records the events of a run that ended.
    """
    from outcast.records.run import Run
    from outcast.view.terminal import why

    run = Run(directory)
    if at is None:
        overview = why.overview(run, form) if flow is None else why.chains(run, flow, form)
        terminal.echo_lines(overview)
        return
    if flow is None:
        raise ConfigError("--at: only together with --flow")
    if form == "csv":
        raise ConfigError("--at: not as csv; allowed are table and json")
    terminal.echo_lines(why.at(run, flow, selecting.instant_ns(at, "--at"), form))
