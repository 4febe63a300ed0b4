"""What the terminal says of a run around its tables."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from outcast.records.port_summaries import SpreadSummary
from outcast.records.run import Run
from outcast.records.summary import (
    ProbeSummary,
    ProgramSummary,
    StreamSummary,
    TimesSummary,
)
from outcast.view.terminal import tables
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


SCREENS = Path(__file__).parents[2] / "golden/screens"
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
        assert shown.count(word) == 1
