"""Which files a capture consists of: one, or several that a rotation wrote one after another.

`tcpdump -C` and `-G`, `dumpcap -b` and Wireshark begin a new file when one is full. Such files are
named together by a pattern, as `eth1.pcap*`.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from outcast.analysis.capture.records import CaptureFile
from outcast.errors import InputError

MOST_FILES = 10_000
"""A pattern that matches more is taken for a mistake."""

MOST_OVERLAP_NS = 1_000_000_000
"""Several processors can hand over packets in the wrong order, but not by so much."""

_SCAN_S = 1.0
"""How long to look for who writes to a capture. A machine can have very many open files."""

_ROTATED = re.compile(r"(?P<base>.+\.(?:pcapng|pcap|cap))\d*(?P<packed>(?:\.(?:gz|zst))?)")
"""The names that tcpdump makes of the one it is given: eth1.pcap, eth1.pcap1, eth1.pcap2."""


def files_of(path: Path) -> list[Path]:
    """Returns the files that a capture's name stands for, in the order of their names.

    A file of this very name comes first, because a name may hold the characters of patterns.

    Raises InputError if the name is a folder's, or a pattern without a match.
    """
    if path.is_dir():
        raise InputError(
            f"{path}: is a folder; allowed is a capture, or a pattern for several of one port that "
            f"follow one another, as {path / 'eth1.pcap*'}"
        )
    if not set("*?[") & set(path.name) or path.exists():
        return [path]
    try:
        matches = [match for match in path.parent.glob(path.name) if not match.is_dir()]
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: no pattern of file names: {error}") from None
    if not matches:
        raise InputError(f"{path}: no file matches")
    if len(matches) > MOST_FILES:
        raise InputError(f"{path}: {len(matches)} files match; at most {MOST_FILES} are allowed")
    return sorted(matches, key=_by_number)


def _by_number(path: Path) -> list[tuple[int, str]]:
    """Sorts eth1.pcap2 before eth1.pcap10."""
    return [
        (int(part), "") if part.isdecimal() and len(part) < 20 else (-1, part)
        for part in re.split("([0-9]+)", path.name)
    ]


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
    first = min(others, key=lambda other: _by_number(Path(other)))
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return (
        f"{path}: {first}{more} beside it are not read, which seem to belong to the same capture; "
        f"the pattern '{name['base']}*{name['packed']}' names all"
    )


def in_order(path: Path, files: Sequence[Path]) -> list[CaptureFile]:
    """Opens the files of a capture in the order of their first packets.

    Files without a packet keep their place by name. Raises InputError if a file cannot be read.
    """
    if len(files) == 1:
        return [CaptureFile(files[0])]
    stamps: list[int] = []
    for file in files:
        first = next(CaptureFile(file).blocks(), None)
        before = stamps[-1] if stamps else -1
        stamps.append(before if first is None else int(first.stamp_ns[: first.count].min()))
    places = sorted(range(len(files)), key=lambda place: (stamps[place], place))
    return [CaptureFile(files[place]) for place in places]


def require_sequence(
    path: Path, before: tuple[Path, int, int] | None, after: tuple[Path, int, int]
) -> None:
    """Raises InputError if a file begins long before the one ahead of it ends.

    Both are given with the first and the last time of their packets, in nanoseconds.
    """
    if before is None:
        return
    overlap_ns = before[2] - after[1]
    shorter_ns = min(before[2] - before[1], after[2] - after[1])
    if overlap_ns > min(MOST_OVERLAP_NS, shorter_ns // 2):
        raise InputError(
            f"{path}: {after[0].name} begins {overlap_ns / 1e9:.6g} s before {before[0].name} "
            "ends; allowed are files of one capture that follow one another"
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
