"""The fast reader of captures against dpkt: the same fields for every packet of the same files."""

import ipaddress
import struct
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dpkt
import pytest
from scapy.all import IP, TCP, UDP, Dot1Q, Ether, IPv6, Raw, raw
from scapy.utils import PcapNgWriter, PcapWriter

from outcast.analysis.capture.headers import HAS_TIMESTAMP
from outcast.analysis.capture.pcap import PortCapture, read_capture
from tests.ethernet import ETHERNET
from tests.golden.model import captures, drop_tail, make_traffic, write_captures

PACKETS = 60_000


Fields = dict[str, Any]
"""What both readers know of a packet; 0 or None where its protocol has no such field."""
FLOW = ("src", "sport", "dst", "dport", "protocol")
COLUMNS = ("stamp_ns", "ip_id", "ttl", "tos", "payload_bytes", "checksum", "seq", "ack", "flags")


def by_outcast(capture: PortCapture) -> list[Fields]:
    columns, flows = capture.columns, [*map(asdict, capture.flows)]
    has_stamps = columns.marks & HAS_TIMESTAMP != 0
    stamps = zip(columns.tsval.tolist(), columns.tsecr.tolist(), strict=True)
    rows = zip(*(getattr(columns, name).tolist() for name in COLUMNS), strict=True)
    return [
        {
            **dict(zip(COLUMNS, row, strict=True)),
            **flows[flow],
            "time_stamps": pair if has else None,
        }
        for flow, row, has, pair in zip(columns.flow, rows, has_stamps, stamps, strict=True)
    ]


def by_dpkt(path: Path) -> list[Fields]:
    with path.open("rb") as stream:
        # Both readers of dpkt give the time as an exact decimal where the file has nanoseconds.
        reader: Any = dpkt.pcapng.Reader if path.suffix == ".pcapng" else dpkt.pcap.Reader
        return [dissected(round(stamp * 10**9), frame) for stamp, frame in reader(stream)]


def dissected(stamp_ns: int, frame: bytes) -> Fields:
    network = dpkt.ethernet.Ethernet(frame).data
    transport = network.data
    is_tcp = isinstance(transport, dpkt.tcp.TCP)
    if isinstance(network, dpkt.ip.IP):
        protocol, ip_id, ttl, tos = network.p, network.id, network.ttl, network.tos
        above_ip = network.len - 4 * network.hl
    else:
        protocol, ip_id, ttl, tos = network.nxt, 0, network.hlim, network.fc
        above_ip = network.plen
    options = dpkt.tcp.parse_opts(transport.opts) if is_tcp else []
    stamps = [value for kind, value in options if kind == dpkt.tcp.TCP_OPT_TIMESTAMP]
    return {
        "stamp_ns": stamp_ns,
        "src": str(ipaddress.ip_address(network.src)),
        "sport": transport.sport,
        "dst": str(ipaddress.ip_address(network.dst)),
        "dport": transport.dport,
        "protocol": protocol,
        "ip_id": ip_id,
        "ttl": ttl,
        "tos": tos,
        "payload_bytes": above_ip - (4 * transport.off if is_tcp else 8),
        "checksum": transport.sum,
        **{name: getattr(transport, name) if is_tcp else 0 for name in ("seq", "ack", "flags")},
        "time_stamps": struct.unpack(">II", stamps[0]) if stamps else None,
    }


def test_every_packet_of_the_golden_captures(tmp_path):
    """More bytes than one block, and with 1500 flows more than the table first has room for."""
    traffic = drop_tail(make_traffic(3, PACKETS, (1500,)), 16384, 10**9)
    packets = 0
    for name, path in write_captures(tmp_path, captures(traffic)).items():
        expected = by_dpkt(path)
        capture = read_capture(name, path)
        assert by_outcast(capture) == expected
        assert len(capture.flows) == len({tuple(map(each.get, FLOW)) for each in expected})
        packets += len(expected)
    assert packets == PACKETS + int((traffic.t_out >= 0).sum())


@pytest.mark.parametrize("suffix", [".pcap", ".pcapng"])
def test_other_headers(tmp_path, suffix):
    time_stamps = [("NOP", None), ("NOP", None), ("Timestamp", (77, 88))]
    segment = TCP(sport=20001, dport=5001, seq=4_000_000_000, ack=9, flags="PA")
    with_options = TCP(sport=20001, dport=5001, flags="S", options=[("MSS", 1460), *time_stamps])
    four = IP(src="10.0.0.2", dst="10.0.0.1", id=4711, ttl=63, tos=46 << 2 | 3)
    six = IPv6(src="fd00::2", dst="::1", tc=34 << 2 | 1)
    datagram = UDP(sport=7, dport=9)
    frames = [
        ETHERNET / four / segment / Raw(b"x" * 1000),
        ETHERNET / four / with_options,
        ETHERNET / four / datagram / Raw(b"y" * 99),
        ETHERNET / Dot1Q(vlan=5) / four / segment / Raw(b"z" * 7),
        ETHERNET / six / segment / Raw(b"x" * 500),
        ETHERNET / six / datagram,
    ]
    path = tmp_path / f"frames{suffix}"
    writer = PcapNgWriter(str(path)) if suffix == ".pcapng" else PcapWriter(str(path), nano=True)
    with writer:
        for number, frame in enumerate(frames):
            packet = Ether(raw(frame))
            packet.time = 1_700_000_000 + number
            writer.write(packet)
    found = by_outcast(read_capture("port", path))
    assert found == by_dpkt(path)
    assert len(found) == len(frames)
    assert len({fields["protocol"] for fields in found}) == 2
