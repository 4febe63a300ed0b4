"""`outcast export`: the packets of a run for Wireshark, spreadsheets and data frames."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from outcast.cli import selecting, shared, terminal
from outcast.errors import ConfigError

if TYPE_CHECKING:
    from outcast.analysis.selection import Selection


@shared.verb(
    "export",
    "outcast export results/fig3c --pcapng fig3c.pcapng --blackout 0",
    "outcast export results/fig3c --csv dropped.csv --verdict dropped",
)
@click.argument("source", type=click.Path(path_type=Path), metavar="DIR|FILE")
@shared.path(
    "--pcapng FILE",
    "Write the captured packets of all ports, each with its verdict as a comment, to this "
    ".pcapng or .pcapng.zst file.",
)
@shared.path("--csv FILE", "Write a row for each packet to this .csv file.")
@shared.path("--parquet FILE", "Write a row for each packet to this .parquet file.")
@selecting.selection
def command(
    source: Path,
    selection: Selection,
    pcapng: Path | None,
    csv: Path | None,
    parquet: Path | None,
) -> None:
    """Write packets of a run, of joined captures (DIR) or of a joined table (FILE) to a file.

    One of --pcapng, --csv and --parquet is needed. A table alone has no captured packets, so it
    takes no --pcapng.
    """
    from outcast.api.exports import write

    files = {"pcapng": pcapng, "csv": csv, "parquet": parquet}
    given = [(form, file) for form, file in files.items() if file is not None]
    if len(given) != 1:
        what = "none is given" if not given else f"{len(given)} are given"
        raise ConfigError(f"--pcapng, --csv, --parquet: {what}; allowed is one of them")
    ((form, file),) = given
    written = write(source, selection, form, file)
    terminal.echo_path(file, f": {written.packets:,} packets, {written.dropped:,} dropped")
