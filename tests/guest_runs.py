"""Whole runs in the guest by the command line, for the tests of tests/virtual."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import configs
from tests.deadlines import HANG_S


def argv(config: str | Path, target: Path, *settings: str) -> list[str]:
    """The command of a run; `config` is the name of one of ours, or a file."""
    file = config if isinstance(config, Path) else configs.find(config)
    words = [sys.executable, "-c", "from outcast.cli import main; main()", "run"]
    words += [str(file), "--engine", "virtual", "-o", str(target)]
    for setting in settings:
        words += ["--set", setting]
    return words


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
    """A run's summary. The run has to be trusted."""
    done = started(config, target, *settings, **options)
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads((target / "summary.json").read_text())
    assert summary["capture"]["trusted"] is True
    return summary


def manifest_of(target: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((target / "manifest.json").read_text())
    return manifest


def captures(target: Path) -> dict[str, bytes]:
    """The captures of a run, by their files' names."""
    return {path.name: path.read_bytes() for path in (target / "captures").iterdir()}
