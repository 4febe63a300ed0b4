"""Hops that are captured by real tools now: the drops of the kernel's own counters, no clock moved.

A router over IPv4 and IPv6, a NAT, a router with traffic of its own, a bridge with HTB both ways,
and a firewall that drops at random.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from outcast.analysis.join.join import Verdict
from outcast.api.joins import Join, join_captures
from tests.emulation import hops

LEAST_DROPS = 50
"""The fewest drops with which a scene shows anything."""

Make = Callable[[str], tuple[Path, dict[str, int]]]


@pytest.fixture(scope="module")
def make(tmp_path_factory) -> Make:
    made: dict[str, tuple[Path, dict[str, int]]] = {}

    def scene(kind: str) -> tuple[Path, dict[str, int]]:
        """The captures of a scene, and what its counters say."""
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            made[kind] = folder, hops.make_scene(folder, kind)
        return made[kind]

    return scene


def files(folder: Path, name: str = "{}.pcap") -> dict[str, Path]:
    return {host: folder / name.format(host) for host in hops.HOSTS}


def drops(result: Join) -> dict[str, int]:
    """By output, how many packets were dropped."""
    dropped = result.joined.verdict == Verdict.DROPPED
    return {
        name: int((dropped & (result.joined.egress == row)).sum())
        for row, name in enumerate(result.joined.outputs)
    }


def require_exact(result: Join, counted: dict[str, int]) -> None:
    """Fails unless the drops are those that the counters have, and the clocks are as they were."""
    assert drops(result) == counted
    assert sum(counted.values()) >= LEAST_DROPS
    joined = result.joined
    assert joined.clocks == ()
    assert joined.counts.unexplained == joined.counts.duplicates == 0
    forwarded = joined.verdict == Verdict.FORWARDED
    waits_ns = joined.t_out_ns - joined.arrivals.stamp_ns
    assert waits_ns[forwarded].min() > 0
    # Nothing shapes what goes to B, so most of it passes at once, however busy the machine is.
    straight_ns, queued_ns = (
        waits_ns[forwarded & (joined.egress == joined.outputs.index(name))] for name in "BR"
    )
    assert np.median(straight_ns) < np.median(queued_ns)


@pytest.mark.parametrize("kind", ["router", "nat", "own", "bridge", "random"])
def test_drops_are_those_of_the_counters(kind, make):
    folder, counted = make(kind)
    require_exact(join_captures(ports=files(folder), routed=kind != "bridge"), counted)


def test_both_families_take_part(make):
    folder, _ = make("router")
    joined = join_captures(ports=files(folder), routed=True).joined
    dropped = joined.verdict == Verdict.DROPPED
    families = {":" in joined.flows[flow].src for flow in joined.arrivals.flow[dropped].tolist()}
    assert families == {True, False}


def test_what_the_router_sends_itself_is_told_apart(make):
    folder, _ = make("own")
    result = join_captures(ports=files(folder), routed=True)
    assert any("the router itself sent (10.7.3.1)" in text for text in result.remarks)


def test_random_drops_show_no_limit(make):
    folder, _ = make("random")
    result = join_captures(ports=files(folder), routed=True)
    assert any("so no limit is estimated" in text for text in result.remarks)
    assert all(estimate.limit_at_least is None for estimate in result.estimates)
