"""Folders packed as one archive: the same bytes every time."""

import io
import os
from pathlib import Path

import pytest

from outcast.engines.guest import parts
from scripts.guest import wheel


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
    wheel.pack(folder, stream)
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
    again, archive = tmp_path / "again", tmp_path / "tree.tar.zst"
    again.mkdir()
    archive.write_bytes(packed_bytes(tree))
    before = os.umask(umask)
    try:
        parts.unpack(archive, again)
    finally:
        os.umask(before)
    assert described(again) == described(tree)
    assert packed_bytes(again) == packed_bytes(tree)


def test_a_device_is_not_packed(tree):
    os.mkfifo(tree / "pipe")
    with pytest.raises(ValueError, match="pipe is neither"):
        packed_bytes(tree)
