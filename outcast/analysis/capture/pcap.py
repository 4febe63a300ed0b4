"""A port's capture in memory: its packets in columns, its flows, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from outcast.analysis.capture.headers import OPTIONS_CUT, Columns, Decoder, FlowKey
from outcast.analysis.capture.records import CaptureFile
from outcast.errors import InputError

MOST_EXPECTED = 1 << 26
"""Room is made for at most this many packets at once, because a sparse file can claim any size."""
MOST_CUT = 1_000_000
"""If so many packets at the beginning of a file have no whole headers, none is taken to have."""


@dataclass(slots=True)
class PortCapture:
    """What was seen at one port in one direction.

    Attributes:
        port: the port's name.
        path: the file it was read from.
        columns: its packets in the file's order. The join may take them over.
        flows: the flows; `columns.flow` is the index into them.
        records: packets in the file, of any kind.
        first_ns, last_ns: the earliest and latest stamp of any packet in the file; None if there
            is none.
        not_ip, cut, unwanted: packets left out because they are not IP, were captured too short
            for their headers, or went to another destination.
        options_cut: packets whose TCP options were captured only in part.
        steps_back: how often the stamps went back, as they do when the clock is set back.
        cut_short: whether the file ended inside a record.
    """

    port: str
    path: Path
    columns: Columns
    flows: list[FlowKey]
    records: int
    first_ns: int | None
    last_ns: int | None
    not_ip: int
    cut: int
    unwanted: int
    options_cut: int
    steps_back: int
    cut_short: bool


def read_capture(port: str, path: Path, destinations: frozenset[str] | None = None) -> PortCapture:
    """Reads a capture. Keeps only packets to `destinations`, or all if it is None.

    Raises InputError if the file is missing, empty, no capture, broken or of a link type that
    cannot be decoded, or if no packet in it is long enough for its headers.
    """
    file = CaptureFile(path)
    decoder = Decoder(destinations, capacity=min(file.size // 56, MOST_EXPECTED))
    first: int | None = None
    last: int | None = None
    for block in file.blocks():
        stamps = block.stamp_ns[: block.count]
        first = min(int(stamps.min()), first) if first is not None else int(stamps.min())
        last = max(int(stamps.max()), last) if last is not None else int(stamps.max())
        decoder.add(block)
        if decoder.cut > MOST_CUT and decoder.cut == file.records + block.count - decoder.not_ip:
            raise _too_short(path, f"each of its first {MOST_CUT} packets")
    if file.cut_short and not file.records:
        raise InputError(f"{path}: cut off inside its first record")
    columns, flows = decoder.finish()
    if decoder.cut and decoder.cut == file.records - decoder.not_ip:
        raise _too_short(path, "every packet")
    stamps = columns.stamp_ns
    return PortCapture(
        port=port,
        path=path,
        columns=columns,
        flows=flows,
        records=file.records,
        first_ns=first,
        last_ns=last,
        not_ip=decoder.not_ip,
        cut=decoder.cut,
        unwanted=decoder.unwanted,
        options_cut=int(((columns.marks & OPTIONS_CUT) != 0).sum()),
        steps_back=int((stamps[1:] < stamps[:-1]).sum()),
        cut_short=file.cut_short,
    )


def _too_short(path: Path, which: str) -> InputError:
    return InputError(
        f"{path}: {which} was captured too short for its headers (snaplen); "
        f"at least 54 bytes of each are needed"
    )


def read_captures(
    files: Sequence[tuple[str, Path]], destinations: frozenset[str] | None = None
) -> list[PortCapture]:
    """Reads several captures, two at a time; returns them in the order given.

    Raises InputError as `read_capture` does.
    """

    def size(index: int) -> int:
        path = files[index][1]
        return path.stat().st_size if path.exists() else 0

    with ThreadPoolExecutor(max_workers=2) as pool:
        tasks = {
            index: pool.submit(read_capture, *files[index], destinations)
            for index in sorted(range(len(files)), key=size, reverse=True)
        }
        return [tasks[index].result() for index in range(len(files))]
