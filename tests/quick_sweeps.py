"""Makes the sweeps of commands take no time."""

import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from outcast.sweep import scheduler
from tests.golden import fake_run

ROOT = Path(__file__).parents[1]


def prepare(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the tests' executor make all runs, with a cache of their own in the folder."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    engine = SimpleNamespace(name="virtual")
    monkeypatch.setattr("outcast.engines.choose", lambda each: engine)
    monkeypatch.setattr("outcast.api.guest.provide", lambda experiment, progress=None: None)
    fake = (scheduler.run_sweep.__kwdefaults__ or {}) | {"executor": fake_run.NAME}
    monkeypatch.setattr(scheduler.run_sweep, "__kwdefaults__", fake)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
