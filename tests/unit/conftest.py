"""What unit tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from outcast import cli
from outcast.view import figures
from outcast.view.report import page as in_report
from outcast.workflow import _Pictures

if TYPE_CHECKING:
    from tests.golden import hostile

DRAWING: tuple[tuple[Any, str, Callable[..., Any], Callable[..., Any]], ...] = (
    (figures, "draw", lambda *_: [], figures.draw),
    (in_report, "drawn", lambda *_: None, in_report.drawn),
    (_Pictures, "get_ready", lambda _: None, _Pictures.get_ready),
)
"""What draws by itself: its place and name, and what it is in a test and otherwise."""


@pytest.fixture(scope="session", autouse=True)
def undrawn() -> Iterator[None]:
    """No figures by themselves and none in reports, which take most of a small run's time.

    A test that looks at them asks for `pictures`. Processes of their own draw.
    """
    with pytest.MonkeyPatch.context() as patch:
        for place, name, nothing, _ in DRAWING:
            patch.setattr(place, name, nothing)
        yield


@pytest.fixture
def pictures(monkeypatch) -> None:
    """Figures are drawn again."""
    for place, name, _, own in DRAWING:
        monkeypatch.setattr(place, name, own)


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
