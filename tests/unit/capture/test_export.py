"""`outcast export`: a file for Wireshark with each packet's verdict.

What is written is read back by readers that others wrote: dpkt's and Wireshark's.
"""

import shutil
import struct
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from dpkt import pcapng as dpkt_pcapng

import outcast as library
from outcast.analysis import analyze, export
from outcast.analysis.capture.pcap import read_capture
from outcast.analysis.export import PortFiles
from outcast.cli import invoke as outcast
from outcast.errors import InputError
from outcast.records.run_directory import RunDirectory
from tests import records
from tests.golden import model
from tests.golden.run_directory import write_run

OUT = "s1-eth1"
PACKETS = 1_500


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run with a capture of acknowledgements, which have no part in the join."""
    traffic = model.drop_tail(model.make_traffic(8, PACKETS), 16_384, 10**9)
    directory = write_run(tmp_path_factory.mktemp("export") / "run", traffic, 20_000_000)
    whole = (directory.captures / "s1-eth2.in.pcap").read_bytes()
    frame = bytearray(whole[40:106])
    frame[26:30], frame[30:34] = frame[30:34], frame[26:30]
    frame[34:36], frame[36:38] = frame[36:38], frame[34:36]
    first_ns = int(traffic.t_in[0])
    back = whole[:24]
    for number in range(10):
        seconds, rest = divmod(first_ns + number * 1_000_000, 10**9)
        back += struct.pack("<IIII", seconds, rest, 66, 66) + bytes(frame)
    # And what is no IP packet.
    back += struct.pack("<IIII", seconds + 1, 0, 14, 14) + bytes(14)
    (directory.captures / f"{OUT}.in.pcap").write_bytes(back)
    manifest = directory.read_manifest()
    record = records.capture(f"captures/{OUT}.in.pcap", 11)
    directory.write_manifest(manifest.model_copy(update={"captures": [*manifest.captures, record]}))
    analyze(directory)
    directory.seal()
    return directory.path


@pytest.fixture(scope="module")
def exported(run) -> Path:
    file = run.parent / "all.pcapng"
    assert outcast(["export", str(run), "--pcapng", str(file)]) == 0
    return file


def blocks(file: Path) -> list[Any]:
    """All blocks of a file, as dpkt reads them."""
    kinds = {
        0x0A0D0D0A: dpkt_pcapng.SectionHeaderBlockLE,
        1: dpkt_pcapng.InterfaceDescriptionBlockLE,
        4: dpkt_pcapng.PcapngBlockLE,
        6: dpkt_pcapng.EnhancedPacketBlockLE,
    }
    content = file.read_bytes()
    found = []
    at = 0
    while at < len(content):
        kind, size = struct.unpack_from("<II", content, at)
        found.append(kinds[kind](content[at : at + size]))
        at += size
    assert at == len(content)
    return found


def options(block: Any) -> dict[int, bytes]:
    return {option.code: option.data for option in block.opts}


def packets(file: Path) -> list[tuple[int, int, str]]:
    """Interface, time and comment of each packet, as dpkt reads them."""
    return [
        (block.iface_id, block.ts_high << 32 | block.ts_low, options(block)[1].decode())
        for block in blocks(file)
        if block.type == 6
    ]


def test_every_port_is_an_interface_with_nanoseconds(run, exported):
    first, *others = blocks(exported)
    assert options(first)[4].decode() == f"outcast {library.__version__}"
    interfaces = [block for block in others if block.type == 1]
    shown = [(options(block)[2].decode(), options(block)[3].decode()) for block in interfaces]
    assert shown == [
        ("s1-eth2", "packets that came in"),
        ("s1-eth3", "packets that came in"),
        (OUT, "packets that left"),
        (OUT, "packets that came in"),
    ]
    assert [options(block)[9] for block in interfaces] == [b"\x09"] * 4


def test_every_captured_packet_is_there_once_in_order_of_time(run, exported):
    there = packets(exported)
    stamps = [stamp for _, stamp, _ in there]
    assert stamps == sorted(stamps)
    for interface, name in enumerate(("s1-eth2.in", "s1-eth3.in", f"{OUT}.out", f"{OUT}.in")):
        capture = read_capture("port", run / f"captures/{name}.pcap")
        mine = [stamp for number, stamp, _ in there if number == interface]
        if name != f"{OUT}.in":
            assert mine == capture.columns.stamp_ns.tolist()
        assert len(mine) == capture.records
    # Our own reader of captures takes the file too, with the lengths on the wire.
    whole = read_capture("port", exported)
    assert whole.records == len(there)
    assert set(whole.columns.frame_bytes.tolist()) > {66}


def expected_comments(run: Path) -> Counter[str]:
    """The comments of packets that came in, worked out from the tables row by row."""
    table = pl.read_parquet(run / "packets.parquet")
    chains = pl.read_parquet(run / "blackouts.parquet")
    dark = chains.with_row_index("blackout").filter(pl.col("others_through") > 0)
    places = {(row["ingress"], row["t_start"]): row["blackout"] for row in dark.to_dicts()}
    counted: dict[tuple[str, int], int] = {}
    said: Counter[str] = Counter()
    for row in table.iter_rows(named=True):
        if row["verdict"] == "forwarded":
            sojourn = (row["t_out"] - row["t_in"]) / 1000
            said[f"forwarded after {sojourn:,.1f} us to {OUT}"] += 1
            continue
        if row["verdict"] == "unknown":
            said["fate unknown: in flight"] += 1
            continue
        chain = next(
            each
            for each in chains.iter_rows(named=True)
            if each["ingress"] == row["ingress"] and each["t_start"] <= row["t_in"] <= each["t_end"]
        )
        start = (row["ingress"], chain["t_start"])
        counted[start] = counted.get(start, 0) + 1
        text = f"dropped at {OUT}: queue held {row['queue_bytes']:,} of 16,384 bytes"
        drop = f"drop {counted[start]} of {chain['drops']}"
        if start in places:
            text += f"; blackout {places[start]}, {drop}"
        elif chain["drops"] > 1:
            text += f"; {drop} in a row"
        said[text] += 1
    return said


def test_comments_tell_what_the_tables_hold(run, exported):
    there = packets(exported)
    came = Counter(text for interface, _, text in there if interface in (0, 1))
    assert came == expected_comments(run)
    assert sum(text.startswith("dropped") for text in came.elements()) > 100
    assert any("blackout" in text for text in came)
    left = [text for interface, _, text in there if interface == 2]
    assert all(text.startswith("left ") for text in left)
    back = [text for interface, _, text in there if interface == 3]
    assert set(back) == {"not joined"}


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is missing: apt install tshark")
def test_wireshark_finds_the_drops(run, exported):
    def lines(*arguments: str) -> list[str]:
        command = ["tshark", "-r", str(exported), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        return done.stdout.splitlines()

    table = pl.read_parquet(run / "packets.parquet")
    drops = table.filter(pl.col("verdict") == "dropped").height
    assert len(lines("-Y", 'frame.comment contains "dropped"')) == drops
    wanted = 'frame.comment && frame.interface_name == "s1-eth2"'
    fields = ["-T", "fields", "-e", "frame.time_epoch", "-e", "frame.len", "-e", "ip.src"]
    direction = ["-e", "frame.packet_flags_direction"]
    shown = [line.split("\t") for line in lines("-Y", wanted, *fields, *direction)]
    capture = read_capture("port", run / "captures/s1-eth2.in.pcap")
    stamps = [int(seconds.replace(".", "")) for seconds, *_ in shown]
    assert stamps == capture.columns.stamp_ns.tolist()
    assert [int(size) for _, size, *_ in shown] == capture.columns.frame_bytes.tolist()
    assert {(host, int(way, 0)) for _, _, host, way in shown} == {("10.0.0.2", 1)}


# --- what is refused


def test_captures_that_are_not_the_tables_are_refused(run, tmp_path):
    other = RunDirectory(shutil.copytree(run, tmp_path / "other"))
    path = other.captures / "s1-eth3.in.pcap"
    whole = path.read_bytes()
    path.write_bytes(whole[:24] + whole[24 + 82 * 40 :])
    with pytest.raises(InputError, match=r"s1-eth3.in.pcap: lacks 40 of the \d+ packets that"):
        library.export(other.path, tmp_path / "a.pcapng")
    path.write_bytes(b"no capture")
    with pytest.raises(InputError, match="not a capture"):
        library.export(other.path, tmp_path / "a.pcapng")
    path.unlink()
    with pytest.raises(InputError, match=r"[Nn]o such file"):
        library.export(other.path, tmp_path / "a.pcapng")
    assert not list(tmp_path.glob("*.pcapng"))


# --- parts


def rows_of(run: Path) -> pl.DataFrame:
    table = pl.read_parquet(run / "packets.parquet").with_row_index("packet")
    return table.with_columns(
        pl.col(name).cast(pl.String) for name in ("src", "dst", "ingress", "egress")
    )


def test_packets_are_found_though_the_clock_was_off_and_drifted(run, tmp_path):
    """The table has corrected times, as after a join of foreign captures."""
    table = rows_of(run)
    path = run / "captures/s1-eth3.in.pcap"
    exact = export.find(PortFiles("s1-eth3", "in", path), table)
    first_ns = int(table["t_in"][0])
    moved = table.with_columns(
        t_in=pl.col("t_in") - 800_000_000 + (pl.col("t_in") - first_ns) * 50 // 1_000_000
    )
    found = export.find(PortFiles("s1-eth3", "in", path, one_clock=False), moved)
    assert (found.row == exact.row).all()
    assert (found.row >= 0).all()
    there = moved["t_in"].to_numpy()[found.row]
    assert np.abs(found.stamp_ns - there).max() <= 1
    with pytest.raises(InputError, match="lacks"):
        export.find(PortFiles("s1-eth3", "in", path), moved)


@pytest.mark.parametrize(
    ("source", "file", "status", "said"),
    [
        ("{run}", "a.pcap", 2, "a.pcap: allowed are names that end in .pcapng"),
        ("{run}", "no/such/a.pcapng", 2, "no/such/a.pcapng: cannot be written: No such file"),
        ("{run}/packets.parquet", "a.pcapng", 2, "is a table alone; captured packets need"),
    ],
)
def test_refusals_are_one_line_and_write_nothing(
    run, tmp_path, monkeypatch, capsys, source, file, status, said
):
    monkeypatch.chdir(tmp_path)
    assert outcast(["export", source.replace("{run}", str(run)), "--pcapng", file]) == status
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())
