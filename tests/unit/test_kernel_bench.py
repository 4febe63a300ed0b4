"""With which compiler a kernel is built, and what is said where it is not the lock's."""

from collections.abc import Callable
from pathlib import Path

import pytest

from outcast.engines.kernel import bench, programs
from outcast.engines.root.cache import Root
from outcast.engines.root.lock import Kind
from outcast.errors import FeatureMissingError, RootError
from tests.fakes import FakeMachine


@pytest.fixture(autouse=True)
def has_programs(monkeypatch) -> None:
    monkeypatch.setattr(programs, "require", lambda: None)
    monkeypatch.setattr(bench, "locked_compiler", lambda: "gcc-12 12.2, packages abc")


@pytest.fixture
def workshop(tmp_path) -> Path:
    folder = tmp_path / "workshop"
    folder.mkdir()
    return folder


@pytest.fixture
def set_up(tmp_path, workshop) -> Callable[..., bench.Bench]:
    """Sets up with a root, on a machine that lets everybody into it or nobody."""
    packages = tmp_path / "packages"
    (packages / "usr/bin").mkdir(parents=True)

    def roots(kind: Kind) -> Root:
        return Root(packages, kind, "", {})

    def made(allowed: str, provide: Callable[[Kind], Root] = roots, needs_lock=True) -> bench.Bench:
        return bench.set_up(workshop, provide, FakeMachine(allowed), needs_lock=needs_lock)

    return made


def test_the_locks_compiler_builds(set_up, workshop, tmp_path):
    place = set_up("mount")
    assert (place.compiler, place.note) == ("gcc-12 12.2, packages abc", "")
    assert place.folder == workshop / "root/build"
    patch = tmp_path / "0001.patch"
    patch.write_text("-a\n")
    assert place.admit(patch) == place.folder / "admitted/0001.patch"
    assert place.admit(patch).read_text() == "-a\n"


def test_where_no_root_can_be_entered_the_machines_serves(set_up, workshop):
    place = set_up("")
    assert place.compiler == "gcc (Debian 14.2.0-19) 14.2.0"
    assert place.note.startswith("built by this machine's compiler, because a root of its own")
    assert "Operation not permitted" in place.note
    assert list(workshop.iterdir()) == []


def refuse(kind: Kind) -> Root:
    raise RootError("the package gcc-12 cannot be fetched")


def test_a_root_that_cannot_be_had_is_an_error_or_a_note(set_up):
    with pytest.raises(RootError, match="gcc-12"):
        set_up("mount", refuse)
    place = set_up("mount", refuse, needs_lock=False)
    assert place.note.endswith("because the package gcc-12 cannot be fetched")


def test_without_any_compiler_both_reasons_are_said(set_up, monkeypatch):
    def require() -> None:
        raise FeatureMissingError("the kernel cannot be built: gcc missing")

    monkeypatch.setattr(programs, "require", require)
    with pytest.raises(FeatureMissingError, match=r"gcc missing; and .* not permitted"):
        set_up("")
