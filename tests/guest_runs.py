"""Whole runs, for the tests of tests/virtual and tests/emulation."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import configs
from outcast import experiment
from outcast.api import experiments, making
from tests.deadlines import HANG_S


def argv(config: str | Path, target: Path, *settings: str) -> list[str]:
    """The command of a run; `config` is the name of one of ours, or a file."""
    words = [sys.executable, "-c", "from outcast.cli import main; main()", "run"]
    words += [str(_file(config)), "--engine", "virtual", "-o", str(target)]
    for setting in settings:
        words += ["--set", setting]
    return words


def _file(config: str | Path) -> Path:
    return config if isinstance(config, Path) else configs.find(config)


def started(
    config: str | Path, target: Path, *settings: str, **options: Any
) -> subprocess.CompletedProcess[str]:
    """What became of the command; `options` are those of `subprocess.run`."""
    return subprocess.run(
        argv(config, target, *settings),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
        **options,
    )


def run(config: str | Path, target: Path, *settings: str, **options: Any) -> dict[str, Any]:
    """A run's summary. The run has to be trusted.

    With `options` of `subprocess.run` the command makes the run. Otherwise this process does, and
    draws nothing, because imports and figures take as long as the rest of a short run.
    """
    if options:
        done = started(config, target, *settings, **options)
        assert done.returncode == 0, done.stderr
    else:
        undrawn(config, target, *settings, "engine=virtual")
    summary: dict[str, Any] = json.loads((target / "summary.json").read_text())
    assert summary["capture"]["trusted"] is True
    return summary


def undrawn(config: str | Path, target: Path, *settings: str) -> None:
    """Makes a run in this process, without figures and report."""
    source = experiment.read(_file(config), settings)
    making.execute(experiments.checked(source), target, progress=False, draw=False)


def manifest_of(target: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((target / "manifest.json").read_text())
    return manifest


def captures(target: Path) -> dict[str, bytes]:
    """The captures of a run, by their files' names."""
    return {path.name: path.read_bytes() for path in (target / "captures").iterdir()}
