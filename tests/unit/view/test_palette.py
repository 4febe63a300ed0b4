"""The colours are told apart, and not shared without need."""

import shutil

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

import outcast
from outcast.view import figures
from outcast.view.palette import SERIES, VERMILION, class_colours, group_colours, shaded
from tests.golden.run_directory import analysed_run
from tests.unit.sweep.test_sweep_results import make_sweep


def test_thirteen_flows_are_told_apart():
    classes = group_colours(["2-hop", "6-hop"], "2-hop")
    groups = {0: "2-hop", **dict.fromkeys(range(1, 13), "6-hop")}
    colours = shaded(groups, classes)
    assert classes["2-hop"] == colours[0] == VERMILION
    assert VERMILION not in SERIES
    assert list(class_colours([6, 2]).values()) == list(classes.values())
    assert len(set(colours.values())) == 13
    # Neighbours differ in luminance (ITU-R BT.709), which everyone sees.
    light = [np.dot(to_rgb(colours[flow]), (0.2126, 0.7152, 0.0722)) for flow in range(1, 13)]
    assert min(abs(np.diff(light))) > 0.1


# --- Figures for papers: formats, names, and what is refused


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> outcast.Run:
    path = tmp_path_factory.mktemp("look") / "run"
    return outcast.open_run(analysed_run(path, 50_000_000, 7, 1_000).path)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory) -> outcast.Sweep:
    return outcast.open_sweep(make_sweep(tmp_path_factory.mktemp("look") / "sweep"))


def test_the_verb_draws_runs_and_sweeps(run, sweep, tmp_path, verb):
    png, svg = tmp_path / "a.png", tmp_path / "b.svg"
    words = ["classes", "--dpi", "50", "-o", png]
    assert verb("figure", run.path, *words).out.strip() == str(png)
    with Image.open(png) as picture:
        assert picture.width == round(50 * run.figure("classes").get_figwidth())
    words = ["line", "--by", "queue.limit", "--where", "topology.rivals=1"]
    verb("figure", sweep.path, *words, "-o", svg)
    assert b"<svg" in svg.read_bytes()
    for path, names in ((run.path, figures.FIGURES), (sweep.path, ("line", "bar", "heat", "cdf"))):
        lines = verb("figure", path).out.splitlines()
        assert [line.split()[0] for line in lines] == [*names]
        assert all(len(line.split()) > 3 for line in lines)
        assert not any("this run has none" in line for line in lines)
    shutil.copytree(run.path, tmp_path / "told")
    for name in ("report.html", "goodput.png"):
        (tmp_path / "told" / name).touch()
    lines = verb("figure", tmp_path / "told").out.splitlines()
    told = {line.split()[0]: line for line in lines}
    assert told["cwnd"].endswith("(this run has none)")
    assert not any("has none" in told[name] for name in ("goodput", "noise"))
