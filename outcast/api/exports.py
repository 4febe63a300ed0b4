"""The packets of a run for Wireshark."""

from __future__ import annotations

import os
from pathlib import Path

from outcast.errors import ConfigError


def export(source: str | os.PathLike[str], file: str | os.PathLike[str]) -> int:
    """Writes the captured packets of all ports to a pcapng file, with verdicts as comments.

    Args:
        source: the directory of a run, or of joined captures.
        file: the file to write; its name ends in `.pcapng`.

    Returns how many packets it wrote.

    Raises:
        ConfigError: the file's name is refused.
        InputError: the run or a capture is missing or broken, or the file cannot be written.
    """
    from outcast.analysis import export as packets
    from outcast.analysis.selection import open_source

    path = Path(file)
    if path.suffix != ".pcapng":
        raise ConfigError(f"{path}: allowed are names that end in .pcapng")
    opened = open_source(Path(source))
    if opened.run is None:
        raise ConfigError(f"{source}: is a table alone; captured packets need a run's folder")
    return packets.write(opened, opened.run, path)
