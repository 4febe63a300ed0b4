"""What the terminal says of a run around its tables."""

import io
import re
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from outcast import quantities
from outcast.records.port_summaries import LossSummary, SpreadSummary
from outcast.records.run import Run
from outcast.records.summary import (
    LimitSummary,
    ProbeSummary,
    ProgramSummary,
    StreamSummary,
    Summary,
    TimesSummary,
)
from outcast.view import listings
from outcast.view import summary_words as words
from outcast.view.report.goodput import goodput
from outcast.view.report.markup import render
from outcast.view.terminal import forms, tables
from tests.golden.run_directory import analysed_run, with_records
from tests.records import completed


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


SCREENS = Path(__file__).parents[1] / "golden/screens"
"""What the terminal shows of reference runs. Remove a file, and the test writes it again."""


def _without_flows(run: Run, **summary: object) -> Run:
    nothing = {"classes": {}, "groups": {}, "compare": None, "total_goodput_bps": 0.0}
    return with_records(
        run,
        manifest=run.manifest.model_copy(update={"flows": []}),
        plan=None,
        summary=run.summary.model_copy(update={**nothing, "jain_index": None, **summary}),
    )


def reference_runs(run: Run) -> dict[str, Run]:
    """Runs of several kinds, each made of the records of one."""
    run = Run(run.directory)
    spread = SpreadSummary(mean=1.5, p50=1.0, p90=2.0, p99=3.0, max=4.0)
    times = TimesSummary(
        flows=20, finished=19, mean_ms=2.0, p50_ms=1.5, p95_ms=9.0, p99_ms=9.5, max_ms=9.9
    )
    workload = completed(
        kind="incast", flows=20, unfinished=1, goodput_bps=9.5e8, times={"all": times}, timeouts=7
    )
    streams = StreamSummary(
        sent_bps=16e6, received_bps=8e6, min_received_bps=2e6, jain_index=0.8, loss_share=0.5,
        delay_ms=spread, jitter_ms=0.1,
    )  # fmt: skip
    udp = completed(kind="constant_rate", flows=2, goodput_bps=8e6, streams=streams)
    program = ProgramSummary(
        host="h2", server=False, asked=20, executions=19, failures=1, time_ms=spread
    )
    server = ProgramSummary(host="h1", server=True, asked=1, executions=1, failures=0, time_ms=None)
    probe = ProbeSummary(
        kind="icmp", src="h3", dst="h1", payload_bytes=56, every_ms=10.0, sent=8, lost=4,
        base_rtt_ms=1.0, rtt_ms=spread,
    )  # fmt: skip
    warned = [f"program {name} failed in 1 of 3 {'executions ' * 9}" for name in "abcdef"]
    many = {str(number): probe for number in range(50)}
    lost = run.summary.capture.model_copy(update={"trusted": False, "reasons": ["x lost 5"]})
    return {
        "classes": run,
        "udp": _without_flows(run, completions={"0": udp}),
        "generated": _without_flows(run, completions={"0": workload}),
        "programs": _without_flows(run, programs={"web": server, "get": program}),
        "probes": _without_flows(run, probes=many),
        "nothing": _without_flows(run),
        "all": with_records(
            run,
            summary=run.summary.model_copy(
                update={
                    "completions": {str(number): workload for number in range(9)},
                    "programs": {f"get{number}": program for number in range(9)},
                    "probes": many,
                    "warnings": warned,
                    "capture": lost,
                }
            ),
        ),
    }


@pytest.mark.parametrize(
    "kind", ["classes", "udp", "generated", "programs", "probes", "nothing", "all"]
)
def test_a_run_ends_with_one_screen(run, kind):
    shown = text_of(tables.screen(reference_runs(run)[kind]), width=80)
    kept = SCREENS / f"{kind}.txt"
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(shown, encoding="utf-8")
        pytest.fail(f"{kept} is written; look at it")
    assert shown == kept.read_text(encoding="utf-8")
    # Two more lines say where the report and the rest are.
    assert len(shown.splitlines()) <= 22
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_everything_fits_80_columns(run):
    shown = text_of(tables.everything(run), width=80)
    assert "…" not in shown
    for word in ("By class", "Every flow", "By input port", "The queue", "one draw of seed"):
        assert word in shown


def test_what_a_note_told_before_the_traffic_is_not_told_again(run, monkeypatch):
    known = "flow 0 has ECN, but its queue never marks"
    warned = with_records(run, summary=run.summary.model_copy(update={"warnings": [known]}))
    monkeypatch.setattr(tables, "beforehand", lambda *asked: [known])
    assert f"! marks: {known}" in text_of(tables.screen(warned))
    assert known not in text_of(tables.screen(warned, notes_shown=True))
    assert f"marks: {known}" in text_of(tables.sentences(warned))


def test_every_word_of_a_warning_is_explained():
    page = (Path(__file__).parents[2] / "docs/warnings.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == ["disagree", *words._WORDS, "other"]


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [(0.0, "0"), (1.4e-05, "<0.001"), (0.0123, "0.0123"), (25.71, "25.7"), (1357.0, "1,357")],
)
def test_times_of_queues_have_no_powers_of_ten(time_ms, text):
    assert quantities.digits_of_ms(time_ms) == text


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
    made = listings.groups(run, "show")
    places = {column.key: place for place, column in enumerate(made.columns)}
    for row in made.rows:
        assert row[places["rtt_p50_ms"]] == row[places["queueing_ms.p50"]] == "33"
    (port,) = run.manifest.bottlenecks
    ports = [port, port.model_copy(update={"egress": "s2-eth2"})]
    two = with_records(run, manifest=run.manifest.model_copy(update={"bottlenecks": ports}))
    at = f"drops, chains and queueing of a flow are those at the first of {port.egress}, s2-eth2"
    assert at in listings.flows(two, "show").remarks[0]
    assert at[1:] in render(goodput(two))
    assert not words.counted_at(run)
    many = run.manifest.model_copy(update={"bottlenecks": ports * 3})
    assert "s2-eth2 and so on that it crosses" in words.counted_at(with_records(run, manifest=many))


def test_the_wait_for_timeouts_is_a_share_of_the_time_of_active_flows(run):
    part = next(iter(run.summary.groups["hops"].values()))
    update = {"flows": 2, "halted_s": 1.5, "active_s": 6.0}
    assert words.rto_share(run.summary, part.model_copy(update=update)) == 0.25
    # An older summary does not tell.
    seconds = run.summary.end_s - run.summary.start_s
    update |= {"halted_s": seconds / 2, "active_s": None}
    assert words.rto_share(run.summary, part.model_copy(update=update)) == 0.25


def test_of_many_flows_those_are_told_that_the_network_limited_least(run):
    rest = {"receiver": 0, "send_buffer": 0, "application": 0, "timeout": 0}
    limited = {str(flow): LimitSummary(network=flow / 50, **rest) for flow in range(50)}
    summary = run.summary.model_copy(update={"limited": limited})
    table = listings.limits(with_records(Run(run.directory), summary=summary), "show")
    assert [row[0] for row in table.rows] == [f"flow {flow}" for flow in range(40)]
    assert table.remarks == ("10 more rows are in summary.json",)
    assert "those that the network limited least" in table.title


def test_flows_of_given_bytes_tell_how_long_they_took(run, monkeypatch):
    def took() -> list[str]:
        made = listings.flows(run, "show")
        heads = [column.key for column in made.columns]
        return [dict(zip(heads, row, strict=True)).get("completion_ns", "") for row in made.rows]

    flows = run.table("flows")
    assert {*took()} == {""}
    timed = pl.when(pl.col("flow") == 0).then(1_234_500_000).alias("completion_ns")
    monkeypatch.setattr(Run, "table", lambda *_asked: flows.with_columns(timed))
    assert took()[:2] == ["1,234", "-"]


def test_one_class_has_no_ratio(run):
    summary = run.summary
    one = summary.model_copy(
        update={"classes": dict([*summary.classes.items()][:1]), "compare": None}
    )
    assert not words.has_ratio(one)
    two = summary.model_copy(update={"classes": {"2": one.classes, "6": one.classes}})
    assert words.has_ratio(two)


def test_a_name_is_broken_before_a_number_is_cut():
    table = forms.table("probe", "sent", "most", left=("probe",))
    table.add_row("icmp from server-in-the-north to house", "1,200,345 packets", "630.5 ms")
    shown = text_of(table, width=40)
    assert "1,200,345 packets  630.5 ms" in shown
    assert "…" not in shown
