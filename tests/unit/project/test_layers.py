"""The rooms of outcast import downwards only, and some of them never import Mininet."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

PACKAGE = Path(__file__).parents[3] / "outcast"

PROJECT = PACKAGE.parent
PUBLIC = {
    *("errors", "units", "files", "handed_in", "experiment", "records", "analysis", "view"),
    *("api", "cli"),
}
"""What a use may import; of a folder, the names in its `__init__`."""

MODULES_AT_THE_ROOT = 8


NO_MODULES = PACKAGE / "uses/classroom/exercises"
"""Students' notebooks, which use outcast as anyone does; no module imports them."""


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if NO_MODULES in path.parents:
            continue
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


NAMES = {name for name, _ in modules()}


def test_the_contracts_on_imports_are_kept(monkeypatch, capsys):
    """A room imports from below only; a use imports public names and no other use."""
    monkeypatch.chdir(PROJECT)
    assert lint_imports(no_cache=True) == 0, capsys.readouterr().out


def test_every_room_is_public_or_closed_to_uses():
    tables = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    closed = tables["tool"]["importlinter"]["contracts"][1]["forbidden_modules"]
    rooms = {path.stem for path in PACKAGE.glob("*.py")} | {
        path.name for path in PACKAGE.iterdir() if path.is_dir() and list(path.glob("*.py"))
    }
    whole = {name.split(".")[1] for name in closed if not name.endswith(".*")}
    folders = {name.split(".")[1] for name in closed if name.endswith(".*")}
    assert len(PUBLIC) <= 10
    assert not PUBLIC & whole
    assert rooms - {"__init__", "__main__", "uses"} == PUBLIC | whole
    assert folders == {name for name in PUBLIC if (PACKAGE / name).is_dir()}


def test_the_exceptions_of_uses_become_fewer():
    tables = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    assert len(tables["tool"]["importlinter"]["contracts"][1]["ignore_imports"]) <= 21


# Python's lines of each part of the project: they may only fall.
BUDGETS = {
    "outcast/**/*.py": 71_999,
    "outcast/uses/**/*.py": 12_222,
    "tests/**/*.py": 43_881,
    "scripts/**/*.py": 2_582,
    "benchmarks/**/*.py": 2_347,
}


@pytest.mark.parametrize("pattern", BUDGETS)
def test_the_project_keeps_to_its_lines(pattern):
    lines = sum(len(path.read_bytes().splitlines()) for path in PROJECT.glob(pattern))
    assert 0 < lines <= BUDGETS[pattern]


def test_every_room_keeps_to_its_lines():
    """A room that needs more says so in ARCHITECTURE.md, and its commit says why."""
    page = (PROJECT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    most = {
        name.rstrip("/"): int(lines.replace(",", ""))
        for name, lines in re.findall(r"^\| `([\w/.]+)` \| ([\d,]+) \|", page, re.MULTILINE)
    }
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert rooms <= most.keys()
    over = {}
    for name, budget in most.items():
        path = PACKAGE / name
        files = [path] if path.is_file() else list(path.rglob("*.py"))
        lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
        if not 0 < lines <= budget:
            over[name] = (lines, budget)
    assert not over


def test_modules_are_imported_by_their_names():
    """An import of a computed name would hide from these tests, so few modules have one."""
    computed = {
        name
        for name, path in modules()
        if re.search(r"\b(import_module|__import__|run_module)\(", path.read_text(encoding="utf-8"))
    }
    assert computed == {
        "outcast",  # its public members
        "outcast.uses.classroom.grade",  # what makes the runs again
        "outcast.emulation.standalone",  # our small programs at hosts
        "outcast.engines.guest.boot",  # inside the guest, where outcast is not imported yet
        "outcast.plan.topology",  # the kinds of topologies
        "outcast.uses",  # what uses add to the rooms below
        "outcast.sweep.worker",  # the function that makes a sweep's runs
    }


def test_few_modules_stand_at_the_root():
    assert len(list(PACKAGE.glob("*.py"))) <= MODULES_AT_THE_ROOT


def test_what_reads_results_needs_no_mininet():
    verbs = [f"outcast.cli.{verb}" for verb in ("show", "inspect", "join")]
    names = [
        *(
            name
            for name in sorted(NAMES)
            if name.split(".")[1:2] in (["analysis"], ["records"], ["view"])
        ),
        *("outcast.experiment", *verbs),
    ]
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "bad = ('mininet', 'os_ken', 'ryu', 'topologies')\n"
        "print(*sorted(name for name in sys.modules if name.split('.')[0] in bad))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
