import errno
import os
import sys
from typing import Any

import click
import polars as pl
import pytest

from outcast import cli, files
from outcast.errors import InputError
from outcast.records.tables import write_table


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


def test_errors_that_are_not_the_systems_stay_as_they_are(tmp_path):
    with pytest.raises(ValueError, match="no format"), files.writing(tmp_path / "file"):
        raise ValueError("no format of that name")


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


def test_a_closed_standard_output_is_no_error(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(cli.whole, "main", lambda **options: click.echo("x"))
    assert cli.invoke([]) == 0
    assert capsys.readouterr().err == ""


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
