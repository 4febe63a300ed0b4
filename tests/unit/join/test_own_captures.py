"""What engineers have at hand: one file of several interfaces, a path's captures, tc's output."""

import json
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from scapy.all import IP, UDP, Ether, Raw, raw

from outcast.analysis.capture.pcap import read_capture
from outcast.analysis.captured import seen_flows
from outcast.cli import invoke as outcast
from tests.ethernet import ETHERNET
from tests.golden.packets import P, capture

Seen = list[tuple[int, str, bool, bytes]]
"""Packets of a machine in the order of time: stamp in ns, interface, whether it left, frame."""

DROPS = 30


def at_router(*, own: bool = False) -> dict[str, list[tuple[bool, P]]]:
    """A router between A, C and R: by port, whether each packet left, and the packet.

    Of A's 600 packets 30 are dropped and sent again.
    """
    seen: dict[str, list[tuple[bool, P]]] = {"A": [], "C": [], "R": []}
    for n in range(600):
        sent = P(1000 * n, seq=1448 * n, ip_id=n)
        other = P(1000 * n + 350, seq=1448 * n, ip_id=n, src="10.0.0.3")
        ack = P(1000 * n + 700, n, "10.0.0.1", ip_id=n, payload=0, dst="10.0.0.2")
        seen["A"].append((False, sent))
        if n % 20 == 7:
            sent = replace(sent, at_us=sent.at_us + 500, ip_id=n + 5000)
            seen["A"].append((False, sent))
        seen["C"].append((False, other))
        seen["R"].append((False, ack))
        for packet, port in ((sent, "R"), (other, "R"), (ack, "A")):
            seen[port].append((True, replace(packet, at_us=packet.at_us + 20 + n % 7, ttl=63)))
        if own and n % 3 == 0:
            seen["R"].append((True, P(1000 * n + 900, n, "10.0.0.254", ip_id=n)))
    return {port: sorted(packets, key=lambda pair: pair[1].at_us) for port, packets in seen.items()}


def machine(folder: Path, ports: dict[str, list[tuple[bool, P]]]) -> Seen:
    """All packets of a machine, as a capture of all its interfaces has them."""
    every: Seen = []
    for port, packets in ports.items():
        content = capture(folder / f"{port}.pcap", [packet for _, packet in packets]).read_bytes()
        at = 24
        for left, _ in packets:
            seconds, rest, size, _ = struct.unpack_from("<IIII", content, at)
            frame = content[at + 16 : at + 16 + size]
            every.append((seconds * 10**9 + rest, port, left, frame))
            at += 16 + size
    return sorted(every, key=lambda packet: packet[0])


def block(kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    size = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + size + body + size


def section(names: list[str], packets: list[tuple[int, int, bytes]], link: int = 1) -> bytes:
    """A section of pcapng: names of interfaces, and stamp, interface and bytes of packets."""
    out = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    for name in names:
        text = name.encode()
        named = struct.pack("<HH", 2, len(text)) + text + bytes(-len(text) % 4) if text else b""
        options = named + struct.pack("<HHB3x", 9, 1, 9) + bytes(4)
        out += block(1, struct.pack("<HHI", link, 0, 0) + options)
    for stamp, interface, data in packets:
        head = struct.pack("<IIIII", interface, stamp >> 32, stamp % 2**32, len(data), len(data))
        out += block(6, head + data)
    return out


def pcap(
    packets: list[tuple[int, bytes]], link: int = 1, version: tuple[int, int] = (2, 4)
) -> bytes:
    out = struct.pack("<IHHiIII", 0xA1B23C4D, *version, 0, 0, 65535, link)
    for stamp, data in packets:
        part = data[:200]
        out += struct.pack("<IIII", *divmod(stamp, 10**9), len(part), len(data)) + part
    return out


def of_dumpcap(seen: Seen) -> bytes:
    """`dumpcap -i A -i C -i R`, in two sections that number the interfaces otherwise."""
    parts = []
    for names, half in ((["A", "C", "R"], seen[::2]), (["R", "idle", "A", "C"], seen[1::2])):
        parts.append(section(names, [(at, names.index(port), data) for at, port, _, data in half]))
    return b"".join(parts)


def of_any(seen: Seen, names: dict[str, int] | None = None) -> bytes:
    """`tcpdump -i any` (Linux cooked v2), or without names `dumpcap -i any` (Linux cooked v1)."""
    packets = []
    for stamp, port, left, data in seen:
        kind, address = 4 if left else 0, data[6:12]
        if names is None:
            head = struct.pack(">HHH8sH", kind, 1, 6, address, 0x0800)
        else:
            head = struct.pack(">HHIHBB8s", 0x0800, 0, names[port], 1, kind, 6, address)
        packets.append((stamp, head + data[14:]))
    return pcap(packets, 113 if names is None else 276)


# --- one file of several interfaces


@pytest.mark.parametrize(
    ("written", "roles"),
    [
        (of_dumpcap, ["--in", "A", "C", "--out", "R"]),
        (lambda seen: of_any(seen, {"A": 2, "C": 3, "R": 4}), ["--in", "2", "if3", "--out", "4"]),
    ],
)
def test_one_file_of_several_interfaces(tmp_path, written, roles, capsys):
    file = tmp_path / "all"
    file.write_bytes(written(machine(tmp_path, at_router())))
    assert outcast(["join", str(file), "--routed", "--dropped", str(DROPS)]) == 0
    said = capsys.readouterr()
    assert "in 1,830 = forwarded 1,800 + dropped 30\n" in said.out
    assert "10.0.0.2:20001 to 10.0.0.1:5001      630       30        4.762" in said.out
    for command in (
        ["join", str(file), *roles, "--routed"],
        ["join", "--routed", *roles, str(file)],
    ):
        assert outcast(command) == 0
        assert "in 1,230 = forwarded 1,200 + dropped 30\n" in capsys.readouterr().out


def test_old_captures_of_any_tell_only_in_and_out(tmp_path, capsys):
    """The router's own packets never came in, so they are told apart, and so is what follows."""
    file = tmp_path / "any.pcap"
    file.write_bytes(of_any(machine(tmp_path, at_router(own=True))))
    assert outcast(["join", str(file), "--routed", "--dropped", str(DROPS)]) == 0
    said = capsys.readouterr()
    assert "in 1,830 = forwarded 1,800 + dropped 30\n" in said.out
    assert "out: 200 packets that the router itself sent (10.0.0.254) take no part" in said.err
    assert "out: its packets left by several interfaces" in said.err
    assert "sends" not in said.out


def test_a_folder_of_one_file_with_several_interfaces(tmp_path, capsys):
    """What reads it again takes each port's packets only, wherever the file is by then."""
    file = tmp_path / "all.pcapng"
    seen = machine(tmp_path, at_router())
    file.write_bytes(of_dumpcap(seen))
    folder = tmp_path / "mine"
    assert outcast(["join", str(file), "--routed", "-o", str(folder)]) == 0
    before = (folder / "packets.parquet").read_bytes()
    (folder / "captures").mkdir()
    file.rename(folder / "captures" / file.name)
    assert outcast(["analyze", str(folder)]) == 0
    assert (folder / "packets.parquet").read_bytes() == before
    capsys.readouterr()
    assert outcast(["export", str(folder), "--pcapng", str(tmp_path / "out.pcapng")]) == 0
    assert f": {len(seen):,} packets\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("join all --in A X --out R", "has no packets of an interface X, but of A"),
        ("join A.pcap", "its packets are of one interface; allowed are captures of several"),
        ("join A=A.pcap", "is the only capture; allowed are those of two ports or more"),
        ("join all A=A.pcap", "all: allowed is NAME=PCAP"),
        ("join --in all --out R=R.pcap", "--in: all: allowed is NAME=PCAP, as "),
        ("join --in R=R.pcap --out all", "--out: all: allowed is NAME=PCAP, as "),
        ("join all --in A=A.pcap --out R=R.pcap", "outcast: all: allowed is NAME=PCAP, as "),
        ("join . -o p.csv", ".: is a folder; allowed is a capture"),
        ("join --chain A=A.pcap", "--chain: 1 capture; allowed are two or more, in order"),
        ("join all --chain A=A.pcap", "--chain: allowed beside it are --to, --one-clock"),
        ("join --chain A=A.pcap A=R.pcap", "port A is given twice"),
        (
            "inspect all",
            "has packets of several interfaces, so packets are there twice; allowed is",
        ),
        ("inspect all --port X", "--port X: all has no such interface; there are A, "),
        ("inspect A.pcap --verdict dropped", "is no joined table (.parquet, .csv), so its flows"),
        ("inspect text", "not a capture in pcap or pcapng; `editcap"),
    ],
)
def test_what_cannot_be_joined_or_shown(tmp_path, command, said, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("all").write_bytes(of_dumpcap(machine(tmp_path, at_router())))
    Path("text").write_text("hello")
    assert outcast(command.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


# --- a path


def path_captures(folder: Path, *, nat: bool = False) -> dict[str, Path]:
    """From r1 to r2, 30 of 600 packets are lost and others take 5 ms; more traffic joins there.

    With a NAT between them, host .2 becomes .9.
    """
    points: dict[str, list[P]] = {name: [] for name in ("a", "r1", "r2", "b")}
    for n in range(600):
        data = P(1000 * n, seq=1448 * n, ip_id=n)
        ack = P(1000 * n + 9_000, n, "10.0.0.1", ip_id=n, payload=0, dst="10.0.0.2")
        other = P(1000 * n + 300, seq=n, ip_id=n, src="10.0.0.7", dst="10.0.0.8")
        copies = [data]
        if n % 20 == 7:
            copies.append(replace(data, at_us=data.at_us + 500, ip_id=n + 5000))
        for place, (name, after_us) in enumerate((("a", 0), ("r1", 10), ("r2", 5010), ("b", 5030))):
            for copy in copies if place < 2 else copies[-1:]:
                points[name].append(replace(copy, at_us=copy.at_us + after_us, ttl=64 - place))
        for place, (name, after_us) in enumerate((("b", 0), ("r2", 20), ("r1", 40), ("a", 50))):
            points[name].append(replace(ack, at_us=ack.at_us + after_us, ttl=64 - place))
        points["r1"].append(other)
        points["r2"].append(replace(other, at_us=other.at_us + 30, ttl=63))
    for name in ("r2", "b") if nat else ():
        points[name] = [
            replace(
                packet,
                src=packet.src.replace("10.0.0.2", "10.0.0.9"),
                dst=packet.dst.replace("10.0.0.2", "10.0.0.9"),
            )
            for packet in points[name]
        ]
    return {
        name: capture(folder / f"{name}.pcap", sorted(packets, key=lambda packet: packet.at_us))
        for name, packets in points.items()
    }


@pytest.mark.parametrize("nat", [False, True])
def test_a_chain_of_hops(tmp_path, nat, capsys):
    """With a NAT, what others send is seen at r1 and r2 as well."""
    files = path_captures(tmp_path, nat=nat)
    assert outcast(["join", "--chain", *(f"{name}={path}" for name, path in files.items())]) == 0
    said = capsys.readouterr()
    assert [" ".join(line.split()) for line in said.out.splitlines()[1:-1]] == [
        "a to r1 630 0 0.000 0 0.010 0.010 0.010 0.010",
        "r1 to r2 1,230 30 2.439 0 2.515 5.000 5.000 5.000",
        "r2 to b 600 0 0.000 0 0.020 0.020 0.020 0.020",
        "a to b 630 30 4.762 0 5.030 5.030 5.030 5.030",
        "b to r2 600 0 0.000 0 0.020 0.020 0.020 0.020",
        "r2 to r1 600 0 0.000 0 0.020 0.020 0.020 0.020",
        "r1 to a 600 0 0.000 0 0.010 0.010 0.010 0.010",
        "b to a 600 0 0.000 0 0.050 0.050 0.050 0.050",
    ]
    told = "r1 to r2: r1 and r2: addresses are translated between them (NAT)"
    assert (told in said.err) is nat


def test_a_point_of_several_interfaces_hides_what_its_queue_lost(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ports = at_router()
    seen = machine(tmp_path, ports)
    Path("any").write_bytes(of_any(seen, {"A": 2, "C": 3, "R": 4}))
    Path("old").write_bytes(of_any(seen))
    assert outcast(["join", "--chain", "any=any", "R=R.pcap"]) == 2
    error = capsys.readouterr().err
    assert "--chain any=any: has packets of 3 interfaces; give those on the way: if2=any" in error
    assert outcast(["join", "--chain", "old=old", "R=R.pcap"]) == 2
    assert "which it does not name" in capsys.readouterr().err
    assert outcast(["join", "--chain", "if2=any", "if4=any"]) == 0
    assert "if2 to if4 630 30" in " ".join(capsys.readouterr().out.split())


def test_a_counter_that_differs_is_said(tmp_path, capsys):
    file = tmp_path / "all"
    file.write_bytes(of_dumpcap(machine(tmp_path, at_router())))
    assert outcast(["join", str(file), "--routed", "--dropped", "31"]) == 4
    assert "30 drops inferred, but the counter says 31" in capsys.readouterr().err


# --- one capture alone


def test_one_capture_alone(tmp_path, capsys):
    """Sent again after it passed; lost before and late; round trips to both sides."""
    packets = []
    for n in range(100):
        at = 10_000 * n
        data = P(at, seq=1448 * n, ip_id=n, tsval=n)
        if n == 50:
            data = replace(data, seq=1448 * 49, ip_id=9_000)
        if n == 51:
            data = replace(data, seq=1448 * 52)
        if n == 52:
            data = replace(data, seq=1448 * 51)
        packets.append(data)
    file = capture(tmp_path / "one.pcap", packets)
    ((flow,), remarks) = seen_flows(read_capture("p", file))
    assert remarks == []
    assert (flow.packets, flow.sent_again, flow.late) == (100, 1, 1)
    assert flow.new_bytes == 1448 * 99
    assert outcast(["inspect", str(file)]) == 0
    out = capsys.readouterr().out
    assert "10.0.0.2:20001 to 10.0.0.1:5001" in out
    assert "lost or reordered before this point" in out
    assert outcast(["inspect", str(file), "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["sent_again"], row["late"], row["rtt_beyond_least_ms"]) == (1, 1, None)


@pytest.mark.parametrize("ip_ids", [True, False])
@pytest.mark.parametrize("apart_us", [0, 5, 90])
def test_packets_that_one_capture_has_twice_were_not_sent_again(tmp_path, apart_us, ip_ids):
    """A mirror of both directions has each packet twice; the sender truly repeats one."""
    packets = [P(1_000 * n, seq=1448 * n, ip_id=(1 + n) * ip_ids, tsval=n) for n in range(100)]
    packets.append(P(200_000, seq=1448 * 50, ip_id=999 * ip_ids, tsval=200))
    twice = [replace(one, at_us=one.at_us + later) for one in packets for later in (0, apart_us)]
    twice.sort(key=lambda one: one.at_us)
    ((flow,), remarks) = seen_flows(read_capture("p", capture(tmp_path / "a", twice)))
    assert (flow.packets, flow.sent_again, flow.late) == (101, 1, 0)
    assert len(remarks) == 1
    assert "101 packets are there twice" in remarks[0]


def test_round_trips_to_both_sides_of_one_capture(tmp_path, capsys):
    """The receiver answers after 3 ms, and the sender answers the receiver's stamp after 4 ms."""
    rows: list[tuple[int, bytes]] = []
    for n in range(20):
        at = 10_000_000 * n
        for src, dst, seq, ack, size, stamp, delay in (
            ("10.0.0.2", "10.0.0.1", 1 + 100 * n, 1, 100, (1000 + n, 500 + n), 0),
            ("10.0.0.1", "10.0.0.2", 1, 101 + 100 * n, 0, (501 + n, 1000 + n), 3_000_000),
        ):
            ports = (20001, 5001) if src == "10.0.0.2" else (5001, 20001)
            rows.append((at + delay, tcp_frame(src, dst, ports, seq, ack, size, stamp)))
    (tmp_path / "a").write_bytes(pcap(rows))
    data = seen_flows(read_capture("p", tmp_path / "a"))[0][0]
    assert set(data.beyond_ns.tolist()) == {3_000_000}
    assert set(data.before_ns.tolist()) == {7_000_000}
    # What only acknowledges is no flow of the table.
    assert outcast(["inspect", str(tmp_path / "a")]) == 0
    out = capsys.readouterr().out
    assert "10.0.0.1:5001 to 10.0.0.2:20001" not in out
    assert "and 20 packets without payload, of 1 other directions" in out


def tcp_frame(
    src: str, dst: str, ports: tuple[int, int], seq: int, ack: int, size: int,
    stamp: tuple[int, int],
) -> bytes:  # fmt: skip
    from scapy.all import TCP

    options = [("NOP", None), ("NOP", None), ("Timestamp", stamp)]
    segment = TCP(sport=ports[0], dport=ports[1], seq=seq, ack=ack, flags="A", options=options)
    mac = "02:00:00:00:00:01"
    network = IP(src=src, dst=dst) / segment / Raw(b"x" * size)
    return raw(Ether(src=mac, dst=mac) / network)


# --- rare files

FRAME = raw(ETHERNET / IP(src="10.0.0.2", dst="10.0.0.1") / UDP(sport=1, dport=2) / Raw(b"x" * 500))
