"""`outcast inspect`: packet by packet, what came in, whether it left, and the queue it met."""

from __future__ import annotations

from pathlib import Path

import click

from outcast.cli import shared, terminal
from outcast.errors import ConfigError
from outcast.units import parse_time_ns


@click.command(
    "inspect",
    epilog=shared.examples(
        "outcast inspect results/fig3c --around 120ms --queue",
        "outcast inspect results/fig3c --flow 0 --verdict dropped --format csv",
    ),
)
@click.argument("source", type=click.Path(path_type=Path), metavar="DIR|FILE")
@click.option("--port", metavar="PORT", help="Only packets that came in or left by this port.")
@click.option("--flow", metavar="FLOW", help="Only this flow: its number, or source ADDRESS:PORT.")
@click.option(
    "--around",
    metavar="TIME",
    help="Only packets that came in around this time: 1.2ms, or 0.0012 in seconds.",
)
@click.option("--within", metavar="TIME", help="How far before and after --around [default: 1ms].")
@click.option(
    "--verdict",
    type=shared.Choice(["forwarded", "dropped", "unknown"]),
    help="Only packets with this verdict.",
)
@click.option(
    "--queue", "with_queue", is_flag=True, help="Show the queue that each packet met on arrival."
)
@click.option(
    "--packet",
    type=int,
    metavar="NUMBER",
    help="Show all header fields of one packet of a run; --format csv gives the numbers.",
)
@click.option(
    "--png",
    type=shared.PngPath(),
    metavar="FILE",
    help="Draw the queue around --around instead, for a run only.",
)
@click.option(
    "--links",
    "with_links",
    is_flag=True,
    help="Show instead what every link of a run carried, and the flows planned to cross it.",
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
    """Show the packets of a run (DIR) or of a joined table (FILE), in the order of arrival.

    Times are milliseconds after the start of the traffic or, in a table, after the first packet.
    """
    from outcast.records.tables import refusing
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
        with refusing(f"{source}: packet {packet} cannot be read"):
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
        terminal.echo_path(png)
        return
    chosen = listing.Filter(
        port=port,
        flow=flow,
        around_ns=around_ns,
        within_ns=within_ns,
        verdict=verdict,
    )
    for line in listing.lines(source, chosen, with_queue, form, shared.note):
        terminal.echo(line)


def _around_ns(text: str) -> int:
    """Parses a time of the run: seconds, or a number with a unit; negative before the start."""
    try:
        seconds = float(text)
    except ValueError:
        bare = text.strip()
        sign = -1 if bare.startswith("-") else 1
        try:
            return sign * parse_time_ns(bare.removeprefix("-"))
        except ValueError as error:
            raise ConfigError(f"--around: {error}, or in seconds, as 0.002") from None
    # Written with `not` because every comparison with NaN is false.
    if not abs(seconds) < 1e9:
        raise ConfigError(f"--around {seconds:g}: allowed is a time of the run")
    return round(seconds * 1e9)


def _show_links(source: Path, form: str) -> None:
    from outcast.analysis.measure import links
    from outcast.records.run import Run

    if not source.is_dir():
        raise ConfigError("--links: needs a run's folder, where the counters are")
    if form == "table":
        run = Run(source)
        with run.reading():
            terminal.console().print(links.render(run.table("links")))
        return
    for line in links.lines(Run(source).table("links"), form):
        terminal.echo(line)
