"""What all tests in the guest need."""

import pytest

from outcast.engines.kernel import cache


@pytest.fixture(scope="session", autouse=True)
def kernel() -> cache.Kernel:
    found = cache.find()
    assert found is not None, "run: outcast kernel build"
    return found
