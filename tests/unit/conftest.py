"""What unit tests share."""

from __future__ import annotations

import pytest


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figures, which take most of a small run's time, and which other tests look at."""
    monkeypatch.setattr("outcast.view.figures.draw", lambda *_: [])
    monkeypatch.setattr("outcast.workflow._Pictures.get_ready", lambda _: None)
