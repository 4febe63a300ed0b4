"""Joined captures in a folder of their own: what a run has, if captures show it."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import outcast as api
from outcast.cli import invoke as outcast
from outcast.errors import InputError
from outcast.records.captures import CapturesManifest, read_manifest
from outcast.records.run_directory import RunDirectory
from outcast.view.summary_words import word_of
from tests.golden import model
from tests.golden.packets import P, capture
from tests.golden.run_directory import write_run

FILES = {"s1-eth2": "in", "s1-eth3": "in", "s1-eth1": "out"}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run, whose captures are joined like any others."""
    traffic = model.drop_tail(model.make_traffic(8, 3_000), 16_384, 10**9)
    folder = tmp_path_factory.mktemp("captured") / "run"
    write_run(folder, traffic, 50_000_000)
    assert outcast(["analyze", str(folder)]) == 0
    return folder


def arguments(captures: Path) -> list[str]:
    return [
        word
        for port, direction in FILES.items()
        for word in (f"--{direction}", f"{port}={captures / f'{port}.{direction}.pcap'}")
    ]


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("joined") / "mine"
    assert outcast(["join", *arguments(run / "captures"), "-o", str(made)]) == 0
    return made


def told(folder: Path) -> CapturesManifest:
    manifest = read_manifest(RunDirectory(folder))
    assert isinstance(manifest, CapturesManifest)
    return manifest


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_the_tables_are_those_of_the_run(run, folder):
    for name in ("packets", "queue", "blackouts"):
        ours = pl.read_parquet(run / f"{name}.parquet")
        theirs = pl.read_parquet(folder / f"{name}.parquet")
        columns = [column for column in ours.columns if column != "flow"]
        assert theirs.select(columns).equals(ours.select(columns)), name
    flows = {
        path: pl.read_parquet(path / "flows.parquet").sort("src_ip", "sport")
        for path in (run, folder)
    }
    for name in ("packets", "dropped", "longest_chain", "retransmissions_seen", "spurious_seen"):
        assert flows[folder][name].to_list() == flows[run][name].to_list(), name


def test_what_is_not_known_is_left_out(folder):
    summary = json.loads((folder / "summary.json").read_text())
    for name in ("engine", "outcast_ratio", "losses", "synchronisation", "samples", "compare"):
        assert summary[name] is None, name
    for name in ("classes", "tcp", "windows", "convergence", "wall_s"):
        assert not summary[name], name
    assert summary["capture"]["qdisc_drops"] is None
    assert summary["capture"]["tcpdump_kernel_drops"] is None
    assert summary["capture"]["trusted"] is True
    assert summary["queue"]["s1-eth1"]["utilisation"] is None
    assert summary["queue"]["s1-eth1"]["capacity"]["configured"] is None
    assert set(summary["groups"]) == {"port", "sender"}
    for group in summary["groups"]["port"].values():
        for name in ("timeouts", "retransmits", "timeouts_seen", "halted_s", "srtt_ms", "cwnd"):
            assert group[name] is None, name
    flows = pl.read_parquet(folder / "flows.parquet")
    for name in ("hops", "path_links", "retransmits", "timeouts", "timeouts_seen", "halted_s"):
        assert flows[name].null_count() == flows.height, name
    assert set(flows["congestion_control"]) == {"unknown"}
    for name in ("config.yaml", "plan.json", "counters.json", "links.parquet", "timeouts.png"):
        assert not (folder / name).exists(), name


def test_flows_that_shared_a_part_of_the_capture_are_told(folder, tmp_path):
    """One sends for all of 100 ms, and one for its last 20."""
    early = [P(at, src="10.0.0.2", ip_id=at, seq=1448 * at) for at in range(1, 100_000, 500)]
    late = [P(at, src="10.0.0.3", ip_id=at, seq=1448 * at) for at in range(80_050, 100_000, 500)]
    packets = sorted([*early, *late], key=lambda packet: packet.at_us)
    capture(tmp_path / "in", packets)
    capture(tmp_path / "out", [replace(packet, at_us=packet.at_us + 20) for packet in packets])
    made = tmp_path / "made"
    ports = ["--in", f"a={tmp_path / 'in'}", "--out", f"b={tmp_path / 'out'}"]
    assert outcast(["join", *ports, "-o", str(made)]) == 0
    for joined, active in ((made, "19.45ms of its 99.57ms"), (folder, "25.32ms of its 30.99ms")):
        warnings = json.loads((joined / "summary.json").read_text())["warnings"]
        (line,) = [line for line in warnings if "active" in line]
        assert f"all flows were active for {active} only" in line


def test_every_verb_that_reads_a_run_reads_it(run, folder, capsys):
    for arguments in (
        ["report", str(folder)],
        ["inspect", str(folder), "--blackout", "0", "--queue"],
        ["inspect", str(folder), "--verdict", "dropped", "--port", "s1-eth2"],
        ["inspect", str(folder), "--packet", "7"],
        ["inspect", str(folder), "--around", "10ms", "--png", str(folder.parent / "x.png")],
        ["figure", str(folder), "goodput", "-o", str(folder.parent / "y.png")],
    ):
        assert outcast(arguments) == 0, capsys.readouterr().err
    opened = api.open_run(folder)
    assert opened.trusted
    assert opened.table("packets").height == 3000
    assert opened.summary.drops["s1-eth2"].packets > 0
    with pytest.raises(InputError, match="holds joined captures"):
        _ = opened.experiment
    capsys.readouterr()
    assert outcast(["inspect", str(folder), "--links"]) == 2
    assert "--links: joined captures have no counters of links" in capsys.readouterr().err
    # What makes a run again, or packs what a run needs, refuses it.
    with pytest.raises(InputError, match="holds joined captures; allowed is a run"):
        RunDirectory(folder).read_manifest()


def test_joining_again_gives_the_same_bytes(folder):
    before = bytes_of(folder)
    (folder / "packets.parquet").unlink()
    assert outcast(["analyze", str(folder)]) == 0
    assert bytes_of(folder) == before
    hashes = told(folder).files
    assert set(hashes) == set(before) - {"manifest.json"}


def test_a_capture_that_moved_or_changed(run, tmp_path, capsys):
    captures = shutil.copytree(run / "captures", tmp_path / "captures")
    made = tmp_path / "mine"
    assert outcast(["join", *arguments(captures), "-o", str(made)]) == 0
    before = bytes_of(made)
    away = captures / "s1-eth2.in.pcap"
    content = away.read_bytes()
    away.unlink()
    capsys.readouterr()
    assert outcast(["analyze", str(made)]) == 2
    error = capsys.readouterr().err
    assert f"{away}: is not there any more; put it back, or into {made}/captures/" in error
    (made / "captures").mkdir()
    (made / "captures" / away.name).write_bytes(content)
    assert outcast(["analyze", str(made)]) == 0
    assert {name: data for name, data in bytes_of(made).items() if name != "manifest.json"} == {
        name: data for name, data in before.items() if name != "manifest.json"
    }
    (made / "captures" / away.name).write_bytes(content[:-1] + b"x")
    assert outcast(["analyze", str(made)]) == 2
    assert "has another content than when it was joined" in capsys.readouterr().err


def test_two_outputs(tmp_path):
    """Each output has its own queue and drops; the table of packets has them all, by time."""
    came, left, other = [], [], []
    for number in range(60):
        dst = "10.0.0.1" if number % 3 else "10.0.0.9"
        packet = {"seq": 1448 * number, "ip_id": number, "dst": dst}
        came.append(P(10 * number, **packet))
        if number % 5 != 4:
            (left if number % 3 else other).append(P(10 * number + 7, **packet))
    mouse = {"sport": 7, "payload": 9}
    came.append(P(610, **mouse))
    left.append(P(617, **mouse))
    for name, packets in (("a", came), ("b", left), ("c", other)):
        capture(tmp_path / name, packets)
    joined = api.join_captures({"a": tmp_path / "a"}, {"b": tmp_path / "b", "c": tmp_path / "c"})
    opened = joined.save(tmp_path / "mine")
    summary = opened.summary
    assert [record.egress for record in opened.manifest.bottlenecks] == ["b", "c"]
    assert {port: (part.packets, part.dropped) for port, part in summary.drops.items()} == {
        "a": (41, 8),
        "a>c": (20, 4),
    }
    assert set(summary.queue) == {"b", "c"}
    assert opened.table("packets")["t_in"].is_sorted()
    assert opened.table("packets").height == 61
    assert len(opened.manifest.flows) == sum(group.summary.flows for group in opened.groups) == 2
    assert [word_of(text) for text in summary.warnings].count("mice") == 1
    # The flows share no one output, so there is no equal share to compare them with.
    assert opened.fair_bps is None
    assert "an equal share" not in (tmp_path / "mine" / "report.html").read_text()
    # With its packet dropped, the small flow may starve.
    came[-1] = P(305, **mouse)
    capture(tmp_path / "a", sorted(came, key=lambda packet: packet.at_us))
    capture(tmp_path / "b", left[:-1])
    joined = api.join_captures({"a": tmp_path / "a"}, {"b": tmp_path / "b", "c": tmp_path / "c"})
    assert len(joined.save(tmp_path / "again").manifest.flows) == 3


def test_a_bridge_captured_by_plain_tcpdump(tmp_path, capsys):
    """Acknowledgements are no flows, and only the output that dropped packets is drawn."""
    scene = Path(__file__).parents[2] / "golden" / "bridges" / "three"
    truth = json.loads((scene / "truth.json").read_text())
    joined = api.join_captures(ports={port: scene / f"{port}.pcap.zst" for port in "ABR"})
    opened = joined.save(tmp_path / "mine")
    assert {port: opened.summary.drops[port].dropped for port in truth["by_sender"]} == truth[
        "by_sender"
    ]
    assert opened.manifest.bottlenecks[0].egress == "R"
    assert {(flow.ingress, flow.dst_ip) for flow in opened.manifest.flows} == {
        ("A", "192.168.7.3"),
        ("B", "192.168.7.3"),
    }
    assert opened.fair_bps is not None
    assert [way.label for way in opened.ways.values()] == ["A to R", "B to R"]
    text = (tmp_path / "mine" / "report.html").read_text()
    assert "length, mean (KiB)" in text
    assert "Queue of A, in bins" not in text
    # An output where too few packets waited has no row, and the rate's bounds differ.
    estimates = text.partition("Rate and limit of the queues")[2].partition("</table>")[0]
    assert estimates.count("<tr>") == 2
    low, high = re.findall(r"(\d+\.\d{3}) to (\d+\.\d{3})", estimates)[0]
    assert float(low) < 49.608 < float(high)
    labels = re.findall(r'"label": ?"(192[^"]*)"', text)
    assert len(set(labels)) == len(labels) > 2
    assert "R>A" not in text
    before = bytes_of(tmp_path / "mine")
    assert outcast(["analyze", str(tmp_path / "mine")]) == 0
    assert bytes_of(tmp_path / "mine") == before
    assert outcast(["show", str(tmp_path / "mine"), "--flows", "--ports"]) == 0
    shown = capsys.readouterr().out
    assert "to 192.168.7.3:" in shown
    assert re.search(r"R sends 49\.\d+ Mbps", shown)
    rows = [line.split()[:4] for line in shown.splitlines() if re.match(r"[ABR] +[ABR] ", line)]
    assert rows == [["A", "R", "930", "326"], ["B", "R", "2,752", "1,006"]]
    assert "ports without a drop are left out" in shown
