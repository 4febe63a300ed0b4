"""Tables are read from the named file, whatever its name, and only if that is safe."""

import shutil
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from outcast.records import tables

PACKAGE = Path(tables.__file__).parents[1]
NAMES = ["q[1]", "a*b", "a?b", "ü b", "~", "[!x]", "run=1", "{a,b}"]


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
