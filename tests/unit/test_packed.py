"""Folders packed as one archive: the same bytes every time, and nothing written outside."""

import io
import os
import tarfile
from pathlib import Path

import pytest
import zstandard

from outcast.engines.root import packed
from outcast.errors import InputError


@pytest.fixture
def tree(tmp_path) -> Path:
    folder = tmp_path / "tree"
    (folder / "usr/bin").mkdir(parents=True)
    (folder / "usr/bin/tool").write_bytes(b"#!/bin/sh\n" * 1000)
    (folder / "usr/bin/tool").chmod(0o755)
    (folder / "usr/ü b\u00e9").write_text("x")
    (folder / "empty").mkdir(mode=0o755)
    (folder / "bin").symlink_to("usr/bin")
    (folder / "dangling").symlink_to("nowhere/" + "long" * 40)
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (1_000_000_000, 1_000_000_000), follow_symlinks=False)
    return folder


def packed_bytes(folder: Path) -> bytes:
    stream = io.BytesIO()
    packed.pack(folder, stream)
    return stream.getvalue()


def content(path: Path) -> bytes | str:
    if path.is_symlink():
        return os.readlink(path)
    return path.read_bytes() if path.is_file() else b""


def described(folder: Path) -> list[tuple[str, int, float, bytes | str]]:
    return [
        (str(path.relative_to(folder)), path.lstat().st_mode, path.lstat().st_mtime, content(path))
        for path in sorted(folder.rglob("*"))
    ]


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_what_was_packed_comes_back(tree, tmp_path, umask):
    again = tmp_path / "again"
    again.mkdir()
    before = os.umask(umask)
    try:
        packed.unpack(io.BytesIO(packed_bytes(tree)), again)
    finally:
        os.umask(before)
    assert described(again) == described(tree)
    assert packed_bytes(again) == packed_bytes(tree)


def test_a_device_is_not_packed(tree):
    os.mkfifo(tree / "pipe")
    with pytest.raises(ValueError, match="pipe is neither"):
        packed_bytes(tree)


def archive_of(*members: tarfile.TarInfo) -> io.BytesIO:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for info in members:
            archive.addfile(info)
    return io.BytesIO(zstandard.compress(plain.getvalue()))


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, 0o4755
    return info


@pytest.mark.parametrize(
    "members",
    [
        [member("../out")],
        [member("/out")],
        [member("a", tarfile.DIRTYPE), member("a/../../out")],
        [member("a", tarfile.SYMTYPE, ".."), member("a/out")],
        [member("a", tarfile.SYMTYPE, ".."), member("a", tarfile.DIRTYPE), member("a/out")],
        [member("missing/out")],
        [member("a"), member("a")],
        [member("a", tarfile.FIFOTYPE)],
        [member("a", tarfile.CHRTYPE)],
        [member("a", tarfile.LNKTYPE, "/etc/passwd")],
        [member(".")],
        [member("")],
    ],
)
def test_nothing_is_written_outside(members, tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    with pytest.raises(InputError):
        packed.unpack(archive_of(*members), inner)
    assert [path.name for path in tmp_path.iterdir()] == ["inner"]


def test_special_bits_are_left_out(tmp_path):
    packed.unpack(archive_of(member("tool")), tmp_path)
    assert (tmp_path / "tool").stat().st_mode & 0o7777 == 0o755


def test_damaged_archives_are_refused(tree, tmp_path):
    whole = packed_bytes(tree)
    for number, damaged in enumerate((b"", b"no archive", whole[: len(whole) // 2], whole[:-3])):
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(InputError):
            packed.unpack(io.BytesIO(damaged), folder)


def test_large_contents_are_refused(tree, tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "MOST_BYTES", 1000)
    again = tmp_path / "again"
    again.mkdir()
    with pytest.raises(InputError, match="too large"):
        packed.unpack(io.BytesIO(packed_bytes(tree)), again)
