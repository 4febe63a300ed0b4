"""Figures for papers: formats, names, and what is refused."""

import shutil

import pytest
from PIL import Image

import outcast
from outcast.view import figures
from tests.golden.run_directory import analysed_run
from tests.unit.test_sweep_results import make_sweep


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
