"""What unit tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.golden import hostile


@pytest.fixture
def undrawn(monkeypatch) -> None:
    """No figures, which take most of a small run's time, and which other tests look at."""
    monkeypatch.setattr("outcast.view.figures.draw", lambda *_: [])
    monkeypatch.setattr("outcast.workflow._Pictures.get_ready", lambda _: None)


@pytest.fixture(scope="module")
def bases(tmp_path_factory) -> hostile.Bases:
    """Inputs that hostile ones are made from."""
    from tests.golden import hostile

    return hostile.make_bases(tmp_path_factory.mktemp("bases"))


@pytest.fixture(scope="module")
def server() -> Iterator[hostile.Server]:
    """A process that answers verbs."""
    from tests.golden import hostile

    made = hostile.Server()
    yield made
    made.close()
