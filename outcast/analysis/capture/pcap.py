"""A port's capture in memory: its packets in columns, its flows, and its faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.ma

from outcast.analysis.capture.decoder import Decoder
from outcast.analysis.capture.formats import Records
from outcast.analysis.capture.headers import OPTIONS_CUT, Columns, FlowKey, Others
from outcast.analysis.capture.records import ENCAPSULATIONS, MIRRORED, CaptureFile, require_file
from outcast.analysis.machine_code import I64, Array, Bool
from outcast.errors import InputError, UntrustedError

MOST_EXPECTED = 1 << 26
"""The most packets that columns are made for at once. A sparse file can claim any size."""
MOST_CUT = 1_000_000
"""A file is refused if its first packets, this many, all lack whole headers."""


@dataclass(slots=True)
class PortCapture:
    """A port's capture.

    Attributes:
        columns: the packets in the file's order. The join may take them over.
        flows: indexed by `columns.flow`.
        records: the number of packets in the file, of any kind.
        first_ns, last_ns: the earliest and latest stamp in the file; None without packets.
        not_ip, cut, unwanted: packets left out because they are not IP, were captured too short
            for their headers, or went to another destination.
        options_cut: packets whose TCP options were captured only in part.
        steps_back: how often the stamps go back.
        cut_short: whether the file ended inside a record.
        macs: for each flow, the source MAC address of its first packet; 0 if it is missing.
        others: the frames of `not_ip`, `cut` and `unwanted`, if they are kept.
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
    remarks: tuple[str, ...] = ()
    macs: list[int] = field(default_factory=list)
    others: Others = field(default_factory=lambda: Others.empty(0))

    def flows_with(self, condition: Callable[[FlowKey], bool]) -> Bool:
        return np.array([condition(flow) for flow in self.flows], np.bool_)

    def add_flow(self, name: FlowKey, like: int) -> int:
        """Adds a flow with the MAC address of another one. Returns its row."""
        self.flows.append(name)
        if self.macs:
            self.macs.append(self.macs[like])
        return len(self.flows) - 1


def read_capture(
    port: str,
    path: Path,
    destinations: frozenset[str] | None = None,
    foreign: bool = True,
    interface: str | None = None,
    keeps_others: bool | None = None,
) -> PortCapture:
    """Reads a capture. Keeps only packets to `destinations`, or all if it is None.

    A `foreign` capture may still grow, and may hold packets in tunnels, which are known by the
    packet inside. An `interface` is named as by `interfaces_of`. With `keeps_others`, or None for a
    `foreign` capture, the times and lengths of all other frames are kept.

    Raises InputError if the file is missing, empty, no capture, broken or of a link type that
    cannot be decoded, if no packet is long enough for its headers, or if it grew meanwhile.
    """
    if foreign:
        require_file(path)
    file = CaptureFile(path)
    decoder = Decoder(destinations, foreign, foreign if keeps_others is None else keeps_others)
    records = 0
    bounds: list[int] = []
    for block in file.blocks():
        # All interfaces were captured for as long as the file, so its span is theirs.
        stamps = block.stamp_ns[: block.count]
        bounds = [min([*bounds, int(stamps.min())]), max([*bounds, int(stamps.max())])]
        block = _only(file, block, interface)
        decoder.reserve(expected_packets(file.size, block))
        decoder.add(block)
        records += block.count
        if decoder.cut > MOST_CUT:
            _require_headers(path, decoder, records)
    if file.cut_short and not file.records:
        raise InputError(f"{path}: cut off inside its first record")
    if foreign and file.has_grown():
        raise InputError(
            f"{path}: grew while it was read, so its capture still goes on; end it first"
        )
    _require_headers(path, decoder, records)
    where = f"{path}" if interface is None else f"{path} ({interface})"
    remarks = [*_remarks(file), *_left_out(where, decoder, records, foreign)]
    columns, flows = decoder.finish()
    stamps = columns.stamp_ns
    return PortCapture(
        port,
        path,
        columns,
        flows,
        records,
        first_ns=bounds[0] if bounds else None,
        last_ns=bounds[1] if bounds else None,
        not_ip=decoder.not_ip,
        cut=decoder.cut,
        unwanted=decoder.unwanted,
        options_cut=int(((columns.marks & OPTIONS_CUT) != 0).sum()),
        steps_back=int((stamps[1:] < stamps[:-1]).sum()),
        cut_short=file.cut_short,
        remarks=tuple(remarks),
        macs=decoder.flows.macs(),
        others=decoder.others,
    )


def _require_headers(path: Path, decoder: Decoder, records: int) -> None:
    if decoder.cut and decoder.cut == records - decoder.not_ip:
        raise InputError(
            f"{path}: each of {decoder.cut:,} packets was captured too short for its headers "
            "(snaplen); at least 54 bytes of each are needed"
        )


def _left_out(where: str, decoder: Decoder, records: int, foreign: bool) -> Iterator[str]:
    """A line on each kind of packets that take no part, or are known by the packet inside.

    Raises InputError if more than half have headers that are not read.
    """
    tunnelled = dict(decoder.tunnelled)
    met = Counter({("ERSPAN", MIRRORED): tunnelled.pop("ERSPAN", 0)})
    for kind, cure in ENCAPSULATIONS.items():
        met[cure] += decoder.kinds[kind]
    for (name, command), count in met.items():
        if 2 * count > records:
            raise InputError(
                f"{where}: {count:,} of {records:,} packets are {name}, which is not read;"
                f" `{command}` takes it off"
            )
        if count:
            yield f"{where}: {count:,} packets are {name}, whose contents are not read"
    if decoder.cut:
        yield f"{where}: {decoder.cut} packets were captured too short for their headers"
    if foreign and decoder.not_ip:
        yield f"{where}: {decoder.not_ip} packets are not IP (ARP and the like) and take no part"
    for tunnel, count in tunnelled.items():
        mirror = f". If a mirror put them there, `{MIRRORED}` first takes that off"
        yield (
            f"{where}: {count:,} packets are in a tunnel ({tunnel}); they are known by the "
            "packet inside, and their length is that of the whole"
            + (mirror if tunnel == "VXLAN" else "")
        )


def interfaces_of(path: Path) -> dict[str, int]:
    """The interfaces of a capture by name, and the packets of each.

    pcapng names them by `if_name`. Interfaces without a name, and those of Linux cooked v2, are
    `if` and their number. Linux cooked v1 says only whether packets came in or left: its interfaces
    are INTO and OUT_OF. Other captures have the interface "".
    """
    counts: Counter[str] = Counter()
    require_file(path)
    file = CaptureFile(path)
    for block in file.blocks():
        number = np.bincount(block.interface[: block.count])
        counts.update({file.interfaces[at]: int(number[at]) for at in number.nonzero()[0]})
    return dict(counts)


def of_interface(file: CaptureFile, name: str | None) -> Iterator[Records]:
    """The blocks of a file, with only the packets of one interface; None takes all."""
    for block in file.blocks():
        yield _only(file, block, name)


def _only(file: CaptureFile, block: Records, name: str | None) -> Records:
    if name is None:
        return block
    return block.of(file.interfaces.index(name) if name in file.interfaces else -1)


def _remarks(file: CaptureFile) -> Iterator[str]:
    """A line if a file is cut off first, then lines on strange time stamps and names.

    Raises InputError if no packet has a time stamp.
    """
    if file.cut_short:
        yield (
            f"{file.path}: cut off after {file.records} packets, inside a record, which is left out"
        )
    if file.untimed and not file.records:
        raise InputError(
            f"{file.path}: none of its packets has a time stamp (simple packet blocks of pcapng)"
        )
    if file.untimed:
        yield (
            f"{file.path}: {file.untimed} packets have no time stamp (simple packet blocks) and "
            "are left out"
        )
    for name in sorted(file.repeated.intersection(file.interfaces)):
        yield f"{file.path}: several interfaces are named {name}; they count as one port"
    if file.overfull:
        yield (
            f"{file.path}: {file.overfull} of {file.records} packets have a fraction of a second "
            "that is a second or more. They are taken as it says, seconds and fraction added; "
            "probably it has nanoseconds and says microseconds, and then all its times are wrong"
        )


def expected_packets(size: int, block: Records) -> int:
    """The packets in a file of this size, by its first block; too few for compressed files."""
    if not block.count:
        return 0
    last = block.count - 1
    read_bytes = int(block.offset[last] + block.length[last])
    return min(int(size / read_bytes * block.count * 1.02) + 1024, MOST_EXPECTED)


def read_captures(
    files: Sequence[tuple[str, Path]],
    destinations: frozenset[str] | None = None,
    foreign: bool = True,
    shared: Collection[Path] = (),
    keeping: Collection[Path] = (),
) -> list[PortCapture]:
    """Reads captures, two at a time; returns them in the order given.

    A port of a `shared` file is one of its interfaces. Frames that are not decoded are kept for the
    files in `keeping`, and for all that are `foreign`.
    """

    def size(index: int) -> int:
        path = files[index][1]
        return path.stat().st_size if path.exists() else 0

    def read(index: int) -> PortCapture:
        port, path = files[index]
        interface, keeps = port if path in shared else None, foreign or path in keeping
        return read_capture(port, path, destinations, foreign, interface, keeps)

    with ThreadPoolExecutor(max_workers=2) as pool:
        # The largest first, so that both threads end at about the same time.
        places = sorted(range(len(files)), key=size, reverse=True)
        tasks = {index: pool.submit(read, index) for index in places}
        return [tasks[index].result() for index in range(len(files))]


def shared_files(files: Sequence[tuple[str, Path]]) -> set[Path]:
    """The files of several ports, each of which is an interface of its file."""
    ports = Counter(path for _, path in set(files))
    return {path for path, number in ports.items() if number > 1}


_SAMPLED = 10_000
_MOST_GAPS = 2_000
_FEW = 16
"""Fewer stamps show no unit."""
_MUCH = 8
"""A unit is coarser than the file's own by more than this. Otherwise rounding looks like one."""


def grid_ns(stamps: I64) -> int:
    """The largest unit that divides all gaps between stamps, except for the file's rounding.

    Ticks need not be whole microseconds: 1/256 s is 3906250 ns. If no stamps are equal, and gaps
    are of few lengths or mostly the unit itself, packets were sent at regular times. Then the
    result is the file's own unit.
    """
    values = np.unique(np.concatenate([stamps[:_SAMPLED], stamps[:: 1 + stamps.size // _SAMPLED]]))
    if values.size < _FEW:
        return 1
    own = int(np.gcd.reduce(values[1:] - values[0]))
    near = np.unique(stamps[:_SAMPLED])
    gaps = np.unique(np.diff(near))[:_MOST_GAPS].astype(np.float64)
    decimal = 10 ** int(np.log10(own))
    while own % decimal:
        decimal //= 10
    # A gap between two rounded stamps is off by one unit of the file at most.
    unit = _common(gaps, 1.5 * decimal) if gaps.size else float(own)
    unit = unit if unit > _MUCH * own else float(own)
    steps = np.diff(stamps[:_SAMPLED])
    regular = bool((steps != 0).all()) and (
        gaps.size < _FEW or float(np.median(np.abs(steps))) <= 1.01 * unit
    )
    return decimal if regular else round(unit)


def _common(gaps: Array, spare: float) -> float:
    """The largest number of which all gaps, sorted, are multiples, within `spare`."""
    unit = float(gaps[0])
    products = squares = 0.0
    for gap in gaps.tolist():
        times = round(gap / unit)
        rest = abs(gap - times * unit)
        if rest > spare:
            while rest > spare:
                unit, rest = rest, abs(unit - round(unit / rest) * rest)
            if unit <= _MUCH * spare:
                return unit
            products = squares = 0.0
            times = round(gap / unit)
        # Each gap makes the unit more exact.
        products, squares = products + gap * times, squares + times * times
        unit = products / squares
    return unit


COPIED_WITHIN_NS = 1_000_000_000
"""A packet with the same IP id and contents within this time is a copy, because a sender numbers
what it sends again."""
UNNUMBERED_WITHIN_NS = 100_000
"""The same for data without an IP id, because no round trip is as short."""
_SAMPLES, _SAMPLED = 4, 4_096


def copies_in(columns: Columns, within_ns: int = COPIED_WITHIN_NS) -> Bool:
    """The packets that are copies of earlier ones, by IP ids of at most `within_ns` before."""
    fields = (columns.flow, columns.identity, columns.tsval, columns.tsecr)
    order = np.lexsort((columns.stamp_ns, *fields))
    same = np.logical_and.reduce([field[order][1:] == field[order][:-1] for field in fields])
    numbered = columns.ip_id[order][1:] > 0
    same &= np.diff(columns.stamp_ns[order]) <= np.where(numbered, within_ns, UNNUMBERED_WITHIN_NS)
    same &= numbered | (columns.payload_bytes[order][1:] > 0)
    copies = np.zeros(columns.flow.size, np.bool_)
    copies[order[1:]] = same
    return copies


def remove_few(capture: PortCapture, most_share: float) -> list[str]:
    """Removes copies of TCP segments from a capture if they are few. Returns a remark.

    Samples of a large capture suffice to find out, because copies are spread over it. Raises
    UntrustedError if more than `most_share` of the packets are there twice.
    """
    columns = capture.columns
    apart = max(_SAMPLED, columns.flow.size // _SAMPLES)
    if not any(
        copies_in(
            Columns.of(part[start : start + _SAMPLED] for part in columns), UNNUMBERED_WITHIN_NS
        ).any()
        for start in range(0, columns.flow.size, apart)
    ):
        return []
    copies, is_tcp = copies_in(columns, UNNUMBERED_WITHIN_NS), columns.flags > 0
    # Datagrams count if their host numbers them.
    low, high = np.full(len(capture.flows), 1 << 16), np.zeros(len(capture.flows), np.int64)
    np.minimum.at(low, columns.flow, columns.ip_id)
    np.maximum.at(high, columns.flow, columns.ip_id)
    count = int((copies & (is_tcp | (high > low)[columns.flow])).sum())
    if count > max(most_share * columns.flow.size, 1):
        raise UntrustedError(
            f"{capture.path}: {count:,} of {columns.flow.size:,} packets are recorded twice, as "
            "by a mirror of both directions; `editcap -w 0.001 FILE NEW` removes copies"
        )
    copies &= is_tcp
    if not (count := int(copies.sum())):
        return []
    capture.columns = Columns.of(column[~copies] for column in columns)
    return [
        f"{capture.path}: {count:,} packets of {capture.port} are there twice, as from a mirror of "
        "both directions of a port. Each counts once"
    ]
