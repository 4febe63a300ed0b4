"""Large captures and tables: they grow, and are written in blocks."""

import gzip

import numpy as np
import polars as pl
import pytest

from outcast.analysis.capture.pcap import read_capture
from outcast.records import tables
from tests.golden import model


def test_a_capture_larger_than_expected_grows(tmp_path):
    """The first block of a compressed file foretells too few packets."""
    traffic = model.drop_tail(model.make_traffic(3, 60_000), 16_384, 10**9)
    path = model.write_captures(tmp_path, model.captures(traffic))["in1"]
    plain = read_capture("a", path)
    packed = tmp_path / "b.gz"
    packed.write_bytes(gzip.compress(path.read_bytes(), 9))
    small = read_capture("b", packed)
    for left, right in zip(plain.columns, small.columns, strict=True):
        assert np.array_equal(left, right)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
@pytest.mark.parametrize("height", [0, 1, 1000, 1001, 2000])
def test_blocks_are_one_table(tmp_path, monkeypatch, name, height):
    frame = pl.DataFrame(
        {
            "n": range(height),
            "t": pl.Series(["a", "b"] * height, dtype=pl.Enum(["a", "b"]))[:height],
        }
    )
    monkeypatch.setattr(tables, "BLOCK_ROWS", 1_000)
    tables.write_blocks(tmp_path / name, height, lambda rows: frame[rows])
    whole = tmp_path / f"whole-{name}"
    tables.write_table(frame, whole)
    if name == "t.csv":
        assert (tmp_path / name).read_bytes() == whole.read_bytes()
    else:
        assert pl.read_parquet(tmp_path / name).equals(frame)
        assert pl.read_parquet_schema(tmp_path / name) == pl.read_parquet_schema(whole)


def test_a_block_that_cannot_be_written_leaves_nothing(tmp_path):
    def failing(rows: slice) -> pl.DataFrame:
        if rows.stop:
            raise OSError(28, "No space left on device")
        return pl.DataFrame({"a": [1]})[:0]

    for name in ("t.csv", "t.parquet"):
        with pytest.raises(tables.InputError, match="cannot be written"):
            tables.write_blocks(tmp_path / name, 10, failing)
    assert not list(tmp_path.iterdir())
