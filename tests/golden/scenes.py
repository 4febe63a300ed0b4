"""Captures of a bridge as an engineer makes them, changed in every way that goes wrong in practice.

A scene was recorded from a bridge of the kernel with 3, 5 or 8 hosts. R receives a TCP flow from A,
and eight from the others together, by a TBF of 50 Mbps with a limit of 16 KB. Each port had plain
`tcpdump -i PORT -s 96`, so a file has both directions and microseconds. A join of a changed scene
gives tc's drops by port, or bounds that hold, or is refused.
"""

import json
import random
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from outcast.api.joins import Join, join_captures
from outcast.errors import InputError, UntrustedError

STORED = Path(__file__).parent / "bridges"
SECOND = 10**9
_HEADER = struct.Struct("<IHHiIII")
_RECORD = struct.Struct("<IIII")


@dataclass(frozen=True)
class Packet:
    """A record of a capture."""

    stamp_ns: int
    original: int
    data: bytes


@dataclass(frozen=True)
class File:
    """A capture: its packets, and how it is written."""

    packets: tuple[Packet, ...]
    link: int = 1
    missing_bytes: int = 0

    def write(self, path: Path) -> None:
        """Writes it as a pcap of microseconds."""
        parts = [_HEADER.pack(0xA1B2C3D4, 2, 4, 0, 0, 96, self.link)]
        for packet in self.packets:
            seconds, rest = divmod(packet.stamp_ns, SECOND)
            parts.append(_RECORD.pack(seconds, rest // 1000, len(packet.data), packet.original))
            parts.append(packet.data)
        content = b"".join(parts)
        path.write_bytes(content[: len(content) - self.missing_bytes])


def read_file(path: Path) -> File:
    """Reads a pcap of microseconds, in this machine's byte order, that zstd may have compressed."""
    content = path.read_bytes()
    if path.suffix == ".zst":
        content = zstandard.ZstdDecompressor().decompress(content)
    packets = []
    at = _HEADER.size
    while at < len(content):
        seconds, micros, captured, original = _RECORD.unpack_from(content, at)
        at += _RECORD.size
        stamp = seconds * SECOND + micros * 1000
        packets.append(Packet(stamp, original, content[at : at + captured]))
        at += captured
    return File(tuple(packets))


@dataclass(frozen=True)
class Scene:
    """The captures of a bridge's ports, and the truth.

    Attributes:
        files: each port's capture; the last is R's, whose queue drops.
        drops: how many packets of each sender tc's queue dropped.
    """

    name: str
    files: dict[str, File]
    drops: dict[str, int]

    def address(self, port: str) -> bytes:
        """The IPv4 address of the host at a port."""
        return bytes([192, 168, 7, 1 + list(self.files).index(port)])


def read_scene(folder: Path) -> Scene:
    """Reads a folder of captures with `truth.json`: the drops of the queue that tc counted, and by
    sender the segments that its sockets sent and those of R never got.
    """
    truth = json.loads((folder / "truth.json").read_text())
    paths = {path.name.partition(".")[0]: path for path in folder.glob("*.pcap*")}
    names = [*truth["by_sender"], "R"]
    return Scene(folder.name, {name: read_file(paths[name]) for name in names}, truth["by_sender"])


def is_from(packet: Packet, address: bytes) -> bool:
    """Whether an Ethernet frame holds an IPv4 packet from this address."""
    return packet.data[12:14] == b"\x08\x00" and packet.data[26:30] == address


# --- changes of one file


def shifted(file: File, offset_ns: int, drift_ppm: float = 0.0) -> File:
    """The file of a clock that is ahead by an offset, and that runs fast by a drift."""
    start = file.packets[0].stamp_ns
    return replace(
        file,
        packets=tuple(
            replace(
                packet,
                stamp_ns=packet.stamp_ns
                + offset_ns
                + round((packet.stamp_ns - start) * drift_ppm / 1e6),
            )
            for packet in file.packets
        ),
    )


def cut(file: File, first: float, last: float) -> File:
    """The part of a file between two shares of its packets."""
    size = len(file.packets)
    return replace(file, packets=file.packets[round(first * size) : round(last * size)])


def without(file: File, share: float, *, at_once: bool) -> File:
    """The file of a capture that lost a share of its packets, at random or all at once."""
    size = len(file.packets)
    first, count = round(0.4 * size), round(share * size)
    rows = range(first, first + count)
    gone = set(rows if at_once else random.Random(5).sample(range(size), count))
    return replace(file, packets=tuple(p for n, p in enumerate(file.packets) if n not in gone))


def stepped(file: File, at_share: float, step_ns: int) -> File:
    """The file of a clock that was set once."""
    place = round(at_share * len(file.packets))
    late = shifted(File(file.packets[place:]), step_ns)
    return replace(file, packets=file.packets[:place] + late.packets)


def snapped(file: File, size: int) -> File:
    """The file with the first `size` bytes of each packet."""
    return replace(file, packets=tuple(replace(one, data=one.data[:size]) for one in file.packets))


def only(file: File, came: bool, address: bytes) -> File:
    """What came in at the port of a host, or what left there."""
    return replace(
        file, packets=tuple(one for one in file.packets if is_from(one, address) == came)
    )


def cooked(file: File, address: bytes) -> File:
    """The file as Linux cooked capture v2 has it, which says of each packet which way it went."""
    packets = []
    for packet in file.packets:
        way = 0 if is_from(packet, address) else 4
        head = packet.data[12:14] + struct.pack(">HIHBB", 0, 7, 1, way, 6)
        data = head + packet.data[6:12] + b"\0\0" + packet.data[14:]
        packets.append(Packet(packet.stamp_ns, packet.original + 6, data))
    return File(tuple(packets), link=276)


def tagged(file: File) -> File:
    """The file as a mirror port that adds a VLAN tag gives it."""
    tag = bytes.fromhex("81000007")
    return replace(
        file,
        packets=tuple(
            replace(one, original=one.original + 4, data=one.data[:12] + tag + one.data[12:])
            for one in file.packets
        ),
    )


# --- what a scene tells


CUT = "no single offset and drift fits"
UNSEEN = "never seen to come in"
ENDS = f"{UNSEEN}|ends before"


@dataclass(frozen=True)
class Outcome:
    """What became of a case: `exact`, `bounded`, `refused`, or else, which is a fault.

    `bounded` says that some drops are not tc's, but that tc's are within the stated bounds.
    """

    verdict: str
    detail: str


@dataclass(frozen=True)
class Case:
    """A change of a scene.

    Attributes:
        name: what was changed.
        files: the changed captures.
        says: None if the drops can be told all the same, else a pattern of the refusal.
        or_says: a word of a refusal that is right as well, because the scene tells too little.
        is_bounded: whether the stated bounds suffice, or a refusal: the captures lack a little.
        or_exact: whether the right drops are right as well as a refusal.
        sides: the inputs and outputs that are given; None if all files are given as ports.
        lost: packets that an input's file lacks. Those that were dropped, nothing shows.
    """

    name: str
    files: dict[str, File]
    says: str | None = None
    sides: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    is_bounded: bool = False
    or_says: str | None = None
    or_exact: bool = False
    lost: int = 0

    def fits(self, outcome: Outcome) -> bool:
        """Whether the outcome is what it has to be."""
        if self.or_says and outcome.verdict == "refused" and self.or_says in outcome.detail:
            return True
        if self.or_exact and outcome.verdict == "exact":
            return True
        if self.says is None:
            allowed = ("exact", "bounded", "refused") if self.is_bounded else ("exact",)
            return outcome.verdict in allowed
        return outcome.verdict == "refused" and bool(re.search(self.says, outcome.detail))


def cases(scene: Scene) -> Iterator[Case]:
    """All changes of a scene."""
    files = scene.files
    first, *_, last, out = files
    senders = [name for name in files if name != out]
    one_way = {
        **{name: only(files[name], True, scene.address(name)) for name in senders},
        out: only(files[out], False, scene.address(out)),
    }

    def one(name: str, how: str, file: File, says: str | None = None, **more: Any) -> Case:
        """The scene with another file of one port."""
        return Case(f"{name} {how}", {**files, name: file}, says, **more)

    yield Case("as captured", files)
    yield Case("--in and --out given", files, sides=(tuple(senders), (out,)))
    for seconds in (-5.0, -1.5, -0.05, 0.8, 5.0):
        moved = round(seconds * SECOND)
        for name in (first, out):
            yield one(name, f"{seconds:+g} s", shifted(files[name], moved))
        # Longer than --max-sojourn before the others, and nothing tells by how much.
        is_open = seconds < -1
        yield Case(
            f"{first} {seconds:+g} s, one direction each",
            {**one_way, first: shifted(one_way[first], moved)},
            or_says="give a longer --max-sojourn" if is_open else None,
        )
    spread = np.linspace(-5, 5, len(files))
    apart = {
        name: shifted(file, round(float(seconds) * SECOND))
        for (name, file), seconds in zip(files.items(), spread, strict=True)
    }
    yield Case("all apart by up to 10 s", apart)
    yield Case("all apart, --in and --out given", apart, sides=(tuple(senders), (out,)))
    for ppm in (50, -50):
        for name in (first, out):
            yield one(name, f"drifts {ppm:+} ppm", shifted(files[name], 0, ppm))
    drifts = np.linspace(50, -50, len(files)).tolist()
    yield Case(
        "all apart and drifting up to 50 ppm",
        {name: shifted(apart[name], 0, ppm) for name, ppm in zip(apart, drifts, strict=True)},
    )
    yield Case("one direction each", one_way)
    for name in (out, first):
        yield Case(f"only {name} has both directions", {**one_way, name: files[name]})
    yield one(out, "only outgoing", one_way[out])
    yield one(first, "only incoming", one_way[first])
    away = only(files[first], False, scene.address(first))
    yield one(first, "only outgoing", away, UNSEEN)
    yield one(out, "only incoming", only(files[out], True, scene.address(out)), "")
    as_cooked = {name: cooked(file, scene.address(name)) for name, file in files.items()}
    yield Case("cooked captures", as_cooked)
    mirrored = {name: tagged(files[name]) for name in (first, out)}
    yield Case(f"{first} and {out} from a mirror with a VLAN tag", files | mirrored)
    for name in files:
        rest = {other: file for other, file in files.items() if other != name}
        yield Case(f"{name} missing", rest, f"{UNSEEN}|no other capture has")
    rest = {name: file for name, file in one_way.items() if name != first}
    yield Case(f"{first} missing, one direction each", rest, UNSEEN)
    for name in (first, last, out):
        yield one(name, "cut inside its last packet", replace(files[name], missing_bytes=9))
        yield one(name, "ends at 60 %", cut(files[name], 0, 0.6), ENDS)
        yield one(name, "begins at 30 %", cut(files[name], 0.3, 1), f"{UNSEEN}|begins after")
        early = shifted(cut(files[name], 0, 0.6), -3 * SECOND)
        yield one(name, "-3 s and ends at 60 %", early, ENDS)
    yield one(first, "set forward by 40 ms", stepped(files[first], 0.5, 40_000_000), CUT)
    yield one(out, "set forward by 1.5 s", stepped(files[out], 0.5, 1_500_000_000), CUT)
    for name in (first, out):
        for share in (0.02, 0.5, 0.97):
            for ms in (-20, -4, -1, 1, 4, 20):
                reset = stepped(files[name], share, ms * 1_000_000)
                how = f"set by {ms:+} ms at {share:.0%}"
                # A step by less than packets wait is not seen (docs/join.md).
                or_exact = share != 0.5 or abs(ms) == 1
                yield one(name, how, reset, CUT, or_exact=or_exact)
        for share in (0.002, 0.005):
            for at_once in (False, True):
                how = f"lost {share:.1%} {'at once' if at_once else 'at random'}"
                lossy = without(files[name], share, at_once=at_once)
                lost = len(files[name].packets) - len(lossy.packets) if name == first else 0
                yield one(name, how, lossy, is_bounded=True, lost=lost)
    for share in (0.01, 0.03, 0.1):
        late = cut(files[first], share, 1)
        lost = len(files[first].packets) - len(late.packets)
        yield one(first, f"begins at {share:.0%}", late, is_bounded=True, lost=lost)
    yield one(first, "with 66 bytes of each packet", snapped(files[first], 66))
    doubled = {
        name: File(tuple(one for one in file.packets for _ in range(2)))
        for name, file in files.items()
    }
    yield Case("every record twice in all files", doubled, "recorded twice")
    yield one(last, f"is a copy of {first}", files[first], "")
    yield one(first, "lost every second packet", File(files[first].packets[::2]), UNSEEN)
    address = scene.address(out)
    kept = [p for n, p in enumerate(files[out].packets) if n % 20 or is_from(p, address)]
    yield one(out, "lost a twentieth of what left", File(tuple(kept)), "never sent again")


def judge(scene: Scene, case: Case, folder: Path) -> Outcome:
    """Joins the files of a case and compares the drops by port with tc's."""
    paths = {}
    for name, file in case.files.items():
        paths[name] = folder / f"{name}.pcap"
        file.write(paths[name])
    try:
        if case.sides is None:
            result = join_captures(ports=paths)
        else:
            ins, outs = case.sides
            result = join_captures(
                {name: paths[name] for name in ins}, {name: paths[name] for name in outs}
            )
    except UntrustedError as refusal:
        return Outcome("refused", str(refusal).replace(str(folder) + "/", ""))
    except InputError as refusal:
        return Outcome("not joined", str(refusal).replace(str(folder) + "/", ""))
    bounds = {(one.ingress, one.egress): one for one in result.drop_ranges}
    wrong, outside = [], False
    for output in result.joined.outputs:
        drops = drops_at(result, output)
        for name in result.joined.inputs:
            count = scene.drops.get(name, 0) if output == "R" else 0
            if drops.get(name, 0) == count:
                continue
            found, stated = drops.get(name, 0), bounds.get((name, output))
            least, most = (stated.least, stated.most) if stated else (found, found)
            outside |= not least <= count <= most + case.lost
            wrong.append(f"{name} to {output}: {found} not {count}, stated {least} to {most}")
    if wrong:
        return Outcome("WRONG" if outside else "bounded", "; ".join(wrong))
    return Outcome("exact", "; ".join(result.joined.clocks))


def drops_at(result: Join, output: str) -> dict[str, int]:
    """How many packets of each input were dropped at an output."""
    joined = result.joined
    egress = joined.outputs.index(output)
    dropped = (joined.verdict == 1) & (joined.egress == egress)
    count = np.bincount(joined.arrivals.port[dropped], minlength=len(joined.inputs))
    return dict(zip(joined.inputs, count.tolist(), strict=True))
