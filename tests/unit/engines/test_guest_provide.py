"""What is made before a run: the guest's roots, then its kernel; and when nothing is."""

from pathlib import Path
from typing import Any

import pytest

from outcast.api import guest
from outcast.engines.guest.roots import Root
from outcast.errors import FeatureMissingError
from outcast.experiment.reader import load
from outcast.plan.model import Planned

FIG3C = Path(__file__).parents[3] / "configs/fig3c.yaml"


class Machine:
    """A machine that lacks the kernel and both roots; `made` counts runs of the script."""

    def __init__(self) -> None:
        self.made = 0
        self.has: set[str] = set()
        self.refuses: Exception | None = None

    def make(self, _progress: bool | None) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.made += 1
        self.has |= {"runtime", "build", "kernel"}

    def find_root(self, kind: str = "runtime") -> Root | None:
        return Root(Path("/"), "abc", "def", {}) if kind in self.has else None


@pytest.fixture
def machine(monkeypatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(guest.roots, "find", machine.find_root)
    monkeypatch.setattr(guest.kernels, "find", lambda: "kernel" in machine.has or None)
    monkeypatch.setattr(guest.code, "find_programs", lambda compiler: None)
    monkeypatch.setattr(guest, "_make", machine.make)
    monkeypatch.setattr(guest.roots, "verify", lambda root: None)
    return machine


def fig3c(**changes: Any) -> Planned:
    return Planned(load(FIG3C, changes))


@pytest.mark.parametrize(
    ("changes", "has", "has_programs", "made"),
    [
        ({"engine": "virtual"}, {}, False, 1),
        ({"engine": "virtual"}, {"kernel"}, False, 1),
        ({"engine": "virtual"}, {"kernel", "runtime"}, False, 1),
        # The compiler is not needed once our programs are compiled.
        ({"engine": "virtual"}, {"kernel", "runtime"}, True, 0),
        ({"engine": "virtual", "guest.root": "host"}, {}, False, 1),
        ({"engine": "virtual", "guest.root": "host"}, {"kernel"}, False, 0),
        ({"engine": "realtime"}, {}, False, 0),
    ],
)
def test_a_run_makes_what_it_lacks(machine, monkeypatch, changes, has, has_programs, made):
    machine.has |= set(has)
    programs = {"stream": b""} if has_programs else None
    monkeypatch.setattr(guest.code, "find_programs", lambda compiler: programs)
    guest.provide(fig3c(**changes), progress=False)
    assert machine.made == made


def test_the_root_brings_mininet_where_this_python_has_none(machine, monkeypatch):
    made_before_planning: list[int] = []
    monkeypatch.setattr(guest.roots, "has_mininet", lambda: bool(machine.made))
    plan = "outcast.plan.make.make_plan"
    monkeypatch.setattr(plan, lambda *_: made_before_planning.append(machine.made))
    guest.provide(fig3c(engine="virtual"), progress=False)
    assert made_before_planning == [1]
    assert machine.made == 1


def script(folder: Path, text: str) -> Path:
    file = folder / "build"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def test_the_script_of_the_checkout_makes_it(tmp_path, monkeypatch):
    monkeypatch.setattr(guest.parts, "SCRIPT", script(tmp_path, f"touch {tmp_path}/done"))
    guest._make(False)
    assert (tmp_path / "done").exists()
    failing = script(tmp_path, "echo 'guest: error: no mirror' >&2; exit 1")
    monkeypatch.setattr(guest.parts, "SCRIPT", failing)
    with pytest.raises(FeatureMissingError, match="build did not make the guest: no mirror"):
        guest._make(False)
    monkeypatch.setattr(guest.parts, "SCRIPT", tmp_path / "missing")
    with pytest.raises(FeatureMissingError, match="guest is missing; install the wheel outcast-g"):
        guest._make(False)


def test_only_who_asks_for_the_virtual_engine_is_refused(machine):
    machine.refuses = FeatureMissingError("no mirror")
    guest.provide(fig3c(engine="auto"), progress=False)
    with pytest.raises(FeatureMissingError, match="no mirror"):
        guest.provide(fig3c(engine="virtual"), progress=False)


def test_the_root_with_the_compiler_is_verified_where_something_is_compiled(
    machine, monkeypatch, tmp_path
):
    verified: list[str] = []
    monkeypatch.setattr(guest.roots, "find", lambda kind="runtime": Root(tmp_path, kind, "", {}))
    monkeypatch.setattr(guest.roots, "verify", lambda root: verified.append(root.key))
    guest.provide(fig3c(engine="virtual"), progress=False)
    assert verified == ["runtime", "build"]
    monkeypatch.setattr(guest.code, "find_programs", lambda compiler: {"stream": b""})
    guest.provide(fig3c(engine="virtual"), progress=False)
    assert verified[2:] == ["runtime"]
    for swept in ({"kernel.modules": [[]]}, {"points": [{"kernel.modules": []}]}):
        verified.clear()
        guest.provide(fig3c(engine="virtual", sweep=swept), progress=False)
        assert verified == ["runtime", "build"], "a run of the sweep may have modules"
