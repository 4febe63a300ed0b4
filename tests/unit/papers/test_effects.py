"""Other fates of a recipe's runs: which are asked for, and what is taken of each run."""

import random
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from outcast.analysis import Measure
from outcast.analysis.run_measures import measures
from outcast.uses.papers import effects, recipe
from outcast.uses.papers.own_measures import EffectsRun
from outcast.uses.papers.recipe import Fates

MS = 1_000_000


def run() -> Any:
    """Two chains of drops of the lone flow's port, one of them too long, and a rival's packets."""
    rows = [
        (0, "p1", 1 * MS, "dropped", None, 1),
        (0, "p1", 1 * MS + 12_000, "dropped", None, 2),
        (1, "p2", 1 * MS + 20_000, "forwarded", 1 * MS + 40_000, 1),
        (0, "p1", 30 * MS, "forwarded", 30 * MS + 10, 1),
        (0, "p1", 40 * MS, "dropped", None, 3),
        (0, "p1", 41 * MS, "dropped", None, 4),
        (1, "p2", 42 * MS, "forwarded", 42 * MS + 10, 2),
    ]
    packets = pl.DataFrame(
        rows, schema=["flow", "ingress", "t_in", "verdict", "t_out", "seq"], orient="row"
    ).with_columns(pl.lit(1000).alias("payload"))
    blackouts = pl.DataFrame(
        [("p1", 1 * MS, 1 * MS + 12_000, 2), ("p1", 40 * MS, 41 * MS, 2)],
        schema=["ingress", "t_start", "t_end", "drops"],
        orient="row",
    )
    flows = pl.DataFrame({"flow": [0, 1, 2], "goodput_bps": [1.0, 10.0, 10.0]})
    return SimpleNamespace(
        table=lambda name, whole=False: {
            "packets": packets,
            "blackouts": blackouts,
            "flows": flows,
        }[name],
        summary=SimpleNamespace(drops={"p1": SimpleNamespace(hops=[2])}),
        manifest=SimpleNamespace(traffic=SimpleNamespace(t_start_ns=0, t_end_ns=200 * MS)),
        experiment=SimpleNamespace(seed=1, transport=SimpleNamespace(min_rto_ns=2 * MS)),
    )


def test_blackouts_are_those_that_no_answer_reaches():
    asked = Fates(kind="blackout", each=5, hops=2)
    (found,) = effects.blackouts(run(), asked, random.Random(1))
    assert (found.drops, found.flows, found.next_packet) == ((0, 1), (0,), 2)
    # The flow's next packet comes 29 ms later.
    assert found.timeout
    others = [*effects._others(run(), asked)]
    assert [(one.name, one.undone, one.is_last) for one in others] == [
        ("b0-all", None, False),
        ("b0-0", 0, False),
        ("b0-1", 1, True),
    ]
    assert [len(one.wanted) for one in others] == [2, 1, 1]
    (nudge,) = effects._others(run(), Fates(kind="nudge", each=5, hops=2))
    assert (nudge.wanted[0].packet, nudge.wanted[0].fate) == (2, "delay")


def test_flips_are_half_of_dropped_packets():
    flips = [*effects._others(run(), Fates(kind="flip", each=4))]
    assert sorted(one.wanted[0].fate for one in flips) == ["drop", "drop", "forward", "forward"]
    kept = [*effects._others(run(), Fates(kind="keep", each=2))]
    assert {one.wanted[0].fate for one in kept} == {"keep"}
    noise = [*effects._others(run(), Fates(kind="noise", each=2))]
    assert [one.wanted for one in noise] == [(), ()]


def test_what_arrived_for_the_first_time():
    assert effects.delivered(run(), [0], 1 * MS, (5, 100)) == [0, 1000]
    assert effects.delivered(run(), [1], 0, (5, 100)) == [1000, 2000]
    assert effects.starved(run()) == {0}


EFFECTS = pl.DataFrame(
    {
        "group": [0, 0, 0, 1, 1],
        "undone": [None, 0, 1, None, 0],
        "is_last": [False, False, True, False, True],
        "timeout": [True, True, True, False, False],
        "gain_20ms_bps": [10.0, 1.0, 2.0, 20.0, 5.0],
        "spread": [True, True, False, True, True],
        "changed": [0.1, 0.2, 0.3, 0.4, 0.5],
        "other_starved": [False, False, False, False, True],
        "other_side": [False, False, False, False, False],
    }
)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("undone_together_bps", 15.0),
        ("undone_apart_bps", 4.0),
        ("undone_last_bps", 2.0),
        ("undone_before_timeout_bps", 10.0),
        ("fates_that_spread", 0.8),
        ("fates_changed", 0.3),
        ("fates_that_starve_others", 0.2),
        ("fates_that_swap_sides", 0.0),
    ],
)
def test_measures_of_fates(kind, value):
    made = EffectsRun.__new__(EffectsRun)
    made.effects = EFFECTS
    measure = Measure(kind=kind, within_ms=20)
    assert measures.take(made, measure) == pytest.approx(value)
    assert not measures.is_logarithmic(measure)
    assert measures.MEASURES[kind].limits[0] <= value


def test_quick_has_fewer_fates():
    f7 = recipe.load_all()["F7"]
    each = {p.fates.each for p in f7.points_of(f7.quick) if p.fates}
    assert (each, {p.fates.each for p in f7.points_of(f7.full) if p.fates}) == ({4}, {10})
