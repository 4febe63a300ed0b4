"""Captures of engineers' tools: tunnels, what is refused, compression, growing files.

What is expected was worked out by hand from the formats' descriptions. Where Wireshark's tools are
installed, they write the same files a second way.
"""

import gzip
import io
import lzma
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np
import pytest
import zstandard
from scapy.all import (
    GRE,
    IP,
    TCP,
    UDP,
    VXLAN,
    Dot1AD,
    Dot1Q,
    Ether,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    Raw,
    raw,
)

from outcast.analysis.capture.headers import FlowKey
from outcast.analysis.capture.pcap import PortCapture, grid_ns, read_capture, read_captures
from outcast.analysis.capture.records import CaptureFile
from outcast.errors import InputError
from tests.ethernet import ETHERNET

FLOW = FlowKey("10.0.0.2", 20001, "10.0.0.1", 5001, 6)
DATA = (
    IP(src="10.0.0.2", dst="10.0.0.1", id=4711)
    / TCP(sport=20001, dport=5001, seq=4_000_000_000, ack=9, flags="PA")
    / Raw(b"x" * 1000)
)
FRAME = raw(Ether(src="02:00:00:00:00:02", dst="02:00:00:00:00:01") / DATA)
"""14 + 20 + 20 + 1000 bytes."""


def pcap(frames: list[bytes], link: int = 1, first_s: int = 5, snaplen: int = 65535) -> bytes:
    """A capture in nanoseconds; a packet each second."""
    out = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, snaplen, link)
    for number, frame in enumerate(frames):
        part = frame[:snaplen]
        out += struct.pack("<IIII", first_s + number, 7, len(part), len(frame)) + part
    return out


def read(path: Path, content: bytes) -> PortCapture:
    path.write_bytes(content)
    return read_capture("port", path)


def check(capture: PortCapture, count: int = 1, frame: bytes = FRAME) -> None:
    columns = capture.columns
    assert [capture.flows[row] for row in columns.flow] == [FLOW] * count
    assert columns.frame_bytes.tolist() == [len(frame)] * count
    assert columns.payload_bytes.tolist() == [1000] * count
    assert columns.seq.tolist() == [4_000_000_000] * count
    assert columns.ip_id.tolist() == [4711] * count


# --- tunnels, and what is refused with its cure


OUTER = ETHERNET / IP(src="192.0.2.1", dst="192.0.2.9", id=1)
TUNNELS = {
    "Ethernet in GRE": raw(OUTER / GRE(proto=0x6558, key_present=1, key=7) / Raw(FRAME)),
    "VXLAN": raw(OUTER / UDP(sport=50000, dport=4789) / VXLAN(vni=7) / Raw(FRAME)),
    "Geneve": raw(
        OUTER / UDP(dport=6081) / Raw(bytes.fromhex("0200655800000700") + bytes(8) + FRAME)
    ),
    "GTP": raw(OUTER / UDP(dport=2152) / Raw(bytes.fromhex("30ff000000000007") + FRAME[14:])),
}


@pytest.mark.parametrize("tunnel", TUNNELS)
def test_packets_in_tunnels_are_known_by_those_inside(tmp_path, tunnel):
    """A link sends the outer headers too, so a packet has the length of the whole."""
    whole = TUNNELS[tunnel]
    capture = read(tmp_path / "a.pcap", pcap([whole, FRAME]))
    assert len(capture.flows) == 1
    assert capture.columns.frame_bytes.tolist() == [len(whole), len(FRAME)]
    assert capture.columns.identity[0] == capture.columns.identity[1]
    assert f"1 packets are in a tunnel ({tunnel})" in capture.remarks[0]


def ether(kind: int, rest: bytes) -> bytes:
    return FRAME[:12] + struct.pack(">H", kind) + rest


LABEL, BYTES = bytes.fromhex("00011109"), raw(DATA)
ERF = bytes(8) + struct.pack(">BBHHH", 2, 4, 18 + len(FRAME) + 4, 0, len(FRAME) + 4)
NOT_READ = {
    "PPP": (9, b"\xff\x03\x00\x21" + BYTES, "editcap -L -C 4 -T rawip IN OUT"),
    "Cisco HDLC": (104, b"\x0f\x00\x08\x00" + BYTES, "editcap -L -C 4 -T rawip IN OUT"),
    "ERF": (197, ERF + b"\0\0" + FRAME + b"FCS!", "editcap -L -C -4 -T ether IN OUT"),
    "MPLS": (1, ether(0x8847, LABEL + BYTES), "editcap -L -C 18 -T rawip IN OUT"),
    "PPPoE": (
        1,
        ether(0x8864, b"\x11\0\0\1\0\0\0\x21" + BYTES),
        "editcap -L -C 22 -T rawip IN OUT",
    ),
    "802.1ah": (1, ether(0x88E7, b"\0\0\0\5" + FRAME), "editcap -L -C 18 IN OUT"),
    "802.1BR": (1, ether(0x893F, bytes(6) + FRAME[12:]), "editcap -L -C 12:8 IN OUT"),
    "FabricPath": (1, ether(0x8903, bytes(2) + FRAME), "editcap -L -C 16 IN OUT"),
    "ERSPAN": (
        1,
        raw(OUTER / GRE(proto=0x88BE, seqnum_present=1) / Raw(b"\x10\5" + bytes(6) + FRAME)),
        "editcap -L -C 50 IN OUT",
    ),
}
"""Link type, frame, and the command that makes it readable."""


@pytest.mark.parametrize("name", NOT_READ)
def test_what_is_not_read_is_refused_with_the_command_that_cures_it(tmp_path, name):
    link, frame, command = NOT_READ[name]
    with pytest.raises(InputError, match=rf"a\.pcap: .*\b{name}\b.* `{command}`") as refused:
        read(tmp_path / "a.pcap", pcap([frame], link))
    assert "\n" not in str(refused.value)
    if link == 1:
        # A few among others are on the link like any packet.
        capture = read(tmp_path / "b.pcap", pcap([frame, FRAME, FRAME]))
        assert f"b.pcap: 1 packets are {name}, whose contents are not read" in capture.remarks[0]
        assert capture.columns.frame_bytes[-2:].tolist() == [len(FRAME)] * 2


@pytest.mark.parametrize(
    "packet",
    [
        OUTER / GRE(proto=0x6558) / Raw(b"no Ethernet frame at all"),
        OUTER / GRE(proto=0x880B, version=1) / Raw(b"PPTP" * 9),
        OUTER / UDP(sport=1, dport=4789) / Raw(b"\x08\0\0\0\0\0\7\x01" + FRAME),
        OUTER / UDP(sport=1, dport=4789) / Raw(b"\x08\0\0\x01\0\0\7\0" + FRAME),
        OUTER / UDP(sport=1, dport=4789) / Raw(b"0123456789" * 100),
        OUTER / UDP(sport=1, dport=4788) / VXLAN(vni=7) / Raw(FRAME),
    ],
)
def test_other_tunnels_are_packets_like_any_other(tmp_path, packet):
    capture = read(tmp_path / "a.pcap", pcap([raw(packet)]))
    assert capture.flows[0].dst == "192.0.2.9"
    assert not capture.remarks
    assert capture.columns.frame_bytes.tolist() == [len(raw(packet))]


def test_a_run_of_ours_has_no_tunnels(tmp_path):
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap([TUNNELS["VXLAN"]]))
    capture = read_capture("port", path, foreign=False)
    assert capture.flows[0].dst == "192.0.2.9"


# --- VLAN tags, IPv6 and authentication headers, short snaplens


@pytest.mark.parametrize(
    "frame",
    [
        raw(ETHERNET / Dot1Q(vlan=5) / DATA),
        raw(ETHERNET / Dot1AD(vlan=5) / Dot1Q(vlan=6) / DATA),
        raw(ETHERNET / Dot1Q(vlan=5) / Dot1Q(vlan=6) / DATA),
        # Old tags of vendors.
        *(FRAME[:12] + kind + b"\0\5" + FRAME[12:] for kind in (b"\x91\0", b"\x92\0")),
    ],
)
def test_vlan_and_double_tags_within_64_bytes(tmp_path, frame):
    check(read(tmp_path / "a.pcap", pcap([frame], snaplen=64)), frame=frame)


@pytest.mark.parametrize("link", [1, 113, 276, 101])
def test_64_bytes_are_enough_for_ipv4(tmp_path, link):
    head = {1: FRAME[:14], 113: bytes(14) + b"\x08\0", 276: b"\x08\0" + bytes(18), 101: b""}[link]
    check(read(tmp_path / "a.pcap", pcap([head + raw(DATA)], link, snaplen=64)))


def authentication(icv_bytes: int, protocol: int = 6) -> bytes:
    """RFC 4302: next header, length in words less 2, reserved, index, sequence number, check."""
    words = (12 + icv_bytes) // 4 - 2
    return bytes([protocol, words, 0, 0]) + bytes(8) + b"\xcc" * icv_bytes


def test_every_extension_header_of_ipv6(tmp_path):
    above = TCP(sport=20001, dport=5001, seq=7) / Raw(b"y" * 500)
    base, options = IPv6(src="fd00::2", dst="fd00::1"), IPv6ExtHdrDestOpt()
    packets = [
        base / IPv6ExtHdrHopByHop() / above,
        base / IPv6ExtHdrRouting(addresses=["fd00::9"]) / above,
        base / IPv6ExtHdrHopByHop() / options / above,
        IPv6(src="fd00::2", dst="fd00::1", nh=51) / Raw(authentication(12)) / above,
        IPv6(src="fd00::2", dst="fd00::1", nh=135) / Raw(b"\x06\0" + bytes(6)) / above,
        IPv6(src="fd00::2", dst="fd00::1", nh=140) / Raw(b"\x06\x01" + bytes(14)) / above,
        base / IPv6ExtHdrHopByHop(nh=51) / Raw(authentication(24, 60)) / options / above,
    ]
    capture = read(tmp_path / "a.pcap", pcap([raw(ETHERNET / packet) for packet in packets]))
    assert capture.columns.payload_bytes.tolist() == [500] * len(packets)
    assert capture.columns.seq.tolist() == [7] * len(packets)
    assert capture.flows == [FlowKey("fd00::2", 20001, "fd00::1", 5001, 6)]


# --- compression


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": zstandard.compress,
}


@pytest.mark.parametrize("name", COMPRESSORS)
def test_compressed_whole_in_parts_and_cut_off(tmp_path, name):
    compress = COMPRESSORS[name]
    rng = np.random.default_rng(1)
    frames = [FRAME[:60] + rng.bytes(len(FRAME) - 60) for _ in range(300)]
    content = pcap(frames)
    packed = compress(content)
    assert read(tmp_path / f"a.{name}", packed).records == 300
    parts = compress(content[:30]) + compress(b"") + compress(content[30:])
    assert read(tmp_path / f"b.{name}", parts).records == 300
    cut = read(tmp_path / f"c.{name}", packed[: len(packed) // 2])
    assert 0 < cut.records < 300
    assert cut.cut_short
    hurt = bytearray(packed)
    hurt[len(hurt) // 2] ^= 0xFF
    hurt[len(hurt) // 2 + 1] ^= 0xFF
    # zstd has no check sum here, so that it may give other bytes.
    refusal = ""
    try:
        read(tmp_path / f"d.{name}", bytes(hurt))
    except InputError as error:
        refusal = str(error)
    assert "\n" not in refusal
    assert refusal or name == "zst"


@pytest.mark.parametrize("name", COMPRESSORS)
def test_a_bomb_is_refused(tmp_path, name):
    content = pcap([FRAME])
    made = io.BytesIO()
    opened: IO[bytes]
    match name:
        case "gz":
            opened = gzip.GzipFile(fileobj=made, mode="wb", compresslevel=1)
        case _:
            opened = zstandard.ZstdCompressor().stream_writer(made, closefd=False)
    with opened:
        opened.write(content)
        for _ in range(300):
            opened.write(bytes(1 << 20))
    with pytest.raises(InputError, match=r"stands for more than 200 times|empty block|broken"):
        read(tmp_path / f"a.{name}", made.getvalue())


# --- one file a port


def test_a_name_with_characters_of_patterns(tmp_path):
    (tmp_path / "q[1].pcap").write_bytes(pcap([FRAME]))
    check(read_capture("port", tmp_path / "q[1].pcap"))


def test_patterns_and_folders_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"as `mergecap -w OUT e\*` makes of several"):
        read_capture("port", tmp_path / "e*")
    with pytest.raises(InputError, match=r"is a folder; allowed is a capture"):
        read_capture("port", tmp_path)
    with pytest.raises(InputError, match=r"is a folder"):
        read_captures([("port", tmp_path)])


# --- captures that still go on


def test_a_capture_that_grows_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap([FRAME]))
    decode = CaptureFile.blocks

    def growing(self: CaptureFile) -> object:
        yield from decode(self)
        with path.open("ab") as more:
            more.write(b"more")

    monkeypatch.setattr(CaptureFile, "blocks", growing)
    with pytest.raises(InputError, match="grew while it was read, so its capture still goes on"):
        read_capture("port", path)
    read_capture("port", path, foreign=False)


# --- the same files by Wireshark's tools


@pytest.mark.skipif(shutil.which("editcap") is None, reason="editcap (Wireshark) is missing")
@pytest.mark.parametrize("form", ["pcap", "nsecpcap", "pcapng"])
def test_files_written_by_editcap(tmp_path, form):
    path = tmp_path / "a"
    path.write_bytes(pcap([FRAME] * 2, first_s=5))
    made = tmp_path / "b"
    command = ["editcap", "-F", form, str(path), str(made)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    capture = read_capture("port", made)
    check(capture, 2)
    rest_ns = 0 if form == "pcap" else 7
    stamps = [seconds * 10**9 + rest_ns for seconds in (5, 6)]
    assert capture.columns.stamp_ns.tolist() == stamps


@pytest.mark.skipif(shutil.which("editcap") is None, reason="editcap (Wireshark) is missing")
@pytest.mark.parametrize("name", NOT_READ)
def test_the_command_that_a_refusal_names_cures_it(tmp_path, name):
    link, frame, command = NOT_READ[name]
    (tmp_path / "IN").write_bytes(pcap([frame], link))
    ended = subprocess.run(command.split(), cwd=tmp_path, capture_output=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    check(read_capture("port", tmp_path / "OUT"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PK\x03\x04" + bytes(30), "compressed by zip; .*, so decompress it by `unzip`"),
        (lzma.compress(pcap([FRAME])), "compressed by xz; read are plain files and those of gzip"),
        (b"0123456789" * 500, "not a capture in pcap or pcapng; `editcap IN OUT` converts all"),
    ],
)
def test_other_formats_are_named(tmp_path, content, said):
    with pytest.raises(InputError, match=said):
        read(tmp_path / "a", content)


def test_what_zstd_may_begin_with(tmp_path):
    content = pcap([FRAME])
    skippable = b"\x5a\x2a\x4d\x18" + struct.pack("<I", 4) + b"skip"
    check(read(tmp_path / "a", skippable + zstandard.compress(content)))


# --- The unit of stamps, also where it is no power of ten or the file rounds it


BEGIN_NS = 1_700_000_000_123_456_789


@pytest.mark.parametrize("file_ns", [1, 1_000])
@pytest.mark.parametrize(
    "unit_ns",
    [64_000, 250_000, 976_562.5, 10**9 / 300, 3_906_250, 4 * 10**6, 8_192_000, 15_625_000, 10**7],
)
def test_the_unit_is_found(unit_ns, file_ns):
    """Ticks as a file of nanoseconds or microseconds has them, some with several packets."""
    rng = np.random.default_rng(1)
    ticks = np.cumsum(rng.poisson(1.5, 5_000))
    stamps = BEGIN_NS // file_ns * file_ns + (ticks * unit_ns).astype(np.int64) // file_ns * file_ns
    assert grid_ns(stamps) == pytest.approx(unit_ns, rel=1e-3)


@pytest.mark.parametrize("file_ns", [1, 1_000])
def test_fine_stamps_have_the_files_unit(file_ns):
    rng = np.random.default_rng(2)
    times = BEGIN_NS + np.cumsum(rng.exponential(50_000, 5_000)).astype(np.int64)
    assert grid_ns(times // file_ns * file_ns) == file_ns


def test_packets_sent_evenly_make_no_unit_but_that_of_their_stamps():
    """As by an ideal queue that never runs empty."""
    assert grid_ns(10**18 + np.arange(1_000) * 1_200_000) == 100_000
    assert grid_ns(np.array([5], np.int64)) == 1
    # As of an ideal queue, whose packets come 2 us before or after multiples of 50 us.
    near = np.cumsum(np.tile([52_000, 2_748_000, 148_000, 452_000, 1_148_000, 2_852_000], 30))
    assert grid_ns(near) <= 4_000
