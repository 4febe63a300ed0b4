"""The package outcast-guest: unpacked once, whole or not at all, with one line for each fault."""

import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import outcast
from outcast.engines import doctor
from outcast.engines.guest import parts, roots
from outcast.engines.guest.parts import Guest, Part
from outcast.errors import FeatureMissingError
from outcast.files import sha256
from scripts.guest import wheel


@pytest.fixture(autouse=True)
def _read_anew() -> Iterator[None]:
    parts.installed.cache_clear()
    yield
    parts.installed.cache_clear()


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


def test_a_part_is_unpacked_once(package, tmp_path):
    target = tmp_path / "cache" / "kernels" / "abc"
    assert parts.provide(target)
    assert (target / "linux").read_bytes() == b"ELF" * 1000
    assert left_in(target.parent) == ["abc"]
    shutil.rmtree(package.parent / parts.PACKAGE)
    assert (target / "linux").is_file()


def test_several_may_unpack_at_a_time(package, tmp_path):
    target = tmp_path / "kernels" / "abc"
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(parts.provide, [target] * 8))
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
