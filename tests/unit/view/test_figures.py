"""The pictures: what is drawn is what was measured, with its name, in its place."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.artist import Artist
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle, StepPatch

from outcast.analysis import analyze
from outcast.analysis.machine_code import Array
from outcast.errors import InputError
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.view import figures
from outcast.view.figures import drops, phase, queue, style
from tests.golden import model
from tests.golden.run_directory import analysed_run, with_records, write_run
from tests.unit.view import seen
from tests.unit.view.all_measured import all_measured

pytestmark = pytest.mark.usefixtures("pictures")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunDirectory:
    return analysed_run(tmp_path_factory.mktemp("figures") / "run", 80_000_000, 9, 6_000)


@pytest.fixture
def drawn(run) -> Run:
    return Run(run)


def texts(figure: Figure) -> str:
    figure.canvas.draw()
    found = [text.get_text() for text in figure.findobj(match=lambda a: hasattr(a, "get_text"))]
    return " | ".join(found)


def test_all_are_drawn_whole(run):
    paths = figures.draw(run)
    # No sockets were sampled, and no flow joins or leaves.
    assert [path.name for path in paths] == [
        *("goodput.png", "flows.png", "classes.png", "fairness.png", "timeouts.png", "link.png"),
        *("drops.png", "queue.png", "phase.png"),
    ]
    for path in paths:
        assert path.parent == run.path
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 10_000
    assert not list(run.path.glob("*.tmp*"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Run:
    return all_measured(tmp_path_factory.mktemp("figures") / "whole")


@pytest.mark.parametrize("name", figures.FIGURES)
def test_a_reviewer_sees_all_of_each_figure(name, whole, caplog):
    with whole.reading(), style.styled():
        figure = figures.drawn(whole, name)
        assert figure is not None, f"all_measured has nothing for the figure {name}"
        assert not seen.faults(figure)
    assert not caplog.records


SHOWN = Path(__file__).parents[2] / "golden/figures"
"""What each figure shows of `all_measured`. Remove a file, and the test writes it again."""


def points(artist: Artist) -> Array:
    """What an artist draws, in the units of its axes."""
    if isinstance(artist, Line2D):
        return np.asarray(artist.get_xydata(), float)
    if isinstance(artist, StepPatch):
        values, edges, _ = artist.get_data()
        return np.column_stack([edges[:-1], edges[1:], values])
    if isinstance(artist, Rectangle):
        return np.array([[artist.get_x(), artist.get_width(), artist.get_height()]])
    if isinstance(artist, Collection):
        return np.asarray(artist.get_offsets(), float)
    return np.empty((0, 2))


def described(figure: Figure) -> str:
    """The texts of a figure, and of each artist its number of points and their sums."""
    lines = [text.get_text() for text in figure.texts]
    lines += [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    for axes in figure.axes:
        title = axes.get_title("left") or axes.get_title()
        lines += ["", f"{title} | {axes.get_xlabel()} | {axes.get_ylabel()}"]
        lines += [text.get_text() for text in axes.texts]
        for artist in (*axes.lines, *axes.patches, *axes.collections):
            drawn = points(artist)
            sums = " ".join(f"{number + 0.0:.5g}" for number in np.nansum(drawn, axis=0))
            lines.append(f"{type(artist).__name__}: {len(drawn)}, {sums}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", figures.FIGURES)
def test_each_figure_shows_what_it_showed(name, whole):
    with whole.reading(), style.styled():
        shown = described(figures.drawn(whole, name))
    kept = SHOWN / f"{name}.txt"
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(shown, encoding="utf-8")
        pytest.fail(f"{kept} is written; look at it")
    assert shown == kept.read_text(encoding="utf-8")


def test_any_time_of_the_queue(run, tmp_path, verb):
    path = tmp_path / "queue.png"
    verb("inspect", run.path, "--around", "0.02", "--within", "200us", "--png", path)
    assert path.stat().st_size > 10_000
    figures.draw_queue(run, 20_000_000, 200_000, tmp_path / "queue.svg")
    assert (tmp_path / "queue.svg").stat().st_size > 10_000
    with pytest.raises(InputError, match=r"no packet within 0\.1 ms of 5 s"):
        figures.draw_queue(run, 5 * 10**9, 100_000, tmp_path / "none.png")
    for name in ("no/folder.png", "queue.doc"):
        with pytest.raises(InputError, match="cannot be written"):
            figures.draw_queue(run, 20_000_000, 200_000, tmp_path / name)
    assert not list(tmp_path.glob(".*"))
    verb("inspect", run.path, "--png", "a.png", status=2)


def test_a_run_without_drops(tmp_path):
    traffic = model.drop_tail(model.make_traffic(9, 300, load=0.2), 10**6, 10**9)
    directory = write_run(tmp_path / "run", traffic, 20_000_000)
    analyze(directory)
    assert len(figures.draw(directory)) == 8
    drawn = Run(directory)
    assert "no packet was dropped" in texts(drops.chain_lengths(drawn))
    figure = queue.queue_in_blackout(drawn)
    assert "no blackout" in texts(figure)
    upper, _ = figure.axes
    longest = max(drawn.table("queue")["queue_bytes"]) / 1024
    assert max(upper.lines[0].get_ydata()) == longest
    figure = drops.drops_over_time(drawn)
    assert "no blackout" in texts(figure)
    assert figure.get_figheight() < drops.ZOOM_INCHES + 1.1 + 1.15 * len(drawn.ways)
    assert ", to " not in texts(figure)
    first = next(iter(drawn.ways.values()))
    again = with_records(drawn, ways=drawn.ways | {"more": replace(first, egress="s1-eth9")})
    assert f", to {first.egress}, s1-eth9" in texts(drops.drops_over_time(again))


def test_batches_are_packets_that_come_less_than_one_and_a_half_packet_times_apart():
    came_us = [0, 10, 20, 100, 200, 210, 300]
    sizes, share = phase.batches(np.array(came_us, np.int64) * 1000, 12_000)
    # One batch of 3 packets, one of 2, and two packets alone.
    assert sizes.tolist() == [1, 2, 3, 4]
    assert share == pytest.approx([1, 5 / 7, 3 / 7, 0])
