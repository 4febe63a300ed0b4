"""A release: the same commit gives the same bytes, the guest's wheel is complete, files agree."""

import email
import hashlib
import importlib.util
import json
import re
import subprocess
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import outcast
from outcast.engines.guest import parts
from outcast.engines.guest.kernels import Kernel
from outcast.engines.guest.parts import Guest
from outcast.engines.guest.roots import Root

ROOT = Path(__file__).parents[3]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a copy of a checkout has no commit")
def test_the_same_commit_gives_the_same_wheel(tmp_path):
    for name, umask in (("a", "022"), ("a folder", "077")):
        subprocess.run(
            [
                *("sh", "-c", f'umask {umask} && exec "$@"', "sh"),
                *(ROOT / "scripts" / "release.sh", "--only-outcast", tmp_path / name),
            ],
            check=True,
            capture_output=True,
        )
    bill, small, first = sorted((tmp_path / "a").iterdir())
    same_bill, same_small, second = sorted((tmp_path / "a folder").iterdir())
    assert bill.name == "outcast.cdx.json"
    assert sha256(bill) == sha256(same_bill)
    stem = f"outcast_testbed-{outcast.__version__}"
    assert first.name == second.name == f"{stem}-py3-none-any.whl"
    assert sha256(first) == sha256(second)
    assert sha256(small) == sha256(same_small)
    with zipfile.ZipFile(small) as wheel:
        (record,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
        needed = email.message_from_bytes(wheel.read(record)).get_all("Requires-Dist")
    assert record == f"outcast_test-{outcast.__version__}.dist-info/METADATA"
    assert any(line.startswith("polars") for line in needed)
    assert not any(line.startswith(("numba>", "scipy>", "matplotlib>")) for line in needed)
    with zipfile.ZipFile(first) as wheel:
        names = set(wheel.namelist())
        metadata = email.message_from_bytes(wheel.read(f"{stem}.dist-info/METADATA"))
    assert "outcast/engines/guest/pinned.json" in names
    assert "configs/fig3c.yaml" in names
    assert not any(name.startswith(("tests/", "docs/", "scripts/")) for name in names)
    pages = {f"{stem}.data/data/share/doc/outcast/{page}" for page in named_by_messages()}
    assert len(pages) >= 5
    assert pages <= names
    assert metadata["Name"] == "outcast-testbed"
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Author"] == "outcast contributors"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert not any("url" in key.lower() or "home" in key.lower() for key in metadata)


def named_by_messages() -> set[str]:
    """The pages that the text of the program names."""
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "outcast").rglob("*.py"))
    return {page for text in texts for page in re.findall(r"\bdocs/([\w./-]+\.md)\b", text)}


@pytest.fixture
def script() -> ModuleType:
    return importlib.import_module("scripts.guest.wheel")


@pytest.fixture
def kernel(tmp_path) -> Kernel:
    folder = tmp_path / "cache" / "kernels" / "one"
    (folder / "headers" / "source").mkdir(parents=True)
    (folder / "linux").write_bytes(b"ELF")
    (folder / "kernel.json").write_text(json.dumps({"built_s": 123.4}), encoding="utf-8")
    (folder / "headers" / "source" / "COPYING").write_text("GPL-2.0", encoding="utf-8")
    return Kernel("linux-source-7.3", "7.3.4-1", "recipe", "7.3.4", 1.0, "", folder / "linux")


@pytest.fixture
def root(tmp_path) -> Root:
    folder = tmp_path / "cache" / "roots" / "abc" / "root"
    licence = (
        folder / "usr/local/lib/python3.11/dist-packages/pydantic-2.dist-info/licenses/LICENSE"
    )
    licence.parent.mkdir(parents=True)
    licence.write_text("MIT", encoding="utf-8")
    (folder / "bin").symlink_to("usr/bin")
    return Root(folder, "abc", "lock", {})


@pytest.fixture
def machine(script, kernel, root, tmp_path, monkeypatch) -> ModuleType:
    """The script on a machine with a small kernel and root, whose mirror is a folder."""
    programs = tmp_path / "cache" / "programs" / "def"
    programs.mkdir(parents=True)
    (programs / "stream").write_bytes(b"ELF")
    documentation = root.folder / "usr/share/doc"
    (documentation / "bash").mkdir(parents=True)
    (documentation / "bash" / "copyright").write_text("GPL-3")
    (documentation / "bash-builtins").symlink_to("bash")
    (root.folder / "usr/share/common-licenses").mkdir()
    (root.folder / "usr/share/common-licenses" / "GPL-3").write_text("all of it")
    debians = [{"name": name, "version": "5.2.15-2"} for name in ("bash", "bash-builtins")]
    monkeypatch.setattr(script.script, "LOCK", {**script.script.LOCK, "runtime": debians})
    monkeypatch.setattr(script.roots, "find", lambda: root)
    monkeypatch.setattr(script.kernels, "find", lambda: kernel)
    monkeypatch.setattr(script, "_programs_folder", lambda: programs)
    return script


def test_the_guests_wheel_has_licences_sources_and_what_is_booted(machine, tmp_path, kernel):
    trees = [tmp_path / "one", tmp_path / "two"]
    for tree in trees:
        machine.lay_out(tree)
    one, two = (
        {
            path.relative_to(tree).as_posix(): sha256(path)
            for path in tree.rglob("*")
            if path.is_file()
        }
        for tree in trees
    )
    assert one == two
    package = trees[0] / parts.PACKAGE
    guest = Guest.model_validate_json((package / parts.RECORD).read_text())
    assert guest.version == outcast.__version__
    assert [(part.kind, part.key) for part in guest.parts] == [
        ("roots", "abc"),
        ("kernels", kernel.key),
        ("programs", "def"),
    ]
    for part in guest.parts:
        assert sha256(package / part.file) == part.sha256
    for licence in (
        "debian/bash/copyright",
        "debian/bash-builtins/copyright",
        "common-licenses/GPL-3",
        "wheels/pydantic-2/LICENSE",
        "linux/COPYING",
    ):
        assert (package / "licenses" / licence).is_file()
    sources = (package / "SOURCES.md").read_text()
    assert "| bash | 5.2.15-2 |" in sources
    assert "`linux-source-7.3` 7.3.4-1" in sources
    assert list((package / "sources").glob("0001-*.patch"))
    assert (package / "sources" / "fragment.config").is_file()


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_version_and_its_date_are_the_same_everywhere():
    citation = read("CITATION.cff")
    heading = re.search(r"^## (\d\S+) \((.+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert heading.groups() == (citation["version"], citation["date-released"])
    assert citation["version"] == outcast.__version__
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
