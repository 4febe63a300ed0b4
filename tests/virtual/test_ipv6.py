"""IPv6 in the guest: flows, programs of both families, names, other fates, the kernel's events."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dpkt
import polars as pl
import pytest
import yaml

import outcast
from outcast.cli import invoke

NETWORK = """
name: six
topology: {kind: linear, rivals: 2}
links: {rate: 100mbit, delay: 50us}
queue: {kind: pfifo, limit: 20 packets}
addressing: ipv6
flows: [{from: 2-hop}, {from: 3-hop}]
duration: 100ms
analysis: {windows: [], bin: 10ms}
engine: virtual
"""

SERVER = """
import socket
# No IPV6_V6ONLY: whatever family comes, this socket takes it.
inside = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
inside.bind(("::", 7777))
inside.listen()
while True:
    connection, peer = inside.accept()
    connection.sendall(peer[0].encode())
    connection.close()
"""
CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], 7777)) as connection:
    print(connection.family.name, connection.recv(100).decode())
"""
LOOKUP = """
import socket
for host in ("h4", "localhost"):
    found = socket.getaddrinfo(host, 80, type=socket.SOCK_STREAM)
    print(host, *sorted(address[0] for *_, address in found))
"""


def made(folder: Path, **settings: Any) -> outcast.Run:
    file = folder / "net.yaml"
    file.write_text(NETWORK, encoding="utf-8")
    return outcast.run(outcast.load(file, settings), folder / "run", progress=False)


def captured(run: outcast.Run) -> Iterator[bytes]:
    """The captured bytes of every frame of all captures."""
    for file in sorted(run.directory.captures.iterdir()):
        with file.open("rb") as stream:
            yield from (bytes(data) for _, data in dpkt.pcap.Reader(stream))


def families(run: outcast.Run) -> set[int]:
    """The versions of IP in all captures."""
    kinds = {int.from_bytes(data[12:14], "big") for data in captured(run)}
    return {{0x0800: 4, 0x86DD: 6}[kind] for kind in kinds}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> outcast.Run:
    return made(tmp_path_factory.mktemp("six"), **{"capture.ports": "all"})


def test_only_flows_are_seen(run):
    assert run.trusted, run.reasons
    capture = run.summary.capture
    assert capture.inferred_drops == capture.qdisc_drops > 0
    packets = run.table("packets", whole=True)
    assert set(packets["src"].cast(pl.String)) == {"fd00::a00:2", "fd00::a00:3", "fd00::a00:4"}
    assert set(packets["ip_id"]) == {0}
    assert families(run) == {6}
    # No neighbour is looked for, no group is reported, no router is asked: TCP is all there is.
    assert {data[20] for data in captured(run)} == {6}


def test_programs_of_both_families_and_names(tmp_path):
    for name, text in (("server.py", SERVER), ("client.py", CLIENT), ("lookup.py", LOOKUP)):
        (tmp_path / name).write_text(text, encoding="ascii")
    server = {"name": "serve", "host": "h4", "ready": {"port": 7777}, "files": ["server.py"]}
    programs = [
        {**server, "command": ["python3", "server.py"]},
        *(
            {
                "name": f"get{number}",
                "host": "h1",
                "files": ["client.py"],
                "command": ["python3", "client.py", word],
                "start": f"{20 * number}ms",
            }
            for number, word in enumerate(("{h4}", "{h4.ipv4}", "{h4.ipv6}", "h4"))
        ),
        {
            "name": "lookup",
            "host": "h1",
            "files": ["lookup.py"],
            "command": ["python3", "lookup.py"],
        },
    ]
    flows = [{"name": "four", "from": "h2"}, {"name": "six", "from": "h3", "addressing": "ipv6"}]
    run = made(tmp_path, addressing="both", programs=programs, flows=flows)
    assert run.trusted, run.reasons
    four, six = "AF_INET ::ffff:10.0.0.1\n", "AF_INET6 fd00::a00:1\n"
    assert [run.program(f"get{number}").output for number in range(4)] == [four, four, six, six]
    assert run.program("lookup").output == ("h4 10.0.0.4 fd00::a00:4\nlocalhost 127.0.0.1 ::1\n")
    assert families(run) == {4, 6}
    table = run.table("flows")
    sources = dict(table.filter(~pl.col("of_program")).select("name", "src_ip").rows())
    assert sources == {"four": "10.0.0.2", "six": "fd00::a00:3"}
    # A flow of either family has its program's name.
    of_programs = table.filter("of_program", pl.col("src") == "h4")
    assert dict(of_programs.select("name", "dst_ip").rows()) == {
        "get0": "10.0.0.1",
        "get1": "10.0.0.1",
        "get2": "fd00::a00:1",
        "get3": "fd00::a00:1",
    }


def test_a_command_finds_hosts_by_ipv6_alone(tmp_path, capsys):
    file = tmp_path / "net.yaml"
    file.write_text(NETWORK, encoding="utf-8")
    seen = "ping -c 1 h2 | head -1; ip -4 address show dev h1-eth0; cat /proc/net/if_inet6"
    assert invoke(["exec", str(file), "--json", "--", "sh", "-c", seen]) == 0
    lines = json.loads(capsys.readouterr().out)["stdout"].splitlines()
    assert lines[0].startswith("PING h2(h2 (fd00::a00:2))")
    # No IPv4 address, and of IPv6 no other than the one given: none is link-local.
    assert {line.split()[0] for line in lines[1:]} == {
        "fd00000000000000000000000a000001",
        "00000000000000000000000000000001",
    }


def test_workloads_of_every_kind(tmp_path):
    asked = (
        "[{kind: incast, senders: 2, block: 8KB, rounds: 3, addressing: ipv6}, "
        "{kind: constant_rate, from: h2, rate: 5mbit, datagram: 1000B, addressing: ipv6}, "
        "{kind: poisson, load: 0.2, sizes: [[1000, 0.0], [20000, 1.0]], addressing: ipv6}, "
        "{kind: shuffle, bytes: 20KB, addressing: ipv4}]"
    )
    workloads = yaml.safe_load(asked)
    run = made(tmp_path, addressing="both", flows=[], workloads=workloads, duration="1s")
    assert run.trusted
    assert families(run) == {4, 6}
    done = run.table("completions")
    assert set(done["kind"]) == {each["kind"] for each in workloads}
    assert done["error"].null_count() == done.height
    assert done.filter(pl.col("kind").is_in(["incast", "shuffle"]))["t_end"].null_count() == 0
    stream = done.row(by_predicate=pl.col("kind") == "constant_rate", named=True)
    assert stream["datagrams_received"] == pytest.approx(625, abs=20)
    full = run.table("packets", whole=True).filter(pl.col("payload").is_in([1428, 1448]))
    by_ipv6 = pl.col("src").cast(pl.String).str.contains(":")
    assert (
        full["payload"] == full.select(pl.when(by_ipv6).then(1428).otherwise(1448)).to_series()
    ).all()


def test_hashed_routes(tmp_path):
    """Each run's probes show that switches choose by IPv6 addresses as the plan says."""
    tree = {"kind": "fattree", "k": 4}
    flows = [{"from": f"h{pod}_0_2", "to": "h0_0_2"} for pod in (1, 2, 3)]
    run = made(tmp_path, topology=tree, routing={"kind": "hashed"}, flows=flows)
    assert run.trusted, run.reasons
    assert families(run) == {6}


def test_multipath_tcp_and_payloads_of_random_sizes(tmp_path):
    flows = [
        {"from": "h2", "transport": {"mptcp": {"subflows": 2}}},
        {"from": "h3", "transport": {"tcprand": {"min_payload": 200}}},
    ]
    run = made(tmp_path, flows=flows)
    assert run.trusted, run.reasons
    assert families(run) == {6}
    assert (run.table("flows")["goodput_bps"] > 1e6).all()


def test_a_blackout_drops_packets_of_ipv6(tmp_path):
    blackout = {"at": "s1-eth2", "drops": 10, "off_mean": "5ms"}
    run = made(tmp_path, blackout=blackout, queue={"kind": "pfifo", "limit": "200 packets"})
    assert run.trusted, run.reasons
    assert run.summary.capture.blackout_drops


def test_a_packet_gets_another_fate(run, tmp_path):
    packets = run.table("packets", whole=True).with_row_index()
    dropped = packets.filter(pl.col("verdict").cast(pl.String) == "dropped", pl.col("t_in") > 0)
    at = int(dropped["index"][0])
    done = run.whatif(at, "forward", tmp_path / "forward", progress=False)
    verdicts = done.run.table("packets", whole=True)["verdict"].cast(pl.String)
    assert verdicts[at] == "forwarded"
    before = packets["verdict"].cast(pl.String)[:at]
    assert verdicts[:at].to_list() == before.to_list()


def test_the_kernels_events_name_packets_and_flows(run):
    outcast.trace(run.path, progress=False)
    dropped = (
        run.table("packets", whole=True)
        .filter(pl.col("verdict").cast(pl.String) == "dropped")
        .height
    )
    table = pl.read_parquet(run.path / "trace/qdisc_drop.parquet")
    at_bottleneck = table.filter(pl.col("packet").is_not_null())
    assert at_bottleneck.height == dropped
    assert at_bottleneck["flow"].null_count() == 0
    again = pl.read_parquet(run.path / "trace/tcp_retransmit_skb.parquet")
    assert again.filter(pl.col("flow").is_null()).height == 0
