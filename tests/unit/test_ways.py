"""Where flows lose packets, step by step between captured points."""

import json

import polars as pl
import pytest

from outcast.analysis import analyze, ways
from outcast.cli import invoke as outcast
from outcast.errors import ConfigError, InputError
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from tests import records
from tests.golden.run_directory import make_run

PORTS = (
    ("s1-eth1", "s1", "h1"),
    ("s1-eth2", "s1", "h2"),
    ("s1-eth3", "s1", "s2"),
    ("s2-eth1", "s2", "s1"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunDirectory:
    made = make_run(tmp_path_factory.mktemp("ways") / "run", 80_000_000, 9, 3_000)
    counters = made.read_counters()
    made.write_counters(
        counters.model_copy(update={"links": [records.link(*port) for port in PORTS]})
    )
    analyze(made)
    return made


def test_each_flow_has_its_step_with_what_the_table_says(run):
    table = ways.loss_table(Run(run))
    packets = pl.read_parquet(run.path / "packets.parquet")
    flows = packets["flow"].unique().sort().to_list()
    assert table["flow"].to_list() == flows
    assert set(table["where"]) == {"queue of s1-eth1"}
    assert table.columns == [*ways.SCHEMA]
    for row in table.to_dicts():
        mine = packets.filter(pl.col("flow") == row["flow"])
        left = mine.filter(pl.col("t_out").is_not_null())
        assert row["packets"] == mine.height
        assert row["lost"] == mine.height - left.height
        waits = (left["t_out"] - left["t_in"]).sort()
        assert row["wait_p50_ns"] == waits[(len(waits) - 1) // 2]
        assert (row["begins"], row["ends"]) == (f"{mine['ingress'][0]} in", "s1-eth1 out")
    assert table["lost"].sum() > 100


def test_the_verb_shows_places_and_steps(run, capsys):
    assert outcast(["inspect", str(run.path), "--losses"]) == 0
    head, only, *inputs = capsys.readouterr().out.splitlines()
    assert head.startswith("in the whole captures  ")
    assert head.split()[4:] == ["flows", "packets", "lost", "share", "most", "of"]
    table = ways.loss_table(Run(run))
    lost = f"{table['lost'].sum():,}"
    assert only.startswith("queue of s1-eth1")
    assert f" {lost} " in only
    packets = pl.read_parquet(run.path / "packets.parquet")
    counts = {
        ingress: (rows["flow"].n_unique(), rows.height, rows["t_out"].null_count())
        for (ingress,), rows in packets.group_by(pl.col("ingress").cast(pl.String))
    }
    assert len(inputs) == len(counts) == 2
    for line in inputs:
        word, ingress, *cells = line.split()
        assert word == "from"
        assert tuple(int(cell.replace(",", "")) for cell in cells[:3]) == counts[ingress]
    assert outcast(["inspect", str(run.path), "--losses", "--flow", "0"]) == 0
    text = capsys.readouterr().out.splitlines()
    mine = table.row(0, named=True)["lost"]
    assert text[-1] == f"{mine:,} lost, {mine:,} of them at the queue of s1-eth1"
    assert outcast(["inspect", str(run.path), "--losses", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == table.to_dicts()
    assert outcast(["inspect", str(run.path), "--losses", "--flow", "0", "--format", "csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_without_two_points_on_a_path_it_says_what_to_capture(run, monkeypatch):
    opened = Run(run)
    monkeypatch.setitem(
        opened.__dict__, "counters", opened.counters.model_copy(update={"links": []})
    )
    with pytest.raises(ConfigError, match=r"capture: \{ports: all\}"):
        ways.loss_table(opened)
    file = run.captures / "s1-eth1.out.pcap"
    kept = file.rename(file.with_suffix(".kept"))
    try:
        with pytest.raises(InputError, match="is missing"):
            ways.loss_table(Run(run))
    finally:
        kept.rename(file)


def test_a_wait_is_since_the_last_packet_like_it():
    schema = {"stamp_ns": pl.Int64, "identity": pl.UInt64}
    left = pl.DataFrame({"stamp_ns": [5], "identity": [1]}, schema)
    came = pl.DataFrame({"stamp_ns": [1, 4, 6], "identity": [1, 1, 1]}, schema)
    assert ways._waits(came, left).to_list() == [1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--flow", "99"], "--flow 99: no such flow; there are 0 to"),
        (["--flow", "10.0.0.2:20001"], "allowed besides is --flow with a flow's number"),
        (["--port", "s1-eth1"], "allowed besides is --flow with a flow's number"),
    ],
)
def test_refusals_are_one_line(run, capsys, options, said):
    assert outcast(["inspect", str(run.path), "--losses", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_steps_are_named_by_what_lies_between():
    assert ways._where(("s1-eth2", "in"), ("s1-eth1", "out")) == "queue of s1-eth1"
    assert ways._where(("s1-eth1", "out"), ("s2-eth3", "in")) == "link from s1-eth1"
    assert ways._where(("s1-eth2", "in"), ("s2-eth1", "out")) == "between s1-eth2 and s2-eth1"
    assert ways._where(("s1-eth1", "out"), ("s2-eth1", "out")) == "between s1-eth1 and s2-eth1"
