"""The packets of a run for Wireshark, spreadsheets and data frames."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from outcast.analysis.export.captured import captures_of
from outcast.errors import ConfigError

if TYPE_CHECKING:
    from outcast.analysis.export.packets import Exported
    from outcast.analysis.selection import Selection
    from outcast.records.run import Run

ENDINGS = {
    "pcapng": (".pcapng", ".pcapng.zst"),
    "csv": (".csv",),
    "parquet": (".parquet",),
}
"""The forms, and how the names of their files end."""


def export(
    source: str | os.PathLike[str],
    file: str | os.PathLike[str],
    *,
    flow: int | str | None = None,
    between_ns: tuple[int, int] | None = None,
    blackout: int | None = None,
) -> int:
    """Writes the packets of a run to a file, and returns how many it wrote.

    A name that ends in `.pcapng` or `.pcapng.zst` gets the captured packets of all ports in the
    order of time, each with its verdict as a comment; `.csv` and `.parquet` get the rows of the
    table `packets`.

    Args:
        source: a run's directory, or that of joined captures; for a table also a joined table.
        file: the file to write.
        flow: only this flow: its number, or its source as `10.0.0.2:20001`.
        between_ns: only packets between these times after the start of the traffic.
        blackout: only packets around this blackout, whose number is that of the report.

    Raises:
        ConfigError: the file's name or the selection is refused, or nothing is selected.
        InputError: the run or a capture is missing or broken, or the file cannot be written.
    """
    from outcast.analysis.selection import Selection, Span

    path = Path(file)
    form = next((form for form in ENDINGS if path.name.endswith(ENDINGS[form])), None)
    if form is None:
        allowed = ", ".join(ending for endings in ENDINGS.values() for ending in endings)
        raise ConfigError(f"{path}: allowed are names that end in {allowed}")
    span = None
    if between_ns is not None:
        span = Span(between_ns[0], between_ns[1], f"between_ns {between_ns[0]} {between_ns[1]}")
        if span.to_ns < span.from_ns:
            raise ConfigError(f"{span.asked}: ends before it begins")
    wanted = Selection(flow=None if flow is None else str(flow), span=span, blackout=blackout)
    return write(Path(source), wanted, form, path).packets


def write(source_path: Path, wanted: Selection, form: str, file: Path) -> Exported:
    """Writes the selected packets in one of the forms of ENDINGS. Raises as `export`."""
    from outcast.analysis.export import packets
    from outcast.analysis.selection import open_source
    from outcast.records.tables import refusing

    if not file.name.endswith(ENDINGS[form]):
        raise ConfigError(
            f"--{form} {file}: allowed are names that end in {' or '.join(ENDINGS[form])}"
        )
    source = open_source(source_path)
    # Captures, and what is told of their packets, are whole; the column in_interval says the rest.
    wanted = replace(wanted, whole=True)
    if source.run is not None:
        _refuse_files_of(source.run, file)
    with refusing(f"{source_path}: its packets cannot be exported"):
        if form == "pcapng":
            captures = [] if source.run is None else captures_of(source.run)
            return packets.write_pcapng(source, wanted, captures, file)
        return packets.write_rows(source, wanted, file)


def _refuse_files_of(run: Run, file: Path) -> None:
    """Raises ConfigError if the file would replace one of the run's own."""
    folder = run.directory.path.resolve()
    own = {folder / name for name in run.manifest.files} | {run.directory.manifest.resolve()}
    if file.resolve() in own:
        raise ConfigError(f"{file}: is a file of the run; allowed is another name")
