import math
import random

import pytest
from pydantic import TypeAdapter, ValidationError

from outcast.analysis.run_measures import measures
from outcast.errors import ConfigError
from outcast.uses.papers import claims, model, recipe, runs
from outcast.uses.papers.claims import NoWorseClaim, OrderClaim, control_of, needed_points
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


@pytest.mark.parametrize(
    ("settings", "end"),
    [
        ({"duration": "90ms", "analysis.windows": []}, "90ms"),
        ({"flows.1.start": "450ms"}, "50ms"),
        # The second of the two rivals starts last.
        ({"flows.1.stagger": "450ms"}, "50ms"),
    ],
)
def test_an_interval_after_the_end_of_its_runs_is_refused(settings, end):
    found = RECIPES["P3"]
    short = found.model_copy(update={"quick": Mode(repetitions=5, set=settings)})
    refused = rf"P3: t.*: interval 0s to [15]00ms: its runs end at {end}$"
    with pytest.raises(ConfigError, match=refused):
        runs.planned_runs(short, "quick")


def test_a_points_settings_go_before_the_modes():
    point = Point(label="A", config="none", set={"duration": "2s"})
    settings = RECIPES["W4"].settings(point, Mode(repetitions=5, set={"duration": "9s", "seed": 5}))
    assert settings == {"duration": "2s", "seed": 5}


@pytest.mark.parametrize("name", ROWS)
def test_no_claim_holds_without_its_effect(name):
    """A claim that holds at its value without the effect is refused when it is read."""
    for claim in RECIPES[name].claims:
        if isinstance(claim, (NoWorseClaim, OrderClaim)):
            continue
        # A ratio of equals is 1, and nobody may write another value to get a claim through.
        if claim.measure.kind.endswith("_ratio"):
            assert claim.none == 1, claim.text
        # Nor a value that the measure cannot have, such as an index of fairness of 2.
        if claim.over is None:
            least, greatest = measures.limits(claim.measure)
            assert least <= claim.none <= greatest, claim.text


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


def test_a_claim_that_nothing_shows_without_its_effect_is_refused():
    found = RECIPES["P6"]
    tree = {**found.model_dump(), "without": {}}
    with pytest.raises(ValidationError, match="nothing shows it without the effect; allowed is"):
        recipe.Recipe.model_validate(tree)


def test_the_claims_of_t15_and_others_that_were_vacuous_are_refused():
    base = {"text": "no worse", "measure": {"kind": "jain_index"}}
    refused = [
        # T15, T12 and T11: no worse than CUBIC.
        ({"kind": "bound", "at": "A", "over": "B", "at_least": 0.9, "none": 1}, "from 1"),
        ({"kind": "bound", "at": "A", "over": "B", "at_most": 1.2, "none": 1}, "up to 1"),
        # T8c: the index of fifteen flows of which one gets nothing.
        ({"kind": "bound", "at": "A", "at_least": 0.85, "none": 0.933}, "from 0.933"),
        # P15: 20 % of doubles, as with taildrop.
        ({"kind": "size", "at": "A", "reported": 0.2, "none": 0.22}, "none below 0.133333"),
    ]
    for claim, allowed in refused:
        adapter = TypeAdapter(claims.Claim)
        with pytest.raises(ValidationError, match=f"'no worse': vacuous, because .*{allowed}"):
            adapter.validate_python({**base, **claim})
    for key in ("at_least", "none"):
        with pytest.raises(ValidationError, match="finite number"):
            adapter.validate_python(
                {**base, "kind": "bound", "at": "A", "at_least": 2, "none": 1, key: math.nan}
            )
    with pytest.raises(ValidationError, match="a quotient of two points is 1 without an effect"):
        adapter.validate_python({**base, **refused[0][0], "none": 0.5})
    with pytest.raises(ValidationError, match="compares 'A' with itself"):
        adapter.validate_python({**base, "kind": "order", "greater": "A", "lesser": "A"})


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
