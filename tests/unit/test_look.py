"""Figures for papers: formats, names, and what is refused."""

import io
import re
import shutil
from itertools import product

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

import outcast
from outcast.errors import ConfigError
from outcast.view import figures
from outcast.view.figures import style
from tests.golden.run_directory import analysed_run
from tests.unit import seen
from tests.unit.test_sweep_results import CONFIG, make_sweep


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> outcast.Run:
    path = tmp_path_factory.mktemp("look") / "run"
    return outcast.open_run(analysed_run(path, 50_000_000, 7, 1_000).path)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory) -> outcast.Sweep:
    return outcast.open_sweep(make_sweep(tmp_path_factory.mktemp("look") / "sweep"))


@pytest.mark.parametrize("kind", style.FORMATS)
def test_the_same_figure_gives_the_same_file_without_a_date(run, kind, tmp_path):
    files = [style.save(run.figure("drops"), tmp_path / f"{n}.{kind}") for n in range(2)]
    one, other = (file.read_bytes() for file in files)
    assert one == other
    for word in (b"CreationDate", b"dc:date", b"Matplotlib", b"matplotlib v"):
        assert word not in one


def test_a_pdf_embeds_its_letters_as_truetype(run, tmp_path):
    content = style.save(run.figure("classes"), tmp_path / "classes.pdf").read_bytes()
    stream = io.BytesIO()
    run.figure("classes").savefig(stream, format="pdf")
    for pdf in (content, stream.getvalue()):
        assert b"/Subtype /Type3" not in pdf
        assert b"/FontFile2" in pdf


def test_many_marks_are_pixels_within_a_vector_file(tmp_path):
    sizes = {}
    for count in (style._MOST_MARKS, 50_000):
        figure = Figure()
        axes = figure.subplots()
        axes.scatter(np.linspace(0, 1, count), np.sin(np.arange(count)))
        path = style.save(figure, tmp_path / f"{count}.svg")
        sizes[count] = path.stat().st_size
        assert (b"<image" in path.read_bytes()) == (count > style._MOST_MARKS)
    assert sizes[50_000] < 1_000_000


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


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["godput"], "figure godput: of a run allowed are goodput, .*did you mean 'goodput'"),
        (["cwnd"], "it measured nothing for the figure cwnd"),
        (["classes", "-o", "x.gif"], "-o x.gif: its name ends in .gif; allowed endings are .png"),
        (["classes", "-o", "x.png", "--format", "pdf"], "-o x.png: does not end in .pdf"),
        (["classes", "-o", "missing/x.png"], "missing/x.png: No such file or directory"),
        (["classes", "--by", "seed"], "is no sweep"),
        (["classes", "--format", "gif"], "'gif' is not one of 'png', 'svg', 'pdf'"),
    ],
)
def test_one_line_for_each_mistake(run, words, problem, tmp_path, monkeypatch, verb):
    monkeypatch.chdir(tmp_path)
    told = verb("figure", run.path, *words, status=2).err
    assert told.count("\n") == 1
    assert re.search(problem, told), told
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("lines", {}, "figure lines: of a sweep allowed are line, bar, heat, cdf"),
        (
            "heat",
            {"by": ["queue.limit"], "over": ["topology.rivals"]},
            "heat: allowed are two keys",
        ),
        ("line", {"by": ["queue.limits"]}, "--by queue.limits: there is no such column"),
        ("line", {"value": "ratio"}, "--value ratio: there is no such column"),
    ],
)
def test_mistakes_with_a_sweep(sweep, name, options, problem):
    with pytest.raises(ConfigError, match=problem):
        sweep.figure(name, **options)


def test_a_sweeps_figure_has_keys_as_the_configuration(sweep):
    figure = sweep.figure("line", by=["queue.limit", "topology.rivals"])
    (axes,), (legend,) = figure.axes, figure.legends
    assert axes.get_xlabel() == "queue.limit (KB)"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["16", "64", "512"]
    assert legend.get_title().get_text() == "topology.rivals"
    assert {text.get_text() for text in legend.get_texts()} == {"1", "2", "1: both the same"}


def test_long_names_of_queues_find_room_in_a_column(tmp_path):
    swept = (
        "  queue: [{kind: tbf, limit: 16KB}, {kind: cake, limit: 4MB, rtt: 2ms}, "
        "{kind: fq_codel, limit: 200 packets, target: 100us, interval: 1ms}]\n"
    )
    text = CONFIG.replace("  queue.limit: [16KB, 64KB, 512KB]\n", swept)
    made = outcast.open_sweep(make_sweep(tmp_path / "sweep", text))
    keys = ["queue", "topology.rivals"]
    for name, by in product(("line", "bar", "heat"), (keys, keys[::-1])):
        figure = made.figure(name, by=by)
        with style.styled():
            assert not [fault for fault in seen.faults(figure) if "unit" not in fault]
    # Amounts are along the axis, also where names come first in the configuration.
    assert made.figure("line").axes[0].get_xlabel() == "topology.rivals"


def test_a_ratio_has_a_logarithmic_axis_with_a_line_at_one(sweep):
    for name in ("line", "bar", "cdf"):
        (axes,) = sweep.figure(name, "outcast_ratio").axes
        scale, line = (
            (axes.get_xscale, "get_xdata") if name == "cdf" else (axes.get_yscale, "get_ydata")
        )
        assert scale() == "log"
        assert [1, 1] in [list(getattr(each, line)()) for each in axes.lines]
    (axes,) = sweep.figure("line", "jain_index").axes
    assert axes.get_yscale() == "linear"
