"""Random outputs that also send what takes no part in a join, with the truth of a FIFO queue.

Hosts behind a, b and c send UDP to the host behind o. Some of them also send multicast, broadcast,
other protocols and packets to another host behind o, and a router sends its own. All of it shares
the queue of o.
"""

import random
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from outcast.analysis.join.join import Verdict
from outcast.api.joins import Join, join_captures
from outcast.errors import UntrustedError

KINDS = ("multicast", "broadcast", "arp", "unknown", "ipv6", "elsewhere", "router")
"""What takes no part: IP to groups, ARP, an unknown EtherType, IPv6 to a group, IP to another host
behind o (with `--to`), and what the hop itself sends."""
EPOCH_NS = 1_700 * 10**9
SNAPLEN = 96
QUIET_NS = 700_000_000
FAST_NS_PER_BYTE = 1
"""The other ports send so quickly that they never drop anything."""
OWN_DST = (10, 0, 0, 9)


@dataclass
class Frame:
    """A frame: when and where it came in (None: the hop sent it), and when it left by o."""

    at_ns: int
    port: str | None
    data: bytes
    is_own: bool
    left_ns: int | None = None
    found_bytes: int = 0


@dataclass
class Scene:
    """What came, what left, and how it was captured.

    Attributes:
        limit: bytes that wait, or packets if `in_packets`; the one that is being sent does not.
        hidden: the input that nobody captured, and which sends nothing that takes part.
        both_ways: each file has both directions of its port.
    """

    frames: list[Frame]
    rate_bps: int
    limit: int
    in_packets: bool
    kinds: tuple[str, ...]
    hidden: str | None
    both_ways: bool
    back: list[Frame] = field(default_factory=list)

    @property
    def words(self) -> str:
        """What kind of scene it is."""
        unit = "packets" if self.in_packets else "bytes"
        own = sum(len(frame.data) for frame in self.frames if frame.is_own)
        share = 1 - own / sum(len(frame.data) for frame in self.frames)
        return (
            f"{self.rate_bps / 1e6:g} Mbps, {self.limit} {unit}, {share:.0%} of "
            f"{', '.join(self.kinds) or 'nothing'}; without {self.hidden}, "
            f"{'both ways' if self.both_ways else 'one way'}"
        )


def _ip(number: int, src: tuple[int, ...], dst: tuple[int, ...], size: int, ttl: int = 64) -> bytes:
    if dst[0] == 239:
        mac = b"\x01\x00\x5e" + bytes(dst[1:])
    elif dst[0] == 255:
        mac = b"\xff" * 6
    else:
        mac = bytes([2, 0, 0, 0, 0, dst[3]])
    head = struct.pack(">BBHHHBBH", 0x45, 0, size - 14, number & 0xFFFF, 0, ttl, 17, 0)
    udp = struct.pack(">HHHHI", 1000 + src[3], 5000, size - 34, 7, number)
    frame = mac + bytes([2, 0, 0, 0, 0, src[3]]) + b"\x08\x00" + head + bytes(src) + bytes(dst)
    return (frame + udp).ljust(size, b"x")


def _other(kind: str, number: int, host: int, size: int) -> bytes:
    src = (10, 0, 0, host)
    if kind == "multicast":
        return _ip(number, src, (239, 1, 1, 1), size)
    if kind == "broadcast":
        return _ip(number, src, (255, 255, 255, 255), size)
    if kind in ("elsewhere", "router"):
        return _ip(number, src, (10, 0, 0, 8) if kind == "elsewhere" else (239, 9, 9, 9), size)
    from_mac = bytes([2, 0, 0, 0, 0, host])
    if kind == "arp":
        asked = struct.pack(">HHBBH", 1, 0x0800, 6, 4, 1) + from_mac + bytes(src)
        asked += bytes(6) + struct.pack(">I", 0x0A000000 + number)
        return (b"\xff" * 6 + from_mac + b"\x08\x06" + asked).ljust(60, b"\0")
    if kind == "ipv6":
        size = max(size, 80)
        head = struct.pack(">IHBB", 0x6 << 28, size - 54, 17, 255) + bytes([0xFE, 0x80, *[0] * 13])
        head += bytes([host, 0xFF, 2, *[0] * 13, 0xFB])
        udp = struct.pack(">HHHHI", 5353, 5353, size - 54, number & 0xFFFF, number)
        return (b"\x33\x33\0\0\0\xfb" + from_mac + b"\x86\xdd" + head + udp).ljust(size, b"x")
    return (b"\xff" * 6 + from_mac + b"\x88\xb5" + struct.pack(">I", number)).ljust(size, b"y")


def make(seed: int) -> Scene:
    """A scene by chance."""
    draw = random.Random(seed)
    rate_bps = draw.choice([2_000_000, 10_000_000, 95_000_000, 1_000_000_000])
    inputs = draw.choice(["ab", "abc"])
    kinds = tuple(draw.sample(KINDS, draw.choice([0, 1, 1, 2, 3])))
    load = draw.choice([0.7, 1.05, 1.3, 1.8])
    share = draw.choice([0.003, 0.04, 0.3, 0.6, 0.9]) if kinds else 0.0
    own_size = draw.choice([100, 400, 1000, 1514])
    span_ns = 1_500 * own_size * 8e9 / (rate_bps * load) / max(1 - share, 0.2)
    hidden = draw.choice([None, None, "h"]) if kinds else None
    frames: list[Frame] = []
    number = 0

    def arrive(port: str | None, bps: float, size: int, kind: str | None) -> None:
        nonlocal number
        at = draw.uniform(0, 1e6)
        burst = draw.choice([1, 1, 4, 12])
        host = {"a": 1, "b": 2, "c": 3, "h": 4, None: 7}[port]
        while at < span_ns:
            for n in range(burst):
                number += 1
                length = size if draw.random() < 0.8 else draw.randint(62, 1514)
                data = (
                    _ip(number, (10, 0, 0, host), OWN_DST, length)
                    if kind is None
                    else _other(kind, number, host, length)
                )
                frames.append(Frame(int(at) + n * 1_000, port, data, kind is None))
            at += burst * 1_000 + draw.expovariate(bps / (8e9 * size * burst))

    for port in inputs:
        arrive(port, rate_bps * load * (1 - share) / len(inputs), own_size, None)
    for kind in kinds:
        port = None if kind == "router" else hidden or draw.choice(inputs)
        size = 60 if kind == "arp" else draw.choice([80, 500, 1200])
        arrive(port, rate_bps * load * share / len(kinds), size, kind)
    # After a pause a few more, so that what did not leave before was dropped.
    for n in range(6):
        number += 1
        host = 1 + n % 2
        data = _ip(number, (10, 0, 0, host), OWN_DST, own_size)
        at_ns = int(span_ns) + QUIET_NS * (1 + n)
        frames.append(Frame(at_ns, "ab"[host - 1], data, True))
    frames.sort(key=lambda frame: frame.at_ns)
    for before, frame in pairwise(frames):  # Of equal times no capture shows which was first.
        frame.at_ns = max(frame.at_ns, before.at_ns + 1)
    in_packets = draw.random() < 0.3
    packets = draw.choice([5, 20, 60])
    limit = packets if in_packets else packets * 1_000 + draw.randint(0, 999)
    scene = Scene(frames, rate_bps, limit, in_packets, kinds, hidden, draw.random() < 0.5)
    _serve(scene)
    if scene.both_ways:
        # The host behind o answers a and b, so that its port has both directions.
        at = 0.0
        while at < span_ns:
            number += 1
            to = (10, 0, 0, draw.choice([1, 2]))
            scene.back.append(Frame(int(at), "o", _ip(number, OWN_DST, to, 80), True))
            at += draw.expovariate(400 / span_ns)
    return scene


def _serve(scene: Scene) -> None:
    """A FIFO queue with drop-tail; a frame leaves when it begins to be sent."""
    waiting: deque[Frame] = deque()
    held = free_ns = 0
    for frame in [*scene.frames, None]:
        while waiting and (frame is None or max(free_ns, waiting[0].at_ns) <= frame.at_ns):
            first = waiting.popleft()
            held -= len(first.data)
            first.left_ns = max(free_ns, first.at_ns)
            free_ns = first.left_ns + round(len(first.data) * 8e9 / scene.rate_bps)
        if frame is None:
            return
        frame.found_bytes = held
        full = len(waiting) + 1 if scene.in_packets else held + len(frame.data)
        if full <= scene.limit:
            waiting.append(frame)
            held += len(frame.data)


def joined(scene: Scene, folder: Path) -> Join:
    """The join of a scene's captures."""
    files: dict[str, list[tuple[int, bytes]]] = {"o": []}
    for frame in scene.frames:
        if frame.port is not None and frame.port != scene.hidden:
            files.setdefault(frame.port, []).append((frame.at_ns, frame.data))
        if frame.left_ns is not None:
            files["o"].append((frame.left_ns, frame.data))
    if scene.both_ways:
        for frame in scene.frames:
            # What goes to all hosts leaves by the other ports too.
            if frame.data[0] & 1:
                for port in files.keys() - {"o", frame.port}:
                    files[port].append((frame.at_ns + 2_000, frame.data))
        for frame in scene.back:
            files["o"].append((frame.at_ns, frame.data))
            port = "ab"[frame.data[33] - 1]
            files[port].append((frame.at_ns + 5_000, frame.data))
    paths = {}
    for port, rows in files.items():
        paths[port] = folder / f"{port}.pcap"
        with paths[port].open("wb") as file:
            file.write(bytes.fromhex("4d3cb2a1020004000000000000000000"))
            file.write(struct.pack("<II", 262144, 1))
            for at_ns, data in sorted(rows):
                seconds, rest = divmod(EPOCH_NS + at_ns, 10**9)
                part = data[:SNAPLEN]
                file.write(struct.pack("<4I", seconds, rest, len(part), len(data)) + part)
    outputs = {"o": paths.pop("o")}
    sides = {"ports": paths | outputs} if scene.both_ways else {"inputs": paths, "outputs": outputs}
    return join_captures(**sides, destinations=[".".join(map(str, OWN_DST))])


def faults(scene: Scene, join: Join) -> Iterator[str]:
    """What a join says that is not so."""
    own = [frame for frame in scene.frames if frame.is_own]
    found = join.joined
    verdicts = np.array([frame.left_ns is None for frame in own])
    told = found.verdict != Verdict.UNKNOWN  # The last ones may be in flight.
    if told.size != verdicts.size or told.sum() < 0.9 * told.size:
        yield f"{int(told.sum())} verdicts of {verdicts.size}"
        return
    if wrong := int(((found.verdict == Verdict.DROPPED) != verdicts)[told].sum()):
        yield f"{wrong} verdicts wrong"
        return
    levels = np.array([frame.found_bytes for frame in own])
    stated = join.queue.found_bytes
    unseen = found.unknown_share(found.outputs.index("o"))
    if (stated >= 0).any():
        wrong = int((stated != levels).sum())
        if wrong > (0.02 * levels.size if unseen else 0) and unseen < 1e-9:
            yield f"{wrong} of {levels.size} levels"
        if unseen and (np.abs(stated - levels) > 3_100).mean() > 0.02:
            yield f"levels off by more than two frames, {unseen:.2%} unseen"
    (estimate,) = (one for one in join.estimates if one.port == "o")
    if estimate.rate_bps is not None:
        off = abs(estimate.rate_bps / scene.rate_bps - 1)
        if off > 0.002 + unseen or not (
            estimate.rate_low_bps * 0.998 <= scene.rate_bps <= estimate.rate_high_bps * 1.002
        ):
            yield f"{estimate.rate_bps:.0f} bps"
    said = any("no capture shows when they" in line for line in join.remarks)
    if (stated >= 0).any() and unseen and not said:
        yield f"{unseen:.2%} unseen, and no line"
    if estimate.limit_at_least is not None:
        below = estimate.limit_below or 1 << 40
        is_packets = estimate.limit_unit == "packets"
        if is_packets == scene.in_packets and not (estimate.limit_at_least <= scene.limit < below):
            yield f"limit {estimate.limit_at_least} to {below}"
    for line in join.remarks:
        if "cable" in line or "policer" in line or ("at contents" in line and unseen < 1e-9):
            yield line
    if not unseen and found.shows_content(found.outputs.index("o")):
        yield from _chain_faults(scene, join)


def _chain_faults(scene: Scene, join: Join) -> Iterator[str]:
    """Chains of drops that are not those of the queue."""
    current: dict[str, list[int]] = {}
    truth = []
    for frame in scene.frames:
        if frame.left_ns is not None:
            for port in list(current):
                if port == frame.port:
                    truth.append((port, *current.pop(port)[:3]))
                else:
                    current[port][3] += 1
        elif frame.is_own and frame.port is not None:
            chain = current.setdefault(frame.port, [frame.at_ns, 0, 0, 0])
            chain[1] += 1
            chain[2] = chain[3]
    truth += [(port, *chain[:3]) for port, chain in current.items()]
    chains, inputs = join.chains, join.joined.inputs
    shown = [
        (inputs[ingress], at - EPOCH_NS, drops, through)
        for ingress, at, drops, through in zip(
            chains.ingress.tolist(),
            chains.t_start_ns.tolist(),
            chains.drops.tolist(),
            chains.others_through.tolist(),
            strict=True,
        )
    ]
    if sorted(truth) != sorted(shown):
        yield f"{len(set(truth) ^ set(shown))} of {len(truth)} chains"


def tried(seed: int, folder: Path) -> tuple[str, list[str]]:
    """A scene in words, and what a join of it has wrong."""
    scene = make(seed)
    try:
        return scene.words, list(faults(scene, joined(scene, folder)))
    except UntrustedError as error:
        # What comes from a port that was not captured is nowhere seen to come in.
        return scene.words, [] if scene.hidden and scene.both_ways else [f"refused: {error}"]
