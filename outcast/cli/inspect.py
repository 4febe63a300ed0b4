"""`outcast inspect`: packet by packet, what came in, whether it left, and the queue it met."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from outcast.cli import selecting, shared, terminal
from outcast.errors import ConfigError

if TYPE_CHECKING:
    from outcast.analysis.selection import Selection


TABLES = (".parquet", ".csv")
"""How the name of a joined table ends; any other file is taken for a capture."""


@shared.verb(
    "inspect",
    "outcast inspect results/fig3c --around 120ms --queue",
    "outcast inspect results/fig3c --flow 0 --verdict dropped --format csv",
    "outcast inspect results/fig3c --blackouts --flow 0",
    "outcast inspect eth1.pcap",
)
@click.argument("source", type=click.Path(path_type=Path), metavar="DIR|FILE")
@selecting.selection
@shared.flag("--whole", "Also what is out of the interval that the run's numbers are of.", "whole")
@shared.flag("--queue", "Show the queue that each packet met on arrival.", "with_queue")
@shared.option(
    "--columns NAME,...",
    "The columns to show, as packet,t_in_ms,relative_seq,sojourn_us; a wrong name lists all.",
)
@shared.option(
    "--packet NUMBER",
    "Show all header fields of one packet; --format csv gives the numbers. Not of a joined table.",
    type=int,
)
@shared.option(
    "--png FILE",
    "Draw the queue instead, in the time that is selected; not of a joined table.",
    type=shared.PngPath(),
)
@shared.flag(
    "--links",
    "Show instead what every link of a run of outcast carried, and the flows planned to cross it.",
    "with_links",
)
@shared.flag(
    "--blackouts",
    "List instead the blackouts in which a packet that is selected was lost.",
    "with_blackouts",
)
@shared.form
def command(source: Path, selection: Selection, whole: bool, form: str, **options: Any) -> None:
    """Show the packets of a run, of joined captures (DIR) or of a joined table (FILE).

    FILE can also be one capture alone. Then its flows are shown: retransmissions and round trips,
    where one capture point can show them; --port names an interface of it.

    Rows are in the order of arrival. Times count from the start of the traffic in a run, from the
    first packet with payload in joined captures, and from the first packet in a table; without a
    unit they are in ms where shown, and in seconds where given.
    """
    from dataclasses import replace

    from outcast.analysis.selection import open_source
    from outcast.view.terminal import blackouts, listing

    selection = replace(selection, whole=whole)
    if not source.is_dir() and source.suffix not in TABLES:
        given = any(value not in (None, False) for value in options.values())
        _show_capture(source, selection, form, given)
        return
    packet, png = options["packet"], options["png"]
    if options["with_links"]:
        _show_links(source, form)
    elif options["with_blackouts"]:
        terminal.echo_lines(blackouts.lines(open_source(source), selection, form))
    elif packet is not None:
        _require_folder(source, "--packet", "captures")
        text = listing.detail(source, packet)
        terminal.echo(text)
    elif png is not None:
        _draw(source, selection, png)
    else:
        columns = options["columns"]
        fields = None if columns is None else [field.strip() for field in columns.split(",")]
        terminal.echo_lines(listing.lines(source, selection, options["with_queue"], form, fields))


def _require_folder(path: Path, option: str, what: str) -> None:
    if not path.is_dir():
        raise ConfigError(f"{option}: needs a run's folder, where the {what} are")


def _show_capture(path: Path, wanted: Selection, form: str, has_others: bool) -> None:
    from dataclasses import replace

    from outcast.analysis.captured import seen_flows as flows_of
    from outcast.view.terminal import joined

    if has_others or replace(wanted, port=None) != type(wanted)(margin_ns=wanted.margin_ns):
        raise ConfigError(
            f"{path}: is no joined table (.parquet, .csv), so its flows are shown; allowed are "
            "--port and --format"
        )
    capture = joined.read(path, wanted.port)
    flows, remarks = flows_of(capture)
    for text in [*capture.remarks, *remarks]:
        shared.note(text)
    terminal.echo_lines(joined.lines(flows, form))


def _draw(path: Path, wanted: Selection, png: Path) -> None:
    from outcast.analysis import selection
    from outcast.records.run_directory import RunDirectory
    from outcast.view import figures

    if not path.is_dir() or (wanted.span is None and wanted.blackout is None):
        raise ConfigError("--png: needs a run's folder, and --around, --between or --blackout")
    source = selection.open_source(path)
    if wanted.span is not None:
        selection.require_time(source, wanted.span)
    span = selection.span_of(source, wanted)
    assert span is not None
    middle_ns = (span[0] + span[1]) // 2 - source.start_ns
    figures.draw_queue(RunDirectory(path), middle_ns, (span[1] - span[0]) // 2, png)
    terminal.echo_path(png)


def _show_links(source: Path, form: str) -> None:
    from outcast.records.run import Run
    from outcast.view.terminal import forms, tables

    _require_folder(source, "--links", "counters")
    run = Run(source)
    if run.captured is not None:
        raise ConfigError(
            "--links: joined captures have no counters of links; allowed are runs of outcast"
        )
    if form == "table":
        with run.reading():
            terminal.console().print(tables.link_table(run.table("links")))
        return
    terminal.echo_lines(forms.frame(run.table("links"), form))
