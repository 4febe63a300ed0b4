"""The rooms of outcast import downwards only, and some of them never import Mininet."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "outcast"

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"errors"}),
    frozenset({"units", "files", "netlink"}),
    frozenset({"quantities"}),
    frozenset({"handed_in"}),
    frozenset({"experiment"}),
    frozenset({"plan"}),
    frozenset({"records"}),
    frozenset({"archive", "emulation", "analysis", "networks"}),
    frozenset({"engines", "view"}),
    frozenset({"workflow"}),
    frozenset({"sweep"}),
    frozenset({"api"}),
    frozenset({"testing"}),
    frozenset({"cli"}),
    frozenset({"uses"}),
    frozenset({"__main__"}),
)
"""Rooms from the bottom up. A room imports from itself and from those below it."""

LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}

MODULES_AT_THE_ROOT = 8


NO_MODULES = PACKAGE / "uses/classroom/exercises"
"""Students' notebooks, which use outcast as anyone does; nothing of ours imports them."""


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if NO_MODULES in path.parents:
            continue
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


NAMES = {name for name, _ in modules()}


def imports_of(path: Path) -> Iterator[str]:
    """Full names of the modules of outcast that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("outcast"))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            if node.module and node.module.split(".")[0] == "outcast":
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    if full != "outcast.__version__":
                        yield full if full in NAMES else node.module


def room_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else None


def test_every_room_has_a_layer():
    rooms = {path.stem for path in PACKAGE.glob("*.py")} | {
        path.name for path in PACKAGE.iterdir() if path.is_dir() and list(path.glob("*.py"))
    }
    assert rooms - {"__init__"} == set(LEVEL)


def test_every_room_keeps_to_its_lines():
    """A room that needs more says so in ARCHITECTURE.md, and its commit says why."""
    page = (PACKAGE.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
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


def test_a_room_imports_from_below_only():
    upwards = [
        f"{name} imports {target}"
        for name, path in modules()
        if (room := room_of(name)) is not None
        for target in imports_of(path)
        if target != "outcast.uses"
        if (other := room_of(target)) != room and (other is None or LEVEL[other] >= LEVEL[room])
    ]
    assert upwards == []


def test_what_reads_results_needs_no_mininet():
    verbs = [f"outcast.cli.{verb}" for verb in ("show", "inspect", "join")]
    names = [
        *(name for name in sorted(NAMES) if room_of(name) in ("analysis", "records", "view")),
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
