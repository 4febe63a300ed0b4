"""What is made before a run: the guest's roots, then its kernel; and when nothing is."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from outcast.api import guest
from outcast.engines.kernel import build as kernel_build
from outcast.engines.root import build as root_build
from outcast.engines.root.cache import Root
from outcast.errors import ConfigError, FeatureMissingError, RootError
from outcast.experiment import Experiment
from outcast.experiment.reader import load
from outcast.plan.planned import Planned

FIG3C = Path(__file__).parents[2] / "configs/fig3c.yaml"


class Machine:
    """A machine that lacks the kernel and both roots; `made` has what was built, in order."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.has: set[str] = set()
        self.refuses: Exception | None = None

    def build_root(self, kind: str = "runtime", **_options: Any) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.made.append(kind)
        self.has.add(kind)

    def build_kernel(self, **_options: Any) -> None:
        """Makes both roots too."""
        if self.refuses is not None:
            raise self.refuses
        self.made.append("kernel")
        self.has |= {"runtime", "build"}

    def find_root(self, kind: str = "runtime") -> Root | None:
        return Root(Path("/"), "abc", "def", {}) if kind in self.has else None


@pytest.fixture
def machine(monkeypatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(guest.cache, "find", machine.find_root)
    monkeypatch.setattr(guest.kernels, "find", lambda: None)
    monkeypatch.setattr(guest.helpers, "find", lambda compiler: None)
    monkeypatch.setattr(root_build, "build", machine.build_root)
    monkeypatch.setattr(kernel_build, "build", machine.build_kernel)
    return machine


def fig3c(**changes: Any) -> Planned:
    return Planned(load(FIG3C, changes))


@pytest.mark.parametrize(
    ("changes", "has_kernel", "has_programs", "made"),
    [
        ({"engine": "virtual"}, False, False, ["kernel"]),
        ({"engine": "virtual"}, True, False, ["runtime", "build"]),
        # The compiler is not needed once our programs are compiled.
        ({"engine": "virtual"}, True, True, ["runtime"]),
        ({"engine": "virtual", "guest.root": "host"}, False, False, ["kernel"]),
        ({"engine": "realtime"}, False, False, []),
    ],
)
def test_a_run_makes_what_it_lacks(machine, monkeypatch, changes, has_kernel, has_programs, made):
    monkeypatch.setattr(guest.kernels, "find", lambda: object() if has_kernel else None)
    programs = {"stream": b""} if has_programs else None
    monkeypatch.setattr(guest.helpers, "find", lambda compiler: programs)
    guest.provide(fig3c(**changes), progress=False)
    assert machine.made == made


def test_the_root_brings_mininet_where_this_python_has_none(machine, monkeypatch):
    made_before_planning: list[str] = []
    monkeypatch.setattr(guest.mininet_package, "is_there", lambda: bool(machine.made))
    plan = "outcast.plan.make.make_plan"
    monkeypatch.setattr(plan, lambda *_: made_before_planning.extend(machine.made))
    guest.provide(fig3c(engine="virtual"), progress=False)
    assert made_before_planning == ["runtime"]
    assert machine.made == ["runtime", "kernel"]


def test_verbs_start_before_there_is_mininet():
    """It comes with the guest's root, which the verbs make. So no import of theirs may need it."""
    names = [path.stem for path in Path(guest.__file__).parent.glob("*.py")]
    code = (
        "import importlib, sys; sys.modules['mininet'] = None\n"
        f"for name in {names}: importlib.import_module('outcast.api.' + name)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == ""
    assert len(names) > 10


def test_what_cannot_be_planned_is_refused_before_anything_is_made(machine, monkeypatch):
    def refuse(experiment: Experiment, located: object) -> None:
        raise ConfigError("flows.1: no such host")

    monkeypatch.setattr("outcast.plan.make.make_plan", refuse)
    with pytest.raises(ConfigError, match="no such host"):
        guest.provide(fig3c(engine="virtual"), progress=False)
    assert machine.made == []


@pytest.mark.parametrize("error", [FeatureMissingError("no mirror"), RootError("it is gone")])
def test_only_who_asks_for_the_virtual_engine_is_refused(machine, error):
    machine.refuses = error
    guest.provide(fig3c(engine="auto"), progress=False)
    with pytest.raises(type(error), match=str(error)):
        guest.provide(fig3c(engine="virtual"), progress=False)


@pytest.mark.parametrize("engine", ["auto", "virtual"])
def test_a_damaged_root_is_refused(machine, engine, monkeypatch, tmp_path):
    damaged = Root(tmp_path / "root", "0" * 20, "", {})
    monkeypatch.setattr(guest.cache, "find", lambda kind="runtime": damaged)
    with pytest.raises(RootError, match=r"is damaged: files\.tsv .* build --again"):
        guest.provide(fig3c(engine=engine), progress=False)
    guest.provide(fig3c(**{"engine": engine, "guest.root": "host"}), progress=False)


def test_the_root_with_the_compiler_is_verified_where_something_is_compiled(
    machine, monkeypatch, tmp_path
):
    verified: list[str] = []
    monkeypatch.setattr(guest.cache, "find", lambda kind="runtime": Root(tmp_path, kind, "", {}))
    monkeypatch.setattr(guest.cache, "verify", lambda root: verified.append(root.key))
    guest.provide(fig3c(engine="virtual"), progress=False)
    assert verified == ["runtime", "build"]
    monkeypatch.setattr(guest.helpers, "find", lambda compiler: {"stream": b""})
    guest.provide(fig3c(engine="virtual"), progress=False)
    assert verified[2:] == ["runtime", "build"], "the kernel is missing"
    monkeypatch.setattr(guest.kernels, "find", lambda: object())
    guest.provide(fig3c(engine="virtual"), progress=False)
    assert verified[4:] == ["runtime"]
    for swept in ({"kernel.modules": [[]]}, {"points": [{"kernel.modules": []}]}):
        verified.clear()
        guest.provide(fig3c(engine="virtual", sweep=swept), progress=False)
        assert verified == ["runtime", "build"], "a run of the sweep may have modules"
