"""Where two runs part, by virtual time, and what their manifests say of it."""

import struct
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from outcast.records import replay
from outcast.records.flows import SubflowRecord, TrafficRecord
from outcast.records.kept_captures import Packet
from outcast.records.run_directory import GuestRecord, RunDirectory
from tests import records

CONFIG = Path(__file__).parents[3] / "configs/fig3c.yaml"
FILE_HEADER = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 128, 1)
SYN, ACK = 2, 16
START_NS = 10 * 10**9
NAMES = ("captures/s1-eth1.out.pcap", "captures/s1-eth2.in.pcap")
FLOW = records.flow(
    3,
    "10.0.0.1",
    20001,
    dst="h2",
    dst_ip="10.0.0.2",
    path=["h1", "s1", "h2"],
    ingress="s1-eth2",
    duration_ns=1,
    congestion_control="bic",
    subflows=[SubflowRecord(sport=30001, dport=5001)],
    name="lone",
)


def tcp(
    ends: tuple[str, int, str, int] = ("10.0.0.1", 20001, "10.0.0.2", 5001),
    payload_bytes: int = 1448,
    flags: int = ACK,
    sequence: int = 7,
    ip_id: int = 99,
) -> bytes:
    """A frame as tcpdump keeps it: the headers, with 12 bytes of options, and no payload."""
    src, sport, dst, dport = ends
    ethernet = bytes(12) + struct.pack("!H", 0x0800)
    addresses = IPv4Address(src).packed + IPv4Address(dst).packed
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 52 + payload_bytes, ip_id, 0, 64, 6, 0) + addresses
    segment = struct.pack("!HHIIBBHHH", sport, dport, sequence, 8, 8 << 4, flags, 100, 0, 0)
    return ethernet + ip + segment + bytes(12)


def pcap(packets: list[tuple[int, bytes]]) -> bytes:
    return FILE_HEADER + b"".join(
        struct.pack("<IIII", t_ns // 10**9, t_ns % 10**9, len(data), len(data) + 1400) + data
        for t_ns, data in packets
    )


def run_directory(path: Path, captures: list[list[tuple[int, bytes]]], **changes: Any) -> Any:
    """A finished run with these captures, of NAMES."""
    (path / "captures").mkdir(parents=True)
    captured = dict(zip(NAMES, captures, strict=False))
    for name, packets in captured.items():
        (path / name).write_bytes(pcap(packets))
    (path / "config.yaml").write_text(changes.pop("config", "name: x\n"))
    directory = RunDirectory(path)
    usual = {
        "kernel": {"release": "7.3.4"},
        "guest": GuestRecord(root="abc"),
        "versions": {"iperf": "2.1.8"},
        "requested": {"queue.limit": 16000},
        "effective": {"traffic.connect_s": 0.1},
        "traffic": TrafficRecord(t_start_ns=START_NS, t_end_ns=START_NS + 1, duration_ns=1),
        "flows": [FLOW],
        "captures": [records.capture(name, len(packets)) for name, packets in captured.items()],
    }
    directory.write_manifest(records.manifest(**usual).model_copy(update=changes))
    directory.seal()
    return directory


OUT = [(START_NS - 5, tcp(flags=SYN)), (START_NS + 100, tcp()), (START_NS + 300, tcp(ip_id=100))]
IN = [(START_NS - 9, tcp(flags=SYN)), (START_NS + 50, tcp()), (START_NS + 250, tcp(ip_id=100))]


def test_equal_runs(tmp_path):
    runs = [run_directory(tmp_path / name, [OUT, IN]) for name in ("one", "two")]
    explained = replay.explain(runs[0], runs[1])
    assert explained.equal
    assert (explained.captures, explained.different, explained.first) == (2, (), None)
    assert explained.lines() == ["equal: 2 captures, byte by byte"]


def test_the_earliest_difference_of_all_captures_is_found(tmp_path):
    one = run_directory(tmp_path / "one", [OUT, IN])
    other = run_directory(
        tmp_path / "two",
        [[OUT[0], (START_NS + 101, tcp()), OUT[2]], [*IN[:1], (START_NS + 50, tcp(sequence=8))]],
    )
    explained = replay.explain(one, other)
    assert not explained.equal
    assert explained.different == NAMES
    first = explained.first
    assert (first.capture, first.port, first.direction) == (NAMES[1], "s1-eth2", "in")
    assert (first.number, first.at_ns) == (1, START_NS + 50)
    assert (first.since_start_ns, first.since_first_packet_ns) == (50, 59)
    assert first.only_time_ns is None
    assert first.one.startswith("10.000000050: flow 3, <Ether")
    for field in ("src=10.0.0.1", "dport=5001", "seq=7", "ack=8", "flags=A", "id=99"):
        assert f" {field} " in first.one
    text = "\n".join(explained.lines())
    assert "they part 0.000000050 s after the traffic's start, 0.000000059 s after" in text
    assert " seq=8 " in text
    assert "name no cause" in text


def test_captures_of_only_one_run_are_no_equality(tmp_path):
    one = run_directory(tmp_path / "one", [OUT, IN])
    other = run_directory(tmp_path / "two", [OUT])
    for runs, only in (((one, other), (NAMES[1:], ())), ((other, one), ((), NAMES[1:]))):
        explained = replay.explain(*runs)
        assert not explained.equal
        assert (explained.only_one, explained.only_other) == only
        assert explained.first is None
        assert any(f"run captured {NAMES[1]}" in line for line in explained.lines())


@pytest.mark.parametrize(
    ("changes", "words", "decides"),
    [
        ({"seed": 2}, "seed: seed: 1 and 2", True),
        ({"guest": GuestRecord(root="host")}, "guest: root: abc and host", True),
        ({"kernel": {}}, "kernel: release: 7.3.4 and absent", True),
        ({"requested": {"queue.limit": 1}}, "config: queue.limit: 16000 and 1", True),
        ({"effective": {"traffic.connect_s": 0.2}}, "effective: traffic.connect_s: 0.1", False),
    ],
)
def test_manifests_say_what_differs(changes, words, decides, tmp_path):
    one = run_directory(tmp_path / "one", [OUT])
    explained = replay.explain(one, run_directory(tmp_path / "two", [OUT[:1]], **changes))
    (differ,) = explained.manifests
    assert differ.in_words().startswith(words)
    assert differ.decides is decides
    assert (f"  {differ.in_words()}" in explained.lines()) is decides


@pytest.mark.parametrize(
    ("ends", "flow"),
    [
        (("10.0.0.2", 5001, "10.0.0.1", 20001), "flow 3, "),
        (("10.0.0.1", 30001, "10.0.0.2", 5001), "flow 3, "),
        (("10.0.0.9", 80, "10.0.0.1", 40000), ""),
    ],
)
def test_a_packet_is_told_with_its_flow(ends, flow, tmp_path):
    manifest = run_directory(tmp_path / "one", [OUT]).read_manifest()
    text = replay._in_words(Packet(5, 60, tcp(ends)), manifest)
    assert text.startswith(f"0.000000005: {flow}<Ether ")
