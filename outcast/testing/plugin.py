"""The pytest plugin: the fixture `outcast`, seeds of tests, and the evidence of those that fail.

pytest loads it in every session, so it imports nothing heavy before a test asks for the fixture.
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from outcast.testing.networks import Networks

MARKER = "outcast_seeds"
_SEED_FIXTURE = "outcast_seed"
_NETWORKS = pytest.StashKey["Networks"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds our options to pytest's."""
    group = parser.getgroup("outcast", "networks of outcast")
    group.addoption(
        "--outcast-seed",
        type=_seed,
        metavar="N",
        help="make all runs with this seed, and each test of several seeds with this alone",
    )
    group.addoption(
        "--outcast-keep",
        metavar="DIR",
        help="where the evidence of failing tests goes [default: outcast-failures in the rootdir]",
    )


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ArgumentTypeError(f"{text!r}; allowed is a whole number from 0")
    return int(text)


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known."""
    config.addinivalue_line(
        "markers", f"{MARKER}(n): makes the test n times, with the seeds 1 to n"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Makes a test of each seed; a class's or module's marker is for tests with the fixture."""
    marker = metafunc.definition.get_closest_marker(MARKER)
    is_used = _SEED_FIXTURE in metafunc.fixturenames
    if marker is None or not (is_used or marker in metafunc.definition.own_markers):
        return
    place = f"{metafunc.definition.nodeid}: {MARKER}"
    count = marker.args[0] if len(marker.args) == 1 and not marker.kwargs else None
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        pytest.fail(f"{place}: allowed is one number above 0, as {MARKER}(10)", pytrace=False)
    if not is_used:
        pytest.fail(f"{place}: the test does not use the fixture `outcast`", pytrace=False)
    only = metafunc.config.getoption("--outcast-seed")
    seeds = range(1, count + 1) if only is None else [only]
    metafunc.parametrize(_SEED_FIXTURE, seeds, ids=[f"seed{seed}" for seed in seeds], indirect=True)


@pytest.fixture
def outcast_seed(request: pytest.FixtureRequest) -> int | None:
    """The seed of this test's runs; None leaves it to their configurations."""
    seed: int | None = getattr(request, "param", None)
    if seed is None and request.node.get_closest_marker(MARKER) is not None:
        reason = "needs the fixture `outcast` as an argument, and no unittest.TestCase around it"
        pytest.fail(f"{MARKER}: the test {reason}", pytrace=False)
    return request.config.getoption("--outcast-seed") if seed is None else seed


@pytest.fixture
def outcast(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    outcast_seed: int | None,
) -> Networks:
    """Runs networks for a test: `outcast.run(**keys)`, `outcast.load(path)`, `outcast.flaky(...)`.

    Runs of a test that passes are removed when it ends.
    """
    from outcast.testing.networks import Networks

    networks = Networks(
        folder=tmp_path_factory.mktemp("outcast"), beside=request.path, seed=outcast_seed
    )
    request.node.stash[_NETWORKS] = networks
    return networks


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keeps the evidence of a test that failed, and says where it is; then removes its runs."""
    report = yield
    networks = item.stash.get(_NETWORKS, None)
    # A fixture that runs a network may fail too, before the test or after it.
    if report.failed and networks is not None:
        from outcast.testing import evidence

        chosen = item.config.getoption("--outcast-keep")
        home = Path(chosen) if chosen else item.config.rootpath / "outcast-failures"
        lines = evidence.keep(networks, home.absolute(), item.nodeid)
        if lines:
            report.sections.append(("outcast", "\n".join(lines)))
    if report.when == "teardown" and networks is not None:
        networks.remove()
    return report
