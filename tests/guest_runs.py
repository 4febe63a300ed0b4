"""Whole runs, for the tests of tests/virtual and tests/emulation."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import configs
from outcast import experiment
from outcast.api import experiments, making
from tests.deadlines import HANG_S

OUTCAST = (sys.executable, "-c", "from outcast.cli import main; main()")
"""The first words of a command of outcast."""


def ran(words: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    """What became of a program; `options` are those of `subprocess.run`."""
    return subprocess.run(
        words, capture_output=True, text=True, timeout=HANG_S, check=False, **options
    )


def outcast(
    *words: str | Path, where: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """What became of a command in a folder, with more in its environment."""
    return ran([*OUTCAST, *map(str, words)], cwd=where, env={**os.environ, **environment})


def argv(config: str | Path, target: Path, *settings: str) -> list[str]:
    """The command of a run; `config` is a name in configs/, or a file."""
    words = [*OUTCAST, "run", str(_file(config)), "--engine", "virtual", "-o", str(target)]
    for setting in settings:
        words += ["--set", setting]
    return words


def _file(config: str | Path) -> Path:
    return config if isinstance(config, Path) else configs.find(config)


def started(
    config: str | Path, target: Path, *settings: str, **options: Any
) -> subprocess.CompletedProcess[str]:
    """What became of the command; `options` are those of `subprocess.run`."""
    return ran(argv(config, target, *settings), **options)


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
    return _trusted(target)


def realtime(config: str | Path, target: Path, *settings: str) -> dict[str, Any]:
    """The summary of a run in real time, which has to be trusted."""
    undrawn(config, target, *settings, "engine=realtime")
    return _trusted(target)


def _trusted(target: Path) -> dict[str, Any]:
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
