"""Tables are read from the named file, whatever its name, and only if that is safe."""

import ast
import os
import shutil
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from outcast import analysis, cli
from outcast.errors import InputError
from outcast.records import tables
from outcast.records.run_directory import RunDirectory
from tests.golden import model
from tests.golden.run_directory import write_run

PACKAGE = Path(tables.__file__).parents[1]
NAMES = ["q[1]", "a*b", "a?b", "ü b", "~", "[!x]", "run=1", "{a,b}"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Two analysed runs, `q1` and `q2`, of different packets."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (1, 2):
        traffic = model.drop_tail(model.make_traffic(seed, 300), 16_384, 10**9)
        analysis.analyze(write_run(folder / f"q{seed}", traffic, 20_000_000))
    return folder


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_a_table_is_the_one_named(name, ending, tmp_path, monkeypatch):
    frame = pl.DataFrame({"one": [1, 2], "two": ["x", "y"]})
    for neighbour in ("q1", "axb", "a", "b"):
        (tmp_path / neighbour).mkdir()
        tables.write_table(frame.with_columns(one=7), tmp_path / neighbour / f"t{ending}")
    (tmp_path / name).mkdir()
    tables.write_table(frame, tmp_path / name / f"t{ending}")
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / name / f"t{ending}", Path(name) / f"t{ending}"):
        assert_frame_equal(tables.read_table(path), frame)
    shutil.move(tmp_path / name / f"t{ending}", f"{name}{ending}")
    assert_frame_equal(tables.read_table(Path(f"{name}{ending}")), frame)


@pytest.mark.parametrize("name", ["q[1]", "q?", "*", "ü q"])
def test_inspect_shows_the_run_that_was_named(name, runs, tmp_path, capsys):
    shutil.copytree(runs / "q1", tmp_path / "q1")
    shutil.copytree(runs / "q2", tmp_path / name)
    shown = []
    for path in (runs / "q2", tmp_path / name):
        assert cli.invoke(["inspect", str(path), "--format", "csv"]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]


@pytest.mark.parametrize("name", NAMES)
def test_analysis_figures_and_report_of_any_folder(name, runs, tmp_path, capsys):
    shutil.copytree(runs / "q1", tmp_path / name)
    if name not in ("q[1]", "ü b"):  # Only one of each kind is drawn, because that takes a second.
        assert analysis.analyze(RunDirectory(tmp_path / name)).name == "golden"
        return
    assert cli.invoke(["analyze", str(tmp_path / name)]) == 0
    assert cli.invoke(["inspect", str(tmp_path / name), "--links"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_fifo_is_no_table(tmp_path):
    os.mkfifo(tmp_path / "t.parquet")
    with pytest.raises(InputError, match="is a FIFO; allowed is a regular file"):
        tables.read_table(tmp_path / "t.parquet")


def test_a_broken_table_is_refused_in_one_line(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and no table PAR1")
    with pytest.raises(InputError, match=r"t\.parquet: cannot be read as a table: "):
        tables.read_table(tmp_path / "t.parquet")


def test_a_link_under_the_temporary_name_is_not_written_through(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / f".t.csv.{os.getpid()}.tmp").symlink_to(precious)
    tables.write_table(pl.DataFrame({"one": [1]}), tmp_path / "t.csv")
    assert precious.read_text() == "mine"
    assert (tmp_path / "t.csv").read_text() == "one\n1\n"


def test_no_other_module_opens_tables():
    """polars takes a name that it opens for a pattern."""
    forbidden = {"read", "scan", "sink"}
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path == Path(tables.__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Attribute):
                continue
            verb, _, form = node.attr.partition("_")
            of_polars = isinstance(node.value, ast.Name) and node.value.id in ("pl", "polars")
            if of_polars and form and verb in forbidden:
                found.append(f"{path}:{node.lineno}: {node.attr}")
            if node.attr in ("write_parquet", "write_ipc", "sink_parquet", "sink_csv"):
                found.append(f"{path}:{node.lineno}: {node.attr}")
    assert found == []


def test_no_text_of_a_csv_is_a_formula(tmp_path):
    """Captures name their interfaces, and whoever made one wrote the name."""
    names = ["=1+1", "eth0", "@x", None]
    frame = pl.DataFrame(
        {"ingress": pl.Series(names, dtype=pl.Categorical), "egress": names, "t": [-1, 2, 3, 4]}
    )
    tables.write_table(frame, tmp_path / "whole.csv")
    tables.write_blocks(tmp_path / "blocks.csv", 4, lambda rows: frame[rows])
    for name in ("whole.csv", "blocks.csv"):
        assert (tmp_path / name).read_text().splitlines() == [
            *("ingress,egress,t", "'=1+1,'=1+1,-1", "eth0,eth0,2", "'@x,'@x,3", ",,4")
        ]
    tables.write_table(frame, tmp_path / "whole.parquet")
    assert pl.read_parquet(tmp_path / "whole.parquet")["egress"].to_list() == names
