"""Figures for papers: sizes, letters, legends, formats, the caller's axes, and what is refused."""

import contextlib
import io
import re
import shutil
from itertools import product

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

import outcast
from outcast.errors import ConfigError, InputError
from outcast.view import figures
from outcast.view.figures import look, style
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


def headings(figure: Figure) -> list[str]:
    return [text for text in (figure.get_suptitle(), *(a.get_title() for a in figure.axes)) if text]


@pytest.mark.parametrize(
    ("text", "inches"),
    [("3.5x2.2in", (3.5, 2.2)), ("254x127mm", (10, 5)), (" 25.4 x 12.7 cm ", (10, 5))],
)
def test_a_size_with_a_unit(text, inches):
    assert look.parse_size(text) == pytest.approx(inches)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["", "3x", "3x2", "3x2px", "axb in", "3..x2in", "-3x2in"], "WIDTHxHEIGHT with a unit"),
        (["300x2in", "0x2in", "3x0.1mm"], "to 60 inches each way"),
    ],
)
def test_what_is_no_size_is_refused(texts, said):
    for text in texts:
        with pytest.raises(ConfigError, match=said):
            look.parse_size(text)


def test_every_figure_takes_every_change_or_says_why_not(run):
    """Only one-line errors of ours may come, whatever is combined."""
    drawn = 0
    for name in figures.FIGURES:
        for changes in (
            {"size": "178x120mm", "title": ""},
            {"size": "column"},
            {"title": "another"},
            {"log_x": True},
            {"log_y": True},
        ):
            with contextlib.suppress(ConfigError, InputError):
                run.figure(name, **changes).draw_without_rendering()
                drawn += 1
    assert drawn > 20


def test_size_title_and_letters(run):
    plain = run.figure("classes")
    changed = run.figure("classes", size=(3.5, 2.5), title="mine")
    assert tuple(changed.get_size_inches()) == (3.5, 2.5)
    assert headings(changed) == ["mine"]
    assert headings(run.figure("classes", title="")) == []
    column = run.figure("classes", size="column")
    assert column.get_figwidth() == pytest.approx(3.33)
    before, after = (figure.axes[0].yaxis.label.get_fontsize() for figure in (plain, column))
    assert after == pytest.approx(before * 7 / 9)


def test_a_legend_that_is_too_wide_gets_fewer_columns(run):
    for width in (8, 2.4):
        figure = run.figure("fairness", size=(width, 3))
        figure.draw_without_rendering()
        (legend,) = figure.legends
        assert legend.get_window_extent().width <= figure.get_window_extent().width


def test_a_logarithmic_axis_shows_all_that_is_above_zero(run):
    (axes,) = run.figure("flows", log_y=True).axes
    assert axes.get_yscale() == "log"
    low, high = axes.get_ylim()
    heights = [bar.get_height() for bar in axes.patches if bar.get_height() > 0]
    assert 0 < low <= min(heights) <= max(heights) <= high
    with pytest.raises(ConfigError, match="figure goodput: log-y: its y axis has names"):
        run.figure("goodput", log_y=True)


def test_a_figure_of_one_panel_on_the_callers_axes(run):
    figure = Figure(figsize=(7, 2.5))
    left, right = figure.subplots(1, 2)
    left.set_title("a")
    assert run.figure("flows", ax=left, log_y=True) is figure
    assert (left.get_title(), left.get_yscale(), right.get_yscale()) == ("a", "log", "linear")
    assert left.patches
    assert not right.patches
    assert left.get_legend() is not None
    run.figure("fairness", ax=right, title="b", size=(1, 1))
    assert right.get_title(loc="left") == "b"
    assert tuple(figure.get_size_inches()) == (7, 2.5)
    assert len(figure.axes) == 2
    assert not figure.legends
    assert figure.get_suptitle() == ""
    with pytest.raises(ConfigError, match="ax=: this figure has several panels"):
        run.figure("link", ax=left)


def test_a_figure_of_several_panels_in_a_subfigure(run):
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subfigures(1, 2)
    run.figure("link", figure=left, title="")
    run.figure("flows", figure=right)
    assert (len(left.axes), len(right.axes)) == (3, 1)
    figure.savefig(io.BytesIO())
    with pytest.raises(ConfigError, match="figure=: it has axes already"):
        run.figure("flows", figure=right)
    with pytest.raises(ConfigError, match="ax=, figure=: allowed is one of the two"):
        run.figure("flows", ax=Figure().subplots(), figure=Figure())


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
    words = ["classes", "--size", "4x3in", "--dpi", "50", "-o", png]
    assert verb("figure", run.path, *words).out.strip() == str(png)
    with Image.open(png) as picture:
        assert picture.size == (200, 150)
    words = ["line", "--by", "queue.limit", "--title", "T", "--where", "topology.rivals=1"]
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
        (["classes", "--size", "3x"], "size 3x: allowed is WIDTHxHEIGHT"),
        (["classes", "--size", "0.6x0.6in"], "too small for this figure"),
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


def test_a_sweeps_figure_has_words_for_keys_and_values(sweep):
    figure = sweep.figure("line", by=["queue.limit", "topology.rivals"])
    (axes,), (legend,) = figure.axes, figure.legends
    assert axes.get_xlabel() == "queue limit (KB)"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["16", "64", "512"]
    assert legend.get_title().get_text() == "rivals"
    assert {text.get_text() for text in legend.get_texts()} == {"1", "2"}
    own = Figure().subplots()
    only = {"by": ["queue.limit"], "over": ["topology.rivals"]}
    sweep.figure("bar", **only, ax=own, log_y=True)
    assert own.get_yscale() == "log"
    with pytest.raises(ConfigError, match="log-x: its x axis has names"):
        sweep.figure("bar", **only, log_x=True)
    (logarithmic,) = sweep.figure("line", **only, log_x=True).axes
    assert [tick.get_text() for tick in logarithmic.get_xticklabels()] == ["16", "64", "512"]


def test_long_names_of_queues_find_room_in_a_column(tmp_path):
    swept = (
        "  queue: [{kind: tbf, limit: 16KB}, {kind: cake, limit: 4MB, rtt: 2ms}, "
        "{kind: fq_codel, limit: 200 packets, target: 100us, interval: 1ms}]\n"
    )
    text = CONFIG.replace("  queue.limit: [16KB, 64KB, 512KB]\n", swept)
    made = outcast.open_sweep(make_sweep(tmp_path / "sweep", text))
    keys = ["queue", "topology.rivals"]
    for name, by in product(("line", "bar", "heat"), (keys, keys[::-1])):
        for size in (None, "column"):
            figure = made.figure(name, by=by, size=size)
            with style.styled():
                assert not [fault for fault in seen.faults(figure) if "unit" not in fault]
    (axes,) = made.figure("bar", by=keys, size="column").axes
    assert "200 packets,\ntarget" in axes.get_xticklabels()[2].get_text()


@pytest.mark.parametrize(
    ("title", "why"),
    [
        ("$" + r"\sqrt{" * 40 + "x" + "}" * 40 + "$", "is nested too deeply"),
        ("$" + r"\hat\bar " * 30 + "x$", "is nested too deeply"),
        (r"$\frac{$", "is no formula"),
        ("x" * 301, "301 letters; allowed are 300"),
    ],
)
def test_a_title_that_cannot_be_drawn_is_refused(title, why):
    with pytest.raises(ConfigError, match=r"^title: ") as caught:
        look.look_of(title=title)
    assert why in str(caught.value)


@pytest.mark.parametrize("title", ["costs $5", r"of $\alpha_1$ and $\sqrt{x}$", "", None])
def test_a_title_with_formulas_is_taken(title):
    assert look.look_of(title=title).title == title
