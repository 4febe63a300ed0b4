"""The guest's parts: found by their keys, verified, and unpacked from the package outcast-guest."""

import hashlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import outcast
from outcast.engines import doctor
from outcast.engines.guest import files_list, kernels, parts, roots
from outcast.engines.guest.kernels import Kernel
from outcast.engines.guest.parts import PINNED, TIME_S, Guest, Part
from outcast.engines.guest.roots import Root
from outcast.errors import FeatureMissingError, KernelError, RootError
from outcast.files import sha256
from scripts.guest import wheel


@pytest.fixture(autouse=True)
def _read_again() -> Iterator[None]:
    parts.installed.cache_clear()
    yield
    parts.installed.cache_clear()


@pytest.fixture
def root(tmp_path, monkeypatch) -> Root:
    """A small root in a cache, pinned."""
    made = tmp_path / "made" / "root"
    (made / "usr/bin").mkdir(parents=True)
    (made / "usr/bin/dash").write_bytes(b"\x7fELF dash")
    (made / "usr/bin/dash").chmod(0o700)
    (made / "usr/bin/sh").symlink_to("dash")
    listed = files_list.settle(made)
    key = hashlib.sha256(listed.encode()).hexdigest()[:20]
    (made.parent / "files.tsv").write_text(listed)
    record = '{"format": 1, "lock": "abc", "packages": {"dash": "1"}}'
    (made.parent / "root.json").write_text(record)
    (tmp_path / "roots").mkdir()
    made.parent.rename(tmp_path / "roots" / key)
    monkeypatch.setattr(parts, "PINNED", parts.PINNED._replace(runtime=key))
    found = roots.find(folder=tmp_path / "roots")
    assert found is not None
    return found


def test_a_root_is_found_by_its_key(root, tmp_path):
    assert root.packages == {"dash": "1"}
    assert roots.find("build", tmp_path / "roots") is None
    roots.verify(root, every_byte=True)


def test_the_environment_may_name_another_folder(root, tmp_path, monkeypatch):
    monkeypatch.setenv(parts.VARIABLE, str(tmp_path))
    assert roots.find() == root
    monkeypatch.setenv(parts.VARIABLE, str(tmp_path / "other"))
    with pytest.raises(FeatureMissingError, match=r"OUTCAST_GUEST: .*/other/roots/\w+ is missing"):
        roots.find()


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda at: (at / "usr/bin/dash").write_bytes(b"\x7fELF dasH"), "usr/bin/dash"),
        (lambda at: (at / "usr/bin/dash").chmod(0o700), "usr/bin/dash"),
        (lambda at: (at / "usr/bin/new").touch(), "usr/bin"),
        (lambda at: (at / "usr/bin/dash").unlink(), "usr/bin"),
        (lambda at: (at.parent / "files.tsv").write_text(""), "files.tsv"),
    ],
    ids=["changed", "mode", "added", "removed", "list"],
)
def test_a_damaged_root_is_refused_at_once(root, damage, what):
    damage(root.folder)
    with pytest.raises(RootError, match=f"is damaged: {what} is not as it was kept; scripts/guest"):
        roots.verify(root)


def test_what_hides_behind_its_size_and_time_is_found_by_hashing(root):
    path = root.folder / "usr/bin/dash"
    path.write_bytes(b"\x7fELF DASH")
    os.utime(path, (TIME_S, TIME_S))
    roots.verify(root)
    with pytest.raises(RootError, match="usr/bin/dash is not as it was kept"):
        roots.verify(root, every_byte=True)


# --- kernels


@pytest.fixture
def keep(tmp_path) -> Callable[..., Kernel]:
    """Puts a kernel into a cache as scripts/guest/build does, ours if nothing else is said."""

    def kept(key: str = PINNED.kernel, **others: Any) -> Kernel:
        record = {
            "source": PINNED.source,
            "version": PINNED.version,
            "recipe": PINNED.recipe,
            "release": "7.3.4",
            "built_s": 200.0,
            "sha256": hashlib.sha256(b"elf").hexdigest(),
            "congestion_controls": ["reno"],
            "own": [],
            "compiler": PINNED.compiler,
            **others,
        }
        folder = tmp_path / key
        folder.mkdir()
        (folder / "linux").write_bytes(b"elf")
        (folder / "kernel.json").write_text(json.dumps(record))
        kernel = kernels.read(folder)
        assert kernel is not None
        return kernel

    return kept


def test_the_pinned_kernel_is_found(tmp_path, keep):
    assert kernels.find(tmp_path) is None
    newer = keep("ab" * 10, version="7.3.5-1")
    assert kernels.find(tmp_path) is None
    ours = keep()
    assert ours.key == PINNED.kernel
    assert kernels.find(tmp_path) == ours
    assert kernels.find_key(newer.key[:6], tmp_path) == newer
    assert len(kernels.find_all(tmp_path)) == 2


def test_a_damaged_program_is_refused(keep):
    kept = keep()
    kernels.verify(kept)
    kept.program.write_text("elg")
    with pytest.raises(KernelError, match=r"linux is damaged: .*/build --again"):
        kernels.verify(kept)


@pytest.mark.parametrize("lacking", ["kernel.json", "linux"])
def test_what_is_not_whole_is_not_there(tmp_path, lacking, keep):
    keep().program.with_name(lacking).unlink()
    assert kernels.find(tmp_path) is None


# --- the package outcast-guest


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """An installed outcast-guest with a kernel of one file."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "linux").write_bytes(b"ELF" * 1000)
    folder = tmp_path / "site" / parts.PACKAGE
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    with (folder / "kernels.tar.zst").open("wb") as stream:
        wheel.pack(source, stream)
    part = Part(
        kind="kernels",
        key="abc",
        file="kernels.tar.zst",
        sha256=sha256(folder / "kernels.tar.zst"),
        unpacked_bytes=3000,
    )
    write_record(folder, part)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return folder


def write_record(folder: Path, *packed: Part, version: str = outcast.__version__) -> None:
    guest = Guest(version=version, parts=packed)
    (folder / parts.RECORD).write_text(guest.model_dump_json(), encoding="utf-8")


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_without_the_package_nothing_is_provided(tmp_path):
    assert parts.installed() is None
    assert not parts.provide(tmp_path / "kernels" / "abc")
    assert parts.misfit("kernels", "abc") == ""
    assert not (tmp_path / "kernels").exists()


def test_a_part_is_unpacked_once_by_any_number_of_processes(package, tmp_path):
    target = tmp_path / "cache" / "kernels" / "abc"
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(parts.provide, [target] * 8))
    assert (target / "linux").read_bytes() == b"ELF" * 1000
    assert left_in(target.parent) == ["abc"]


def test_a_damaged_archive_is_refused(package, tmp_path):
    with (package / "kernels.tar.zst").open("r+b") as stream:
        stream.seek(20)
        stream.write(b"\0\0\0\0")
    target = tmp_path / "kernels" / "abc"
    with pytest.raises(FeatureMissingError, match="is damaged: it has another hash") as caught:
        parts.provide(target)
    assert "pip install --force-reinstall" in str(caught.value)
    assert left_in(target.parent) == []


def test_a_package_of_another_outcast_names_the_version_that_fits(package, tmp_path):
    write_record(package, version="0.0.9")
    assert doctor.diagnose(None).findings[-3].remedy.startswith("the installed wheel outcast-guest")
    said = parts.misfit("kernels", "abc")
    assert said == (
        f"the installed wheel outcast-guest 0.0.9 does not fit this outcast {outcast.__version__}; "
        f"install outcast-guest {outcast.__version__}"
    )
    assert not parts.provide(tmp_path / "kernels" / "abc")


@pytest.fixture
def no_mininet(monkeypatch) -> Iterator[None]:
    """A Python that has no Mininet of its own and has imported none."""
    before = {name: module for name, module in sys.modules.items() if is_mininets(name)}
    for name in before:
        del sys.modules[name]
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "dist-packages" not in path])
    yield
    for name in [name for name in sys.modules if is_mininets(name)]:
        del sys.modules[name]
    sys.modules.update(before)


def is_mininets(name: str) -> bool:
    return name.partition(".")[0] == "mininet"


@pytest.mark.usefixtures("no_mininet")
def test_mininet_comes_from_the_root(tmp_path, monkeypatch):
    """Planning works on a machine without Mininet, and changes nothing in the root."""
    folder = tmp_path / roots.PACKAGES / "mininet"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "topo.py").write_text("from mininet.util import WHERE\n", encoding="utf-8")
    (folder / "util.py").write_text("WHERE = __file__\n", encoding="utf-8")
    monkeypatch.setattr(roots, "find", lambda: roots.Root(tmp_path, "key", "lock", {}))
    assert roots.has_mininet()
    topo = __import__("mininet.topo").topo
    assert Path(topo.WHERE) == folder / "util.py"
    assert sorted(path.name for path in folder.iterdir()) == ["__init__.py", "topo.py", "util.py"]


@pytest.mark.usefixtures("no_mininet")
def test_without_mininet_the_guest_is_made_first(monkeypatch):
    class NoRoot(Exception):
        pass

    def make(progress):
        raise NoRoot

    monkeypatch.setattr(roots, "find", lambda: None)
    monkeypatch.setattr("outcast.api.guest._make", make)
    with pytest.raises(NoRoot):
        outcast.load("configs/fig3c.yaml")


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


def described(folder: Path) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for path in sorted(folder.rglob("*")):
        content = path.readlink() if path.is_symlink() else path.is_file() and path.read_bytes()
        status = path.lstat()
        found.append((path.relative_to(folder), status.st_mode, status.st_mtime, content))
    return found


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
