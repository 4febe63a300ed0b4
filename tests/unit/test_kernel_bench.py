"""With which compiler a kernel is built, and what is said where it is not the lock's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from outcast.engines.kernel import bench, programs
from outcast.engines.root.cache import Root
from outcast.engines.root.lock import Kind
from outcast.errors import CommandError, FeatureMissingError, RootError


class FakeMachine:
    """Has a compiler, and lets nobody or everybody into a root."""

    def __init__(self, enters: bool) -> None:
        self.enters = enters

    def run(self, argv: Sequence[str], **_: Any) -> str:
        if argv[0] == "gcc":
            return "gcc (Debian 14.2.0-19) 14.2.0\nCopyright\n"
        if not self.enters:
            raise CommandError(argv, 1, "Operation not permitted")
        return ""


@pytest.fixture
def packages(tmp_path) -> Path:
    folder = tmp_path / "packages"
    (folder / "usr/bin").mkdir(parents=True)
    return folder


@pytest.fixture(autouse=True)
def has_programs(monkeypatch) -> None:
    monkeypatch.setattr(programs, "require", lambda: None)
    monkeypatch.setattr(bench, "locked_compiler", lambda: "gcc-12 12.2, packages abc")


def workshop(tmp_path: Path) -> Path:
    folder = tmp_path / "workshop"
    folder.mkdir()
    return folder


def test_the_locks_compiler_builds(packages, tmp_path):
    at = workshop(tmp_path)
    place = bench.set_up(
        at, lambda kind: Root(packages, kind, "", {}), FakeMachine(enters=True), needs_lock=True
    )
    assert (place.compiler, place.note) == ("gcc-12 12.2, packages abc", "")
    assert place.folder == at / "root/build"
    patch = tmp_path / "0001.patch"
    patch.write_text("-a\n")
    assert place.admit(patch) == place.folder / "admitted/0001.patch"
    assert place.admit(patch).read_text() == "-a\n"


def test_where_no_root_can_be_entered_the_machines_serves(packages, tmp_path):
    at = workshop(tmp_path)
    place = bench.set_up(
        at, lambda kind: Root(packages, kind, "", {}), FakeMachine(enters=False), needs_lock=True
    )
    assert place.compiler == "gcc (Debian 14.2.0-19) 14.2.0"
    assert place.note.startswith("built by this machine's compiler, because a root of its own")
    assert "Operation not permitted" in place.note
    assert list(at.iterdir()) == []


def refuse(kind: Kind) -> Root:
    raise RootError("the package gcc-12 cannot be fetched")


def test_a_root_that_cannot_be_had_is_an_error_or_a_note(tmp_path):
    machine = FakeMachine(enters=True)
    at = workshop(tmp_path)
    with pytest.raises(RootError, match="gcc-12"):
        bench.set_up(at, refuse, machine, needs_lock=True)
    place = bench.set_up(at, refuse, machine, needs_lock=False)
    assert place.note.endswith("because the package gcc-12 cannot be fetched")


def test_without_any_compiler_both_reasons_are_said(packages, tmp_path, monkeypatch):
    def require() -> None:
        raise FeatureMissingError("the kernel cannot be built: gcc missing")

    monkeypatch.setattr(programs, "require", require)
    with pytest.raises(FeatureMissingError, match=r"gcc missing; and .* not permitted"):
        bench.set_up(
            workshop(tmp_path),
            lambda kind: Root(packages, kind, "", {}),
            FakeMachine(False),
            needs_lock=True,
        )
