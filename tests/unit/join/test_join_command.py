"""`outcast join` from the command line, on outcast's captures and a hardware switch's mirrors."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.golden import model
from tests.golden.packets import P, capture


@pytest.fixture(scope="module")
def traffic() -> model.Traffic:
    return model.drop_tail(model.make_traffic(31, 3_000), 16_384, 10**9)


@pytest.fixture
def made(tmp_path, traffic) -> dict[str, Path]:
    return model.write_captures(tmp_path, model.captures(traffic))


@pytest.fixture
def join(made, verb) -> Callable[..., Any]:
    """Joins the reference switch's captures."""
    inputs = ["--in", f"a={made['in0']}", "--in", f"b={made['in1']}"]
    return lambda *words, **asked: verb(
        "join", *inputs, "--out", f"c={made['out']}", *words, **asked
    )


def test_tables_in_parquet_and_csv_agree(tmp_path, join, traffic):
    for suffix in ("parquet", "csv"):
        join("-o", tmp_path / f"p.{suffix}")
    parquet = pl.read_parquet(tmp_path / "p.parquet").with_columns(pl.col(pl.Enum).cast(pl.String))
    csv = pl.read_csv(tmp_path / "p.csv")
    assert parquet.columns == csv.columns
    for column in parquet.columns:
        if column != "note":
            assert parquet[column].cast(csv[column].dtype).to_list() == csv[column].to_list()
    table = pl.read_parquet(tmp_path / "p.parquet")
    assert table["t_in"].to_list() == traffic.t_in.tolist()
    first = table.group_by("flow", maintain_order=True).first()["flow"].to_list()
    assert first == sorted(first)


def test_a_cut_capture_is_used_as_far_as_it_goes(made, join):
    made["out"].write_bytes(made["out"].read_bytes()[:-9])
    assert "cut off after" in join().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--in a", "NAME=PCAP"),
        ("--in a=x --out b=y -o z.txt", "end in .parquet or .csv"),
        ("--in a=x --out b=y --max-sojourn 5", "--max-sojourn"),
        ("--in a=x --out b=y --max-sojourn 0s", "--max-sojourn: 0s; allowed is"),
        ("--in a=x --out b=y --max-sojourn 9999999h", "--max-sojourn: 9999999h"),
        ("--in a=nowhere.pcap --out b=y", "No such file"),
        ("--out b=b.pcap", "b.pcap"),
        ("--nonsense", "No such option"),
        ("", "allowed is PORT=FILE for each port"),
    ],
)
def test_bad_usage(arguments, message, verb):
    (error,) = verb("join", *arguments.split(), status=2).err.splitlines()
    assert message in error


def test_a_table_that_cannot_be_written(tmp_path, join):
    told = join("-o", tmp_path / "no" / "such" / "folder.parquet", status=2)
    assert "cannot be written" in told.err


def test_only_packets_to_an_address(join):
    assert "nothing left by the output" in join("--to", "10.0.0.99", status=2).err
    assert "not an address" in join("--to", "not an address", status=2).err


@pytest.mark.parametrize(
    ("both_ways", "message"),
    [(True, "two clocks stamped it"), (False, "not in order of time")],
)
def test_a_file_whose_stamps_go_back_and_forth_is_refused_at_once(
    tmp_path, verb, both_ways, message
):
    """Each second packet at `a` is stamped 20 ms late; it is one that left there, or any."""
    files = {}
    for name, late in (("a", 20_000), ("b", 0)):
        packets = []
        for n in range(400):
            comes = P(1000 * n, seq=1448 * n, ip_id=n)
            answer = P(1000 * n + 500, n, "10.0.0.1", ip_id=n, payload=0, dst="10.0.0.2")
            if not both_ways and n % 2:
                comes = replace(comes, at_us=comes.at_us + late)
            if both_ways:
                answer = replace(answer, at_us=answer.at_us + late)
            here = 0 if name == "a" else 300
            packets += [replace(comes, at_us=comes.at_us + here),
                        replace(answer, at_us=answer.at_us + 300 - here)]  # fmt: skip
        files[name] = capture(tmp_path / f"{name}.pcap", packets)
    ports = [f"{name}={path}" for name, path in files.items()]
    assert message in verb("join", *ports, status=4).err


def routed(folder: Path, *, own: bool = False, nat: bool = False, lost_each: int = 0) -> list[str]:
    """A router between A and R without a queue: 600 packets and their acknowledgements."""
    came, left = [], []
    for n in range(600):
        sent = P(1000 * n, seq=1448 * n, ip_id=n, ttl=64)
        out = replace(sent, at_us=sent.at_us + 3, ttl=63)
        if nat:
            out = replace(out, src="10.0.9.9")
        ack = P(1000 * n + 300, n, "10.0.0.1", ip_id=n, payload=0, dst=out.src, ttl=64)
        back = replace(ack, at_us=ack.at_us + 3, ttl=63, dst=sent.src)
        came += [sent, back]
        if lost_each and n % lost_each == 0:
            # Data that was lost is sent again, half a millisecond later.
            again = replace(sent, at_us=sent.at_us + 500, ip_id=n + 1000)
            came.append(again)
            left.append(replace(again, at_us=again.at_us + 3, ttl=63))
        else:
            left.append(out)
        left.append(ack)
        if own and n % 3 == 0:
            left.append(P(1000 * n + 700, n, "10.0.0.254", ip_id=n, ttl=64, sport=179))
    return [
        f"{name}={capture(folder / name, sorted(packets, key=lambda packet: packet.at_us))}"
        for name, packets in (("A", came), ("R", left))
    ]


def test_a_routers_own_packets_are_set_apart(tmp_path, verb):
    said = verb("join", "--routed", *routed(tmp_path, own=True))
    assert "R: 200 packets that the router itself sent (10.0.0.254) take no part" in said.err
    assert "in 1,200 = forwarded 1,200\n" in said.out


OWN_MAC = "020000000007"


@pytest.mark.parametrize(
    ("answers_mac", "answers_ttl", "is_told"),
    [
        ("020000000002", 64, True),
        # Nobody answers, or a host, or one behind a port that was not captured.
        (None, 64, False),
        (OWN_MAC, 64, False),
        ("020000000002", 63, False),
    ],
)
def test_hosts_that_talk_with_the_router_alone_are_set_apart(
    tmp_path, verb, answers_mac, answers_ttl, is_told
):
    """Two hosts behind R, the port of the router, ask 100 times, and nobody else."""
    came = [P(1000 * n, seq=1448 * n, ip_id=n, ttl=64) for n in range(600)]
    left = [replace(packet, at_us=packet.at_us + 3, ttl=63) for packet in came]
    for n in range(100):
        asked = P(5000 * n + 700, n, f"10.0.3.{7 + n % 2}", ip_id=n, dst="10.0.3.254", mac=OWN_MAC)
        left.append(asked)
        if answers_mac is not None:
            answer = replace(asked, at_us=asked.at_us + 20, src=asked.dst, dst=asked.src)
            left.append(replace(answer, mac=answers_mac, ttl=answers_ttl))
    left.sort(key=lambda packet: packet.at_us)
    ports = [f"A={capture(tmp_path / 'A', came)}", f"R={capture(tmp_path / 'R', left)}"]
    said = verb("join", "--routed", *ports, status=0 if is_told else 4)
    line = "R: 100 packets for the router (10.0.3.7, 10.0.3.8) take no part"
    missing = "never seen to come in; "
    assert (line in said.err) is is_told
    assert (missing in said.err) is not is_told


def test_what_left_beside_the_routers_own_mac_is_not_set_apart(tmp_path, verb):
    """The receiver's data from a port that was not captured, by a bridge or a second address."""
    came = [P(1000 * n, seq=1448 * n, ip_id=n, ttl=64) for n in range(600)]
    left = [replace(packet, at_us=packet.at_us + 3, ttl=63) for packet in came]
    left += [P(1500 * n + 700, 1448 * n, "10.0.0.9", ip_id=n, mac=OWN_MAC) for n in range(400)]
    left.sort(key=lambda packet: packet.at_us)
    ports = [f"A={capture(tmp_path / 'A', came)}", f"R={capture(tmp_path / 'R', left)}"]
    said = verb("join", "--routed", *ports, status=4)
    assert "400 of the 1,000 packets that left by R were never seen to come in" in said.err


def test_drops_that_no_queue_explains_are_not_blamed_on_captures(tmp_path, verb):
    said = verb("join", "--routed", *routed(tmp_path, lost_each=30))
    assert "R: " not in said.err
    assert "limit" not in said.out
