"""Probes in the guest, against what links and queues are known to take."""

from pathlib import Path

import polars as pl
import pytest

import outcast
from outcast.emulation import instants
from outcast.files import sha256

NETWORK = """
name: probes
topology: {kind: linear, rivals: 3}
links: {rate: 10mbit, delay: 1ms}
queue: {kind: pfifo, limit: 20 packets}
noise: {profile: exact}
duration: 400ms
engine: virtual
"""

FLOWS = """
flows:
  - {from: 2-hop, hosts: 1}
  - {from: 3-hop, hosts: 1}
"""

FRAME_NS = (14 + 1500 + 24) * 8 * 100
"""A full frame with preamble, check sequence and gap at 10 Mbps."""


def ran(tmp_path: Path, text: str, name: str = "run") -> outcast.Run:
    path = tmp_path / "net.yaml"
    path.write_text(NETWORK + text, encoding="utf-8")
    return outcast.run(outcast.load(path), tmp_path / name)


@pytest.mark.parametrize(("family", "header_bytes"), [("ipv4", 28), ("ipv6", 48)])
def test_an_idle_path_takes_its_links_time(tmp_path, family, header_bytes):
    """Two or three links each way, each with 1 ms and the frame's own time."""
    run = ran(
        tmp_path,
        f"""
addressing: {family}
probes:
  - {{from: h3, to: h1, every: 10ms, duration: 200ms}}
  - {{from: h1, to: h2, every: 10ms, start: 200ms, kind: udp, size: 1000B}}
""",
    )
    small_ns, large_ns = ((14 + header_bytes + size + 24) * 800 for size in (56, 1000))
    expected = {0: 6 * (10**6 + small_ns), 1: 4 * (10**6 + large_ns)}
    table = run.table("probes")
    assert table.group_by("probe").len().sort("probe").rows() == [(0, 20), (1, 20)]
    for number, rtt_ns in expected.items():
        measured = table.filter(pl.col("probe") == number)["rtt_ns"]
        assert measured.null_count() == 0
        assert [measured.min(), measured.max()] == pytest.approx([rtt_ns] * 2, abs=1000)
        assert run.summary.probes[str(number)].base_rtt_ms == pytest.approx(rtt_ns / 1e6, abs=1e-3)
    assert run.trusted
    # Identifiers and flow labels are drawn when a socket is opened.
    assert run.manifest.effective["instants.probes_ns"] % 10**9 == instants.OFFSET_NS


def test_a_standing_queue_adds_its_own_time(tmp_path):
    """A stream at twice the link's rate keeps 20 packets there; the captures tell the rest."""
    run = ran(
        tmp_path,
        """
workloads:
  - {kind: constant_rate, from: [h2, h3], to: h1, rate: 9mbit, datagram: 1472B}
probes:
  - {from: h3, to: h1, every: 2ms, start: 100ms}
""",
    )
    probe = run.summary.probes["0"]
    table = run.table("probes").filter(pl.col("rtt_ns").is_not_null())
    waited_ns = table["rtt_ns"] - round(probe.base_rtt_ms * 1e6)
    assert 0 < probe.lost < probe.sent == 150
    # A probe takes a place itself, and the link of h3 has its stream, too.
    assert waited_ns.min() > 18 * FRAME_NS
    assert waited_ns.max() < 22 * FRAME_NS
    assert run.summary.capture.inferred_drops == run.summary.capture.qdisc_drops
    assert run.trusted


def test_a_probe_beside_the_flows_changes_nothing_of_them(tmp_path):
    without = ran(tmp_path, FLOWS, "without")
    probes = (f"{{from: h4, to: h5, every: 1ms, kind: {kind}}}" for kind in ("icmp", "udp"))
    beside = ran(tmp_path, f"{FLOWS}probes: [{', '.join(probes)}]", "beside")
    captures = [path.name for path in sorted(without.directory.captures.iterdir())]
    assert captures
    for name in captures:
        one, other = (sha256(run.directory.captures / name) for run in (without, beside))
        assert one == other, name
    assert without.table("flows").equals(beside.table("flows"))
    assert [probe.lost for probe in beside.summary.probes.values()] == [0, 0]


def test_a_probe_is_no_flow_of_a_program(tmp_path):
    run = ran(
        tmp_path,
        """
programs:
  - {name: ask, host: h3, command: [sleep, "0.1"], to: [h1]}
probes: [{from: h3, to: h1, kind: udp}]
""",
    )
    assert not run.manifest.flows
    assert run.trusted
