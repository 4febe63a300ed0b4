"""What may stand between a frame and IP, as scapy writes it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from scapy.all import IP, TCP, Dot1AD, Dot1Q, Ether, PcapWriter, PPPoE, Raw
from scapy.contrib.mpls import MPLS, EoMCW
from scapy.layers.ppp import PPP

from outcast.analysis.capture.pcap import read_capture

PACKET = (
    IP(src="10.0.0.2", dst="10.0.0.1", id=7) / TCP(sport=20001, dport=5001, seq=9) / Raw(b"x" * 100)
)
INNER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
BYTES = bytes(PACKET)


def ether(kind: int, rest: bytes) -> bytes:
    return bytes.fromhex("020000000002020000000001") + struct.pack("!H", kind) + rest


LAYERS = {
    "plain": (1, bytes(INNER / PACKET)),
    "QinQ": (1, bytes(INNER / Dot1AD(vlan=5) / Dot1Q(vlan=7) / PACKET)),
    "PPPoE": (1, bytes(INNER / PPPoE(sessionid=1) / PPP(proto=0x21) / PACKET)),
    "MPLS": (1, bytes(INNER / MPLS(label=16, s=0, ttl=9) / MPLS(label=17, s=1, ttl=9) / PACKET)),
    "pseudowire": (1, bytes(INNER / MPLS(label=18, s=1, ttl=9) / EoMCW() / INNER / PACKET)),
    "802.1ah": (1, ether(0x88E7, b"\0\0\0\5" + ether(0x0800, BYTES))),
    "E-tag": (1, ether(0x893F, bytes(6) + struct.pack("!H", 0x0800) + BYTES)),
    "FabricPath": (1, ether(0x8903, bytes(2) + ether(0x0800, BYTES))),
    "BSD loopback": (0, struct.pack("<I", 2) + BYTES),
    "OpenBSD loopback": (108, struct.pack(">I", 2) + BYTES),
    "PPP": (9, b"\xff\x03\x00\x21" + BYTES),
    "PPP without address": (9, b"\x00\x21" + BYTES),
    "Cisco HDLC": (104, b"\x0f\x00\x08\x00" + BYTES),
    "NFLOG": (
        239,
        b"\2\0\0\0"
        + struct.pack("<HH4s", 8, 1, b"abcd")
        + struct.pack("<HH", 4 + len(BYTES), 9)
        + BYTES,
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_ip_is_found_behind(name: str, tmp_path: Path) -> None:
    link, frame = LAYERS[name]
    path = tmp_path / "a.pcap"
    # Cut off anywhere, it is left out and never misread.
    sizes = [len(frame), *range(0, len(frame) - 120, 3)]
    path.write_bytes(
        struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link)
        + b"".join(
            struct.pack("<IIII", 1_700_000_000, 0, size, len(frame)) + frame[:size]
            for size in sizes
        )
    )
    capture = read_capture("a", path)
    columns = capture.columns
    assert [(flow.src, flow.sport, flow.dst, flow.dport) for flow in capture.flows] == [
        ("10.0.0.2", 20001, "10.0.0.1", 5001)
    ]
    assert (columns.ip_id[0], columns.seq[0], columns.payload_bytes[0]) == (7, 9, 100)
    assert capture.records == len(sizes)


def test_what_is_not_ip_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    with PcapWriter(str(path), linktype=1) as writer:
        writer.write_header(None)
        writer.write_packet(bytes(INNER / PACKET), sec=1_700_000_000, usec=0)
        writer.write_packet(ether(0x0806, bytes(28)), sec=1_700_000_000, usec=1)
    (remark,) = read_capture("a", path).remarks
    assert remark == f"{path}: 1 packets are not IP (ARP and the like) and take no part"
