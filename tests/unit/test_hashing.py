"""The choice of a group's port: Open vSwitch's own, even, and independent between switches."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.hashing import TCP, UDP, FiveTuple, choose
from controllers.routes import hash_parameter
from tests.unit.test_routes import fat_tree

PORTS = (2, 3, 4, 5, 6)

# Open vSwitch 3.1: "using bucket" of `ovs-appctl ofproto/trace` with the parameter 12884901893.
TRACED = [
    (FiveTuple("10.1.1.2", 47266, "10.3.0.2", 5001, TCP), 4),
    (FiveTuple("10.3.0.2", 4360, "10.0.0.2", 5001, UDP), 5),
    (FiveTuple("10.3.1.2", 14545, "10.2.0.2", 5001, TCP), 2),
    (FiveTuple("10.2.0.2", 17153, "10.1.0.2", 5001, UDP), 2),
    (FiveTuple("10.0.1.3", 12677, "10.1.0.2", 5001, TCP), 5),
    (FiveTuple("10.2.1.3", 5684, "10.2.0.2", 5001, UDP), 3),
    (FiveTuple("10.3.0.2", 16209, "10.3.0.2", 5001, TCP), 6),
    (FiveTuple("10.2.0.3", 473, "10.2.0.2", 5001, UDP), 6),
    (FiveTuple("10.2.0.3", 27770, "10.2.0.2", 5001, TCP), 3),
    (FiveTuple("10.3.1.2", 15285, "10.2.0.2", 5001, UDP), 2),
]


def five_tuples(count: int, seed: int = 1) -> list[FiveTuple]:
    """Flows as in experiments: few addresses, consecutive ports, one receiver."""
    random = Random(seed)
    return [
        FiveTuple(
            f"10.{random.randrange(8)}.{random.randrange(4)}.{random.randrange(2, 6)}",
            20001 + number,
            "10.0.0.2",
            5001,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize(("flow", "port"), TRACED)
def test_it_is_what_open_vswitch_chooses(flow: FiveTuple, port: int) -> None:
    assert choose(flow, 12884901893, PORTS) == port


@given(
    st.integers(0, 2**64 - 1),
    st.lists(st.integers(1, 64), min_size=1, max_size=16, unique=True),
    st.sampled_from([TCP, UDP]),
    st.integers(1, 65535),
)
def test_it_is_one_of_the_ports_and_always_the_same(
    parameter: int, ports: list[int], protocol: int, sport: int
) -> None:
    flow = FiveTuple("10.1.0.2", sport, "10.0.0.2", 5001, protocol)
    assert choose(flow, parameter, ports) in ports
    assert choose(flow, parameter, ports) == choose(flow, parameter, ports)


@pytest.mark.parametrize("buckets", [2, 3, 4, 8])
@pytest.mark.parametrize("parameter", [0, 1, 7 << 32 | 21])
def test_flows_are_split_evenly(buckets: int, parameter: int) -> None:
    """Each port's share within five standard deviations of the binomial distribution.

    In none of 12 combinations; a fair split exceeds that once in two million.
    """
    count = 20_000
    uses = Counter(choose(flow, parameter, range(buckets)) for flow in five_tuples(count))
    expected = count / buckets
    deviation = (expected * (1 - 1 / buckets)) ** 0.5
    assert all(abs(uses[port] - expected) < 5 * deviation for port in range(buckets))


def test_a_switch_does_not_repeat_the_choice_of_the_one_before() -> None:
    """Otherwise half of the core would stay unused (hash polarisation)."""
    graph = fat_tree(4)
    count = 4000
    edge, aggregation = (hash_parameter(0, graph, switch) for switch in ("e1_0", "a1_0"))
    pairs = Counter(
        (choose(flow, edge, (3, 4)), choose(flow, aggregation, (3, 4)))
        for flow in five_tuples(count)
    )
    deviation = (count * 3 / 16) ** 0.5
    assert all(abs(uses - count / 4) < 5 * deviation for uses in pairs.values())
    assert len(pairs) == 4


def test_another_seed_gives_another_split() -> None:
    flows = five_tuples(200)
    graph = fat_tree(4)
    splits = {
        tuple(choose(flow, hash_parameter(seed, graph, "e0_0"), (3, 4)) for flow in flows)
        for seed in range(20)
    }
    assert len(splits) == 20
