"""Pictures of the topologies: whole, and readable."""

from itertools import combinations

import pytest
from matplotlib import rc_context

import configs
from outcast import experiment
from outcast.plan.make import make_plan
from outcast.plan.model import Plan
from outcast.view.figures import topology as drawing


def plan_of(name: str, *overrides: str) -> Plan:
    return make_plan(experiment.load(configs.find(name), overrides))


def test_drawings(tmp_path):
    plan = plan_of("fattree-12")
    dot = drawing.to_dot(plan)
    assert dot.count(" -- ") == plan.graph.number_of_edges()
    file = tmp_path / "topology.png"
    drawing.draw(plan, file, "fattree-12")
    assert file.read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.iterdir()) == [file]
    expected = file.read_bytes()
    with rc_context({"text.usetex": True, "font.size": 30.0, "lines.linewidth": 9.0}):
        drawing.draw(plan, file, "fattree-12")
    assert file.read_bytes() == expected


STAR = ("topology={kind: star, hosts: 41}", "flows=[{from: 2-hop}]")


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("fig3c", ()),
        ("linear-12", ()),
        ("linear-12", ("topology.rivals=60",)),
        ("p-ports-k6", ()),
        ("p-ports-k8", ()),
        ("p-ports-vl2", ()),
        ("p6-distinct-end-points", ()),
        ("p-rtt-equal", ()),
        ("t12-2-4-26", ()),
        ("fig3c", STAR),
        ("fig3c", ("topology.k=16",)),
    ],
)
def test_no_two_labels_overlap(name, overrides):
    plan = plan_of(name, *overrides)
    figure = drawing.picture(plan, name)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    places = [
        (text.get_text(), (text.get_bbox_patch() or text).get_window_extent())
        for text in [*axes.texts, axes.title]
    ]
    assert {text for text, _ in places} >= set(plan.switches)
    for (one, first), (two, second) in combinations(places, 2):
        assert not first.overlaps(second), (one, two)
