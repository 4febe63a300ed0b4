import random

import pytest

from outcast.analysis.run_measures import kinds, measures
from outcast.errors import ConfigError
from outcast.plan.make import make_plan
from outcast.units import parse_time_ns
from outcast.uses.papers import claims, model, recipe, runs
from outcast.uses.papers.claims import BoundClaim, OrderClaim, control_of, needed_points
from outcast.uses.papers.recipe import Mode, Point

RECIPES = recipe.load_all()
ROWS = sorted(RECIPES)


@pytest.mark.parametrize(
    ("name", "mode"), [*((name, "quick") for name in ROWS), *((name, "full") for name in ROWS[::6])]
)
def test_every_run_of_a_recipe_is_accepted(name, mode):
    wanted = runs.planned_runs(RECIPES[name], mode)
    assert len(wanted) == len({(each.point.label, each.seed) for each in wanted})
    assert all(each.experiment is None or each.experiment.seed == each.seed for each in wanted)
    found = RECIPES[name]
    repetitions = (found.quick if mode == "quick" else found.full).repetitions
    assert repetitions >= claims.LEAST_RUNS
    for point in found.every_point:
        seeds = [each.seed for each in wanted if each.point.label == point.label]
        assert seeds == list(range(1, repetitions + 1))


def test_a_points_settings_go_before_the_modes():
    point = Point(label="A", config="none", set={"duration": "2s"})
    settings = RECIPES["W4"].settings(point, Mode(repetitions=6, set={"duration": "9s", "seed": 5}))
    assert settings == {"duration": "2s", "seed": 5}


@pytest.mark.parametrize("name", ROWS)
def test_no_claim_holds_without_its_effect(name):
    for claim in RECIPES[name].claims:
        least, greatest = claim.accepted
        assert least < greatest, claim.text
        if isinstance(claim, OrderClaim):
            assert claim.points[0] != claim.points[1], claim.text
        if claim.none is None:
            continue
        # It may be a bound, which is not accepted then, and no size within.
        assert not least < claim.none < greatest, claim.text
        assert (claim.none <= least) is claim.rises, claim.text
        if isinstance(claim, BoundClaim):
            assert (claim.at_least is None) is not (claim.at_most is None), claim.text
        if len(claim.points) == 2 and not isinstance(claim, OrderClaim):
            assert claim.none == claim.value(1, 1), claim.text
        # A ratio of equals is 1, and nobody may write another value to get a claim through.
        if claim.measure.kind.endswith("_ratio"):
            assert claim.none == 1, claim.text
        # Nor a value that the measure cannot have, such as an index of fairness of 2.
        if len(claim.points) == 1:
            lowest, highest = measures.MEASURES[claim.measure.kind].limits
            assert lowest <= claim.none <= highest, claim.text


@pytest.mark.parametrize("name", ROWS)
def test_every_label_is_a_points_and_every_interval_before_the_end(name):
    found = RECIPES[name]
    labels = [point.label for point in found.every_point]
    assert len({*labels}) == len(labels)
    needed = [at for claim in found.claims for at in needed_points(claim)]
    assert {label for label, _ in needed} | {*found.picture.panels} <= {*labels}
    times = {at for at in needed if isinstance(at[1].interval, tuple)}
    planned = {run.point.label: run for run in runs.planned_runs(found, "quick")} if times else {}
    for label, measure in times:
        assert kinds.ordered(measure.interval)
        made = planned[label].experiment
        start_ns = max(flow.start_ns for flow in make_plan(made).flows)
        assert start_ns + parse_time_ns(measure.interval[1]) <= made.duration_ns


@pytest.mark.parametrize("name", ROWS)
def test_every_point_is_judged_or_said_not_to_be(name):
    found = RECIPES[name]
    judged = {label for claim in found.claims for label, _ in needed_points(claim)}
    left = [point.label for point in found.points if point.label not in judged]
    # Only a recipe that says what is not judged, and why, may leave out a point.
    assert not left or found.unjudged, left


def test_a_control_takes_the_effect_away_and_nothing_else():
    found = RECIPES["P-buf"]
    (control,) = [each for each in found.controls if each.label.startswith("32 KB")]
    queue = {"queue": {"kind": "sfq", "limit": "60 packets", "buckets": 1024}}
    assert control.set == {"transport.congestion_control": "reno", "transport.sack": False, **queue}
    assert control_of(found.claims[1]) == control.label
    assert "queue.limit" in {key for point in found.points for key in point.set}
    assert RECIPES["T17"].controls == ()


def test_all_and_names_in_any_case():
    assert len(recipe.choose(RECIPES, ["all"])) == len(RECIPES)
    assert [each.id for each in recipe.choose(RECIPES, ["p3", "P3", "w4"])] == ["P3", "W4"]


def test_the_model_of_random_payloads():
    found = model.compute(1448, 1)
    assert (found.x2, found.y2, found.neither) == (0.0, 1.0, 0.0)
    shares = [model.compute(least, 1, cases=4000).x2 for least in (1448, 1200, 800, 400)]
    assert shares == sorted(shares)
    assert shares[-1] > 0.4
    found = model.compute(random.Random(1).randint(1, 1448), 3)
    assert found.x2 + found.y2 - found.both + found.neither == pytest.approx(1)


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("fig3c", ["P3"]),
        ("F3c", ["P3"]),
        ("figure 3(c)", ["P3"]),
        ("fig14", ["P14-P15"]),
        ("Fig8b", ["T8b"]),
        ("p3c-12-rivals", ["P3"]),
        ("F3", ["F3"]),
        ("p3", ["P3"]),
    ],
)
def test_a_figure_is_known_by_the_names_that_people_use(name, ids):
    assert [each.id for each in recipe.choose(RECIPES, [name])] == ids


def test_a_figure_of_several_sources_is_refused_with_their_rows():
    sources = {"P10": "Some paper, figure 40", "T10": "Another one, figure 40"}
    recipes = {
        name: RECIPES[name].model_copy(update={"source": source})
        for name, source in sources.items()
    }
    refusal = r"fig40: several rows .*: P10 \(Some paper, figure 40\), T10 \(Another one"
    with pytest.raises(ConfigError, match=refusal):
        recipe.choose(recipes, ["fig40"])
    with pytest.raises(ConfigError, match="fig99: no such figure"):
        recipe.choose(RECIPES, ["fig99"])
