"""How long the synthetic blackout's ON periods are."""

from __future__ import annotations

from pathlib import Path

import pytest

from outcast import experiment
from outcast.emulation.blackout_switch import on_ns
from outcast.plan.make import make_plan

LINEAR = Path(__file__).parents[2] / "configs/linear-12.yaml"


@pytest.mark.parametrize(
    ("at", "overrides", "expected_ns"),
    [
        ("s1-eth2", [], 10 * 123_040),
        ("s1-eth2", ["links.layers={edge-edge: {rate: 1gbit}}"], 10 * 123_040),
        ("s1-eth3", ["links.layers={edge-edge: {rate: 1gbit}}"], 10 * 12_304),
        ("s1-eth2", ["links.overhead=none"], 10 * 121_120),
        ("s1-eth3", ["blackout.by=packets"], 0),
    ],
)
def test_it_lasts_as_long_as_so_many_packets_on_the_link_that_they_come_by(
    at: str, overrides: list[str], expected_ns: int
) -> None:
    loaded = experiment.load(LINEAR, [f"blackout={{at: {at}, drops: 10}}", *overrides])
    assert on_ns(loaded, make_plan(loaded)) == expected_ns


def test_without_a_blackout_there_is_none() -> None:
    loaded = experiment.load(LINEAR)
    assert on_ns(loaded, make_plan(loaded)) == 0
