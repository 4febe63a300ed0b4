import resource
import subprocess
import sys
from pathlib import Path

import pytest

from outcast import cli

CONFIGS = Path(__file__).parents[3] / "configs"


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = cli.invoke(list(argv))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr("outcast.cli.whole.main", fail)


@pytest.mark.parametrize(
    "argv",
    [
        ["topo", "none.yaml"],
        ["topo", str(CONFIGS / "linear-12.yaml"), "--set", "topology.rivals=0"],
        ["topo", str(CONFIGS / "fattree-12.yaml"), "--set", "flows.1.hosts=99"],
        ["run", str(CONFIGS / "fattree-12.yaml"), "--engine", "fast"],
        ["run"],
        ["fly"],
        ["run", "none.yaml"],
        ["analyze", "none"],
        ["inspect", "none"],
    ],
)
def test_bad_usage_is_one_line_and_status_2(argv, capsys):
    status, out, err = run(capsys, *argv)
    assert status == 2
    assert out == ""
    assert err.startswith("outcast: ")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("argv", [[], ["guest"], ["assignment"]])
def test_without_a_verb_the_help_is_shown_as_help_is(argv, capsys):
    status, out, err = run(capsys, *argv)
    assert (status, out) == (2, "")
    _, helped, _ = run(capsys, *argv, "--help")
    assert err == helped
    assert len(err.splitlines()) > 5


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["rum", "x.yaml"], "run"),
        (["guest", "chekc"], "check"),
        (["run", "x.yaml", "--engin", "virtual"], "--engine"),
        (["run", "x.yaml", "--engine", "vitual"], "virtual"),
        (["inspect", "x", "--verdict", "droped"], "dropped"),
        (["reproduce", "fig99"], ""),
        (["reproduce", "--list", "P100"], "P10"),
        (["topo", str(CONFIGS / "fig3c.yaml"), "--set", "flows.0.from=h0_0_33"], "h0_0_3"),
        (["topo", str(CONFIGS / "fig3c.yaml"), "--set", "capture.ports=[e0_0-ethh1]"], "e0_0-eth1"),
    ],
)
def test_what_was_probably_meant_is_suggested(argv, meant, capsys):
    status, _, err = run(capsys, *argv)
    assert status == 2
    assert len(err.splitlines()) == 1
    assert (f"id you mean '{meant}'?" in err) == bool(meant)


def test_without_mininet_its_remedy_is_named(capsys, monkeypatch):
    failing(monkeypatch, ModuleNotFoundError("No module named 'mininet'", name="mininet"))
    status, _, said = run(capsys, "topo")
    assert status == 3
    assert said.startswith("outcast: No module named 'mininet', which plans the network; install")
    assert "scripts/guest/build" in said


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (
            ImportError("\n\nIMPORTANT\nOriginal error was: a.so: failed to map segment\n"),
            3,
            "a library cannot be loaded: Original error was: a.so: failed to map segment; ",
        ),
        (
            OSError("Could not find/load shared object file 'libllvmlite.so'"),
            3,
            "a library cannot be loaded: Could not find/load shared object file 'libllvmlite.so'; ",
        ),
        (ImportError(), 3, "a library cannot be loaded: ImportError(); "),
        (MemoryError(), 1, "out of memory; "),
        (MemoryError("Unable to allocate 8 GiB"), 1, "out of memory: Unable to allocate 8 GiB; "),
    ],
)
@pytest.mark.parametrize(("limit_kb", "remedy"), [(None, ""), (700_000, "700000 KB (ulimit -v)")])
def test_a_missing_library_or_memory_is_one_line(
    error, status, text, limit_kb, remedy, capsys, monkeypatch
):
    soft = resource.RLIM_INFINITY if limit_kb is None else limit_kb * 1024
    failing(monkeypatch, error)
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (soft, resource.RLIM_INFINITY))
    got, _, err = run(capsys, "topo")
    assert got == status
    assert err.startswith(f"outcast: {text}")
    assert ("(ulimit -v)" in err) == bool(remedy)
    assert remedy in err
    assert len(err.splitlines()) == 1


INTERRUPTING = """
import os, signal, sys
class AtImport:
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, AtImport)
from outcast.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("module", "argv"),
    [
        ("outcast.cli", ["topo"]),
        ("click", ["--version"]),
        ("outcast.errors", ["topo"]),
        ("outcast.cli.topo", ["--help"]),
        ("outcast.cli.topo", ["topo", "--help"]),
        ("yaml", ["topo", str(CONFIGS / "linear-12.yaml")]),
        ("outcast.plan", ["run", str(CONFIGS / "linear-12.yaml"), "-o", "/nowhere/run"]),
        ("polars", ["inspect", "."]),
        ("numpy", ["sweep", "--dry-run", str(CONFIGS / "fig3c.yaml")]),
    ],
)
def test_an_interrupt_is_one_line_whatever_is_imported(module, argv, tmp_path):
    program = [sys.executable, "-c", INTERRUPTING.format(module=module), *argv]
    done = subprocess.run(program, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, "outcast: interrupted\n")
