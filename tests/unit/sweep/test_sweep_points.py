import json
import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import configs
from outcast import experiment
from outcast.errors import ConfigError
from outcast.experiment import Sweep, load
from outcast.sweep.points import canonical, combinations, points, swept_keys
from outcast.sweep.render import Axis, Labels, value_text

CONFIGS = Path(__file__).parents[3] / "configs"

values = st.one_of(st.integers(), st.booleans(), st.text(max_size=5), st.none())
value_lists = st.lists(
    values, min_size=1, max_size=4, unique_by=lambda value: canonical({"": value})
)
lists = st.dictionaries(
    st.from_regex(r"[a-z]{1,4}(\.[a-z]{1,4})?", fullmatch=True).filter(
        lambda key: key.split(".")[0] not in ("points", "order", "captures", "sweep", "seed")
    ),
    value_lists,
    max_size=3,
).filter(lambda tree: not any(f"{one}." in other for one in tree for other in tree))


@settings(deadline=None)  # The machine may be busy.
@given(lists, st.integers(1, 4), st.integers(0, 2**63 - 1))
def test_every_combination_once_for_every_repetition(tree, repetitions, seed):
    runs = points(Sweep.model_validate(tree), repetitions, seed)
    count = math.prod(len(each) for each in tree.values())
    assert len(runs) == count * repetitions
    assert len({(canonical(run.settings), run.repetition) for run in runs}) == len(runs)
    assert all(run.settings[key] in tree[key] for run in runs for key in tree)
    assert len({run.seed for run in runs}) == len(runs)
    assert len({run.name for run in runs}) == len(runs)
    assert all(0 <= run.seed < 2**63 for run in runs)


@settings(deadline=None)  # The machine may be busy.
@given(lists, st.integers(1, 3), st.integers(0, 1000), st.data())
def test_a_run_keeps_seed_and_name_when_others_are_added(tree, repetitions, seed, data):
    fewer = {
        key: data.draw(
            st.lists(st.sampled_from(each), min_size=1, unique_by=lambda v: canonical({"": v}))
        )
        for key, each in tree.items()
    }
    whole = points(Sweep.model_validate(tree), repetitions + 2, seed)
    part = points(Sweep.model_validate(fewer), repetitions, seed)
    names = {run.name: run.seed for run in whole}
    assert all(names[run.name] == run.seed for run in part)


@settings(deadline=None)  # The machine may be busy.
@given(lists, st.integers(0, 1000))
def test_random_order_has_the_same_runs_and_is_drawn_by_the_seed(tree, seed):
    shuffled = Sweep.model_validate({**tree, "order": "random"})
    first = [run.name for run in points(shuffled, 3, seed)]
    assert first == [run.name for run in points(shuffled, 3, seed)]
    assert Counter(first) == Counter(r.name for r in points(Sweep.model_validate(tree), 3, seed))


def test_points_are_combined_with_the_lists():
    sweep = Sweep.model_validate({"points": [{"a": 1, "b": 2}, {"a": 3}], "c": [5, 6]})
    assert combinations(sweep) == [
        {"a": 1, "b": 2, "c": 5},
        {"a": 1, "b": 2, "c": 6},
        {"a": 3, "c": 5},
        {"a": 3, "c": 6},
    ]
    assert swept_keys(points(sweep, 1, 1)) == ["a", "b", "c"]


def test_points_without_lists_and_with_seeds():
    assert [run.settings for run in points(Sweep(), 3, 1)] == [{}, {}, {}]
    sweep = Sweep.model_validate({"seed": [3, 4]})
    assert [run.seed for run in points(sweep, 1, 1)] == [3, 4]
    with pytest.raises(ConfigError, match="repetitions"):
        points(sweep, 2, 1)
    with pytest.raises(ConfigError, match="twice"):
        points(Sweep.model_validate({"a": [1, 2, 1]}), 1, 1)


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"queue.limit": "16KB"}, "queue.limit: allowed is a list"),
        ({"queue.limit": []}, "queue.limit: allowed is a list"),
        ({"queue": {"limit": ["16KB"]}, "queue.limit": ["16KB"]}, "given twice"),
        ({"points": [{"seed": 1}], "seed": [1]}, "in points and also has a list"),
        ({"points": [{}]}, "one is empty"),
        ({"repetitions": [1, 2]}, "cannot be swept"),
        ({"order": "backwards"}, "sweep.order"),
    ],
)
def test_what_is_no_sweep_is_refused(tree, said):
    source = experiment.read(CONFIGS / "linear-12.yaml")
    with pytest.raises(ConfigError, match=said):
        experiment.validate({**source.tree, "sweep": tree}, "here")


def test_any_key_can_be_swept_as_set_sets_it():
    source = experiment.read(
        CONFIGS / "linear-12.yaml",
        ["sweep.queue.limit=[16KB, 64KB]", "sweep.flows.1.hosts=[2]", "repetitions=3"],
    )
    sweep = source.experiment().sweep
    assert dict(sweep.lists) == {"queue.limit": ["16KB", "64KB"], "flows.1.hosts": [2]}
    settings = {"queue": {"kind": "pfifo", "limit": "9 packets"}, "flows.1.hosts": 2}
    made = source.at_point(settings).experiment()
    assert made.queue.kind == "pfifo"
    assert made.flows[1].hosts == 2
    assert (made.sweep, made.repetitions) == (None, 1)
    # The file's own tree is unchanged.
    assert source.at_point({}).experiment().queue.kind == "tbf"


QUICK = ("links.rate", '"quick"')
NO_RATE = "links.rate: 'quick' is no"
LIMIT = "queue.limit: [1KB]"
RATE = "links.rate: [quick]"


@pytest.mark.parametrize(
    ("sweep", "overrides", "key", "value", "place", "said"),
    [
        # The list of a key below `sweep`, an override of it, and a key that is not swept.
        (LIMIT, [], "queue.limit", '"1KB"', ":8", "queue.limit: "),
        (LIMIT, ["sweep.queue.limit=[1KB]"], "queue.limit", '"1KB"', "--set sweep.queue.limit", ""),
        (LIMIT, [], "topology.k", "7", ":7", "topology.k: 7: "),
        (LIMIT, [], "duration", '"1ms"', ":5", "analysis.from: allowed is"),
        (LIMIT, ["seed=3"], "flows.2.hosts", "1", ":7", "this list has no '2'; allowed are 0 to 1"),
        ("links:\n    rate: [1gbit, quick]", [], *QUICK, ":9", NO_RATE),
        (
            "points:\n  - {links.rate: 1gbit}\n  -\n    links.rate: quick",
            [],
            *QUICK,
            ":11",
            NO_RATE,
        ),
        ("points: [{links.rate: quick, seed: 1}, {links.rate: quick}]", [], *QUICK, ":8", NO_RATE),
        # An override of what the list replaces is not the reason.
        (RATE, ["links={rate: 1gbit}"], *QUICK, ":8", NO_RATE),
        (RATE, ["sweep.points=[{links.rate: quick}]"], *QUICK, "--set sweep.points", NO_RATE),
        ("seed: [1]", ["sweep={links: {rate: [quick]}}"], *QUICK, "--set sweep", NO_RATE),
    ],
)
def test_a_swept_value_is_blamed_on_who_gave_it(
    sweep, overrides, key, value, place, said, tmp_path
):
    file = tmp_path / "swept.yaml"
    file.write_text(
        "name: swept\n"
        "topology: {kind: fattree, k: 4}\n"
        "flows: [{from: 2-hop, hosts: 1}, {from: 6-hop, hosts: 12}]\n"
        "analysis:\n"
        "  from: 100ms\n"
        "queue: {kind: tbf, limit: 16KB}\n"
        f"sweep:\n  {sweep}\n"
        "links: {rate: 1gbit}\n"
        "duration: 200ms\n"
    )
    source = experiment.read(file, overrides)
    with pytest.raises(ConfigError) as caught:
        source.at_point({key: json.loads(value)}).experiment()
    where = f"{file}{place}" if place.startswith(":") else place
    assert str(caught.value).startswith(f"{where}: sweep, at {key}={value}: {said}")


# --- What swept keys and values are called on axes, in legends and tables


def labels(more: str = "") -> Labels:
    swept = f"sweep={{queue.limit: [16KB, 64KB]{more}}}"
    return Labels(load(configs.find("linear-12"), ["flows.0.name=near", swept]))


@pytest.mark.parametrize(
    ("key", "values", "amounts"),
    [
        ("queue.limit", ["16KB", "1MB"], (16384, 1 << 20)),
        ("links.rate", ["100mbit", "1gbit"], (1e8, 1e9)),
        ("links.delay", ["0ns", "5us"], (0, 5e3)),
        ("queue.limit", ["11 packets"], (11,)),
        ("flows.1.hosts", [2, 12], (2, 12)),
        ("queue.limit", ["16KB", "11 packets"], None),
        ("queue", ["tbf limit=1MB", None], None),
        ("links.rate", [], None),
        ("links.loss", [0, 2.5], (0, 2.5)),
        ("transport.congestion_control", ["bic"], None),
        ("transport.sack", [True], None),
    ],
)
def test_an_axis_has_its_values_at_their_amounts(key, values, amounts):
    ticks = tuple(map(value_text, values))
    assert labels().axis(key, values) == Axis(key, ticks, amounts)
