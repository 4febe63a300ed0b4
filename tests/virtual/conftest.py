"""What all tests in the guest need."""

from collections.abc import Iterator

import pytest

from outcast.engines.guest import kernels
from outcast.workflow import _Pictures

_GET_READY = _Pictures.get_ready
LONGEST = ("whatif", "plugin", "programs", "own_modules", "guest", "links", "ipv6")
"""The files that take longest. Begun last, one of them would leave the other cores idle."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest files first, where scripts/test.sh keeps to this order."""
    places = {f"test_{name}": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONGEST)))


@pytest.fixture(scope="session", autouse=True)
def kernel() -> kernels.Kernel:
    found = kernels.find()
    assert found is not None, "run: scripts/guest/build"
    return found


@pytest.fixture(scope="session", autouse=True)
def undrawn() -> Iterator[None]:
    """No run of this process draws its figures, which takes longer than a short run.

    A test that looks at pictures asks for `drawn`. Commands in processes of their own draw.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Pictures, "get_ready", lambda pictures: None)
        yield


@pytest.fixture
def drawn(monkeypatch) -> None:
    """Runs of this process draw their figures again."""
    monkeypatch.setattr(_Pictures, "get_ready", _GET_READY)
