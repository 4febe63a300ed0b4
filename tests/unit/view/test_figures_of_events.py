"""Events and traces in the figures over time, in the report and in the terminal."""

import numpy as np
import pytest

from outcast.records.counters import PortRates, Rates
from outcast.records.effective import AppliedChange
from outcast.records.run import Run
from outcast.view import figures
from outcast.view.events import trace_sentences
from tests.golden.run_directory import analysed_run, with_records

MS = 10**6
DURATION_NS = 80 * MS
EVENTS = [
    (0, 20.0, "rate_bps", 500_000_000, "s1", "s2"),
    (0, 20.0, "rate_bps", 500_000_000, "s2", "s1"),
    (1, 30.0, "limit_bytes", 8192, "s1", "h1"),
    (2, 40.0, "up", 0, "s1", "s2"),
    (3, 50.0, "up", 1, "s1", "s2"),
]


def applied(event: int, at_ms: float, what: str, value: int, node: str, to: str) -> AppliedChange:
    at_ns = round(at_ms * MS)
    return AppliedChange(event, at_ns, at_ns, node, to, f"{node}-{to}", what, value, value)


def changed(run: Run, *changes: AppliedChange) -> Run:
    """The run with these changes in place of its own."""
    manifest = run.manifest.model_copy(update={"changes": list(changes)})
    return with_records(run, manifest=manifest)


@pytest.fixture
def run(tmp_path) -> Run:
    run = Run(analysed_run(tmp_path / "run", DURATION_NS, 9, 3_000))
    return changed(run, *(applied(*event) for event in EVENTS))


@pytest.mark.parametrize(
    ("name", "panels"), [("goodput", 1), ("fairness", 1), ("link", 3), ("drops", 2)]
)
def test_figures_over_time_mark_events(name, panels, run):
    figure = figures.figure(run, name)
    marked = [
        axes
        for axes in figure.axes
        if {0.02, 0.03, 0.04, 0.05}
        <= {
            float(np.asarray(line.get_xdata())[0])
            for line in axes.lines
            if line.get_linestyle() == ":"
        }
    ]
    assert len(marked) == panels
    numbers = [text.get_text() for text in marked[0].texts if text.get_text().isdigit()]
    assert numbers == ["1", "2", "3", "4"]
    label = marked[-1].get_xlabel()
    assert "(1) s1-s2: rate 500 Mbps" in label
    assert "(4) s1-s2: back" in label


def test_a_rate_that_changes_is_drawn_beside_what_was_used(run):
    egress = run.manifest.bottlenecks[0].egress
    rates = PortRates(
        port=egress, trace="c.csv", t_ns=[10 * MS, 60 * MS], rate_bps=[8 * 10**8, 4 * 10**8],
        latest_ns=0, skipped=1,
    )  # fmt: skip
    run.directory.write_rates(Rates(ports=[rates]))
    run = Run(run.directory)
    figure = figures.figure(run, "link")
    right = next(axes for axes in figure.axes if axes.get_ylabel() == "link's rate (Mbps)")
    (drawn,) = right.patches
    assert drawn.get_data().values.tolist() == [1000, 800, 400]
    assert trace_sentences(run) == [
        f"{egress} followed c.csv: 2 rates from 400 Mbps to 800 Mbps, 1 left out because they came "
        "too late"
    ]
