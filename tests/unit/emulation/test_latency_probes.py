"""Probes: what is asked for, planned, kept and shown."""

import io
import struct
from ipaddress import IPv6Address
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from rich.console import Console

import configs
from controllers.hashing import FiveTuple
from outcast import experiment
from outcast.analysis import analyze
from outcast.emulation.network.controller import internet_checksum, parse_tcp, tcp_reset
from outcast.emulation.traffic import probing
from outcast.errors import ConfigError
from outcast.plan import stored
from outcast.plan.make import make_plan
from outcast.plan.model import Plan
from outcast.plan.probes import base_rtt_ns
from outcast.records.flows import ProbeRecord, probe_file
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.view import figures, report
from outcast.view.terminal import tables
from tests.golden.run_directory import make_run

TWO = "[{from: h3, to: h1, every: 10ms}, {from: h1, to: h4, kind: udp, size: 1000B, start: 1s}]"


def plan_of(probes: str, *overrides: str, config: str = "linear-12") -> Plan:
    lasts = ("duration=2s", "analysis.windows=[]") if probes == TWO else ()
    settings = (f"probes={probes}", *lasts, *overrides)
    return make_plan(experiment.load(configs.find(config), settings))


def read_again(plan: Plan, folder: Path) -> Plan:
    """The plan as it is stored and read."""
    path = folder / "plan.json"
    path.write_text(stored.dumps(plan), encoding="utf-8")
    return stored.read_plan(path)


def test_probes_have_their_own_ports_and_phases():
    plan = plan_of(TWO, "seed=3")
    one, two = plan.probes
    assert (one.kind, one.sport, one.dport, one.payload_bytes) == ("icmp", 1, 0, 56)
    assert (two.kind, two.sport, two.dport, two.packet_bytes) == ("udp", 10_002, 7, 1028)
    assert 0 <= one.start_ns < 10**7
    assert 10**9 <= two.start_ns < 10**9 + 10**7
    assert (one.packets, two.packets) == (200, 100)
    other = plan_of(TWO, "seed=4").probes[0]
    assert other.start_ns != one.start_ns
    assert {("h3", "h1"), ("h1", "h4")} <= plan.pairs


def test_inputs_of_probes_are_captured_and_the_bottleneck_stays():
    plain = plan_of("[]")
    plan = plan_of("[{from: h1, to: h3}]")
    assert plan.bottleneck.egress == plain.bottleneck.egress
    assert plan.bottleneck.ingress == plain.bottleneck.ingress
    # The answers of h3 leave by another port than anything else that comes in by s1-eth1.
    beside = plan_of("[{from: h3, to: h2}]")
    assert beside.bottleneck == plain.bottleneck


def test_probes_have_a_code_point():
    plan = plan_of("[{from: h3, to: h1, dscp: ef}, {from: h3, to: h1}]")
    marked, plain = plan.probes
    assert (marked.dscp, plain.dscp) == (46, 0)
    words = probing.arguments("/probe", marked, 5)
    assert words[words.index("--tos") + 1] == "184"
    assert [record.dscp for record in probing.records(plan)] == [46, 0]


def test_probes_alone_are_an_experiment():
    plan = plan_of("[{from: h3, to: h1}]", "flows=[]")
    assert not plan.flows
    assert plan.bottleneck.egress in plan.switch_ports()


def test_the_base_round_trip_is_that_of_links_and_frames():
    plan = plan_of("[{from: h3, to: h1}]", "links.rate=10mbit", "links.delay=1ms")
    (probe,) = plan.probes
    there, back = plan.path("h3", "h1"), plan.path("h1", "h3")
    frame_ns = (14 + 20 + 8 + 56 + 24) * 800
    assert base_rtt_ns(plan.links, probe, there, back) == 6 * (10**6 + frame_ns)


def test_probes_have_addresses_of_either_family(tmp_path):
    both = ("addressing=both",)
    old, new = plan_of("[{from: h3, to: h1}, {from: h3, to: h1, addressing: ipv6}]", *both).probes
    assert (old.headers.protocol, new.headers.protocol) == (1, 58)
    assert ":" in new.src_ip
    assert ":" not in old.src_ip
    assert new.packet_bytes == old.packet_bytes + 20 == 56 + 48
    alone = plan_of("[{from: h3, to: h1}]", "addressing=ipv6")
    assert alone.probes[0].is_ipv6
    assert read_again(alone, tmp_path).probes == alone.probes
    with pytest.raises(ConfigError, match=r"probes\.0\.addressing: ipv6, but hosts have"):
        plan_of("[{from: h3, to: h1, addressing: ipv6}]")


def test_where_ports_decide_the_path_only_udp_has_one():
    hashed = ("routing={kind: hashed}",)
    probes = "[{from: h3_0_2, to: h0_0_2, kind: %s}]"
    with pytest.raises(ConfigError, match="hashed routing chooses paths by ports, which icmp"):
        plan_of(probes % "icmp", *hashed, config="fattree-12")
    plan = plan_of(probes % "udp", *hashed, config="fattree-12")
    assert plan.probes[0].headers in plan.path_probes()


def test_the_command_line_says_all_of_a_probe():
    plan = plan_of(TWO)
    words = probing.arguments("/probe", plan.probes[1], 5)
    assert words[:2] == ["/probe", "ask"]
    given = dict(zip(words[2::2], words[3::2], strict=True))
    assert given["--from"] == plan.ip("h1")
    assert given["--sport"] == "10002"
    assert given["--payload"] == "1000"
    assert given["--count"] == "100"
    assert given["--drain"] == "5"


def analysed(directory: RunDirectory, interval: str = "") -> Run:
    """The run, analysed in an interval."""
    config = directory.path / "config.yaml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("bin: 1ms", f"bin: 1ms{interval}"), encoding="utf-8")
    analyze(directory)
    return Run(directory)


def text_of(directory: RunDirectory) -> str:
    stream = io.StringIO()
    Console(file=stream, width=100).print(tables.everything(Run(directory)))
    return stream.getvalue()


RECORD = ProbeRecord(
    probe=0,
    kind="icmp",
    src="h3",
    src_ip="10.0.0.3",
    dst="h1",
    dst_ip="10.0.0.1",
    sport=1,
    dport=0,
    payload_bytes=56,
    start_ns=0,
    every_ns=10_000_000,
    packets=4,
    base_rtt_ns=2_000_000,
)


@pytest.fixture
def directory(tmp_path) -> RunDirectory:
    made = make_run(tmp_path / "run", 80_000_000, 9, 3_000)
    manifest = made.read_manifest()
    made.write_manifest(manifest.model_copy(update={"probes": [RECORD]}))
    start = manifest.traffic.t_start_ns
    lines = [
        f"{n} {start + n * 10**7} {start + n * 10**7 + rtt if rtt else 0}"
        for n, rtt in enumerate((2_000_000, 0, 3_000_000, 7_000_000))
    ]
    made.flows.mkdir(exist_ok=True)
    probe_file(made.flows, 0).write_text("\nready\n" + "\n".join(lines) + "\n", encoding="ascii")
    return made


def test_percentiles_losses_and_rows(directory):
    run = analysed(directory)
    table = run.table("probes")
    assert table.columns == ["probe", "kind", "src", "dst", "packet", "t", "rtt_ns"]
    assert table["rtt_ns"].to_list() == [2_000_000, None, 3_000_000, 7_000_000]
    assert table["t"].to_list() == [0, 10**7, 2 * 10**7, 3 * 10**7]
    assert table["rtt_ns"].dtype == pl.Int64
    part = run.summary.probes["0"]
    assert (part.sent, part.lost, part.base_rtt_ms, part.every_ms) == (4, 1, 2.0, 10.0)
    assert (part.rtt_ms.mean, part.rtt_ms.p50, part.rtt_ms.max) == (4.0, 3.0, 7.0)
    shown = text_of(directory)
    assert "h3 to h1 (icmp)" in shown
    drawn = figures.figure(run, "probes")
    assert isinstance(drawn, Figure)
    page = report.make(run)
    assert "Latency under load" in page
    assert "h3 to h1 (icmp)" in page


def test_probes_follow_the_main_interval(directory):
    run = analysed(directory, ", from: 5ms, to: 30ms")
    assert run.table("probes").height == 4
    part = run.summary.probes["0"]
    assert (part.sent, part.lost, part.rtt_ms.max) == (2, 1, 3.0)
    drawn = figures.figure(run, "probes")
    over_time, shares = drawn.axes
    (legend,) = drawn.legends
    assert "left out of the summary (analysis.from and to)" in [
        text.get_text() for text in legend.get_texts()
    ]
    assert len(over_time.patches) == 2
    assert not shares.patches
    assert over_time.lines[0].get_xdata().size == 3
    assert list(shares.lines[0].get_xdata()) == [3.0, 3.0]
    assert "0 to 0.08 s" not in text_of(directory)


def test_flows_and_groups_have_the_time_that_their_packets_waited(directory):
    run = analysed(directory)
    packets = run.table("packets").filter(pl.col("t_out").is_not_null())
    waited = packets.filter(pl.col("flow") == 0)
    waited = waited.filter(pl.col("t_in") < run.manifest.traffic.t_start_ns + 80_000_000)
    times = (waited["t_out"] - waited["t_in"]).sort()
    row = run.table("flows").filter(pl.col("flow") == 0).row(0, named=True)
    assert row["queueing_mean_ns"] == pytest.approx(times.mean())
    assert row["queueing_p50_ns"] == times[-(-len(times) // 2) - 1]
    group = run.summary.groups["hops"]["2-hop"]
    assert group.queueing_ms.p50 == row["queueing_p50_ns"] / 1e6


PORTS = st.integers(1, 65535)


@given(PORTS, PORTS)
def test_a_probe_has_the_flows_ports_and_a_valid_checksum(sport, dport):
    packet = FiveTuple("10.1.0.2", sport, "10.0.0.2", dport)
    segment = tcp_reset(packet)
    pseudo = bytes([10, 1, 0, 2, 10, 0, 0, 2, 0, 6]) + struct.pack("!H", len(segment))
    assert internet_checksum(pseudo + segment) == 0
    assert segment[13] == 0x04
    header = bytes([0x45, *bytes(8), 6, 0, 0, 10, 1, 0, 2, 10, 0, 0, 2])
    assert parse_tcp(header + segment) == packet
    with_options = bytes([0x46]) + header[1:] + bytes(4)
    assert parse_tcp(with_options + segment) == packet


@given(PORTS, PORTS)
def test_a_probe_of_ipv6_has_a_valid_checksum(sport, dport):
    ends = ("fd00::a01:2", "fd00::a00:2")
    segment = tcp_reset(FiveTuple(ends[0], sport, ends[1], dport))
    addresses = b"".join(IPv6Address(end).packed for end in ends)
    # RFC 8200, section 8.1.
    pseudo = addresses + struct.pack("!IxxxB", len(segment), 6)
    assert internet_checksum(pseudo + segment) == 0


def test_the_checksum_is_that_of_the_rfcs_example():
    # RFC 1071, section 3: the sum of these words is ddf2.
    assert internet_checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0xFFFF - 0xDDF2
