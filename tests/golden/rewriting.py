"""A router that changes packets, written by scapy, and what a join has to say of each packet."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from scapy.all import ICMP, IP, TCP, UDP, Ether, Packet, PcapWriter, Raw

from outcast.analysis.join.join import Verdict
from outcast.api.joins import Join, join_captures

CLIENTS, SERVER = ("10.0.1.2", "10.0.1.3"), "10.0.3.1"
START_S = 1_700_000_000

Change = Callable[[Packet], Iterable[Packet]]
"""A packet as A has it to what R has of it."""


@dataclass
class Router:
    """Two captures, A and R, as times in nanoseconds and packets, and what became of each packet.

    `forth` and `back` change what A's hosts send, and what they get. `fate` has for each time at
    which a packet came in the time at which it left, or None.
    """

    forth: Change
    back: Change
    seen: dict[str, list[tuple[int, Packet]]] = field(default_factory=lambda: {"A": [], "R": []})
    fate: dict[int, int | None] = field(default_factory=dict)

    def send(self, at_ns: int, packet: Packet, *, back: bool = False, lost: bool = False) -> None:
        """Passes a packet of A's hosts to R, or `back`; its stay is a few microseconds."""
        came, left = ("R", "A") if back else ("A", "R")
        leaves_ns = at_ns + 5_000
        came_as = self.back(packet.copy()) if back else [packet]
        self.seen[came] += [(at_ns, part) for part in came_as]
        self.fate[START_S * 10**9 + at_ns] = None if lost else START_S * 10**9 + leaves_ns
        if lost:
            return
        passed = packet.copy()
        passed.ttl -= 1
        for number, part in enumerate([passed] if back else self.forth(passed)):
            self.seen[left].append((leaves_ns + 200 * number, part))

    def join(self, folder: Path, **options: bool) -> Join:
        """Writes the captures and joins them."""
        paths = {}
        for name, packets in self.seen.items():
            paths[name] = folder / f"{name}.pcap"
            with PcapWriter(str(paths[name]), linktype=1, nano=True) as writer:
                writer.write_header(None)
                for at_ns, packet in sorted(packets, key=lambda seen: seen[0]):
                    mac = "02:00:00:00:00:0a" if name == "A" else "02:00:00:00:00:0b"
                    frame = bytes(Ether(src=mac, dst="02:00:00:00:00:0c") / packet)
                    writer.write_packet(frame, sec=START_S + at_ns // 10**9, usec=at_ns % 10**9)
        return join_captures(ports=paths, routed=True, **options)

    def faults(self, result: Join) -> list[str]:
        """Packets of which the join says something else."""
        got = result.joined
        found = []
        told = set()
        for row in range(len(got.arrivals)):
            came_ns, left_ns = int(got.arrivals.stamp_ns[row]), int(got.t_out_ns[row])
            told.add(came_ns)
            wanted = self.fate[came_ns]
            if int(got.verdict[row]) == Verdict.UNKNOWN:
                found.append(f"{came_ns}: unknown")
            elif (left_ns if left_ns >= 0 else None) != wanted:
                found.append(f"{came_ns}: left at {left_ns}, truly {wanted}")
        found += [f"{at}: takes no part" for at in self.fate if at not in told]
        return found


def unchanged(packet: Packet) -> list[Packet]:
    """What a plain router does."""
    return [packet]


def traffic(
    router: Router, seed: int, *, kinds: str = "tu", packets: int = 120, server: str = SERVER
) -> Router:
    """Connections with losses by chance: t is TCP, u is UDP, i is ICMP echo.

    A's hosts know the server by the address `server`.
    """
    draw = random.Random(seed)
    ids = {host: draw.randrange(65536) for host in (*CLIENTS, server)}

    def next_id(host: str) -> int:
        ids[host] = (ids[host] + 1) % 65536
        return ids[host]

    def ip(src: str, dst: str) -> IP:
        return IP(src=src, dst=dst, id=next_id(src), ttl=64)

    flows = [
        (kind, host, draw.randrange(20000, 60000), draw.randrange(2**32), draw.randrange(2**32))
        for kind in kinds
        # Nothing but the packets tells the echoes of one host behind a NAT from those of another.
        for host in CLIENTS[: 1 if kind == "i" else 2]
    ]
    sent = dict.fromkeys(flows, 0)
    now_ns = 0
    for number in range(packets):
        now_ns += draw.randrange(60_000, 300_000)
        flow = kind, host, port, first, answer = draw.choice(flows)
        lost = number > 20 and number < packets - 20 and draw.random() < 0.1
        size = draw.choice([100, 700, 1200])
        if kind == "t":
            seq, ack = (first + sent[flow]) % 2**32, (answer + 1) % 2**32
            times = [("Timestamp", (1000 + number, 500))]
            data = TCP(
                sport=port, dport=5001, seq=seq, ack=ack, flags="A", options=times
            )  # fmt: skip
            router.send(now_ns, ip(host, server) / data / Raw(draw.randbytes(size)), lost=lost)
            if lost:
                # It is sent again at once, because a join wants to see that.
                again = data.copy()
                again.options = [("Timestamp", (1000 + number, 501))]
                router.send(now_ns + 20_000, ip(host, server) / again / Raw(draw.randbytes(size)))
            sent[flow] += size
            reply = TCP(
                sport=5001, dport=port, seq=ack, ack=(first + sent[flow]) % 2**32, flags="A",
                options=[("Timestamp", (700 + number, 1000 + number))],
            )  # fmt: skip
            router.send(now_ns + 40_000, ip(server, host) / reply, back=True)
        elif kind == "u":
            data = UDP(sport=port, dport=53) / Raw(draw.randbytes(size))
            router.send(now_ns, ip(host, server) / data, lost=lost)
            reply = UDP(sport=53, dport=port) / Raw(draw.randbytes(90))
            router.send(now_ns + 40_000, ip(server, host) / reply, back=True)
        else:
            echo = ICMP(type=8, id=port % 65536, seq=number) / Raw(draw.randbytes(56))
            router.send(now_ns, ip(host, server) / echo, lost=lost)
            if not lost:
                reply = ICMP(type=0, id=port % 65536, seq=number) / Raw(draw.randbytes(56))
                router.send(now_ns + 40_000, ip(server, host) / reply, back=True)
    return router


def fresh(packet: Packet) -> Packet:
    """The packet with lengths and checksums of its own."""
    for layer in (IP, TCP, UDP, ICMP):
        if layer in packet:
            packet[layer].chksum = None
    return type(packet)(bytes(packet))
