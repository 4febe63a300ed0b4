"""What unit tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from outcast import cli

if TYPE_CHECKING:
    from tests.golden import hostile


@pytest.fixture
def undrawn(monkeypatch) -> None:
    """No figures, which take most of a small run's time, and which other tests look at."""
    monkeypatch.setattr("outcast.view.figures.draw", lambda *_: [])
    monkeypatch.setattr("outcast.workflow._Pictures.get_ready", lambda _: None)


@pytest.fixture
def verb(capsys) -> Callable[..., Any]:
    """Calls `outcast` with words, which must exit with `status`; returns what it printed."""

    def call(*words: object, status: int = 0) -> Any:
        capsys.readouterr()
        found = cli.invoke([str(word) for word in words])
        told = capsys.readouterr()
        assert found == status, told.err
        return told

    return call


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
