"""A reference switch: ports that share a drop-tail FIFO, and the captures of these ports.

Independent of the code under test: the queue is simulated packet by packet, and the captures are
laid out byte by byte from tables of header fields.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

FRAME_HEADERS = 14 + 20 + 32

RECORD = np.dtype(
    [
        ("seconds", "<u4"),
        ("nanoseconds", "<u4"),
        ("captured", "<u4"),
        ("original", "<u4"),
        ("mac_dst", "V6"),
        ("mac_src", "V6"),
        ("ethertype", ">u2"),
        ("version", "u1"),
        ("tos", "u1"),
        ("total", ">u2"),
        ("ip_id", ">u2"),
        ("fragment", ">u2"),
        ("ttl", "u1"),
        ("protocol", "u1"),
        ("ip_checksum", ">u2"),
        ("src", ">u4"),
        ("dst", ">u4"),
        ("sport", ">u2"),
        ("dport", ">u2"),
        ("seq", ">u4"),
        ("ack", ">u4"),
        ("data_offset", "u1"),
        ("flags", "u1"),
        ("window", ">u2"),
        ("checksum", ">u2"),
        ("urgent", ">u2"),
        ("option", ">u4"),
        ("tsval", ">u4"),
        ("tsecr", ">u4"),
    ]
)

PCAP_HEADER = bytes.fromhex("4d3cb2a1 0200 0400 00000000 00000000 00000400 01000000")


@dataclass
class Traffic:
    """Packets that come in at a switch, in the order of time, and what became of them.

    `t_out` is -1 for a packet that was dropped; `found` is the queue's bytes on arrival.
    """

    port: npt.NDArray[np.int64]
    t_in: npt.NDArray[np.int64]
    src: npt.NDArray[np.int64]
    sport: npt.NDArray[np.int64]
    ip_id: npt.NDArray[np.int64]
    seq: npt.NDArray[np.int64]
    payload: npt.NDArray[np.int64]
    tsval: npt.NDArray[np.int64]
    flags: npt.NDArray[np.int64]
    t_out: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    found: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def frame(self) -> npt.NDArray[np.int64]:
        return self.payload + FRAME_HEADERS

    def __len__(self) -> int:
        return len(self.t_in)


def drop_tail(traffic: Traffic, limit: int, rate_bps: int, count_packets: bool = False) -> Traffic:
    """Passes the packets through a FIFO of `limit` bytes (or packets) that sends at `rate_bps`.

    A packet leaves the queue when the one before it has been sent, as a shaper releases it.
    """
    queue: deque[tuple[int, int]] = deque()
    held = 0
    free_at = 0
    t_out = np.full(len(traffic), -1, np.int64)
    found = np.empty(len(traffic), np.int64)
    frames = traffic.frame.tolist()
    for i, now in enumerate(traffic.t_in.tolist()):
        while queue and queue[0][0] <= now:
            held -= queue.popleft()[1]
        found[i] = held
        frame = frames[i]
        if (len(queue) + 1 > limit) if count_packets else (held + frame > limit):
            continue
        leaves = max(now + 300, free_at)
        free_at = leaves + frame * 8 * 10**9 // rate_bps
        queue.append((leaves, frame))
        held += frame
        t_out[i] = leaves
    return replace(traffic, t_out=t_out, found=found)


def make_traffic(
    seed: int,
    packets: int,
    flows_per_port: tuple[int, ...] = (1, 12),
    rate_bps: int = 10**9,
    load: float = 1.15,
    start_ns: int = 1_700_000_000_000_000_000,
) -> Traffic:
    """Bursts of full and small packets from several hosts per port, at random.

    Some sequence numbers are sent again (with a new IP id), flows start close to the wrap of
    their sequence numbers, and every fifth host leaves the IP id at zero.
    """
    rng = np.random.default_rng(seed)
    parts = []
    share = packets // len(flows_per_port)
    host = 2
    for port, flows in enumerate(flows_per_port):
        n = share if port else packets - share * (len(flows_per_port) - 1)
        payload = np.where(rng.random(n) < 0.95, 1448, rng.integers(0, 1448, n))
        wire_ns = (payload + FRAME_HEADERS) * 8 * 10**9 // rate_bps
        idle = np.where(rng.random(n) < 0.03, rng.exponential(1.0, n), 0.0)
        slack = wire_ns.sum() * (len(flows_per_port) / load - 1)
        idle_ns = (idle / max(idle.sum(), 1e-9) * max(slack, 0)).astype(np.int64)
        t_in = start_ns + np.cumsum(wire_ns + idle_ns) + rng.integers(0, 400, n)
        t_in = np.maximum.accumulate(t_in)
        # A flow keeps sending for some packets before another flow follows.
        flow = rng.integers(0, flows, n)
        keep = rng.random(n) < 0.7
        last = np.maximum.accumulate(np.where(keep, 0, np.arange(n)))
        flow = flow[last]
        seq = np.empty(n, np.int64)
        ip_id = np.empty(n, np.int64)
        for f in range(flows):
            mine = np.flatnonzero(flow == f)
            sizes = payload[mine]
            first = int(rng.integers(0, 2**32)) if f % 3 else 2**32 - 5000
            fresh = first + np.concatenate([[0], np.cumsum(sizes)[:-1]]) if mine.size else sizes
            again = rng.random(mine.size) < 0.02
            back = np.maximum(np.arange(mine.size) - rng.integers(1, 50, mine.size), 0)
            # A retransmission repeats both the number and the length of an earlier packet.
            payload[mine] = np.where(again, sizes[back], sizes)
            seq[mine] = np.where(again, fresh[back], fresh) % 2**32
            counter = (int(rng.integers(0, 65536)) + np.arange(mine.size)) % 65536
            ip_id[mine] = 0 if (host + f) % 5 == 0 else counter
        address = (10 << 24) + host + flow
        parts.append(
            Traffic(
                port=np.full(n, port),
                t_in=t_in,
                src=address,
                sport=20001 + flow,
                ip_id=ip_id,
                seq=seq,
                payload=payload,
                tsval=(t_in // 1000) % 2**32,
                flags=np.full(n, 0x10),
            )
        )
        host += flows
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("port", "t_in", "src", "sport", "ip_id", "seq", "payload", "tsval", "flags")
    }
    order = np.argsort(columns["t_in"], kind="stable")
    return Traffic(**{name: values[order] for name, values in columns.items()})


def records(
    traffic: Traffic, rows: npt.NDArray[np.int64], stamps: npt.NDArray[np.int64]
) -> npt.NDArray[np.void]:
    """The capture records of some packets, seen at `stamps`."""
    made = np.zeros(rows.size, RECORD)
    made["seconds"] = stamps // 10**9
    made["nanoseconds"] = stamps % 10**9
    made["captured"] = FRAME_HEADERS
    made["original"] = traffic.frame[rows]
    made["mac_dst"] = np.void(bytes.fromhex("020000000001"))
    made["mac_src"] = np.void(bytes.fromhex("020000000002"))
    made["ethertype"] = 0x0800
    made["version"] = 0x45
    made["total"] = traffic.frame[rows] - 14
    made["ip_id"] = traffic.ip_id[rows]
    made["fragment"] = 0x4000
    made["ttl"] = 64
    made["protocol"] = 6
    made["src"] = traffic.src[rows]
    made["dst"] = (10 << 24) + 1
    made["sport"] = traffic.sport[rows]
    made["dport"] = 5001
    made["seq"] = traffic.seq[rows]
    made["ack"] = 1
    made["data_offset"] = 0x80
    made["flags"] = traffic.flags[rows]
    made["window"] = 502
    made["option"] = 0x0101080A
    made["tsval"] = traffic.tsval[rows]
    # A stand-in that depends on the fields that the real checksum covers.
    made["checksum"] = (traffic.seq[rows] ^ traffic.tsval[rows] ^ traffic.payload[rows]) & 0xFFFF
    return made


def captures(traffic: Traffic) -> dict[str, npt.NDArray[np.void]]:
    """The records of each port: `in0`, `in1`, ... and `out`."""
    made = {}
    for port in range(int(traffic.port.max()) + 1):
        rows = np.flatnonzero(traffic.port == port)
        made[f"in{port}"] = records(traffic, rows, traffic.t_in[rows])
    left = np.flatnonzero(traffic.t_out >= 0)
    left = left[np.argsort(traffic.t_out[left], kind="stable")]
    made["out"] = records(traffic, left, traffic.t_out[left])
    return made


def write_pcap(path: Path, made: npt.NDArray[np.void]) -> Path:
    """Writes records as a nanosecond pcap of Ethernet frames."""
    with path.open("wb") as stream:
        stream.write(PCAP_HEADER)
        made.tofile(stream)
    return path


def write_captures(folder: Path, made: dict[str, npt.NDArray[np.void]]) -> dict[str, Path]:
    """Writes every port's records to `folder`."""
    return {name: write_pcap(folder / f"{name}.pcap", part) for name, part in made.items()}
