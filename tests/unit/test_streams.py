"""Generated traffic as the captures show it, and what people see of a run with UDP alone."""

import dataclasses

import numpy as np
import polars as pl
import pytest

from outcast.analysis.measure.streams import Stream, stream_summary
from outcast.plan.schedule import Generated
from outcast.records.generated import Completed
from outcast.sweep import groups


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
