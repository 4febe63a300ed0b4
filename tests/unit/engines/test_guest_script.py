"""scripts/guest/build and root.py: what is pinned, fetched and laid out."""

import hashlib
import importlib.util
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "scripts" / "guest"
_SPEC = importlib.util.spec_from_file_location("guest_root", FOLDER / "root.py")
assert _SPEC is not None
assert _SPEC.loader is not None
guest: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(guest)


def member(name: str, data: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    """A member of a tar file; `fields` are those of TarInfo."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def debian_package(members: Sequence[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """The bytes of a package that installs these members."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    text = b"!<arch>\n"
    for name, data in {"debian-binary": b"2.0\n", "data.tar.xz": packed.getvalue()}.items():
        text += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode()
        text += data + b"\n" * (len(data) % 2)
    return text


DASH = debian_package(
    [
        member("./bin", type=tarfile.DIRTYPE, mode=0o755),
        member("./bin/dash", b"\x7fELF dash", mode=0o755),
        member("./bin/sh", type=tarfile.SYMTYPE, linkname="dash"),
        member("./usr/bin/mawk", b"\x7fELF mawk", mode=0o4755),
        member("./usr/bin/again", type=tarfile.LNKTYPE, linkname="./usr/bin/mawk"),
        member("./lib64/ld.so", type=tarfile.SYMTYPE, linkname="/lib/x86_64-linux-gnu/libc.so.6"),
        member("./lib/x86_64-linux-gnu/libc.so.6", b"\x7fELF libc", mode=0o755),
        member("./usr/share/libc-bin/nsswitch.conf", b"hosts: files\n"),
        member("./usr/share/doc/dash/copyright", b"BSD"),
        member("./usr/share/doc/dash/changelog.gz", b"long"),
    ]
)
PIN = {
    "name": "dash",
    "version": "1:1.0-1",
    "sha256": hashlib.sha256(DASH).hexdigest(),
    "size": len(DASH),
    "path": "pool/main/d/dash/dash_1%3a1.0-1_amd64.deb",
}


def test_the_package_knows_the_keys_of_what_the_script_makes():
    """After a change of the lock, a patch or the configuration:
    scripts/guest/build --keys >outcast/engines/guest/pinned.json"""
    done = subprocess.run([FOLDER / "build", "--keys"], capture_output=True, text=True, check=True)
    pinned = FOLDER.parents[1] / "outcast" / "engines" / "guest" / "pinned.json"
    assert json.loads(done.stdout) == json.loads(pinned.read_text())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--patch", "missing.patch"], "missing.patch: there is no such file"),
        (["--packages", "nowhere"], "nowhere: there is no such folder"),
        (["--fragment"], "Usage: scripts/guest/build"),
        (["--frob"], "Usage: scripts/guest/build"),
    ],
)
def test_wrong_options_are_refused(words, said, tmp_path):
    done = subprocess.run(
        [FOLDER / "build", *words], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode != 0
    assert said in done.stderr


def test_who_cannot_build_is_told_before_anything_is_fetched(tmp_path):
    for name, does in {"id": "echo 1000", "unshare": "echo unshare: refused >&2; exit 1"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [FOLDER / "build"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith(
        "guest: error: only root, and a user who may make user namespaces"
    )
    assert "refused): install the wheel outcast-guest" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_package_is_laid_out_as_if_it_were_installed(tmp_path):
    (tmp_path / "dash.deb").write_bytes(DASH)
    root = tmp_path / "root"
    guest.write(guest.collect([tmp_path / "dash.deb"]), root)
    listed = guest.settle(root)
    assert (root / "bin/sh").read_bytes() == b"\x7fELF dash"
    assert os.readlink(root / "bin") == "usr/bin"
    assert os.readlink(root / "usr/lib64/ld.so") == "../lib/x86_64-linux-gnu/libc.so.6"
    assert (root / "usr/share/doc/dash/copyright").read_bytes() == b"BSD"
    assert not (root / "usr/share/doc/dash/changelog.gz").exists()
    assert os.readlink(root / "usr/bin/awk") == "mawk"
    assert not (root / "usr/bin/nc").is_symlink()
    assert (root / "etc/nsswitch.conf").read_text() == "hosts: files\n"
    assert b"/usr/lib/x86_64-linux-gnu/libc.so.6\0" in (root / "etc/ld.so.cache").read_bytes()
    assert (root / "usr/bin/again").stat().st_nlink == 1
    assert (root / "usr/bin/mawk").stat().st_mode & 0o7777 == 0o755
    assert "l\t-\t-\tdash\tusr/bin/sh\n" in listed
    assert listed.splitlines() == sorted(listed.splitlines(), key=lambda line: line.split("\t")[4])


def test_two_packages_may_hold_one_path_only_alike(tmp_path):
    for name, data in {"one": b"same", "two": b"same", "three": b"other"}.items():
        (tmp_path / name).write_bytes(debian_package([member("./usr/x", data)]))
    assert guest.collect([tmp_path / "one", tmp_path / "two"])["usr/x"].data == b"same"
    with pytest.raises(SystemExit, match="two packages have another usr/x"):
        guest.collect([tmp_path / "one", tmp_path / "three"])


def test_another_file_than_the_pinned_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(guest, "TRIES", 1)
    mirror = tmp_path / "mirror"
    path = mirror / PIN["path"].replace("%3a", ":")
    path.parent.mkdir(parents=True)
    path.write_bytes(DASH[:-1] + b"x")
    monkeypatch.setenv("OUTCAST_MIRROR", mirror.as_uri())
    with pytest.raises(SystemExit, match=r"dash_.*: another file than lock\.json pins; let OUTC"):
        guest.fetch(tmp_path / "into", [PIN])
    path.unlink()
    with pytest.raises(SystemExit, match=r"cannot be fetched from .*No such file"):
        guest.fetch(tmp_path / "into", [PIN])
    assert not list((tmp_path / "into").iterdir())
