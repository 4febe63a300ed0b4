"""`analysis.from` and `analysis.to`: what the summary and the tables of a run then cover."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from outcast import experiment
from outcast.analysis import analyze
from outcast.analysis.measure import blackout
from outcast.analysis.measure.fairness import chance_of_trend
from outcast.analysis.measure.losses import loss_warnings
from outcast.analysis.run_measures import intervals
from outcast.cli import invoke as outcast
from outcast.experiment import Instant
from outcast.records.port_summaries import LossSummary
from outcast.records.run import Run
from outcast.sweep.groups import remarks_on_intervals
from outcast.view import report, summary_words
from outcast.view.figures import drawn
from tests.golden.run_directory import make_run

LINEAR = Path(__file__).parents[3] / "configs/linear-12.yaml"
DURATION_NS = 80_000_000


def analysed(path: Path, asked: str = "", edit: Any = None) -> Run:
    """A golden run, analysed with these keys of `analysis`."""
    directory = make_run(path, DURATION_NS, 9, 4_000)
    text = directory.config.read_text()
    directory.config.write_text(text.replace("bin: 1ms", f"bin: 1ms{asked}"))
    if edit is not None:
        edit(directory)
    analyze(directory)
    return Run(path)


@pytest.fixture(scope="module")
def usual(tmp_path_factory) -> Run:
    return analysed(tmp_path_factory.mktemp("usual") / "run")


@pytest.fixture(scope="module")
def part(tmp_path_factory) -> Run:
    return analysed(tmp_path_factory.mktemp("part") / "run", ", from: 10ms, to: all_active + 25ms")


def stagger(directory: Any) -> None:
    """Flow 0 starts at 10 ms and ends at 25 ms; the others are there all the time."""
    tree = json.loads(directory.manifest.read_text())
    tree["flows"][0].update(start_ns=BEGIN_NS, duration_ns=END_NS - BEGIN_NS)
    directory.manifest.write_text(json.dumps(tree))


@pytest.fixture(scope="module")
def together(tmp_path_factory) -> Run:
    return analysed(tmp_path_factory.mktemp("together") / "run", edit=stagger)


BEGIN_NS, END_NS = 10_000_000, 25_000_000


def test_while_all_flows_are_active_everything_counts_as_if_that_were_asked_for(together, part):
    """A staggered start has the numbers of `from` and `to` of the same times."""
    assert (together.summary.interval, part.summary.interval) == ("all active", "asked")
    left_out = {"interval", "windows", "windows_from", "convergence", "warnings", "fairness"}
    one, other = (run.summary.model_dump(exclude=left_out) for run in (together, part))
    assert one == other
    columns = [name for name in part.table("flows").columns if name != "start_ns"]
    assert together.table("flows").select(columns).equals(part.table("flows").select(columns))


def test_what_is_not_of_the_interval_says_so(together, usual):
    assert (usual.summary.whole_run, together.summary.whole_run) == ("", " from 0 to 0.08 s")
    elsewhere = LossSummary(total=5, bottleneck=2, elsewhere=3, causes={"queue": 2}, ports={})
    (line,) = loss_warnings(elsewhere, "s1-eth1", together.summary.whole_run)
    assert line.startswith("3 packets were lost from 0 to 0.08 s elsewhere: ")
    page = report.make(together)
    counted, arrived = together.summary.capture, together.table("packets", whole=True).height
    assert f"Drops: {counted.inferred_drops:,} inferred from the whole captures" in page
    assert f"{arrived:,} packets came in, in the whole captures" in page


def test_every_reader_takes_the_rows_of_the_interval(part, capsys):
    """The summary, the tables, the report and the terminal count the same packets and blackouts."""
    inputs = part.summary.drops.values()
    for name, number in (("packets", "packet"), ("blackouts", "blackout")):
        every = part.table(name, whole=True)
        assert every.columns[-1] == "in_interval"
        # Its numbers are those of the whole table, which `inspect` shows and `whatif` takes.
        counted = every.with_row_index(number).filter("in_interval")
        assert part.table(name).equals(counted)
        assert part.scan(name).collect().equals(counted)
        assert 0 < part.table(name).height < every.height
    dropped = sum(drops.dropped for drops in inputs)
    assert part.table("packets").filter(verdict="dropped").height == dropped
    assert part.table("blackouts")["drops"].sum() == dropped
    assert part.table("blackouts")["drops"].max() == max(drops.longest_chain for drops in inputs)
    numbers = {
        row["blackout"]
        for row in part.table("blackouts", whole=True).with_row_index("blackout").to_dicts()
        if row["in_interval"] and row["others_through"]
    }
    assert sum(drops.blackouts for drops in inputs) == len(numbers)
    page = report.make(part)
    section = page[page.index("<caption>The longest blackouts") :]
    listed = re.findall(r'data-blackout="(\d+)"', section[: section.index("</table>")])
    assert listed
    assert {*map(int, listed)} <= numbers

    def shown(*options: str) -> list[dict[str, Any]]:
        form = ("--format", "json")
        assert outcast(["inspect", str(part.directory.path), *options, *form]) == 0
        return json.loads(capsys.readouterr().out)

    assert {row["blackout"] for row in shown("--blackouts")} == numbers
    assert numbers < {row["blackout"] for row in shown("--blackouts", "--whole")}
    lost = shown("--verdict", "dropped")
    every = part.table("packets", whole=True).with_row_index("packet")
    mine = every.filter(pl.col("in_interval"), verdict="dropped")["packet"].to_list()
    assert [row["packet"] for row in lost] == mine
    more = shown("--verdict", "dropped", "--whole")
    assert [row["packet"] for row in more] == every.filter(verdict="dropped")["packet"].to_list()
    assert outcast(["inspect", str(part.directory.path), "--between", "0ms", "9ms"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "outside the interval of the run's numbers, 0.01 to 0.025 s; --whole takes all" in line
    assert shown("--between", "0ms", "9ms", "--whole")


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=30), st.integers(0, 30))
def test_chains_of_a_part_are_those_that_the_part_alone_has(packets, cut):
    """Of packets in order, with their port and whether they were dropped, some are in the part."""
    count = len(packets)
    begin, end = sorted((cut % (count + 1), count - cut % (count + 1)))
    ports = np.array([port for port, _ in packets], np.int8)
    lost = np.array([dropped for _, dropped in packets], np.int8)

    def chains(of: slice, counts: Any = None) -> list[tuple[int, ...]]:
        made = SimpleNamespace(
            verdict=lost[of],
            egress=np.zeros(lost[of].size, np.int8),
            inputs=("a", "b", "c"),
            outputs=("out",),
            flows=("f",) * 3,
            arrivals=SimpleNamespace(
                port=ports[of],
                flow=ports[of].astype(np.int32),
                stamp_ns=np.arange(count, dtype=np.int64)[of],
            ),
        )
        made.all_left, made.whole, made.shows_content = made, None, lambda _output: True
        found = blackout.port_chains(made, counts)
        if counts is not None:
            found = found.only(counts[found.first])
        names = ("ingress", "t_start_ns", "t_end_ns", "drops", "others_through")
        return list(zip(*(getattr(found, name).tolist() for name in names), strict=True))

    counts = np.zeros(count, np.bool_)
    counts[begin:end] = True
    assert chains(slice(None), counts) == chains(slice(begin, end))


def test_packets_of_connecting_and_of_the_drain_do_not_count(usual):
    traffic = usual.manifest.traffic
    at_ns = usual.table("packets", whole=True)["t_in"] - traffic.t_start_ns
    within = int(((at_ns >= 0) & (at_ns < DURATION_NS)).sum())
    assert sum(drops.packets for drops in usual.summary.drops.values()) == within
    assert usual.table("flows")["packets"].sum() == within


def test_the_first_and_the_last_packet_of_a_flow_are_of_the_whole_duration(together, usual):
    for name in ("t_first", "t_last", "completion_ns"):
        assert together.table("flows")[name].equals(usual.table("flows")[name])


def inside(run: Run, column: str = "t_in", table: str = "packets") -> pl.DataFrame:
    """The rows of a table that are of the interval."""
    since_ns = pl.col(column) - run.manifest.traffic.t_start_ns
    return run.table(table, whole=True).filter(since_ns.is_between(BEGIN_NS, END_NS, closed="left"))


def test_drops_are_those_of_the_interval(part, usual):
    packets = inside(part)
    for port, drops in part.summary.drops.items():
        mine = packets.filter(pl.col("ingress").cast(pl.String) == port)
        lost = mine.filter(pl.col("verdict").cast(pl.String) == "dropped")
        assert (drops.packets, drops.dropped) == (mine.height, lost.height)
        assert 0 < drops.packets < usual.summary.drops[port].packets
    mine = inside(part, "t_start", "blackouts")
    counted = sum(sum(drops.chains.values()) for drops in part.summary.drops.values())
    blackouts = sum(drops.blackouts for drops in part.summary.drops.values())
    assert counted == mine.height
    assert blackouts == mine.filter(pl.col("others_through") > 0).height


def test_goodput_and_flows_are_those_of_the_interval(part):
    packets, left = inside(part), inside(part, "t_out")
    seconds = (END_NS - BEGIN_NS) / 1e9
    flows = part.table("flows")
    assert flows["packets"].sum() == packets.height
    dropped = packets.filter(pl.col("verdict").cast(pl.String) == "dropped").height
    assert flows["dropped"].sum() == dropped
    assert part.summary.total_goodput_bps <= 8 * left["payload"].sum() / seconds
    assert part.summary.total_goodput_bps == pytest.approx(flows["goodput_bps"].sum())
    groups = part.summary.grouped("hops").values()
    assert sum(group.packets or 0 for group in groups) == packets.height


def test_without_samples_the_kernels_counts_are_of_the_whole_duration_alone(part, usual):
    assert all(part.summary.classes[hops].retransmits is None for hops in ("2", "3"))
    assert usual.summary.classes["3"].retransmits is not None
    assert part.table("flows")["retransmits"].null_count() == part.table("flows").height


def test_trust_is_of_the_whole_captures(part, usual):
    assert part.summary.capture == usual.summary.capture
    for name in ("queue", "throughput"):
        assert part.table(name).equals(usual.table(name)), name
    packets, every = (run.table("packets", whole=True) for run in (part, usual))
    assert packets.drop("in_interval").equals(every.drop("in_interval"))


def test_waits_are_those_of_the_interval(part):
    (queue,) = part.summary.queue.values()
    packets = inside(part).drop_nulls("t_out")
    waits_ms = (packets["t_out"] - packets["t_in"]) / 1e6
    assert queue.sojourn_ms.max == pytest.approx(waits_ms.max())
    assert queue.sojourn_ms.mean == pytest.approx(waits_ms.mean(), abs=1e-6)


def test_an_end_after_the_duration_is_cut_with_a_note(tmp_path):
    run = analysed(tmp_path / "run", ", to: 9s")
    assert (run.summary.start_s, run.summary.end_s) == (0.0, 0.08)
    assert any("analysis.to: 9s is after the end" in line for line in run.summary.warnings)


def test_a_window_that_is_longer_than_the_run_is_cut_with_a_note(tmp_path):
    def edit(directory: Any) -> None:
        text = directory.config.read_text()
        directory.config.write_text(text.replace("[40000us]", "[40ms, 500ms, 1s]"))

    summary = analysed(tmp_path / "run", edit=edit).summary
    assert [*summary.windows] == ["40ms", "80ms"]
    assert any("500ms, 1s: cut to the end of the duration" in line for line in summary.warnings)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("1s", Instant(after_all_active=False, offset_ns=10**9)),
        ("all_active", Instant(after_all_active=True, offset_ns=0)),
        ("all_active + 500ms", Instant(after_all_active=True, offset_ns=500_000_000)),
        (" all_active+1us ", Instant(after_all_active=True, offset_ns=1000)),
    ],
)
def test_an_instant_is_read_and_written(text, instant):
    loaded = experiment.load(LINEAR, [f"analysis.from={text}"])
    assert loaded.analysis.since == instant
    again = experiment.validate(loaded.model_dump(mode="json", by_alias=True), "x")
    assert again.analysis == loaded.analysis


def test_results_name_the_interval_and_count_stationary_runs():
    frame = pl.DataFrame(
        {
            "interval": ["asked", "asked", "whole", "all active"],
            "start_s": [1.0, 1.0, 0.0, 2.0],
            "end_s": [9.0, 9.0, 10.0, 10.0],
            "stationary": [True, False, None, None],
        }
    )
    interval, steady = remarks_on_intervals(frame)
    assert interval.startswith("numbers are of 1 to 9 s, 2 to 10 s of each run; ")
    assert steady == "stationary: 1 of 2 known runs (docs/steady-state.md)"
    assert remarks_on_intervals(pl.DataFrame({"run": ["a"]})) == []


def test_every_run_says_whether_it_is_stationary(usual, part):
    assert part.summary.stationary is intervals.is_stationary(part, "all_active")
    assert part.summary.stationary is not None
    sentence = summary_words.stationarity_sentence(part)
    steady = "no trend found" if part.summary.stationary else "not in steady state"
    assert sentence.startswith(f"{steady} from 0.01 to 0.025 s: ")
    # The traffic ends before the last tenth of the duration.
    assert usual.summary.stationary is None
    unknown = summary_words.stationarity_sentence(usual)
    assert "needs ten bins (analysis.bin)" in unknown


@pytest.mark.parametrize("count", [3, 10, 33, 40])
def test_the_chance_of_a_trend_is_that_of_scipy(count):
    draw = np.random.default_rng(count)
    for values in (*draw.random((20, count)), *draw.integers(0, 4, (20, count)).astype(float)):
        expected = kendalltau(np.arange(count), values).pvalue
        # scipy gives no number for values that are all equal.
        assert chance_of_trend(values) == pytest.approx(1.0 if np.isnan(expected) else expected)


def test_figures_over_time_grey_what_is_left_out(part, usual):
    greyed, plain = drawn(part, "goodput"), drawn(usual, "goodput")
    added = [
        len(one.patches) - len(other.patches)
        for one, other in zip(greyed.axes, plain.axes, strict=True)
    ]
    assert max(added) == 2
