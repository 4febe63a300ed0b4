"""Random switches whose ports have two files, equal paths or tunnels, and what a join has to say.

Each output is a FIFO of bytes with drop-tail.
"""

import random
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from outcast.analysis.join.join import Verdict
from outcast.api.joins import Join, join_captures
from outcast.errors import OutcastError

CLIENTS = {1: "a", 2: "a", 3: "b", 4: "b"}
"""For each client, which is 10.0.0.N, its port."""
SERVERS = (8, 9)
"""Hosts behind the far ports."""
SPREADS = ("one", "turns", "draw", "flow", "host", "moves")
"""How packets are spread over the far ports: all by one, one by one in turns or by chance, by the
hash of their flow or of their hosts, or by one port until it fails."""
TUNNELS = ("gre", "ipip", "vxlan", "geneve", "gtp", "teb")
"""What the far ports' packets are in."""
CARRIED = ("none", "none", "none", "begins", "begins", "passes")
"""Whether packets are in no tunnel, or in one that begins at the switch or passes it."""
EPOCH_NS = 1_700_000_000 * 10**9
SNAPLEN = 160


@dataclass(frozen=True)
class Sent:
    """A packet: when it came in, its ends, its number, and the bytes of its frame."""

    at_ns: int
    src: int
    dst: int
    port: int
    number: int
    size: int


@dataclass
class Scene:
    """A switch by chance, and what became of each packet.

    Attributes:
        halves: the ports that have a file for each direction.
        out: for each packet the port by which it left, or where its queue was full.
        left_ns: when it left; None if it was dropped.
    """

    seed: int
    spread: str
    tunnel: str
    carried: str
    far: tuple[str, ...]
    halves: frozenset[str]
    routed: bool
    said: bool
    rate_bps: dict[str, float]
    limit_bytes: dict[str, int]
    sent: list[Sent] = field(default_factory=list)
    out: dict[Sent, str] = field(default_factory=dict)
    left_ns: dict[Sent, int | None] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """What kind of scene it is."""
        return (
            f"{self.seed}: {self.spread} over {' '.join(self.far)}, {self.carried} "
            f"in {self.tunnel}, "
            f"two files {' '.join(sorted(self.halves)) or 'none'}, routed {self.routed}, "
            f"said {self.said}"
        )

    def size(self, packet: Sent, is_far: bool) -> int:
        """The bytes of a packet's frame on the link of a far port, or of another one."""
        return packet.size + (_added(self.tunnel) if self.is_inside(is_far) else 0)

    def is_inside(self, is_far: bool) -> bool:
        """Whether packets are in a tunnel on the link of a far port, or of another one."""
        return self.carried == "passes" or (self.carried == "begins" and is_far)


def make(seed: int) -> Scene:
    """A scene by chance."""
    draw = random.Random(seed)
    spread = draw.choice(SPREADS)
    far = ("l1",) if spread == "one" else ("l1", "l2", "l3")[: draw.choice((2, 2, 3))]
    ports = ("a", "b", *far)
    rate = draw.choice((5e6, 20e6, 100e6))
    scene = Scene(
        seed,
        spread,
        draw.choice(TUNNELS),
        draw.choice(CARRIED),
        far,
        frozenset(port for port in ports if draw.random() < 0.4),
        routed=draw.random() < 0.3,
        said=draw.random() < 0.3,
        rate_bps={port: rate * draw.choice((1, 1, 0.5)) for port in ports},
        limit_bytes={port: draw.choice((8_000, 20_000, 64_000)) for port in ports},
    )
    both_ways = draw.random() < 0.8
    load_bps = draw.choice((0.8, 1.1, 1.5)) * sum(scene.rate_bps[port] for port in far)
    pairs = [
        (client, server, 5000 + flow)
        for client in CLIENTS
        for server in SERVERS
        for flow in range(draw.choice((1, 3)))
    ]
    end_ns = round(4_000 * 8 * 700 / load_bps * 1e9)
    clock: float = 0
    rows: list[tuple[float, int, int, int]] = []
    while clock < end_ns:
        clock += draw.expovariate(load_bps / (8 * 700)) * 1e9
        client, server, port = draw.choice(pairs)
        rows.append((clock, client, server, port))
        if both_ways and draw.random() < 0.6:
            rows.append((clock + draw.expovariate(1e-6), server, client, port))
    # What had not left by then was dropped.
    quiet_ns = end_ns + 2 * 10**9
    for turn in range(6):
        for number, (client, server, port) in enumerate(pairs):
            at: float = quiet_ns + (turn * len(pairs) + number) * 10**7
            rows += [(at, client, server, port), (at + 5e6, server, client, port)][: 1 + both_ways]
            # Another one, so that turns pass every path.
            rows += [(at + 6e6, client, server, port)] * (turn % 2)
    seen: dict[tuple[int, int], int] = {}
    for at, src, dst, port in sorted(rows):
        # Hosts begin to count anywhere.
        seen[src, dst] = seen.get((src, dst), draw.randrange(1 << 15)) + 1
        size = draw.choice((120, 600, 1400))
        scene.sent.append(Sent(round(at), src, dst, port, seen[src, dst], size))
    _serve(scene, draw)
    return scene


def _serve(scene: Scene, draw: random.Random) -> None:
    """Sends each packet by its output, if the queue there has a place for it."""
    waiting: dict[str, deque[tuple[int, int]]] = {port: deque() for port in scene.rate_bps}
    held = dict.fromkeys(waiting, 0)
    free_ns = dict.fromkeys(waiting, 0)
    fails_ns = scene.sent[-1].at_ns // 3
    for turn, packet in enumerate(scene.sent):
        out = _output(scene, packet, turn, fails_ns, draw)
        scene.out[packet] = out
        queue, size = waiting[out], scene.size(packet, packet.dst in SERVERS)
        while queue and queue[0][0] <= packet.at_ns:
            held[out] -= queue.popleft()[1]
        if held[out] + size > scene.limit_bytes[out]:
            scene.left_ns[packet] = None
            continue
        begin = max(packet.at_ns + 1_000, free_ns[out])
        free_ns[out] = begin + round(size * 8e9 / scene.rate_bps[out])
        scene.left_ns[packet] = free_ns[out]
        queue.append((free_ns[out], size))
        held[out] += size


def _output(scene: Scene, packet: Sent, turn: int, fails_ns: int, draw: random.Random) -> str:
    if packet.dst in CLIENTS:
        return CLIENTS[packet.dst]
    return _path(scene, packet, turn, fails_ns, draw)


def _path(scene: Scene, packet: Sent, turn: int, fails_ns: int, draw: random.Random) -> str:
    """The far port that a packet passes."""
    far = scene.far
    ends = packet.src, packet.dst, packet.port
    if scene.spread == "turns":
        return far[turn % len(far)]
    if scene.spread == "draw":
        return draw.choice(far)
    if scene.spread == "flow":
        return far[random.Random(str(ends)).randrange(len(far))]
    if scene.spread == "host":
        return far[sum(ends[:2]) % len(far)]
    return far[scene.spread == "moves" and packet.at_ns > fails_ns]


# --- captures


def _added(tunnel: str) -> int:
    """How many bytes a tunnel adds to a frame."""
    return {"gre": 24, "ipip": 20, "vxlan": 50, "geneve": 50, "gtp": 36, "teb": 38}[tunnel]


def _ip(
    src: bytes, dst: bytes, number: int, protocol: int, ttl: int, body: bytes, size: int
) -> bytes:
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + size, number & 0xFFFF, 0, ttl, protocol, 0)
    return head + src + dst + body


def _mac(host: int) -> bytes:
    return bytes([2, 0, 0, 0, 0, host])


def frame(packet: Sent, ttl: int, tunnel: str) -> bytes:
    """The first bytes of a frame as it is captured; `tunnel` is what it is in, if anything."""
    src, dst = (bytes([10, 0, 0, host]) for host in (packet.src, packet.dst))
    rest = packet.size - 34
    body = struct.pack(">HHHHI", packet.port, packet.port, rest, 7, packet.number)
    inner = _ip(src, dst, packet.number, 17, ttl, body, rest)
    link = _mac(packet.dst) + _mac(packet.src) + b"\x08\x00"
    if not tunnel:
        return link + inner
    # The numbers of the tunnel's ends do not depend on what is inside.
    protocol, head = {
        "gre": (47, struct.pack(">HH", 0, 0x0800)),
        "ipip": (4, b""),
        "teb": (47, struct.pack(">HH", 0, 0x6558) + link),
        "vxlan": (17, struct.pack(">HHHHII", 49_152, 4789, 0, 0, 0x08000000, 77 << 8) + link),
        "geneve": (17, struct.pack(">HHHHHHI", 49_152, 6081, 0, 0, 0, 0x6558, 77 << 8) + link),
        "gtp": (17, struct.pack(">HHHHBBHI", 2152, 2152, 0, 0, 0x30, 255, packet.size - 14, 77)),
    }[tunnel]
    ends = bytes([172, 16, 0, 1]), bytes([172, 16, 0, 2])
    if packet.src in SERVERS:
        ends = ends[::-1]
    size = len(head) + packet.size - 14
    return link + _ip(*ends, packet.number * 7, protocol, 64, head + inner, size)


def _captured(scene: Scene, packet: Sent, ttl: int, is_far: bool) -> tuple[int, bytes]:
    """The bytes of a captured frame, and the first of them."""
    tunnel = scene.tunnel if scene.is_inside(is_far) else ""
    return scene.size(packet, is_far), frame(packet, ttl, tunnel)


def joined(scene: Scene, folder: Path) -> Join:
    """The join of a scene's captures."""
    files: dict[tuple[str, str], list[tuple[int, int, bytes]]] = {}
    for port in scene.rate_bps:
        for way in ("in", "out"):
            files[port, way if port in scene.halves else "any"] = []
    draw = random.Random(scene.seed)
    last_ns = scene.sent[-1].at_ns + 10**9
    for turn, packet in enumerate(scene.sent):
        from_far, to_far = packet.src in SERVERS, packet.dst in SERVERS
        came_by = CLIENTS.get(packet.src) or _path(scene, packet, turn, 10**18, draw)
        seen = _captured(scene, packet, 64, from_far)
        way = "in" if came_by in scene.halves else "any"
        files[came_by, way].append((packet.at_ns, *seen))
        out, left_ns = scene.out[packet], scene.left_ns[packet]
        if left_ns is not None:
            gone = _captured(scene, packet, 64 - scene.routed, to_far)
            way = "out" if out in scene.halves else "any"
            files[out, way].append((left_ns, *gone))
    sides: dict[str, dict[str, Path]] = {"in": {}, "out": {}, "any": {}}
    for (port, way), rows in files.items():
        path = folder / f"{port}.{way}.pcap"
        # All captures have one span: something of another protocol begins and ends them.
        ends = [(at_ns, 60, b"\xff" * 6 + _mac(1) + b"\x88\xb5") for at_ns in (0, last_ns)]
        _write(path, sorted([*rows, *ends]))
        sides[way][port] = path
    if scene.said:
        # The caller says of the clients' ports that they are inputs alone.
        for port, path in sides["any"].items():
            sides["in" if port in "ab" else "out"][port] = path
        sides["any"] = {}
        for port in set(sides["out"]) & set("ab"):
            sides["out"].pop(port)
        for port in set(sides["in"]) - set("ab"):
            sides["in"].pop(port)
    return join_captures(sides["in"], sides["out"], ports=sides["any"], routed=scene.routed)


def _write(path: Path, rows: list[tuple[int, int, bytes]]) -> None:
    with path.open("wb") as file:
        file.write(
            bytes.fromhex("4d3cb2a1020004000000000000000000") + struct.pack("<II", 262144, 1)
        )
        for at_ns, size, data in rows:
            at = divmod(EPOCH_NS + at_ns, 10**9)
            kept = data.ljust(size, b"x")[:SNAPLEN]
            file.write(struct.pack("<4I", *at, len(kept), size) + kept)


# --- what is right


def faults(scene: Scene, result: Join) -> Iterator[str]:
    """What a join has wrong: verdicts, outputs, rates and limits."""
    got = result.joined
    packets = {(p.src, p.dst, p.number & 0xFFFF): p for p in scene.sent}
    expected = len(scene.sent)
    if scene.said:
        expected = sum(packet.dst in SERVERS for packet in scene.sent)
    if len(got.arrivals) != expected:
        yield f"{len(got.arrivals)} of {expected} packets take part"
    for row, (flow, number) in enumerate(
        zip(got.arrivals.flow.tolist(), got.arrivals.ip_id.tolist(), strict=True)
    ):
        src, dst = (
            int(address.rpartition(".")[2])
            for address in (got.flows[flow].src, got.flows[flow].dst)
        )
        packet = packets[src, dst, number]
        right = Verdict.DROPPED if scene.left_ns[packet] is None else Verdict.FORWARDED
        output = int(got.egress[row])
        if int(got.verdict[row]) != right:
            yield f"{packet}: {Verdict(int(got.verdict[row])).name}"
        elif output < 0 and (right == Verdict.FORWARDED or scene.spread in ("one", "flow")):
            yield f"{packet}: no output, truly {scene.out[packet]}"
        elif output >= 0 and got.outputs[output] != scene.out[packet]:
            yield f"{packet}: by {got.outputs[output]}, truly {scene.out[packet]}"
    for estimate in result.estimates:
        rate, limit = scene.rate_bps[estimate.port], scene.limit_bytes[estimate.port]
        low, high = estimate.rate_low_bps, estimate.rate_high_bps
        if low is not None and high is not None and not low * 0.999 <= rate <= high * 1.001:
            yield f"{estimate.port}: {low:.0f} to {high:.0f} bps, truly {rate:.0f}"
        if estimate.limit_at_least is not None and estimate.limit_unit == "bytes":
            below = estimate.limit_below or limit + 1
            # A frame is accepted if it fits, so the limit is between two frames.
            if not estimate.limit_at_least <= limit + 1 or not limit < below + 1500:
                yield f"{estimate.port}: {estimate}, truly {limit}"


def tried(seed: int, folder: Path) -> tuple[str, list[str]]:
    """A scene in words, and what a join of it has wrong."""
    scene = make(seed)
    try:
        return scene.words, list(faults(scene, joined(scene, folder)))
    except OutcastError as error:
        return scene.words, [f"refused: {error}"]
