"""Generated traffic as the captures show it, and what people see of a run with UDP alone."""

import dataclasses

import numpy as np
import polars as pl
import pytest

from outcast.analysis.measure.streams import Stream, stream_summary
from outcast.plan.schedule import Generated
from outcast.records.generated import Completed
from outcast.records.run import Run
from outcast.records.summary import Summary
from outcast.sweep import groups
from outcast.view import figures, report, summary_words
from outcast.view.figures.generated import rate_curves
from outcast.view.terminal import tables
from tests import records
from tests.golden.run_directory import analysed_run, with_records


def stream(
    number: int,
    sent: int,
    received: int,
    delays: list[int],
    end_ns: int = 10**9,
    departures_ns: int = 0,
) -> Stream:
    planned = Generated(
        number, 0, "constant_rate", f"h{number}", "h1", 40_001, None, 0,
        end_ns=end_ns, gap_ns=1000, datagram_bytes=1000,
    )  # fmt: skip
    ended = Completed(planned, 0, None, 0, 1000 * received, sent, received, None, None, None, None)
    return Stream(ended, np.array(delays, np.int64), sent, sent - received, departures_ns)


def test_a_streams_rates_loss_and_jitter():
    one = stream(0, 1000, 750, [1000, 4000, 3000], end_ns=10**9 // 2)
    assert one.sent_bps == 16e6
    assert one.received_bps == 12e6
    # A queue that still sends a second later received no more than its link sends.
    assert stream(0, 1000, 750, [], 10**9 // 2, departures_ns=10**9).received_bps == 6e6
    # 13 datagrams in 49 ms, 4 ms apart, as at 2 Mbps: the last one counts with a whole gap too.
    four_ms = dataclasses.replace(one.ended.planned, gap_ns=4 * 10**6, end_ns=49 * 10**6)
    ended = dataclasses.replace(one.ended, planned=four_ms, sent=13, received=13)
    assert dataclasses.replace(one, ended=ended).sent_bps == 2e6
    assert one.loss_share == 0.25
    assert one.jitter_ns == 2000  # the mean of 3000 and 1000
    assert stream(0, 0, 0, []).loss_share is None
    assert stream(0, 1, 1, [5]).jitter_ns is None


def test_the_streams_of_a_workload_together():
    together = stream_summary(
        [stream(0, 1000, 750, [10**6, 3 * 10**6]), stream(1, 1000, 250, [2 * 10**6])]
    )
    assert (together.sent_bps, together.received_bps, together.min_received_bps) == (
        *(16e6, 8e6),
        2e6,
    )
    assert together.loss_share == 0.5
    assert together.jain_index == pytest.approx(8e6**2 / (2 * (6e6**2 + 2e6**2)))
    assert (together.delay_ms.p50, together.delay_ms.max) == (2, 3)
    assert together.jitter_ms == 2
    assert stream_summary([]) is None


def test_copies_on_the_way_hide_losses():
    """Datagrams have no numbers, so no share of them is told that may be too low, or negative."""
    copied = dataclasses.replace(stream(0, 1000, 990, []), is_copied=True)
    assert copied.loss_share is None
    assert stream(0, 1000, 1020, []).loss_share is None
    together = stream_summary([stream(0, 1000, 750, []), copied])
    assert together.loss_share is None


TWO_STREAMS = records.completed(
    kind="constant_rate",
    flows=2,
    goodput_bps=8e6,
    datagrams_sent=2000,
    datagrams_lost=1000,
    streams=stream_summary([stream(0, 1000, 750, [10**6]), stream(1, 1000, 250, [10**6])]),
)


@pytest.fixture
def udp_only(tmp_path) -> Run:
    """A run of the reference switch, told as if two UDP flows had been all of its traffic."""
    directory = analysed_run(tmp_path / "run", 20_000_000, 7, 500)
    for name in ("throughput", "fairness", "sockets", "links"):
        (directory.path / f"{name}.parquet").unlink(missing_ok=True)
    run = Run(directory)
    pl.DataFrame(
        {
            "flow": [0, 1],
            "workload": [0, 0],
            "src": ["h2", "h3"],
            "dst": ["h1", "h1"],
            "start_ns": [2 * 10**6, None],
            "sending_ns": [10**7, 10**7],
            "sent": [1000, 1000],
            "received": [750, 250],
            "loss_share": [0.25, 0.75],
            "sent_bps": [8e6, 8e6],
            "received_bps": [6e6, 2e6],
            "delay_mean": [1e6, None],
            "delay_p50": [1e6, None],
            "delay_p99": [2e6, None],
            "jitter": [1e4, None],
        }
    ).write_parquet(directory.path / "streams.parquet")
    pl.DataFrame(
        {
            "t": [0, 10**7, 0, 10**7],
            "workload": [0] * 4,
            "kind": ["constant_rate"] * 4,
            "flow": [0, 0, 1, 1],
            "goodput_bps": [5e6, 7e6, 1e6, 3e6],
            "dropped": [1, 2, 3, 4],
        }
    ).write_parquet(directory.path / "workloads.parquet")
    tree = run.summary.model_dump(mode="json")
    tree.update(
        completions={"0": TWO_STREAMS.model_dump(mode="json")},
        **{name: {} for name in ("classes", "flow_chains", "tcp", "fairness", "windows")},
        total_goodput_bps=0.0,
        jain_index=None,
        outcast_ratio=None,
    )
    summary = Summary.model_validate(tree)
    manifest = run.manifest.model_copy(update={"flows": []})
    flows = run.table("flows").head(0)
    flows.write_parquet(directory.path / "flows.parquet")
    directory.summary.write_text(summary.model_dump_json())
    directory.write_manifest(manifest)
    directory.plan.unlink()
    return with_records(Run(directory), summary=summary, manifest=manifest, plan=None)


def test_the_headline_of_udp_alone_has_its_rates_and_no_tcp(udp_only):
    from rich.console import Console

    console = Console(width=120, record=True)
    console.print(tables.everything(Run(udp_only.directory)))
    text = console.export_text()
    rates = "sent 16.0 Mbps and received 8.00 Mbps while sending"
    assert f"\n2 flows (UDP) {rates}, 50.00% lost\n" in text
    assert "0 bps" not in text
    for word in ("Jain", "retrans", "RTO"):
        assert word not in text
    assert "75.00%" in text
    assert " 0 to 0.01 " in text


def test_the_report_of_udp_alone_has_no_empty_tcp_charts(udp_only):
    page = report.make(udp_only)
    for identity in ("goodput", "fairness", "completions"):
        assert f'id="{identity}"' not in page
    assert page.index("2 flows (UDP) sent") < page.index("The experiment")
    assert "UDP; losses and delays" in page
    assert "Generated traffic over time" in page


def test_figures_of_udp_alone(udp_only):
    rates = figures.figure(udp_only, "workloads")
    upper, lower = rates.axes
    assert [list(patch.get_data().values) for patch in upper.patches] == [[5, 7], [1, 3]]
    assert [text.get_text() for text in rates.legends[0].get_texts()] == [
        *("h2 #0 (UDP)", "h3 #1 (UDP)", "dropped")
    ]
    assert list(lower.patches[0].get_data().values) == [0.4, 0.6]
    of_flows = figures.figure(udp_only, "streams").axes[0]
    heights = [bar.get_height() for bar in of_flows.patches]
    assert heights == [6, 2, 2, 6]
    assert [text.get_text() for text in of_flows.texts] == ["25.0%", "75.0%"]
    # What waits for long is received at a lower rate, and not lost.
    table = udp_only.table("streams").with_columns(pl.lit(0.0).alias("loss_share"))
    table.write_parquet(udp_only.directory.path / "streams.parquet")
    late = figures.figure(Run(udp_only.directory), "streams").axes[0]
    assert [bar.get_height() for bar in late.patches] == [6, 2, 0, 0]


def test_many_streams_have_a_curve_for_their_workload(udp_only):
    path = udp_only.directory.path / "workloads.parquet"
    one = pl.read_parquet(path).filter(pl.col("flow") == 0)
    pl.concat(one.with_columns(flow=pl.lit(number)) for number in range(9)).write_parquet(path)
    _, curves = rate_curves(udp_only)
    assert {name: values.tolist() for name, values in curves.items()} == {
        "workload 0 (constant_rate)": [45e6, 63e6]
    }


def test_a_sweep_of_generated_traffic_shows_no_values_of_flows():
    of_udp = {
        "outcast_ratio": [None],
        "total_goodput_bps": [0.0],
        "completions.0.goodput_bps": [8e6],
        "completions.0.streams.loss_share": [0.5],
    }
    assert groups.default_values(pl.DataFrame(of_udp)) == [*of_udp][2:]
    mixed = pl.DataFrame({**of_udp, "classes.2.mean_goodput_bps": [1e6]})
    assert groups.default_values(mixed)[0] == "total_goodput_bps"


def test_a_workload_in_a_phrase():
    transfers = records.completed(kind="poisson", flows=1201, unfinished=3, goodput_bps=5e8)
    assert (
        summary_words.workload_result(transfers)
        == "1,201 flows (poisson) at 500 Mbps, 3 unfinished"
    )
