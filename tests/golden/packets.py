"""Captures written by hand, a line per packet, for tests that can be checked by eye."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from outcast.analysis.capture.pcap import read_capture, read_captures
from outcast.analysis.join.join import Joined, JoinOptions, join
from tests.golden.model import PCAP_HEADER, Traffic, captures, records, write_captures


@dataclass(frozen=True)
class P:
    """A packet that is seen at a time in microseconds. By default it is a full data segment."""

    at_us: float
    seq: int = 0
    src: str = "10.0.0.2"
    sport: int = 20001
    ip_id: int = 1
    payload: int = 1448
    tsval: int = 7
    flags: int = 0x10
    ttl: int = 64
    checksum: int | None = None
    dst: str = "10.0.0.1"
    mac: str = "020000000002"
    tos: int = 0


def _address(text: str) -> int:
    return int.from_bytes(bytes(int(part) for part in text.split(".")))


def capture(path: Path, packets: list[P]) -> Path:
    """Writes the packets to a nanosecond pcap, in the order given."""
    columns = {
        "port": [0 for _ in packets],
        "t_in": [round(packet.at_us * 1000) for packet in packets],
        "src": [_address(packet.src) for packet in packets],
        "sport": [packet.sport for packet in packets],
        "ip_id": [packet.ip_id for packet in packets],
        "seq": [packet.seq for packet in packets],
        "payload": [packet.payload for packet in packets],
        "tsval": [packet.tsval for packet in packets],
        "flags": [packet.flags for packet in packets],
    }
    traffic = Traffic(**{name: np.array(values, np.int64) for name, values in columns.items()})
    made = records(traffic, np.arange(len(packets)), traffic.t_in)
    made["ttl"] = [packet.ttl for packet in packets]
    made["tos"] = [packet.tos for packet in packets]
    made["dst"] = [_address(packet.dst) for packet in packets]
    made["mac_src"] = [np.void(bytes.fromhex(packet.mac)) for packet in packets]
    for row, packet in enumerate(packets):
        if packet.checksum is not None:
            made["checksum"][row] = packet.checksum
    path.write_bytes(PCAP_HEADER + made.tobytes())
    return path


Side = list[P] | dict[str, list[P]]


def joined(folder: Path, came: Side, left: Side, options: JoinOptions | None = None) -> Joined:
    """The join of inputs and outputs by their names; a list is of the input `a`, or of `out`."""
    sides = (
        side if isinstance(side, dict) else {name: side}
        for side, name in ((came, "a"), (left, "out"))
    )
    inputs, outputs = (
        [read_capture(name, capture(folder / name, packets)) for name, packets in side.items()]
        for side in sides
    )
    return join(inputs, outputs, options or JoinOptions())


def joined_model(folder: Path, traffic: Traffic) -> Joined:
    """The join of what a reference switch did, which was watched for a second longer."""
    paths = write_captures(folder, captures(traffic))
    read = read_captures(list(paths.items()))
    end = int(traffic.t_in[-1]) + 10**9
    return join(read[:-1], read[-1:], JoinOptions(watched_ns=(0, end)))
