"""Whether a file is a whole capture: not a folder, not one of several, and not still written."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from outcast.errors import InputError

_SCAN_S = 1.0
"""How long to look for who writes to a capture. A machine can have very many open files."""

_ROTATED = re.compile(r"(?P<base>.+\.(?:pcapng|pcap|cap))\d*(?P<packed>(?:\.(?:gz|zst))?)")
"""The names that tcpdump makes of the one it is given: eth1.pcap, eth1.pcap1, eth1.pcap2."""


def require_file(path: Path) -> None:
    """Raises InputError if a capture's name is a folder's, or the pattern of several files."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder; allowed is a capture")
    if set("*?[") & set(path.name) and not path.exists():
        raise InputError(
            f"{path}: is a pattern; allowed is one file, as "
            f"`mergecap -w OUT {path.name}` makes of several that follow one another"
        )


def continued_by(path: Path) -> str:
    """A word on files beside a capture that continue it by their names; empty if there are none."""
    name = _ROTATED.fullmatch(path.name)
    if name is None:
        return ""
    sibling = re.compile(rf"{re.escape(name['base'])}\d*{re.escape(name['packed'])}")
    others = []
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        others = [
            entry.name
            for entry in entries
            if entry.name != path.name and sibling.fullmatch(entry.name)
        ]
    if not others:
        return ""
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return (
        f"{path}: {min(others)}{more} beside it are not read, which seem to belong to the same "
        f"capture; `mergecap -w OUT {name['base']}*{name['packed']}` makes one of all"
    )


def refuse_live(files: Sequence[Path], processes: Path = Path("/proc")) -> None:
    """Raises InputError if a process is seen to write to one of the files.

    Without root, only processes of the same user are seen.
    """
    wanted: dict[tuple[int, int], Path] = {}
    for file in files:
        with contextlib.suppress(OSError, ValueError):
            if file.is_file():
                wanted[(status := file.stat()).st_dev, status.st_ino] = file
    ends = time.monotonic() + _SCAN_S
    with contextlib.suppress(OSError), os.scandir(processes) as entries:
        for entry in entries:
            if not entry.name.isdecimal() or int(entry.name) == os.getpid():
                continue
            if time.monotonic() > ends:
                return
            with contextlib.suppress(OSError):
                _refuse_written(wanted, Path(entry.path))


def _refuse_written(wanted: dict[tuple[int, int], Path], process: Path) -> None:
    with os.scandir(process / "fd") as descriptors:
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                status = descriptor.stat()
                file = wanted.get((status.st_dev, status.st_ino))
                if file is None:
                    continue
                flags = (process / "fdinfo" / descriptor.name).read_text().split("flags:")[1]
                if int(flags.split()[0], 8) & os.O_ACCMODE == os.O_RDONLY:
                    continue
                name = (process / "comm").read_text().strip()
                name_text = name if name.isprintable() else "a program"
                raise InputError(
                    f"{file}: {name_text} (process {process.name}) still writes to it; end the "
                    "capture first"
                )
