"""What the terminal says of a run around its tables."""

import io

import polars as pl
import pytest
from rich.console import Console

from outcast.records.port_summaries import LossSummary, SpreadSummary
from outcast.records.run import Run
from outcast.records.summary import LimitSummary, Summary
from outcast.view import summary_words as words
from outcast.view.report.goodput import goodput
from outcast.view.report.markup import render
from outcast.view.terminal import forms, tables
from tests.golden.run_directory import analysed_run, with_records


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    directory = analysed_run(tmp_path_factory.mktemp("run") / "run", 40_000_000, 9, 2_000)
    return Run(directory)


def text_of(*shown: object, width: int = 100) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(*shown)
    return stream.getvalue()


def with_queues(summary: Summary, **marks: int) -> Summary:
    (queue,) = summary.queue.values()
    queues = {port: queue.model_copy(update={"marks": count}) for port, count in marks.items()}
    return summary.model_copy(update={"queue": queues})


def test_losses_name_every_queue_that_is_studied(run):
    lost = LossSummary(total=7, bottleneck=7, elsewhere=0, causes={"queue": 7}, ports={})
    assert words.loss_sentence(run.summary, lost).endswith("7 packets, all at the bottleneck")
    both = with_queues(run.summary, a=0, b=0)
    assert words.loss_sentence(both, lost).endswith("7 packets, all in the queues of a, b")
    more = lost.model_copy(update={"elsewhere": 2})
    assert "2 of them elsewhere than in the 2 queues studied" in words.loss_sentence(both, more)


def test_ecn_marks_are_told(run):
    assert words.marks_sentence(run.summary) == ""
    marked = with_queues(run.summary, a=1234, b=0)
    assert words.marks_sentence(marked) == "marked with ECN: a 1,234 packets"


def test_one_run_says_once_that_it_is_one_draw(run):
    draw = f"one draw, of seed {run.manifest.seed}; `outcast sweep` over seeds shows how much"
    shown = text_of(tables.render(run.directory), width=400)
    assert shown.count("one draw") == shown.count(draw) == 1


def test_the_share_of_its_phase_that_an_input_keeps_is_in_its_row(run):
    (noise,) = run.summary.noise.values()
    known = {port: seen.kept for port, seen in noise.inputs.items() if seen.kept is not None}
    shown = text_of(tables.render(run.directory), width=400)
    assert "64 to 256 packet times later" in shown
    for port, kept in known.items():
        (row,) = (line for line in shown.splitlines() if line.split()[:1] == [port])
        assert row.split()[-1] == f"{kept:.0%}"
    assert known


def test_what_a_note_told_before_the_traffic_is_named_only(run, monkeypatch):
    def shown(*, notes_shown: bool) -> str:
        return text_of(tables.render(run.directory, notes_shown=notes_shown), width=400)

    known = "flow 0 has ECN, but its queue never marks"
    summary = run.summary.model_copy(update={"warnings": [known]})
    monkeypatch.setattr(Run, "summary", summary)
    monkeypatch.setattr(tables, "beforehand", lambda *asked: [known])
    assert known in shown(notes_shown=False)
    told = shown(notes_shown=True)
    assert f"warning: {known}" not in told
    assert f"1 note still holds of those above, told before the traffic: {known}" in told


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (None, "-"),
        (0.0, "0"),
        (1.4e-05, "<0.001"),
        (0.0123, "0.0123"),
        (25.71, "25.7"),
        (99.96, "100"),
        (1357.0, "1,357"),
    ],
)
def test_times_of_queues_have_no_powers_of_ten(time_ms, text):
    assert tables._digits(time_ms) == text


def test_losses_of_queues_that_drop_later_say_when_tables_count_them(run):
    (egress, part) = next(iter(run.summary.queue.items()))
    later = part.model_copy(update={"counted": "forwarded"})
    summary = run.summary.model_copy(update={"queue": {egress: later}})
    lost = LossSummary(total=7, bottleneck=7, elsewhere=0, causes={"queue": 7}, ports={})
    said = "7 packets, by the kernel's counters (tables count a drop at its packet's arrival), all"
    assert said in words.loss_sentence(summary, lost)


def test_round_trips_and_queueing_are_medians_and_say_so(run):
    skewed = SpreadSummary(mean=77, p50=33, p90=90, p99=99, max=99)
    parts = {
        label: part.model_copy(update={"srtt_ms": skewed, "queueing_ms": skewed})
        for label, part in run.summary.groups["hops"].items()
    }
    groups = {**run.summary.groups, "hops": parts}
    run = with_records(
        Run(run.directory), summary=run.summary.model_copy(update={"groups": groups})
    )
    text = text_of(tables._group_table(run, run.table("flows")))
    assert text.count(" 33") == 2 * len(parts)
    assert "77" not in text
    assert "median" in text.split("queue-")[0]
    assert "RTT is a median too" in text
    assert "studied port" not in text
    (port,) = run.manifest.bottlenecks
    ports = [port, port.model_copy(update={"egress": "s2-eth2"})]
    two = with_records(run, manifest=run.manifest.model_copy(update={"bottlenecks": ports}))
    shown = (tables._flow_table, tables._group_table)
    told = text_of(*(table(two, run.table("flows")) for table in shown), width=200)
    told = " ".join(told.split())
    assert "queueing is that at the first studied port that each flow crosses" in told
    at = f"drops, chains and queueing of a flow are those at the first of {port.egress}, s2-eth2"
    assert at in told
    assert at in render(goodput(two))
    assert not words.counted_at(run)
    many = run.manifest.model_copy(update={"bottlenecks": ports * 3})
    assert "s2-eth2 and so on that it crosses" in words.counted_at(with_records(run, manifest=many))


def test_the_wait_for_timeouts_is_a_share_of_the_time_of_active_flows(run):
    part = next(iter(run.summary.groups["hops"].values()))
    update = {"flows": 2, "halted_s": 1.5, "active_s": 6.0}
    assert words.awaiting_rto(run.summary, part.model_copy(update=update)) == "25.0%"
    # An older summary does not tell.
    seconds = run.summary.end_s - run.summary.start_s
    update |= {"halted_s": seconds / 2, "active_s": None}
    assert words.awaiting_rto(run.summary, part.model_copy(update=update)) == "25.0%"


def test_of_many_flows_those_are_told_that_the_network_limited_least(run):
    rest = {"receiver": 0, "send_buffer": 0, "application": 0, "timeout": 0}
    limited = {str(flow): LimitSummary(network=flow / 50, **rest) for flow in range(50)}
    summary = run.summary.model_copy(update={"limited": limited})
    table = tables._limit_table(with_records(Run(run.directory), summary=summary))
    assert [*table.columns[0].cells] == [f"flow {flow}" for flow in range(5)]
    assert table.caption == "of 50 flows those that the network limited least"


def test_flows_of_given_bytes_tell_how_long_they_took(run):
    def lines(flows: pl.DataFrame) -> list[str]:
        return text_of(tables._flow_table(run, flows), width=80).splitlines()

    flows = run.table("flows")
    assert not any("took" in line for line in lines(flows))
    timed = pl.when(pl.col("flow") == 0).then(1_234_500_000).alias("completion_ns")
    told = lines(flows.with_columns(timed))
    assert any(line.endswith("took") for line in told)
    ends = [line.split()[-1] for line in told if line.startswith("   ") and line[3:4].isdigit()]
    assert ends[:2] == ["1,234", "-"]


def test_one_class_has_no_ratio(run):
    summary = run.summary
    one = summary.model_copy(
        update={"classes": dict([*summary.classes.items()][:1]), "compare": None}
    )
    assert "ratio" not in tables._heading(one).plain
    two = summary.model_copy(update={"classes": {"2": one.classes, "6": one.classes}})
    assert words.has_ratio(two)


def test_a_name_is_broken_before_a_number_is_cut():
    table = forms.table("probe", "sent", "most", left=("probe",))
    table.add_row("icmp from server-in-the-north to house", "1,200,345 packets", "630.5 ms")
    shown = text_of(table, width=40)
    assert "1,200,345 packets  630.5 ms" in shown
    assert "…" not in shown
