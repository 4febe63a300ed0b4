"""`outcast inspect`: packet by packet, what came in, whether it left, and what it found."""

from __future__ import annotations

from pathlib import Path

import click

from outcast.cli import shared, terminal
from outcast.errors import ConfigError
from outcast.units import parse_time_ns


@click.command("inspect")
@click.argument("source", type=click.Path(path_type=Path), metavar="DIR|FILE")
@click.option("--port", metavar="PORT", help="Only packets that came in or went out by it.")
@click.option("--flow", metavar="FLOW", help="Only this flow: its number, or source ADDRESS:PORT.")
@click.option(
    "--around",
    metavar="TIME",
    help="Only what came in around this time: 0.0012 or 1.2ms; seconds where no unit is given.",
)
@click.option(
    "--within", metavar="TIME", help="How far around --around, either way [default: 1ms]."
)
@click.option(
    "--verdict",
    type=shared.Choice(["forwarded", "dropped", "unknown"]),
    help="Only packets of this fate.",
)
@click.option("--queue", "with_queue", is_flag=True, help="Show what each packet found queued.")
@click.option(
    "--packet",
    type=int,
    metavar="NUMBER",
    help="Show all header fields of one packet of a run; --format csv and json number them.",
)
@click.option(
    "--png",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw the queue around --around instead; of a run only.",
)
@click.option(
    "--links",
    "with_links",
    is_flag=True,
    help="Show what every link of a run carried, and the flows planned to cross it, instead.",
)
@shared.form
def command(
    source: Path,
    port: str | None,
    flow: str | None,
    around: str | None,
    within: str | None,
    verdict: str | None,
    with_queue: bool,
    packet: int | None,
    png: Path | None,
    with_links: bool,
    form: str,
) -> None:
    """Show the packets of a run (DIR) or of a joined table (FILE) in the order they came in.

    Times are in milliseconds after the traffic's start or, for a table, after the first packet.
    """
    from outcast.analysis import store
    from outcast.view.terminal import listing

    if with_links:
        _show_links(source, form)
        return
    if within is not None and around is None:
        raise ConfigError("--within: only together with --around")
    around_ns = None if around is None else _around_ns(around)
    try:
        within_ns = parse_time_ns(within or "1ms")
    except ValueError as error:
        raise ConfigError(f"--within: {error}") from None
    if packet is not None:
        if not source.is_dir():
            raise ConfigError("--packet: needs a run's folder, where the captures are")
        with store.refusing(f"{source}: packet {packet} cannot be read"):
            text = listing.detail(source, packet)
        terminal.echo(text)
        return
    if png is not None:
        if around_ns is None or not source.is_dir():
            raise ConfigError("--png: needs a run's folder and --around")
        from outcast.records.run_directory import RunDirectory
        from outcast.view import figures

        listing.require_time(source, around_ns, within_ns)
        figures.draw_queue(RunDirectory(source), around_ns, within_ns, png)
        return
    wanted = listing.Filter(
        port=port,
        flow=flow,
        around_ns=around_ns,
        within_ns=within_ns,
        verdict=verdict,
    )
    for line in listing.lines(source, wanted, with_queue, form, shared.note):
        terminal.echo(line)


def _around_ns(text: str) -> int:
    """A time of the run: a number of seconds, or with a unit; before the start with a minus."""
    try:
        seconds = float(text)
    except ValueError:
        bare = text.strip()
        sign = -1 if bare.startswith("-") else 1
        try:
            return sign * parse_time_ns(bare.removeprefix("-"))
        except ValueError as error:
            raise ConfigError(f"--around: {error}, or in seconds, as 0.002") from None
    # Not a number is not below anything.
    if not abs(seconds) < 1e9:
        raise ConfigError(f"--around {seconds:g}: allowed is a time of the run")
    return round(seconds * 1e9)


def _show_links(source: Path, form: str) -> None:
    from outcast.analysis.measure import links
    from outcast.records.run_directory import RunDirectory
    from outcast.view.terminal.tables import reading

    if not source.is_dir():
        raise ConfigError("--links: needs a run's folder, where the counters are")
    if form == "table":
        with reading(RunDirectory(source)):
            terminal.console().print(links.render(RunDirectory(source)))
        return
    for line in links.lines(RunDirectory(source), form):
        terminal.echo(line)
