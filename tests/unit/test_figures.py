"""The pictures: what is drawn is what was measured, with its name, in its place."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from outcast.analysis import analyze
from outcast.errors import InputError
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.units import format_bps
from outcast.view import figures, palette
from outcast.view.figures import drops, goodput, phase, queue, style
from tests.golden import model
from tests.golden.run_directory import analysed_run, with_records, write_run
from tests.unit import seen
from tests.unit.all_measured import all_measured

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


def test_goodput_of_every_flow_with_the_lone_one_on_top(drawn):
    figure = goodput.goodput_over_time(drawn)
    (axes,) = figure.axes
    names = [text for text in axes.texts if "-hop" in text.get_text()]
    assert len(names) == 13
    flows = pl.read_parquet(drawn.directory.path / "flows.parquet")
    lone = flows.filter(flow=0)["goodput_bps"].item()
    assert names[-1].get_text() == f"h2 #0, 2-hop (cubic): {format_bps(lone)}"
    assert names[-1].get_fontweight() == "bold"
    assert to_hex(names[-1].get_color()) == palette.VERMILION.lower()
    # A curve's height above its base line is the flow's goodput. Each has a scale from 0.
    table = pl.read_parquet(drawn.directory.path / "throughput.parquet").filter(flow=0)
    tops = [patch.get_data() for patch in axes.patches]
    base, level = axes.get_yticks()[-2:]
    rates = table["goodput_bps"].to_numpy() / 1e6
    assert any(np.allclose(top.values - base, rates) for top in tops)
    assert [tick.get_text() for tick in axes.get_yticklabels()][-2:] == ["0", f"{level - base:g}"]


def test_bars_of_the_classes(drawn):
    figure = figures.figure(drawn, "classes")
    (axes,) = figure.axes
    heights = sorted(round(bar.get_height(), 6) for bar in axes.patches)
    windows = [drawn.summary.windows["40ms"].classes, drawn.summary.classes]
    parts = [part for classes in windows for part in classes.values()]
    assert heights == sorted(round(part.mean_goodput_bps / 1e6, 6) for part in parts)
    shown = texts(figure)
    words = [
        "2-hop (cubic), 1 flow",
        "3-hop (cubic), 12 flows",
        "an equal share",
        "Mbps",
        "0-0.04 s",
    ]
    assert [word for word in words if word not in shown] == []
    assert "mean goodput per class" in shown


def test_bars_of_the_chains(drawn):
    figure = drops.chain_lengths(drawn)
    left, right = figure.axes
    chains = drawn.summary.drops["s1-eth2"].chains
    bars = [bar.get_height() for bar in left.containers[0]]
    assert len(bars) == drops.LONGEST_BAR + 1
    assert bars[0] == chains["1"]
    assert bars[-1] == sum(n for k, n in chains.items() if int(k) > drops.LONGEST_BAR)
    per_flow = [bar.get_height() for bar in right.containers[1]]
    assert per_flow[0] == pytest.approx(drawn.summary.flow_chains["3"]["1"] / 12)
    assert "s1-eth3 (3-hop, cubic)" in texts(figures.figure(drawn, "chains"))


def marks(axes: Axes) -> Iterator[tuple[float, float]]:
    for collection in axes.collections:
        yield from np.asarray(collection.get_offsets()).tolist()


def test_the_worst_blackout_packet_by_packet(drawn):
    figure = drops.drops_over_time(drawn)
    *_, longest, densest = figure.axes
    chains = pl.read_parquet(drawn.directory.path / "blackouts.parquet").filter(
        pl.col("others_through") > 0
    )
    lasts = pl.col("t_end") - pl.col("t_start")
    most_ns = chains.filter(pl.col("ingress").cast(pl.String) == "s1-eth2").select(lasts.max())
    # The lone flow's port is the one that is studied.
    assert "s1-eth2" in longest.get_title()
    assert f"for {most_ns.item() / 1e6:.4g} ms" in longest.get_title()
    dense = chains.filter(lasts / (pl.col("drops") - 1) <= 4 * 12_112)
    assert f"{dense['drops'].max()} dropped" in densest.get_title()
    span = drops.around(drawn, drops.worst_blackout(drawn, "s1-eth2") or {})
    packets = pl.read_parquet(drawn.directory.path / "packets.parquet")
    expected = packets.filter(pl.col("t_in").is_between(*span)).height
    assert "s1-eth2" in densest.get_title()
    assert len(list(marks(densest))) == expected


def test_the_queue_stays_below_its_limit(drawn):
    figure = queue.queue_in_blackout(drawn)
    upper, lower = figure.axes
    steps = upper.lines[0].get_ydata()
    assert 14 < max(steps) <= 16
    assert "limit: 16 KiB" in texts(figures.figure(drawn, "queue"))
    lanes = [tick.get_text() for tick in lower.get_yticklabels()]
    assert lanes == ["s1-eth1", "s1-eth3", "s1-eth2"]
    # Departures are marked at the output, drops at inputs.
    assert {y for _, y in marks(lower)} == {0, 1, 2}


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


def test_gaps_and_batches_of_each_input(drawn):
    figure = phase.gaps_and_batches(drawn)
    gaps, sizes = figure.axes
    # Two inputs and the output; every gap is in some bin.
    assert len(gaps.patches) == 3
    for patch in gaps.patches:
        values = patch.get_data().values
        assert values[values >= phase.LEAST_SHARE].sum() == pytest.approx(100, abs=0.5)
    assert [line.get_ydata()[0] for line in sizes.lines] == pytest.approx([100, 100])
