import errno
import gzip
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from outcast import cli, files
from outcast.analysis.capture.pcap import read_capture
from outcast.errors import InputError
from outcast.records import tables
from outcast.records.tables import write_table
from tests.golden import model


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fill() -> None:
        with files.writing(path) as stream:
            stream.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space") as told:
        fill()
    assert told.value.filename == str(path)
    assert path.read_text() == "old"
    with files.writing(path) as stream:
        stream.write(b"new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_under_the_temporary_name_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / f".file.{os.getpid()}.tmp").symlink_to(tmp_path / "precious")
    with files.writing(tmp_path / "file") as stream:
        stream.write(b"new")
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "file").read_text() == "new"


def test_a_device_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is not a regular file"), files.writing(tmp_path / "pipe"):
        pass
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_full_disk_under_a_table_is_told_in_the_systems_words(ending, tmp_path, monkeypatch):
    def fail(*arguments: object, **options: object) -> None:
        # In polars' words; for Parquet it is no OSError.
        raise pl.exceptions.ComputeError("parquet: No space left on device (os error 28)")

    monkeypatch.setattr(pl.DataFrame, f"write_{ending}", fail)
    with pytest.raises(InputError, match=r"cannot be written: No space left on device$"):
        write_table(pl.DataFrame({"a": [1]}), tmp_path / f"table.{ending}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EROFS, "Read-only file system", "/x/y"), "/x/y: Read-only file system"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "Disk quota exceeded"),
        (OSError(errno.ENOSPC, "No space left", "/from", None, "/to"), "/to: No space left"),
        (OSError("odd"), "odd"),
    ],
)
def test_an_error_of_the_machine_is_one_line_and_status_1(error, said, monkeypatch, capsys):
    def fail(**options: Any) -> None:
        raise error

    monkeypatch.setattr(cli.whole, "main", fail)
    assert cli.invoke([]) == 1
    assert capsys.readouterr().err == f"outcast: {said}\n"


@pytest.mark.parametrize(
    ("user", "uid", "gid", "caller"),
    [
        (0, "1000", "100", (1000, 100)),
        (1000, "1000", "1000", None),
        (0, None, "1000", None),
        (0, "x", "1000", None),
        (0, "0", "0", None),
        (0, "-5", "5", None),
    ],
)
def test_who_called_by_sudo_is_believed_of_root_alone(user, uid, gid, caller, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setenv("SUDO_GID", gid)
    monkeypatch.delenv("SUDO_UID", raising=False)
    if uid is not None:
        monkeypatch.setenv("SUDO_UID", uid)
    assert files.caller() == caller


# --- Tables are read from the named file, whatever its name, and only if that is safe


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
    """Captures name their interfaces, and the author of a capture chose the names."""
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


# --- Large captures and tables: they grow, and are written in blocks


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
