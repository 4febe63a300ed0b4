"""Arrays on disk: used where memory is short, equal to those in memory, refused where none is."""

import gzip
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from outcast.analysis import room
from outcast.analysis.capture.pcap import read_capture
from outcast.cli import invoke as outcast
from outcast.errors import OutcastError
from outcast.records import tables
from tests.golden import model

LARGE = 1 << 20


@pytest.fixture
def no_memory(monkeypatch, tmp_path) -> Path:
    """Everything goes to disk, in this folder."""
    folder = tmp_path / "disk"
    folder.mkdir()
    monkeypatch.setattr(room, "available_bytes", lambda: 0)
    monkeypatch.setattr(room, "_LEAST_BYTES", 1)
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def test_small_arrays_and_those_that_fit_are_in_memory(monkeypatch):
    monkeypatch.setattr(room, "available_bytes", lambda: 8 * LARGE * room.SHARE)
    assert room.empty(LARGE, np.int64).flags.owndata
    assert not room.empty(LARGE + 1, np.int64).flags.owndata
    monkeypatch.setattr(room, "available_bytes", lambda: 0)
    assert room.empty(1000, np.int64).flags.owndata


def test_an_array_on_disk_is_like_any_other(no_memory):
    array = room.empty(1000, np.uint16)
    assert array.dtype == np.uint16
    array[:] = np.arange(1000)
    longer = room.resized(array, 3000)
    assert longer[:1000].tolist() == [*range(1000)]
    longer[2999] = 7
    shorter = room.resized(longer, 500)
    assert shorter.tolist() == [*range(500)]
    # The file has no name, so nothing stays behind however the process ends.
    assert not list(no_memory.iterdir())


def test_an_array_moves_to_disk_when_it_outgrows_memory(monkeypatch, tmp_path):
    array = room.empty(LARGE, np.int64)
    array[:] = np.arange(LARGE)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(room, "available_bytes", lambda: 0)
    moved = room.resized(array, 2 * LARGE)
    assert not moved.flags.owndata
    assert (moved[:LARGE] == np.arange(LARGE)).all()


def test_a_full_disk_is_one_line(no_memory, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(room.os, "posix_fallocate", full)
    with pytest.raises(OutcastError, match="no room for 8 MiB of packets, which do not fit into"):
        room.empty(LARGE, np.int64)
    monkeypatch.setenv("TMPDIR", str(no_memory / "missing"))
    with pytest.raises(OutcastError, match="No such file or directory; TMPDIR names another"):
        room.empty(LARGE, np.int64)


def test_limits_of_the_process_count(monkeypatch):
    free = room.available_bytes()
    assert 0 < free < 1 << 50
    limits = {room.resource.RLIMIT_DATA: 3 << 30}
    monkeypatch.setattr(
        room.resource, "getrlimit", lambda kind: (limits.get(kind, room.resource.RLIM_INFINITY), 0)
    )
    assert room.available_bytes() < 3 << 30
    limits[room.resource.RLIMIT_DATA] = 1
    assert room.available_bytes() == 0


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


def test_a_join_on_disk_gives_the_same_tables(no_memory, tmp_path, monkeypatch):
    traffic = model.drop_tail(model.make_traffic(4, 5_000), 16_384, 10**9)
    model.write_captures(tmp_path, model.captures(traffic))
    ports = ["--in", f"a={tmp_path / 'in0.pcap'}", f"b={tmp_path / 'in1.pcap'}"]
    ports += ["--out", f"c={tmp_path / 'out.pcap'}"]

    def run(name: str) -> None:
        assert outcast(["join", *ports, "-o", f"{tmp_path / name}-packets.parquet"]) == 0

    kept = room.empty
    used = []

    def counting(size: int, dtype: object) -> object:
        array = kept(size, dtype)
        used.append(array.flags.owndata)
        return array

    monkeypatch.setattr(room, "empty", counting)
    run("disk")
    assert used.count(False) > 20
    monkeypatch.undo()
    run("memory")
    monkeypatch.setattr(tables, "BLOCK_ROWS", 1_700)
    run("blocks")
    expected = pl.read_parquet(tmp_path / "memory-packets.parquet")
    assert expected.height > 4_000
    for name in ("disk", "blocks"):
        made = pl.read_parquet(tmp_path / f"{name}-packets.parquet")
        assert made.equals(expected)
        assert made.schema == expected.schema
    assert not list(no_memory.iterdir())


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
