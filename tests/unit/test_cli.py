from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from outcast import cli

CONFIGS = Path(__file__).parents[2] / "configs"


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = cli.invoke(list(argv))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_topo(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "topo", str(CONFIGS / "linear-12.yaml"))
    assert status == 0
    assert "0: 2-hop  h2 s1 h1" in out
    assert "bottleneck: s1-eth1, fed by s1-eth2, s1-eth3" in out


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
def test_bad_usage_is_one_line_and_status_2(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, *argv)
    assert status == 2
    assert out == ""
    assert err.startswith("outcast: ")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("argv", [[], ["kernel"], ["assignment"]])
def test_without_a_verb_the_help_is_shown_as_help_is(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, *argv)
    assert (status, out) == (2, "")
    _, helped, _ = run(capsys, *argv, "--help")
    assert err == helped
    assert len(err.splitlines()) > 5


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["rum", "x.yaml"], "run"),
        (["kernel", "biuld"], "build"),
        (["run", "x.yaml", "--engin", "virtual"], "--engine"),
        (["run", "x.yaml", "--engine", "vitual"], "virtual"),
        (["inspect", "x", "--verdict", "droped"], "dropped"),
        (["reproduce", "fig13"], ""),
        (["topo", str(CONFIGS / "fig3c.yaml"), "--set", "flows.0.from=h0_0_33"], "h0_0_3"),
        (["topo", str(CONFIGS / "fig3c.yaml"), "--set", "capture.ports=[e0_0-ethh1]"], "e0_0-eth1"),
    ],
)
def test_what_was_probably_meant_is_suggested(
    argv: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run(capsys, *argv)
    assert status == 2
    assert len(err.splitlines()) == 1
    assert (f"id you mean '{meant}'?" in err) == bool(meant)


@pytest.mark.parametrize("verb", ["topo", "run"])
def test_an_override_that_the_network_does_not_fit_is_blamed(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run(capsys, verb, str(CONFIGS / "fig3c.yaml"), "--set", "flows.0.hosts=77")
    assert status == 2
    assert "fig3c.yaml with --set flows.0.hosts: flows.0.hosts: 77 senders asked for" in err


def test_help_names_every_verb() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from outcast.cli import main; main(['--help'])"],
        capture_output=True,
        text=True,
        check=True,
    )
    for verb in cli.VERBS:
        assert f"  {verb} " in done.stdout


def test_the_analysis_never_imports_mininet() -> None:
    script = (
        "import sys, pkgutil, importlib, outcast.analysis as a\n"
        "for each in pkgutil.walk_packages(a.__path__, 'outcast.analysis.'):\n"
        "    importlib.import_module(each.name)\n"
        "import outcast.view.figures\n"
        "sys.exit(any(name.split('.')[0] == 'mininet' for name in sys.modules))\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
