"""`outcast inspect`: the printed trace of "Life's not fair", filters, and the queue's content."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from outcast.cli import invoke as outcast
from outcast.records.run_directory import RunDirectory
from tests.golden import model
from tests.golden.packets import P, capture
from tests.golden.run_directory import write_run

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
def table(tmp_path) -> Path:
    """The trace's captures, joined."""
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
    joined = tmp_path / "joined.parquet"
    inputs = ["--in", f"s0-eth2={tmp_path / 'lone'}", f"s0-eth3={tmp_path / 'rival'}"]
    output = ["--out", f"s0-eth1={tmp_path / 'left'}", "-o", str(joined)]
    assert outcast(["join", *inputs, *output]) == 0
    return joined


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    traffic = model.drop_tail(model.make_traffic(8, 3_000), 16_384, 10**9)
    folder = tmp_path_factory.mktemp("inspect") / "run"
    write_run(folder, traffic, 50_000_000)
    assert outcast(["analyze", str(folder)]) == 0
    return folder


def show(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert outcast(["inspect", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_the_printed_trace(table, capsys):
    lines = show(capsys, table).splitlines()
    heads = ["source", "destination", "ingress", "came in (ms)", "result", "egress", "left (ms)"]
    assert lines[0].split() == " ".join(heads).split()
    assert [" ".join(line.split()) for line in lines[1:]] == TRACE.splitlines()


def test_a_csv_table_shows_the_same(table, capsys):
    other = table.with_suffix(".csv")
    arguments = ["--in", f"s0-eth2={table.with_name('lone')}"]
    arguments += [f"s0-eth3={table.with_name('rival')}"]
    outcast(["join", *arguments, "--out", f"s0-eth1={table.with_name('left')}", "-o", str(other)])
    assert show(capsys, other) == show(capsys, table)


def test_a_name_that_the_locale_has_no_letters_for(table, capsys):
    folder = table.with_name("ü")
    folder.mkdir()
    shutil.copy(table, folder)
    program = "from outcast.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "inspect", str(folder / table.name)],
        env={**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == show(capsys, table)


def test_filters(table, capsys):
    def times(*arguments: str) -> list[str]:
        return [row["t_in_ms"] for row in rows(show(capsys, table, "--format", "csv", *arguments))]

    assert times("--port", "s0-eth2") == ["0.000000", "0.099000", "0.221000", "0.331000"]
    assert times("--port", "s0-eth1") == times("--verdict", "forwarded")
    assert times("--flow", "10.0.0.2:53035") == times("--verdict", "dropped")
    assert times("--flow", "0") == times("--port", "s0-eth2")
    assert times("--around", "0.0001", "--within", "50us") == ["0.099000", "0.143000"]
    assert times("--around", "0.0001", "--port", "s0-eth3", "--within", "0.05ms") == ["0.143000"]
    assert times("--around", "100us", "--within", "50us") == ["0.099000", "0.143000"]
    assert times("--around", "-1us", "--within", "2us") == ["0.000000"]
    assert times("--between", "99us", "143us") == ["0.099000", "0.143000"]
    assert times("--between", "0.000099", "0.1ms") == ["0.099000"]
    assert times("--between", "-1s", "0s") == ["0.000000"]
    assert len(times("--dst", "10.0.0.1")) == len(times("--dst", "10.0.0.1:5001")) == 8


@pytest.mark.parametrize("form", ["table", "csv", "json"])
@pytest.mark.parametrize(
    ("filters", "message"),
    [
        (
            ["--verdict", "unknown"],
            "no packet fits --verdict unknown; there are dropped, forwarded",
        ),
        (
            ["--port", "s0-eth2", "--flow", "1"],
            "no packet fits --port s0-eth2 and --flow 1; without --port s0-eth2 there are "
            "s0-eth1, s0-eth3; without --flow 1 there are flow 0",
        ),
        (
            ["--flow", "0", "--between", "0.4ms", "1ms"],
            "without --flow 0 there are flow 1; without --between 0.4ms 1ms there are some from "
            "0ms to 0.331ms",
        ),
    ],
)
def test_filters_that_fit_nothing_together_say_what_there_is(table, form, filters, message, capsys):
    capsys.readouterr()
    assert outcast(["inspect", str(table), *filters, "--format", form]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (error,) = shown.err.splitlines()
    assert message in error


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_json(table, capsys):
    got = json.loads(show(capsys, table, "--format", "json"))
    assert len(got) == 8
    assert got[1]["result"] == "forwarded"
    assert got[1]["t_out_ms"] == 10.526
    assert got[0]["t_out_ms"] is None
    assert got[0]["egress"] is None


def test_the_queue_packet_by_packet(table, capsys):
    got = json.loads(show(capsys, table, "--format", "json", "--queue"))
    assert [len(packet["queue"]) for packet in got] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [packet["queue_bytes"] for packet in got] == [1514 * len(p["queue"]) for p in got]
    assert [entry["packet"] for entry in got[7]["queue"]] == [1, 3, 5]
    lines = show(capsys, table, "--queue").splitlines()
    assert lines[-1].endswith("4542  1 1 1")


def test_the_queue_is_whole_under_filters(run, capsys):
    """The queue's content is shown even if the packets queued are not asked for."""
    every = json.loads(show(capsys, run, "--format", "json", "--queue"))
    some = json.loads(show(capsys, run, "--format", "json", "--queue", "--verdict", "dropped"))
    assert some == [packet for packet in every if packet["result"] == "dropped"]
    assert {len(packet["queue"]) for packet in some} >= {10}
    around = ["--around", "0.02", "--within", "300us"]
    near = json.loads(show(capsys, run, "--format", "json", "--queue", *around))
    assert near == [packet for packet in every if abs(packet["t_in_ms"] - 20) <= 0.3]
    assert len(near) > 10


def test_columns(table, capsys):
    names = "packet,relative_seq,sojourn_us,flags,note,frame"
    lines = show(capsys, table, "--columns", names).splitlines()
    head = ["packet", "relative", "seq", "sojourn", "(us)", "flags", "note", "frame"]
    assert lines[0].split() == head
    assert lines[1].split() == ["0", "1", "ACK", "1514"]
    assert lines[2].split() == ["1", "1", "10498.000", "ACK", "1514"]
    assert lines[4].split()[:2] == ["3", str(1 + 2 * 1448)]
    as_csv = rows(show(capsys, table, "--columns", names, "--format", "csv"))
    assert list(as_csv[0]) == names.split(",")
    assert as_csv[1]["sojourn_us"] == "10498.000"
    as_json = json.loads(show(capsys, table, "--columns", names, "--format", "json"))
    assert as_json[1]["sojourn_us"] == 10498.0
    assert as_json[0]["sojourn_us"] is None
    assert [row["relative_seq"] for row in as_json[:3]] == [1, 1, 1 + 2 * 1448]
    with_queue = show(capsys, table, "--columns", "t_in_ms,queue").splitlines()
    assert with_queue[0].split() == ["came", "in", "(ms)", "flows", "queued,", "head", "first"]
    assert with_queue[-1].split() == ["0.454000", "1", "1", "1"]


def test_a_blackout_with_its_surroundings(run, capsys):
    chains = pl.read_parquet(run / "blackouts.parquet")
    number = int((chains["drops"] * (chains["others_through"] > 0)).arg_max() or 0)
    chain = chains.row(number, named=True)
    packets = pl.read_parquet(run / "packets.parquet")
    for within, margin_ns in (([], 1_000_000), (["--within", "50us"], 50_000)):
        near = packets.with_row_index("packet").filter(
            pl.col("t_in").is_between(chain["t_start"] - margin_ns, chain["t_end"] + margin_ns)
        )
        options = ["--blackout", number, *within]
        got = json.loads(show(capsys, run, "--format", "json", *options))
        assert [packet["packet"] for packet in got] == near["packet"].to_list()
    text = show(capsys, run, *options).splitlines()
    assert text[0].startswith(f"blackout {number}: from ")
    assert f"lost {chain['drops']} packets in a row" in text[0]
    lost = show(capsys, run, *options, "--within", "0ns", "--verdict", "dropped").splitlines()
    of_port = [line for line in lost if f" {chain['ingress']} " in line][1:]
    assert len(of_port) == chain["drops"]
    for bad in (chains.height, -1):
        assert outcast(["inspect", str(run), "--blackout", str(bad)]) == 2
        error = capsys.readouterr().err
        assert f"--blackout {bad}: there are 0 to {chains.height - 1}, the rows of" in error


def test_blackouts_are_listed_by_the_numbers_of_their_rows(run, capsys):
    chains = pl.read_parquet(run / "blackouts.parquet").with_row_index("blackout")
    dark = chains.filter(pl.col("others_through") > 0).sort("t_start", maintain_order=True)
    got = json.loads(show(capsys, run, "--blackouts", "--format", "json"))
    assert [row["blackout"] for row in got] == dark["blackout"].to_list()
    assert [row["drops"] for row in got] == dark["drops"].to_list()
    assert got[0]["blackout"] != 0 or len(got) < chains.height
    text = show(capsys, run, "--blackouts").splitlines()
    assert text[0].split()[:3] == ["blackout", "ingress", "egress"]
    assert len(text) == dark.height + 1
    first = show(capsys, run, "--blackout", str(got[3]["blackout"])).splitlines()[0]
    assert f"from {text[4].split()[3]} ms on" in first
    of_port = show(capsys, run, "--blackouts", "--port", "s1-eth2", "--format", "csv").splitlines()
    assert len(of_port) == dark.filter(pl.col("ingress").cast(pl.String) == "s1-eth2").height + 1
    everywhere = show(capsys, run, "--blackouts", "--port", "s1-eth1", "--format", "csv")
    assert len(everywhere.splitlines()) == dark.height + 1
    lost = pl.read_parquet(run / "packets.parquet").filter(
        pl.col("verdict").cast(pl.String) == "dropped", pl.col("flow") == 0
    )
    hit = [
        row["blackout"]
        for row in dark.iter_rows(named=True)
        if lost.filter(
            pl.col("ingress").cast(pl.String) == row["ingress"],
            pl.col("t_in").is_between(row["t_start"], row["t_end"]),
        ).height
    ]
    assert hit
    of_flow = json.loads(show(capsys, run, "--blackouts", "--flow", "0", "--format", "json"))
    assert [row["blackout"] for row in of_flow] == hit
    around = ["--around", f"{got[5]['from_ms']}ms", "--within", "0ns", "--format", "json"]
    near = json.loads(show(capsys, run, "--blackouts", *around))
    assert got[5]["blackout"] in [row["blackout"] for row in near]
    assert outcast(["inspect", str(run), "--blackouts", "--verdict", "forwarded"]) == 2
    assert f"none of {dark.height} fits all filters" in capsys.readouterr().err
    assert outcast(["inspect", str(run), "--blackouts", "--port", "s9"]) == 2
    assert "--port s9" in capsys.readouterr().err
    assert outcast(["inspect", str(run / "packets.parquet"), "--blackouts"]) == 2
    assert "has no blackouts" in capsys.readouterr().err


def test_a_segment_is_followed(run, capsys):
    fields = ["packet", "flow", "relative_seq", "payload", "result"]
    every = json.loads(show(capsys, run, "--format", "json", "--columns", ",".join(fields)))
    lost = next(
        packet
        for packet in every
        if packet["result"] == "dropped"
        and packet["payload"]
        and any(
            again["packet"] > packet["packet"]
            and (again["flow"], again["relative_seq"]) == (packet["flow"], packet["relative_seq"])
            and again["result"] == "forwarded"
            for again in every
        )
    )
    first, last = lost["relative_seq"], lost["relative_seq"] + lost["payload"] - 1
    carrying = [
        packet
        for packet in every
        if packet["flow"] == lost["flow"]
        and packet["relative_seq"] <= last
        and packet["relative_seq"] + packet["payload"] > first
    ]
    text = show(capsys, run, "--follow", lost["packet"]).splitlines()
    assert f"bytes {first} to {last} (relative)" in text[0]
    assert text[1] == f"sent {len(carrying)} times, as 3 captures show"
    place = next(n for n, line in enumerate(text) if f": packet {lost['packet']}" in line)
    assert text[place + 1].split()[1] == "in"
    assert text[place + 2].startswith("   dropped at s1-eth1, whose queue held ")
    assert text[-1] == "no capture shows its acknowledgement"
    got = json.loads(show(capsys, run, "--follow", lost["packet"], "--format", "json"))
    assert [row["packet"] for row in got if row["way"] == "in"] == [
        packet["packet"] for packet in carrying
    ]
    left = [row["packet"] for row in got if row["way"] == "out"]
    assert left == [packet["packet"] for packet in carrying if packet["result"] == "forwarded"]
    same = json.loads(show(capsys, run, "--follow", f"{lost['flow']}:{last}", "--format", "json"))
    assert {row["packet"] for row in same} >= {lost["packet"]}
    as_csv = rows(show(capsys, run, "--follow", lost["packet"], "--format", "csv"))
    assert [row["port"] for row in as_csv] == [row["port"] for row in got]


def test_a_destination_by_a_hosts_name(run, capsys):
    flow = RunDirectory(run).read_manifest().flows[0]
    assert show(capsys, run, "--dst", flow.dst) == show(capsys, run, "--dst", flow.dst_ip)


def test_a_run_counts_time_from_its_traffics_start(run, capsys):
    lines = show(capsys, run).splitlines()
    assert len(lines) == 3001
    assert lines[1].split()[3] == "0.000000"


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        ("joined.parquet", "--port s9", "--port s9: there are s0-eth1, s0-eth2, s0-eth3"),
        ("joined.parquet", "--port s0-eth", "did you mean 's0-eth"),
        ("joined.parquet", "--flow h1", "--flow h1: allowed is"),
        ("joined.parquet", "--flow 99", "--flow 99: no such flow; there are 0, 1"),
        (
            "joined.parquet",
            "--flow 10.0.0.2:9",
            "no such source; there are 10.0.0.2:53035, 10.0.0.3:34287",
        ),
        ("joined.parquet", "--flow 99 --format json", "--flow 99: no such flow; there are 0, 1"),
        (
            "joined.parquet",
            "--around 5",
            "--around 5: nothing came in from 4999ms to 5001ms; packets came in from 0ms",
        ),
        ("joined.parquet", "--around -2ms", "--around -2ms: nothing came in from -3ms to -1ms"),
        ("joined.parquet", "--around 5 --format csv", "to 0.454ms"),
        ("joined.parquet", "--around soon", "--around: 'soon' is not a time"),
        ("joined.parquet", "--within 1ms", "--within: only together with --around"),
        ("joined.parquet", "--around nan", "--around nan: allowed is a time of the run"),
        ("joined.parquet", "--around 1e300", "--around 1e300: allowed is"),
        ("joined.parquet", "--around 1 --within 1", "--within"),
        ("joined.parquet", "--verdict lost", "lost"),
        ("joined.parquet", "--between 1ms 0ms", "--between 1ms 0ms: ends before it begins"),
        ("joined.parquet", "--between 1ms soon", "--between: 'soon' is not a time"),
        ("joined.parquet", "--between 5 6", "--between 5 6: nothing came in from 5000ms to 6000ms"),
        ("joined.parquet", "--between 1 2 --around 1", "--between: not together with --around"),
        (
            "joined.parquet",
            "--within 1ms --between 1 2",
            "--within: only together with --around or",
        ),
        ("joined.parquet", "--around 1 --within 9999999h", "--within 9999999h: allowed is at most"),
        ("joined.parquet", "--dst 10.0.0.2", "no such destination; there are 10.0.0.1:5001"),
        ("joined.parquet", "--blackout 0", "has no blackouts; allowed is the folder of a run"),
        (
            "joined.parquet",
            "--columns packet,sequence",
            "--columns sequence: allowed are packet, flow",
        ),
        (
            "joined.parquet",
            "--png x.png",
            "--png: needs a run's folder, and --around, --between or",
        ),
        ("joined.parquet", "--follow 1", "is a table alone; allowed is a folder"),
        ("run", "--follow 3000", "--follow 3000: no such packet; there are 0 to 2999"),
        ("run", f"--follow {10**30}", "no such packet"),
        ("run", "--follow 0:99999999999999999999", "no such byte; flow 0 has "),
        ("run", "--follow 99:1", "no such flow; there are 0, 1"),
        ("run", "--follow seq", "--follow seq: allowed is a packet's number, or FLOW:SEQ"),
        ("bare", "", "outcast analyze"),
        ("a.parquet", "", "cannot be read as a table"),
        ("b.csv", "", "no column flow"),
        ("none.parquet", "", "no such file"),
    ],
)
def test_bad_usage(table, run, tmp_path, source, options, said, capsys):
    (tmp_path / "a.parquet").write_bytes(b"nothing of the kind")
    (tmp_path / "b.csv").write_text("one,two\n1,2\n")
    (tmp_path / "run").symlink_to(run)
    if source == "bare":
        shutil.copytree(run, tmp_path / "bare", ignore=shutil.ignore_patterns("packets.parquet"))
    capsys.readouterr()
    assert outcast(["inspect", str(tmp_path / source), *options.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_one_packet_in_full(run, capsys):
    every = json.loads(show(capsys, run, "--format", "json"))
    for packet in (every[0], next(packet for packet in every if packet["result"] == "dropped")):
        text = show(capsys, run, "--packet", packet["packet"])
        assert f"seq       = {packet['seq']}" in text
        assert f"id        = {packet['ip_id']}" in text
        assert f"in by {packet['ingress']} at {packet['t_in_ms']:.6f} ms" in text
        assert ("dropped" in text) == (packet["result"] == "dropped")
        assert f"found {packet['queue_bytes']} bytes queued" in text
    assert outcast(["inspect", str(run), "--packet", "3000"]) == 2
    assert outcast(["inspect", str(run), "--packet", "-1"]) == 2
    assert outcast(["inspect", str(run), "--packet", str(10**30)]) == 2
    assert outcast(["inspect", str(run / "packets.parquet"), "--packet", "1"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 4


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("queue", ["--around", "0.01", "--png", "x.png"]), ("links", ["--links"])],
)
@pytest.mark.parametrize("broken", [True, False])
def test_a_table_that_is_broken_or_of_another_kind(run, tmp_path, capsys, name, arguments, broken):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    if broken:
        (copy / f"{name}.parquet").write_bytes(b"PAR1")
    else:
        pl.DataFrame({"one": [1]}).write_parquet(copy / f"{name}.parquet")
    capsys.readouterr()
    assert outcast(["inspect", str(copy), *arguments]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert str(copy) in error
    assert "cannot be read" in error


def test_a_queue_that_drops_later_says_what_is_left_out(run, tmp_path, capsys):
    """The queue's lengths are lower bounds, and no level explains its drops."""
    before = json.loads((run / "summary.json").read_text())["queue"]
    copy = shutil.copytree(run, tmp_path / "run")
    directory = RunDirectory(copy)
    manifest = directory.read_manifest()
    record = manifest.bottlenecks[0]
    queue = record.queue.model_copy(update={"kind": "codel", "drops": "later"})
    changed = record.model_copy(update={"queue": queue})
    directory.write_manifest(manifest.model_copy(update={"bottlenecks": [changed]}))
    assert outcast(["analyze", str(copy)]) == 0
    after = json.loads((copy / "summary.json").read_text())["queue"]
    for port, part in after.items():
        assert (before[port]["counted"], part["counted"]) == ("all", "forwarded")
        assert before[port]["capacity"] is not None
        assert part["capacity"] is None
    remark = "codel also drops queued packets, which are left out here"
    assert remark in show(capsys, copy, "--queue").splitlines()[0]
    assert remark not in show(capsys, run, "--queue")


def test_times_on_the_clock(table, capsys):
    """The first packet came in 82.843 ms after midnight of 1970 in UTC."""
    here = datetime.fromtimestamp(0)
    clock = f"{here:%H:%M:%S}"
    between = ["--between", f"{clock}.082843", f"{clock}.0829"]
    lines = show(capsys, table, *between).splitlines()
    assert len(lines) == 3
    assert f"{here:%Y-%m-%d %H:%M:%S}.082843000  dropped" in lines[1]
    dated = ["--around", f"{here:%Y-%m-%d}T{clock}.082843", "--within", "1us"]
    (row,) = rows(show(capsys, table, *dated, "--format", "csv", "--columns", "packet,clock_in"))
    assert row == {"packet": "0", "clock_in": f"{here:%Y-%m-%d %H:%M:%S}.082843000"}
    for arguments, message in (
        (["--around", "23:59:61"], "--around 23:59:61: no time of day; allowed are 00:00:00 to"),
        (["--between", "1ms", clock], "allowed are two times of one kind"),
        (["--around", f"2001-01-01 {clock}"], "nothing came in then; packets came in from 19"),
    ):
        assert outcast(["inspect", str(table), *arguments]) == 2
        assert message in capsys.readouterr().err
