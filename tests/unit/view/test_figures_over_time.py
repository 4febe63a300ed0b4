"""The pictures of senders, fairness and the link over time: what is drawn is what was measured."""

import numpy as np
import polars as pl
import pytest

from outcast.records.run import Run
from outcast.uses.why.sender_tables import write_sender_table
from outcast.view import sender_series
from outcast.view.figures import senders
from tests.golden.run_directory import analysed_run, with_records
from tests.unit.view import all_measured
from tests.unit.view.all_measured import DURATION_NS


@pytest.fixture
def run(tmp_path) -> Run:
    directory = analysed_run(tmp_path / "run", DURATION_NS, 9, 3_000)
    return Run(directory)


@pytest.fixture
def sampled(run) -> None:
    all_measured.sampled(run).write_parquet(run.directory.path / "sockets.parquet")


def with_flows(run: Run, flows: int) -> Run:
    manifest = run.manifest.model_copy(update={"flows": run.manifest.flows[:flows]})
    return with_records(run, manifest=manifest)


def test_captured_round_trips_go_before_sampled_ones(run, sampled):
    begin = run.manifest.traffic.t_start_ns
    pl.DataFrame(
        {"flow": [0, 0, 0, 1], "t": [begin, begin + 1, begin + 2, begin], "rtt_ns": [1, 5, 9, 7]}
    ).with_columns(pl.col("rtt_ns") * 1_000_000).write_parquet(run.directory.path / "rtt.parquet")
    figure = senders.rtt_over_time(run)
    assert [float(np.asarray(line.get_ydata())[0]) for line in figure.axes[0].lines] == [5, 7]
    middle_s = DURATION_NS / 200 / 2 / 1e9
    times = [np.asarray(line.get_xdata()).tolist() for line in figure.axes[0].lines]
    assert times == [[pytest.approx(middle_s)]] * 2
    assert "captured" in figure.get_suptitle()


def test_a_time_without_round_trips_is_a_gap(run):
    """A curve goes on while the shorter round trip beside a gap lasts; a lone value is a dot."""
    bin_ns = DURATION_NS // 200
    rows = [(0, 1), (5, 1), (10, 12), (20, 11), (40, 1)]
    pl.DataFrame(
        {
            "flow": [0] * len(rows),
            "t": [run.manifest.traffic.t_start_ns + at * bin_ns for at, _ in rows],
            "rtt_ns": [bins * bin_ns for _, bins in rows],
        }
    ).write_parquet(run.directory.path / "rtt.parquet")
    figure = senders.rtt_over_time(with_flows(run, 1))
    curve, dots = figure.axes[0].lines
    places = [0, np.nan, 5, np.nan, 10, 20, np.nan, 40]
    bin_s = bin_ns / 1e9
    expected = [(place + 0.5) * bin_s for place in places]
    assert np.asarray(curve.get_xdata()).tolist() == pytest.approx(expected, nan_ok=True)
    drawn = [0.5 * bin_s, 5.5 * bin_s, 40.5 * bin_s]
    assert np.asarray(dots.get_xdata()).tolist() == pytest.approx(drawn)


def test_windows_are_exact_where_the_kernel_recorded_them(run, sampled):
    # Flow 0 has one segment for a tenth of the run, and then eleven; flow 1 always four.
    steps = pl.DataFrame(
        {
            "t_ns": [0, DURATION_NS // 10, 0],
            "flow": [0, 0, 1],
            "cwnd": [1, 11, 4],
            "ssthresh": [None, 5, None],
            "srtt_us": 100,
            "rto_us": 2_000,
            "in_flight": 1,
            "state": "open",
        }
    )
    run.directory.trace.mkdir()
    write_sender_table(run.directory.trace, "tcp", steps)
    figure = senders.windows_over_time(with_flows(run, 2))
    points = [np.asarray(line.get_xydata()).tolist() for line in figure.axes[0].lines]
    assert points == [[[0, 1], [DURATION_NS / 10 / 1e9, 11]], [[0, 4]]]
    means = sender_series.means(run, "cwnd", 4)
    assert means["t"].to_list()[:4] == [DURATION_NS * part // 8 for part in (1, 3, 5, 7)]
    assert means.filter(flow=0)["cwnd"].to_list() == [0.4 * 1 + 0.6 * 11, 11, 11, 11]
    at = {"start_ns": DURATION_NS // 10, "duration_ns": 4 * DURATION_NS // 10}
    late = [flow.model_copy(update=at) for flow in run.manifest.flows]
    later = with_records(run, manifest=run.manifest.model_copy(update={"flows": late}))
    means = sender_series.means(later, "cwnd", 4)
    # The first bin begins before the flow, and the last ones after its end.
    assert means["t"].to_list() == [3 * DURATION_NS // 8]
    assert means.filter(flow=0)["cwnd"].to_list() == [11]
    figure = senders.windows_over_time(run)
    assert "from every acknowledgement" in figure.get_suptitle()
    lone, many = (np.asarray(line.get_ydata()) for line in figure.axes[0].lines)
    assert (set(many), lone[0], lone[-1]) == ({4}, 1, 11)
