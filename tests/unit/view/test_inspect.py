"""`outcast inspect`: the printed trace of "Life's not fair", filters, and the queue's content."""

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from outcast.analysis import analyze
from outcast.records.run_directory import RunDirectory
from tests.golden.packets import P, capture
from tests.golden.run_directory import analysed_run, delayed_run

TRACE = """\
10.0.0.2:53035 10.0.0.1:5001 s0-eth2 0.000000 dropped
10.0.0.3:34287 10.0.0.1:5001 s0-eth3 0.028000 forwarded s0-eth1 10.526000
10.0.0.2:53035 10.0.0.1:5001 s0-eth2 0.099000 dropped
10.0.0.3:34287 10.0.0.1:5001 s0-eth3 0.143000 forwarded s0-eth1 10.631000
10.0.0.2:53035 10.0.0.1:5001 s0-eth2 0.221000 dropped
10.0.0.3:34287 10.0.0.1:5001 s0-eth3 0.261000 forwarded s0-eth1 10.748000
10.0.0.2:53035 10.0.0.1:5001 s0-eth2 0.331000 dropped
10.0.0.3:34287 10.0.0.1:5001 s0-eth3 0.454000 forwarded s0-eth1 10.862000
"""
"""The trace that the report prints, its times counted from the first packet."""


@pytest.fixture
def joined(tmp_path, verb) -> Callable[[str], Path]:
    """Joins the trace's captures into a table."""
    lone, rival, left = [], [], []
    for number, line in enumerate(TRACE.splitlines()):
        source, _, port, came, _, *rest = line.split()
        address, sport = source.split(":")
        fields = {"seq": 1448 * number, "ip_id": number, "src": address, "sport": int(sport)}
        at_us = 82_843 + float(came) * 1000
        (lone if port == "s0-eth2" else rival).append(P(at_us, **fields))
        if rest:
            left.append(P(82_843 + float(rest[1]) * 1000, **fields))
    capture(tmp_path / "lone", lone)
    capture(tmp_path / "rival", rival)
    capture(tmp_path / "left", left)

    def made(name: str) -> Path:
        inputs = ["--in", f"s0-eth2={tmp_path / 'lone'}", f"s0-eth3={tmp_path / 'rival'}"]
        verb("join", *inputs, "--out", f"s0-eth1={tmp_path / 'left'}", "-o", tmp_path / name)
        return tmp_path / name

    return made


@pytest.fixture
def table(joined) -> Path:
    return joined("joined.parquet")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return analysed_run(tmp_path_factory.mktemp("inspect") / "run", 50_000_000, 8, 3_000).path


@pytest.fixture
def show(verb) -> Callable[..., str]:
    """What `outcast inspect` shows."""
    return lambda *words: verb("inspect", *words).out


@pytest.fixture
def refused(verb) -> Callable[..., str]:
    """The one line by which `outcast inspect` refuses."""

    def line(*words: object) -> str:
        told = verb("inspect", *words, status=2)
        assert told.out == ""
        (error,) = told.err.splitlines()
        return error

    return line


def test_the_printed_trace(table, show):
    lines = show(table).splitlines()
    heads = ["source", "destination", "ingress", "came in (ms)", "result", "egress", "left (ms)"]
    assert lines[0].split() == " ".join(heads).split()
    assert [" ".join(line.split()) for line in lines[1:]] == TRACE.splitlines()


def test_filters(table, show):
    def times(*arguments: str) -> list[str]:
        return [row["t_in_ms"] for row in rows(show(table, "--format", "csv", *arguments))]

    assert times("--port", "s0-eth2") == ["0.000000", "0.099000", "0.221000", "0.331000"]
    assert times("--port", "s0-eth1") == times("--verdict", "forwarded")
    assert times("--flow", "10.0.0.2:53035") == times("--verdict", "dropped")
    assert times("--flow", "0") == times("--port", "s0-eth2")
    assert times("--around", "0.0001", "--within", "50us") == ["0.099000", "0.143000"]
    assert times("--around", "-1us", "--within", "2us") == ["0.000000"]
    assert times("--between", "99us", "143us") == ["0.099000", "0.143000"]
    assert times("--between", "-1s", "0s") == ["0.000000"]
    assert len(times("--dst", "10.0.0.1")) == len(times("--dst", "10.0.0.1:5001")) == 8


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_queue_packet_by_packet(table, show):
    got = json.loads(show(table, "--format", "json", "--queue"))
    assert [len(packet["queue"]) for packet in got] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [packet["queue_bytes"] for packet in got] == [1514 * len(p["queue"]) for p in got]
    assert [entry["packet"] for entry in got[7]["queue"]] == [1, 3, 5]
    lines = show(table, "--queue").splitlines()
    assert lines[-1].endswith("4542  1 1 1")


def test_the_queue_is_whole_under_filters(run, show):
    """The queue's content is shown even if the packets queued are not asked for."""
    every = json.loads(show(run, "--format", "json", "--queue"))
    some = json.loads(show(run, "--format", "json", "--queue", "--verdict", "dropped"))
    assert some == [packet for packet in every if packet["result"] == "dropped"]
    assert {len(packet["queue"]) for packet in some} >= {10}
    around = ["--around", "0.02", "--within", "300us"]
    near = json.loads(show(run, "--format", "json", "--queue", *around))
    assert near == [packet for packet in every if abs(packet["t_in_ms"] - 20) <= 0.3]
    assert len(near) > 10


@pytest.mark.parametrize("form", ["run", "join", "join.parquet"])
def test_what_is_on_a_link_is_not_queued(run, tmp_path, verb, show, form):
    """Behind a delay a packet finds what it finds without one."""
    made = delayed_run(tmp_path / "run", 2_000_000, 50_000_000, 8, 3_000).path
    if form != "run":
        ports = {"s1-eth2": "in", "s1-eth3": "in", "s1-eth1": "out"}
        captures = [
            word
            for port, way in ports.items()
            for word in (f"--{way}", f"{port}={made}/captures/{port}.{way}.pcap")
        ]
        verb("join", *captures, "-o", tmp_path / form)
        made = tmp_path / form

    def queues(path: Path, *words: str) -> list[tuple[int, list[int]]]:
        got = json.loads(show(path, "--columns", "packet,queue_packets,queue", *words))
        return [(row["queue_packets"], [of["packet"] for of in row["queue"]]) for row in got]

    every = queues(made, "--format", "json")
    assert all(count == len(queue) for count, queue in every)
    # A join takes the first packet's own time on the link for a part of the delay.
    without = queues(run, "--format", "json")
    assert every == [
        (count if form != "run" else before, queue[len(queue) - count :])
        for (count, _), (before, queue) in zip(every, without, strict=True)
    ]
    some = queues(made, "--format", "json", "--around", "20ms", "--within", "1ms")
    assert len(some) > 10
    assert all(of in every for of in some)


def test_a_blackout_with_its_surroundings(run, show, refused):
    chains = pl.read_parquet(run / "blackouts.parquet")
    number = int((chains["drops"] * (chains["others_through"] > 0)).arg_max() or 0)
    chain = chains.row(number, named=True)
    packets = pl.read_parquet(run / "packets.parquet")
    for within, margin_ns in (([], 1_000_000), (["--within", "50us"], 50_000)):
        first, last = chain["t_start"] - margin_ns, chain["t_end"] + margin_ns
        near = packets.with_row_index("packet").filter(pl.col("t_in").is_between(first, last))
        options = ["--blackout", number, *within]
        got = json.loads(show(run, "--format", "json", *options))
        assert [packet["packet"] for packet in got] == near["packet"].to_list()
    text = show(run, *options).splitlines()
    assert text[0].startswith(f"blackout {number}: from ")
    assert f"lost {chain['drops']} packets in a row" in text[0]
    lost = show(run, *options, "--within", "0ns", "--verdict", "dropped").splitlines()
    of_port = [line for line in lost if f" {chain['ingress']} " in line][1:]
    assert len(of_port) == chain["drops"]
    for bad in (chains.height, -1):
        error = refused(run, "--blackout", bad)
        assert f"--blackout {bad}: there are 0 to {chains.height - 1}, the rows of" in error


def test_blackouts_are_listed_by_the_numbers_of_their_rows(run, show, refused):
    chains = pl.read_parquet(run / "blackouts.parquet").with_row_index("blackout")
    dark = chains.filter(pl.col("others_through") > 0).sort("t_start", maintain_order=True)
    got = json.loads(show(run, "--blackouts", "--format", "json"))
    assert [row["blackout"] for row in got] == dark["blackout"].to_list()
    assert [row["drops"] for row in got] == dark["drops"].to_list()
    assert got[0]["blackout"] != 0 or len(got) < chains.height
    text = show(run, "--blackouts").splitlines()
    assert text[0].split()[:3] == ["blackout", "ingress", "egress"]
    assert len(text) == dark.height + 1
    first = show(run, "--blackout", str(got[3]["blackout"])).splitlines()[0]
    assert f"from {text[4].split()[3]} ms on" in first
    of_port = show(run, "--blackouts", "--port", "s1-eth2", "--format", "csv").splitlines()
    assert len(of_port) == dark.filter(pl.col("ingress").cast(pl.String) == "s1-eth2").height + 1
    everywhere = show(run, "--blackouts", "--port", "s1-eth1", "--format", "csv")
    assert len(everywhere.splitlines()) == dark.height + 1
    of_flow = json.loads(show(run, "--blackouts", "--flow", "0", "--format", "json"))
    assert {row["blackout"] for row in of_flow} < {row["blackout"] for row in got}
    around = ["--around", f"{got[5]['from_ms']}ms", "--within", "0ns", "--format", "json"]
    near = json.loads(show(run, "--blackouts", *around))
    assert got[5]["blackout"] in [row["blackout"] for row in near]
    none = refused(run, "--blackouts", "--verdict", "forwarded")
    assert f"none of {dark.height} fits all filters" in none
    assert "--port s9" in refused(run, "--blackouts", "--port", "s9")
    assert "has no blackouts" in refused(run / "packets.parquet", "--blackouts")


BAD = {
    "joined.parquet": [
        ("--port s9", "--port s9: there are s0-eth1, s0-eth2, s0-eth3"),
        ("--flow 99", "--flow 99: no such flow; there are 0, 1"),
        ("--flow 10.0.0.2:9", "no such source; there are 10.0.0.2:53035, 10.0.0.3:34287"),
        (
            "--around 5",
            "--around 5: nothing came in then; packets came in from 0ms",
        ),
        ("--within 1ms", "--within: only together with --around"),
        ("--between 1ms 0ms", "--between 1ms 0ms: ends before it begins"),
        ("--between 1 2 --around 1", "--between: not together with --around"),
        ("--blackout 0", "has no blackouts; allowed is the folder of a run"),
        ("--columns packet,sequence", "--columns sequence: allowed are packet, flow"),
        ("--png x.png", "--png: needs a run's folder, and --around, --between or"),
    ],
    "bare": [("", "outcast analyze")],
    "a.parquet": [("", "cannot be read as a table")],
}


@pytest.mark.parametrize(
    ("source", "options", "said"), [(source, *row) for source, rows in BAD.items() for row in rows]
)
def test_bad_usage(table, run, tmp_path, source, options, said, refused):
    (tmp_path / "a.parquet").write_bytes(b"nothing of the kind")
    (tmp_path / "run").symlink_to(run)
    if source == "bare":
        shutil.copytree(run, tmp_path / "bare", ignore=shutil.ignore_patterns("packets.parquet"))
    assert said in refused(tmp_path / source, *options.split())


def test_one_packet_in_full(run, show, refused):
    every = json.loads(show(run, "--format", "json"))
    for packet in (every[0], next(packet for packet in every if packet["result"] == "dropped")):
        text = show(run, "--packet", packet["packet"])
        assert f"seq       = {packet['seq']}" in text
        assert f"id        = {packet['ip_id']}" in text
        assert f"in by {packet['ingress']} at {packet['t_in_ms']:.6f} ms" in text
        assert ("dropped" in text) == (packet["result"] == "dropped")
        assert f"found {packet['queue_bytes']} bytes queued" in text
    for number in (3000, -1, 10**30):
        refused(run, "--packet", number)
    refused(run / "packets.parquet", "--packet", 1)


def test_a_queue_that_drops_later_says_what_is_left_out(run, tmp_path, show):
    """The queue's lengths are lower bounds, and no level explains its drops."""
    before = json.loads((run / "summary.json").read_text())["queue"]
    directory = RunDirectory(shutil.copytree(run, tmp_path / "run"))
    manifest = directory.read_manifest()
    record = manifest.bottlenecks[0]
    queue = record.queue.model_copy(update={"kind": "codel", "drops": "later"})
    changed = record.model_copy(update={"queue": queue})
    directory.write_manifest(manifest.model_copy(update={"bottlenecks": [changed]}))
    analyze(directory)
    after = json.loads(directory.summary.read_text())["queue"]
    for port, part in after.items():
        assert (before[port]["counted"], part["counted"]) == ("all", "forwarded")
        assert before[port]["capacity"] is not None
        assert part["capacity"] is None
    remark = "codel also drops queued packets, which are left out here"
    assert remark in show(directory.path, "--queue").splitlines()[0]
    assert remark not in show(run, "--queue")
