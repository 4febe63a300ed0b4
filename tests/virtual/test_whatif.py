"""`outcast whatif` in the guest: one packet's fate changes, and all before it stays the same."""

import random
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import outcast
from outcast.cli import invoke
from outcast.errors import ConfigError, InputError, RunError
from outcast.records import kept_captures
from outcast.records.run_directory import RunDirectory
from outcast.sweep.store import reduce
from outcast.uses.whatif import fates
from outcast.uses.whatif.compared import read_decision, read_whatif
from outcast.uses.whatif.counterfactual import what_if

SETTINGS = {
    "engine": "virtual",
    "topology.rivals": 2,
    "duration": "50ms",
    "analysis": {"bin": "10ms", "windows": []},
    "links.rate": "100mbit",
    "flows": [{"from": "2-hop", "hosts": 1}, {"from": "3-hop", "hosts": 2}],
}
FIFOS = {"classes": [{"name": "gold", "dscp": "ef"}, {"name": "rest"}], "limit": "12 packets"}
SHARES = [{"name": "gold", "dscp": "ef", "rate": "60mbit"}, {"name": "rest", "rate": "30mbit"}]
QUEUES: dict[str, Any] = {
    "red": {"limit": "64KB"},
    "htb_classes": {**FIFOS, "classes": SHARES},
    "fq_codel": {"limit": "100 packets"},
}
"""A queue that drops by its average, one of classes, and one of flows. All other tests have tbf."""
UNABLE = ("fq_codel",)


def made(folder: Path, **settings: Any) -> outcast.Run:
    experiment = outcast.load("configs/linear-12.yaml", {**SETTINGS, **settings})
    return outcast.run(experiment, folder, progress=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> outcast.Run:
    return made(tmp_path_factory.mktemp("whatif") / "run")


def captures(run: outcast.Run) -> dict[str, str]:
    return kept_captures.digests(run.directory)


def rows(run: outcast.Run, **wanted: Any) -> list[int]:
    """The rows of packets after the start with so much payload that they are data."""
    packets = run.table("packets", whole=True).with_row_index()
    start_ns = run.manifest.traffic.t_start_ns
    chosen = packets.filter(pl.col("t_in") > start_ns, pl.col("payload") > 1000, **wanted)
    return chosen["index"].to_list()


@pytest.mark.parametrize("kind", QUEUES)
def test_keep_is_the_same_run_with_every_sort_of_queue(kind, tmp_path):
    first = made(tmp_path / "run", queue={"kind": kind, **QUEUES[kind]})
    through = rows(first, verdict="forwarded")
    packet = through[len(through) // 2]
    kept = first.whatif(packet, "keep", tmp_path / "kept")
    assert captures(kept.run) == captures(first)
    assert kept.record.parts_ns is None
    assert kept.record.parts == ["equal: 3 captures, byte by byte"]
    lost = rows(first, verdict="dropped")
    if kind in UNABLE:
        with pytest.raises(ConfigError, match=f"of kind {kind} cannot be told"):
            first.whatif(packet, "forward", tmp_path / "forwarded")
        lost = []
    # The packet behind the one that is forwarded is on its way already.
    packet = min(row for row in through if row > lost[0]) if lost else packet
    wanted = [
        fates.parse_fate(packet, "drop"),
        *(fates.parse_fate(row, "forward") for row in lost[:1]),
    ]
    changed = what_if(first.path, wanted, tmp_path / "changed", progress=False)
    assert changed.run.trusted
    assert captures(changed.run) != captures(first)
    verdicts = changed.run.table("packets", whole=True)["verdict"]
    assert verdicts[packet] == "dropped"
    assert all(verdicts[row] == "forwarded" for row in lost[:1])


def test_a_planted_drop_is_undone(run, tmp_path):
    packet = random.Random(1).choice(rows(run, verdict="forwarded"))
    forced = run.whatif(packet, "drop", tmp_path / "forced")
    start_ns = run.manifest.traffic.t_start_ns
    at_ns = run.table("packets", whole=True)["t_in"][packet] - start_ns
    assert forced.record.parts_ns >= at_ns
    assert forced.run.table("packets", whole=True)["verdict"][packet] == "dropped"
    undone = forced.run.whatif(packet, "forward", tmp_path / "undone")
    assert captures(undone.run) == captures(run)
    assert undone.record.changed == forced.record.changed
    assert outcast.replay(forced.run.path).equal


def test_a_packet_is_held(run, tmp_path):
    packet = rows(run, verdict="forwarded")[100]
    held = run.whatif(packet, "delay=2ms", tmp_path / "held")
    interventions = held.run.directory.read_manifest().interventions
    (fate,) = interventions.fates
    # The link's delay and its jitter come before the queue, and then the packet is held.
    assert fate.queued_ns - fate.t_in_ns >= 2_000_000
    # Held, it is not in the queue.
    start_ns = run.manifest.traffic.t_start_ns
    entered = held.run.table("queue").filter(packet=packet)["t"]
    assert entered[0] == fate.queued_ns + start_ns
    assert (
        held.run.table("packets", whole=True)["t_out"][packet]
        >= run.table("packets", whole=True)["t_in"][packet] + 2e6
    )


def test_a_packet_is_marked(run, tmp_path):
    able = made(tmp_path / "ecn", **{"transport.ecn": True})
    marked = able.whatif(rows(able, verdict="forwarded")[100], "mark", tmp_path / "marked")
    assert captures(marked.run) != captures(able)
    with pytest.raises(ConfigError, match=r"flow \d is not ECN-capable"):
        run.whatif(rows(run)[100], "mark", tmp_path / "never")
    # A SYN is no packet of the connection yet, and says so only to the kernel.
    with pytest.raises(RunError, match="cannot be marked"):
        able.whatif(0, "mark", tmp_path / "syn")


def test_a_probe_has_another_fate(tmp_path):
    """The kernel knows packets of ICMP by their IP identification."""
    probe = [{"from": "h1", "to": "h2", "every": "5ms"}]
    first = made(tmp_path / "run", probes=probe)
    probes = (
        first.table("packets", whole=True).with_row_index().filter(sport=0, verdict="forwarded")
    )
    packet = probes["index"][probes.height // 2]
    dropped = first.whatif(packet, "drop", tmp_path / "dropped")
    assert dropped.run.table("packets", whole=True)["verdict"][packet] == "dropped"
    with pytest.raises(ConfigError, match="was dropped anyway"):
        dropped.run.whatif(packet, "drop", tmp_path / "never")
    with pytest.raises(ConfigError, match="is inside the run"):
        first.whatif(packet, "drop", first.path / "inside")


def test_another_packet_is_an_error(run, tmp_path):
    """A run whose manifest asks for a packet that never comes is no other experiment."""
    packet = rows(run, verdict="forwarded")[100]
    forced = run.whatif(packet, "drop", tmp_path / "forced")
    directory = RunDirectory(forced.run.path)
    manifest = directory.read_manifest()
    (fate,) = manifest.interventions.fates
    wrong = manifest.interventions.model_copy(
        update={"fates": (fate.model_copy(update={"ip_id": (fate.ip_id + 1) % 65536}),)}
    )
    directory.write_manifest(manifest.model_copy(update={"interventions": wrong}))
    with pytest.raises(RunError, match="did not come, so this is not the requested experiment"):
        outcast.replay(forced.run.path)


@pytest.mark.usefixtures("drawn")
def test_the_verb(run, tmp_path, capfd):
    packets = rows(run, verdict="forwarded")[100:102]
    port = run.manifest.bottlenecks[0].egress
    lines = ["port,packet,fate", *(f"{port},{packet},drop" for packet in packets)]
    (tmp_path / "fates.csv").write_text("\n".join(lines) + "\n")
    asked = ["whatif", str(run.path), "--fates", str(tmp_path / "fates.csv")]
    assert invoke([*asked, "-o", str(tmp_path / "other")]) == 0
    said = capfd.readouterr().out
    assert said.count("drop: packet") == 2
    assert "they part" in said
    assert "have another fate: " in said
    assert (tmp_path / "other" / "whatif.png").exists()
    assert "What if" in (tmp_path / "other" / "report.html").read_text()


def test_futures_of_a_run(run, capfd):
    asked = ["fate", str(run.path), "--at", "10ms:50ms:20ms", "--outcome", "starved"]
    assert invoke([*asked, "--futures", "2"]) == 0
    assert "starved: " in capfd.readouterr().out
    decision = read_decision(run.directory)
    assert [one.t_ns for one in decision.instants] == [10_000_000, 30_000_000]
    seeds = {seed for one in decision.instants for seed in one.seeds}
    assert len(seeds) == 4
    # All are other runs, and each can be made again by one command.
    futures = sorted(Path(decision.futures, "runs").iterdir())
    digests = [kept_captures.digests(RunDirectory(path)) for path in futures]
    assert captures(run) not in digests
    assert all(digests.count(one) == 1 for one in digests)
    last = decision.instants[-1]
    again = run.path.with_name("again")
    assert (
        invoke(["whatif", str(run.path), "--noise", f"30ms:{last.seeds[0]}", "-o", str(again)]) == 0
    )
    assert kept_captures.digests(RunDirectory(again)) in digests
    record = read_whatif(RunDirectory(again))
    assert record.parts_ns >= 30_000_000
    # What is there is not made again, and another outcome can be asked of it.
    asked[-1] = "timeouts(0) > 1000"
    assert invoke([*asked, "--futures", "2", "--resume"]) == 0
    assert "timeouts(0) > 1000: no" in capfd.readouterr().out


def test_many_packets(run):
    packets = rows(run, verdict="forwarded")[100:102]
    table = outcast.whatif_each(run, packets, "drop", jobs=2)
    assert table["packet"].to_list() == packets
    assert table["changed"].min() >= 1
    alone = run.whatif(packets[0], "drop", run.path.with_name("alone"))
    assert table["changed"][0] == alone.record.changed


def test_a_run_that_cannot_be_compared_is_refused_before(run, tmp_path):
    packet = rows(run)[100]

    def refused(copy: Path, said: str) -> None:
        with pytest.raises(InputError, match=said):
            outcast.open_run(copy).whatif(packet, "drop", tmp_path / "never")
        with pytest.raises(InputError, match=said):
            outcast.whatif_each(copy, [packet], "drop", folder=tmp_path / "never")
        assert not (tmp_path / "never").exists()

    def copied(name: str) -> RunDirectory:
        return RunDirectory(shutil.copytree(run.path, tmp_path / name))

    lacking = copied("lacking")
    (lacking.path / "flows.parquet").unlink()
    refused(lacking.path, r"no flows.parquet; outcast analyze makes it")
    reduced = copied("dropped")
    reduce(reduced, "drop")
    refused(reduced.path, "was not kept, so no run can be compared with it")
    other = copied("other")
    kernel = {**other.read_manifest().kernel, "sha256": "0" * 64}
    other.write_manifest(other.read_manifest().model_copy(update={"kernel": kernel}))
    refused(other.path, "made by kernel 000000000000, here is .*; make the run again")


def test_what_else_differs_is_named(run, tmp_path):
    elsewhere = RunDirectory(shutil.copytree(run.path, tmp_path / "run"))
    manifest = elsewhere.read_manifest()
    code = manifest.guest.model_copy(update={"code": "another"})
    elsewhere.write_manifest(manifest.model_copy(update={"guest": code}))
    forced = outcast.open_run(elsewhere.path).whatif(
        rows(run, verdict="forwarded")[100], "drop", tmp_path / "forced"
    )
    assert forced.record.parts[-1].startswith("other programs made them")
    assert "guest: code: another and" in forced.record.parts[-1]


def test_what_cannot_be_asked_is_one_line(run, tmp_path):
    packet = rows(run)[100]
    with pytest.raises(ConfigError, match=f"the run has no packet {10**6}; allowed are rows"):
        run.whatif(10**6, "drop", tmp_path / "never")
    (tmp_path / "fates.csv").write_text(f"port,packet,fate\ns9-eth9,{packet},drop\n")
    asked = ["whatif", str(run.path), "--fates", str(tmp_path / "fates.csv")]
    assert invoke([*asked, "-o", str(tmp_path / "never")]) == 2
    # A run in real time cannot be made again.
    copy = tmp_path / "realtime"
    shutil.copytree(run.path, copy)
    directory = RunDirectory(copy)
    directory.write_manifest(directory.read_manifest().model_copy(update={"engine": "realtime"}))
    with pytest.raises(InputError, match="ran in real time"):
        outcast.open_run(copy).whatif(packet, "drop", tmp_path / "never")
    with pytest.raises(InputError, match="ran in real time"):
        outcast.fate(copy, [0], 1, "starved")
    with pytest.raises(ConfigError, match="--at: allowed is from 0 until the run's duration"):
        outcast.fate(run.path, [10**12], 1, "starved")
    assert not (tmp_path / "never").exists()
