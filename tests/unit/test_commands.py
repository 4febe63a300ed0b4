"""How programs are started: never from the working folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from outcast import cli
from outcast.commands import leave_working_folder, python_module
from outcast.engines import INSIDE

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a stranger's modules; importing one makes the file that is given."""
    mark = tmp_path / "executed"
    for name in ("pydantic", "networkx", "click", "outcast", "controllers", "json"):
        (tmp_path / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    return mark


@pytest.mark.parametrize("module", [INSIDE, "controllers", "outcast.sweep.worker"])
def test_modules_of_the_working_folder_are_not_run(module: str, trap: Path) -> None:
    argv = [*python_module(module), "--help"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert not trap.exists(), done.stderr


def test_only_one_place_starts_our_modules() -> None:
    # The others give -I, which looks into the working folder no more than -P does.
    starts = {
        str(path.relative_to(ROOT))
        for folder in ("outcast", "controllers", "topologies")
        for path in (ROOT / folder).rglob("*.py")
        if "sys.executable" in path.read_text()
    }
    others = {"outcast/guest/boot.py", "outcast/workloads/programs.py"}
    assert starts == {"outcast/commands.py", *others}
    for name in others:
        assert 'sys.executable, "-I"' in (ROOT / name).read_text()


def test_the_installation_runs_no_module_of_the_working_folder() -> None:
    lines = (ROOT / "scripts/install.sh").read_text().splitlines()
    starts = [line for line in lines if " -m " in line and "python" in line]
    assert len(starts) >= 4
    assert all(" -I -m " in line for line in starts)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"PATH": ":/usr/bin:.:bin:/bin:"}, {"PATH": "/usr/bin:/bin"}),
        ({"PATH": ""}, {"PATH": os.defpath}),
        ({"PATH": "."}, {"PATH": os.defpath}),
        ({"PYTHONPATH": ":/x"}, {"PYTHONPATH": "/x"}),
        ({"PYTHONPATH": "."}, {}),
        ({"HOME": "."}, {"HOME": "."}),
    ],
)
def test_elements_below_the_working_folder_are_left_out(
    before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    environment = dict(before)
    leave_working_folder(environment)
    assert environment == after


def test_no_verb_runs_programs_of_the_working_folder(
    trap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = trap.with_name("unshare")
    fake.write_text(f"#!/bin/sh\ntouch {trap}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f":{os.environ['PATH']}")
    cli.invoke(["doctor"])
    assert not trap.exists()
