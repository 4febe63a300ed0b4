"""TCP's settings in the guest: what every value is there for shows on the wire or at the socket."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from tests import guest_runs

SHORT = ["duration=100ms", "analysis.windows=[100ms]"]
SYN, ACK, ECE, CWR, CE = 0x02, 0x10, 0x40, 0x80, 3
ACCURATE_ECN = 0x01
"""The flag AE in the byte before the other flags (RFC 9768, section 3.1)."""
SACK_PERMITTED, MULTIPATH, JOIN = 4, 30, 1


def run(target: Path, *settings: str, config: str = "fig3c") -> dict[str, Any]:
    """The manifest of a short run of a configuration with these settings."""
    guest_runs.run(config, target, *SHORT, *settings)
    return guest_runs.manifest_of(target)


def tcp_packets(target: Path) -> Iterator[tuple[bytes, bytes]]:
    """IPv4 header, and TCP header with options, of every frame at the bottleneck's output."""
    manifest = json.loads((target / "manifest.json").read_text())
    (file,) = (each["file"] for each in manifest["captures"] if each["direction"] == "out")
    data = (target / file).read_bytes()
    at = 24
    while at < len(data):
        (length,) = struct.unpack_from("=I", data, at + 8)
        frame = data[at + 16 : at + 16 + length]
        at += 16 + length
        if frame[12:14] == b"\x08\x00" and frame[23] == 6:
            yield frame[14:34], frame[34 : 34 + (frame[46] >> 4) * 4]


def options(tcp: bytes) -> dict[int, bytes]:
    found, at = {}, 20
    while at < len(tcp) and tcp[at]:
        if tcp[at] == 1:
            at += 1
            continue
        found[tcp[at]] = tcp[at + 2 : at + tcp[at + 1]]
        at += tcp[at + 1]
    return found


def test_groups_of_flows_with_settings_of_their_own(tmp_path):
    groups = [
        "{from: 2-hop, hosts: 1, transport: {sack: false}}",
        "{from: 4-hop, hosts: 2, transport: {congestion_control: bbr}}",
        "{from: 6-hop, hosts: 4, transport: {congestion_control: dctcp}}",
    ]
    queue = "queue={kind: ecn_threshold, limit: 60 packets, threshold: 12 packets}"
    manifest = run(tmp_path / "run", f"flows=[{', '.join(groups)}]", queue)
    controls = {flow["sport"]: flow["congestion_control"] for flow in manifest["flows"]}
    assert sorted(controls.values()) == ["bbr"] * 2 + ["bic"] + ["dctcp"] * 4
    marked: set[int] = set()
    for ip, tcp in tcp_packets(tmp_path / "run"):
        (sport,) = struct.unpack_from("!H", tcp)
        if tcp[13] & (SYN | ACK) == SYN:
            assert (SACK_PERMITTED in options(tcp)) is (controls[sport] != "bic")
        if ip[1] & 3 == CE:
            marked.add(sport)
    assert marked == {sport for sport, control in controls.items() if control == "dctcp"}
    sampled = json.loads((tmp_path / "run/flows/sockets.json").read_text())
    senders = {each["local_port"]: each for each in sampled if each["local_port"] in controls}
    for sport, control in controls.items():
        seen = senders[sport]["delivered_ce"]
        assert (seen > 0) is (control == "dctcp")
    # DCTCP has come down from its initial window of 10 by marks alone.
    windows = [s["cwnd"] for p, s in senders.items() if controls[p] == "dctcp"]
    assert max(windows) < 10


def test_tcprands_payloads_are_uniform_and_spare_the_lone_flow(tmp_path):
    target = tmp_path / "run"
    run(target, "duration=200ms", "noise.profile=jitter", config="t13-chains")
    sizes = (
        pl.read_parquet(target / "packets.parquet")
        .filter(pl.col("payload") > 0)
        .sort("t_in")
        .unique(["flow", "seq"], keep="first")["payload"]
        .to_numpy()
    )
    assert len(sizes) > 5000
    assert (sizes.min(), sizes.max()) == (200, 1448)
    # Kolmogorov-Smirnov, at one in a thousand.
    below = [(sizes <= size).mean() - (size - 199) / 1249 for size in range(200, 1449)]
    assert max(map(abs, below)) < 1.95 / len(sizes) ** 0.5
    # Of its packets the lone flow lost 5 to 7 %, and never waited for a timeout, with six seeds;
    # with payloads all alike 13 to 29 %, and waited 5 to 21 times.
    summary = json.loads((target / "summary.json").read_text())
    lone = summary["drops"]["e1-eth2"]
    assert lone["dropped"] < 0.1 * lone["packets"]
    assert summary["classes"]["2"]["timeouts"] < 5


def test_multipath_tcp_has_its_subflows(tmp_path):
    manifest = run(tmp_path / "run", "transport.mptcp={subflows: 3}")
    flows = manifest["flows"]
    assert [len(flow["subflows"]) for flow in flows] == [2] * len(flows)
    joined = sum(
        1
        for _, tcp in tcp_packets(tmp_path / "run")
        if tcp[13] & (SYN | ACK) == SYN and options(tcp).get(MULTIPATH, b"\x00")[0] >> 4 == JOIN
    )
    assert joined == 2 * len(flows)
    packets = pl.read_parquet(tmp_path / "run/packets.parquet").filter(pl.col("payload") > 0)
    used = packets.group_by("flow").agg(pl.col("sport").n_unique())
    assert used["flow"].max() == len(flows) - 1
    assert used["sport"].to_list() == [3] * len(flows)


def test_accurate_ecn_is_negotiated(tmp_path):
    queue = "queue={kind: ecn_threshold, limit: 64KB, threshold: 16KB}"
    run(tmp_path / "run", queue, "transport.ecn=accurate")
    asked = ECE | CWR
    opening = [tcp for _, tcp in tcp_packets(tmp_path / "run") if tcp[13] & (SYN | ACK) == SYN]
    assert len(opening) == 13
    assert all(tcp[12] & ACCURATE_ECN and tcp[13] & asked == asked for tcp in opening)
    assert sum(ip[1] & 3 == CE for ip, _ in tcp_packets(tmp_path / "run")) > 10


ERA = """
name: era
topology: {kind: linear, rivals: 1}
links: {rate: 100mbit, delay: 2ms, overrides: [{from: s1, to: h1, loss: 0.25}]}
queue: {kind: tbf, limit: 128KB}
transport: {congestion_control: reno, delayed_acks: false, small_queue: 256KB}
flows:
  - from: 2-hop
    per_host: 20
    bytes: 5500B
    transport: {initial_window: 3, tail_loss_probe: false}
  - {from: 3-hop, per_host: 20, bytes: 5500B}
duration: 200ms
noise: {profile: exact}
capture: {ports: all}
analysis: {bin: 10ms}
"""


def test_the_eras_tcp_shows_on_the_wire(tmp_path):
    """Two senders whose flows lose a quarter of their packets behind the bottleneck."""
    config = tmp_path / "era.yaml"
    config.write_text(ERA)
    target = tmp_path / "run"
    guest_runs.run(config, target)
    effective = guest_runs.manifest_of(target)["effective"]
    assert (effective["h2.initcwnd_route"], effective["quickack_route"]) == (3, 1)
    assert effective["h2.ipv4.tcp_early_retrans"] == "0"
    assert effective["ipv4.tcp_limit_output_bytes"] == "262144"
    # What leaves within half a round trip of 8 ms and 12 ms leaves before an acknowledgement.
    start = pl.col("t_in") - pl.col("t_in").min().over("flow")
    first = (
        pl.read_parquet(target / "packets.parquet")
        .filter(pl.col("payload") > 0)
        .filter(pl.col("t_in") >= guest_runs.manifest_of(target)["traffic"]["t_start_ns"])
        .filter(start < 4_000_000)
        .group_by(pl.col("src").cast(pl.String), "flow")
        .len()
    )
    flights = dict(first.group_by("src").agg(pl.col("len").max()).iter_rows())
    assert flights == {"10.0.0.2": 3, "10.0.0.3": 4}
    hosts = json.loads((target / "counters.json").read_text())["hosts"]
    grown = {
        host: {name: ends["after"][name] - ends["before"].get(name, 0) for name in ends["after"]}
        for host, ends in hosts.items()
    }
    assert grown["h2"]["TcpExtTCPLossProbes"] == 0
    assert grown["h3"]["TcpExtTCPLossProbes"] > 0
    assert grown["h1"]["TcpExtDelayedACKs"] == 0
