"""The pictures: what is drawn is what was measured, with its name, in its place."""

import re
from collections.abc import Iterator
from dataclasses import replace

import matplotlib
import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import outcast as api
from outcast.analysis import analyze
from outcast.errors import InputError
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.units import format_bps
from outcast.view import figures, palette
from outcast.view.figures import drops, goodput, noise, parts, queue, style
from outcast.view.report import losses
from outcast.view.report.markup import render
from tests.golden import model
from tests.golden.packets import P, capture
from tests.golden.run_directory import analysed_run, delayed_run, with_records, write_run
from tests.unit import seen
from tests.unit.all_measured import all_measured


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


def test_every_studied_port_has_clocks_of_its_own_packet_time(drawn):
    (record,) = drawn.manifest.bottlenecks
    slow = record.queue.model_copy(update={"rate_bps": 10**9 // 2})
    idle = record.model_copy(update={"egress": "s9-eth1"})
    ports = [idle, record, record.model_copy(update={"queue": slow})]
    manifest = drawn.manifest.model_copy(update={"bottlenecks": ports})
    three = with_records(drawn, ways=drawn.ways, manifest=manifest)
    figure = figures.figure(three, "phase")
    assert len(figure.axes) == 4
    said = texts(figure)
    assert "within a packet time of 12.11us" in said
    assert "within a packet time of 24.22us" in said
    assert "s9-eth1" not in said
    assert not seen.faults(figure)
    section = losses.phase(three)
    assert section is not None
    assert render(section).count("s1-eth3 (3-hop, cubic)") >= 2


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


def test_every_studied_queue_has_its_panels(tmp_path, monkeypatch):
    came: list[P] = []
    left: dict[str, list[P]] = {"b": [], "c": [], "d": []}
    for number in range(90):
        packet = {"seq": 1448 * number, "ip_id": number, "dst": f"10.0.0.{number % 3 + 7}"}
        came.append(P(10 * number, **packet))
        # The first output loses the fewest packets.
        if number % 5 or (number % 3 == 0 and number != 30):
            left["bcd"[number % 3]].append(P(10 * number + 7, **packet))
    for name, packets in {"a": came, **left}.items():
        capture(tmp_path / name, packets)
    joined = api.join_captures({"a": tmp_path / "a"}, {name: tmp_path / name for name in left})
    run = Run(joined.save(tmp_path / "mine").directory)
    for name in ("link", "queue"):
        shown = figures.figure(run, name)
        assert [f"queue of {port} " in texts(shown) for port in left] == [True] * 3
        assert not seen.faults(shown)
        monkeypatch.setattr(parts, "MOST_OUTPUTS", 2)
        few = texts(figures.figure(run, name))
        assert "the 2 of 3 output ports that lost most" in few
        assert "queue of b " not in few
        monkeypatch.undo()


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


@pytest.mark.parametrize("joined", [False, True])
def test_a_blackout_is_shown_where_the_queue_refused_it(tmp_path, joined, monkeypatch):
    """Behind a link's delay, of which a join knows only what it estimated."""
    monkeypatch.setattr(drops, "ZOOM_PACKETS", 10**6)
    delayed = Run(delayed_run(tmp_path / "run", 2_000_000, 50_000_000, 8, 3_000))
    if joined:
        captures = tmp_path / "run" / "captures"
        inputs = {port: captures / f"{port}.in.pcap" for port in ("s1-eth2", "s1-eth3")}
        made = api.join_captures(inputs, {"s1-eth1": captures / "s1-eth1.out.pcap"})
        delayed = Run(made.save(tmp_path / "mine").directory)
    figure = queue.queue_in_blackout(delayed)
    upper, lower = figure.axes
    told = re.search(r"blackout, of ([^ :]+).*: (\d+) dropped", upper.get_title())
    assert told is not None
    lane = [tick.get_text() for tick in lower.get_yticklabels()].index(told[1])
    (crosses,) = (part for part in lower.collections if part.get_label() == "drop")
    shown = [x for x, y in crosses.get_offsets() if y == lane]
    (grey,) = upper.patches
    lost = [x for x in shown if -1e-6 < x < grey.get_width() + 1e-6]
    assert len(lost) == int(told[2])
    assert (grey.get_x(), lost[0], lost[-1]) == pytest.approx((0, 0, grey.get_width()))


def test_zooms_show_blackouts_that_count(drawn, monkeypatch):
    assert drops.worst_blackout(drawn, "s1-eth2")["in_interval"]
    none = with_records(drawn)
    table = drawn.table("blackouts", whole=True).with_columns(in_interval=pl.lit(value=False))
    kept = none.scan

    def scan(name: str, whole: bool = False) -> pl.LazyFrame:
        if name == "blackouts":
            return table.lazy() if whole else table.lazy().filter("in_interval")
        return kept(name, whole)

    monkeypatch.setattr(none, "scan", scan)
    assert drops.worst_blackout(none, "s1-eth2") is None
    assert "when it was longest; no blackout counts" in texts(queue.queue_in_blackout(none))


def test_the_users_settings_are_put_aside_while_a_picture_is_drawn(drawn, tmp_path):
    def pixels() -> bytes:
        path = style.save(figures.figure(drawn, "classes"), tmp_path / "classes.png")
        return path.read_bytes()

    expected = pixels()
    theirs = {"text.usetex": True, "font.size": 30.0, "axes.facecolor": "red", "toolbar": "None"}
    with matplotlib.rc_context(theirs):
        before = dict(matplotlib.rcParams)
        with style.styled():
            assert matplotlib.rcParams["axes.facecolor"] == "white"
            assert matplotlib.rcParams["toolbar"] == "None"
            assert matplotlib.rcParams["font.size"] == style.STYLE["font.size"]
        assert pixels() == expected
        assert dict(matplotlib.rcParams) == before


def test_batches_are_packets_that_come_less_than_one_and_a_half_packet_times_apart():
    came_us = [0, 10, 20, 100, 200, 210, 300]
    sizes, share = noise.batches(np.array(came_us, np.int64) * 1000, 12_000)
    # One batch of 3 packets, one of 2, and two packets alone.
    assert sizes.tolist() == [1, 2, 3, 4]
    assert share == pytest.approx([1, 5 / 7, 3 / 7, 0])


def test_gaps_and_batches_of_each_input(drawn):
    figure = noise.gaps_and_batches(drawn)
    gaps, sizes = figure.axes
    # Two inputs and the output; every gap is in some bin.
    assert len(gaps.patches) == 3
    for patch in gaps.patches:
        values = patch.get_data().values
        assert values[values >= noise.LEAST_SHARE].sum() == pytest.approx(100, abs=0.5)
    assert [line.get_ydata()[0] for line in sizes.lines] == pytest.approx([100, 100])
