"""What limited a flow, from samples of its sender's socket that were made by hand."""

from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from outcast.analysis.measure.kernel_counts import (
    LEAST_SAMPLES,
    limit_warnings,
    limits,
    slow_warnings,
)
from outcast.analysis.run_analysis import Interval
from outcast.analysis.run_summary import idle_warnings
from outcast.records.summary import LimitSummary
from outcast.view import listings

SECOND = 10**9


def of_row(value: Any, row: int) -> Any:
    """A value, or the row's one of those that take turns."""
    return value[row % len(value)] if isinstance(value, list) else value


def samples(
    busy: float, receiver: float, buffer: float, *, seconds: int = 10, **columns: Any
) -> pl.DataFrame:
    """A sample each second, in which counters grow by these shares of it.

    The congestion window holds the flow back, unless other columns are given.
    """
    rows = range(seconds + 1)
    shown = {
        "srtt_us": 100_000,
        "mss": 1448,
        "unacked": 20,
        "cwnd": 20,
        "snd_wnd": 10**6,
        "notsent_bytes": 10**5,
        "pacing_rate_bps": 4 * 10**6,
        **columns,
    }
    return pl.DataFrame(
        {
            "t": [row * SECOND for row in rows],
            "flow": [0 for _ in rows],
            "sport": [20001 for _ in rows],
            "busy_us": [int(row * busy * 1e6) for row in rows],
            "rwnd_limited_us": [int(row * receiver * 1e6) for row in rows],
            "sndbuf_limited_us": [int(row * buffer * 1e6) for row in rows],
            **{name: [of_row(value, row) for row in rows] for name, value in shown.items()},
        }
    )


def span(halted_s: float = 0.0, end_s: int = 10, **record: Any) -> list[Any]:
    flow = SimpleNamespace(**{"flow": 0, "subflows": [], "size_bytes": None, **record})
    return [(flow, Interval(0, end_s * SECOND), halted_s)]


ROOM = {"unacked": 10, "notsent_bytes": 0}


@pytest.mark.parametrize(
    ("kernel", "columns", "send_buffer", "receiver"),
    [
        # The kernel has seen a part of it, or nothing, because it counts whole jiffies.
        ((1.0, 0.0, 0.4), ROOM, 1.0, 0.0),
        ((1.0, 0.0, 0.0), ROOM, 1.0, 0.0),
        ((0.7, 0.0, 0.4), ROOM, 0.7, 0.0),
        ((1.0, 0.3, 0.4), ROOM, 0.7, 0.3),
        # While a refill goes out, something is unsent; if it always is, the flow's own link limits.
        ((1.0, 0.0, 0.4), {**ROOM, "notsent_bytes": [0, 9000], "srtt_us": 10**6}, 1.0, 0.0),
        ((1.0, 0.0, 0.4), {**ROOM, "notsent_bytes": [0, 9000]}, 0.5, 0.0),
        ((1.0, 0.0, 0.0), {"unacked": 10}, 0.0, 0.0),
        # All that fits into the congestion window or the receiver's is under way.
        ((1.0, 0.0, 0.0), {"notsent_bytes": 0}, 0.0, 0.0),
        ((1.0, 1.0, 0.0), {**ROOM, "snd_wnd": 15_000}, 0.0, 1.0),
    ],
)
def test_the_send_buffers_share(kernel, columns, send_buffer, receiver):
    (part,) = limits(samples(*kernel, **columns), span()).values()
    shown = (part.send_buffer, part.receiver, part.at_least)
    assert shown == (pytest.approx(send_buffer), pytest.approx(receiver), False)
    assert part.network == pytest.approx(max(0.0, kernel[0] - send_buffer - receiver))


def test_a_flow_that_has_sent_all_its_bytes_is_not_held_back_by_its_buffer():
    sent = {**ROOM, "bytes_sent": [500, 16_000], "bytes_retrans": [0, 640]}
    made = samples(1.0, 0.0, 0.0, **sent)
    sizes = (15_360, 500, 20_000)
    half, none, whole = (limits(made, span(size_bytes=n))["0"].send_buffer for n in sizes)
    assert (half, none, whole) == (pytest.approx(0.5), 0.0, 1.0)


def test_of_multipath_tcp_it_is_not_told_which_buffer_limits():
    """Its receiver's window is of the connection, so a subflow's socket does not know of it."""
    limited = limits(samples(1, 0, 0.96, **ROOM), span(subflows=["another"]))
    part = limited["0"]
    assert (part.receiver, part.send_buffer, part.at_least) == (None, None, False)
    assert part.network == pytest.approx(0.04)
    assert part.untold == pytest.approx(0.96)
    assert listings._send_buffer(part.send_buffer, part.at_least) == "unknown"
    (line,) = limit_warnings(limited)
    assert line.startswith(
        "flow 0, limited for 96% of the time by the receiver's window or its own send buffer "
        "(transport.receive_buffer, transport.send_buffer; of Multipath TCP the kernel does"
    )
    assert idle_warnings("s1-eth1", 0.2, False, limited, None, None, {}) == []


PACED = {"unacked": 10}


@pytest.mark.parametrize(
    ("columns", "pacing"),
    [
        # The congestion window would give 2.3 Mbps.
        ({**PACED, "pacing_rate_bps": 2 * 10**6}, 1.0),
        ({**PACED, "pacing_rate_bps": [2 * 10**6, 10**6]}, 0.5),
        # TCP's own rate is above the window's.
        (PACED, 0.0),
        ({**PACED, "pacing_rate_bps": None}, 0.0),
        # All that fits into the congestion window is under way, or all is sent.
        ({"pacing_rate_bps": 2 * 10**6}, 0.0),
        ({**ROOM, "pacing_rate_bps": 2 * 10**6}, 0.0),
    ],
)
def test_a_rate_that_was_set_for_pacing_limits(columns, pacing):
    limited = limits(samples(1, 0, 0, **columns), span())
    part = limited["0"]
    assert part.pacing == pytest.approx(pacing, abs=0.01)
    assert part.network + part.pacing + (part.send_buffer or 0) == pytest.approx(1)
    told = limit_warnings(limited)
    if pacing == 1:
        assert told[0].startswith("flow 0, limited for 100% of the time by its pacing rate (tran")
        assert idle_warnings("s1-eth1", 0.2, False, limited, None, None, {}) == []
    assert bool(pacing) is any("pacing" in line for line in told)


@pytest.mark.parametrize(
    ("grown", "halted_s", "expected"),
    [
        ((1.0, 0.0, 0.0), 0.0, (1.0, 0.0, 0.0, 0.0, 0.0)),
        ((1.0, 0.98, 0.0), 0.0, (0.02, 0.98, 0.0, 0.0, 0.0)),
        ((0.9, 0.1, 0.2), 1.0, (0.5, 0.1, 0.2, 0.1, 0.1)),
        # A flow cannot wait for longer than it is not limited otherwise.
        ((1.0, 0.0, 0.9), 5.0, (0.0, 0.0, 0.9, 0.0, 0.1)),
    ],
)
def test_a_flows_time_divides(grown, halted_s, expected):
    (part,) = limits(samples(*grown), span(halted_s)).values()
    shown = (part.network, part.receiver, part.send_buffer, part.application, part.timeout)
    assert shown == pytest.approx(expected, abs=1e-3)
    assert sum(shown) == pytest.approx(1)


def test_a_flow_that_nobody_sampled_is_left_out():
    assert limits(samples(1, 0, 0, seconds=0), span()) == {}
    unknown = samples(1, 0, 0).with_columns(busy_us=pl.lit(None, pl.Int64))
    assert limits(unknown, span()) == {}


def summary(**shares: float) -> LimitSummary:
    parts = {"receiver": 0.0, "send_buffer": 0.0, "application": 0.0, "timeout": 0.0, **shares}
    return LimitSummary(network=1 - sum(parts.values()), **parts)


def test_what_is_not_the_network_is_warned_of_with_its_key():
    assert limit_warnings({"0": summary(timeout=0.9), "1": summary(receiver=0.1)}) == []
    (line,) = limit_warnings({"0": summary(receiver=0.3), "1": summary(receiver=0.71)})
    assert line.startswith("2 flows, most flow 1, limited for 71% of the time by the receiver's")
    assert "transport.receive_buffer" in line
    (line,) = limit_warnings({"4": summary(send_buffer=0.2)})
    assert line.startswith("flow 4, limited for 20%")


def test_an_idle_bottleneck_is_warned_of_only_if_flows_have_data():
    waiting = {"0": summary(timeout=0.9)}
    (line,) = idle_warnings("s1-eth1", 0.02, False, waiting, None, None, {})
    assert line.startswith("s1-eth1 was idle for 98% of the time, though flows had data to send")
    assert line.endswith("; a flow waited for timeouts for 90% of its time on average")
    for share, parts in (
        (0.9, waiting),
        (0.02, {"0": summary(application=0.9)}),
        (None, waiting),
        (0.02, {}),
    ):
        assert idle_warnings("s1-eth1", share, False, parts, None, None, {}) == []


@pytest.mark.parametrize(
    ("kind", "of_nominal", "rate_bps", "is_slow"),
    [
        ("tbf", 1.1328, 10**8, True),
        ("red", 1.021, 10**8, True),
        ("tbf", 1.02, 10**8, False),
        # A bucket that was full lets frames go faster than the rate.
        ("tbf", 0.4, 10**8, False),
        # The rate changed, or captures do not tell it.
        ("tbf", None, 10**8, False),
        ("unknown", 1.5, None, False),
        # These may hold back what waits.
        ("htb_classes", 1.5, 10**8, False),
        ("custom", 1.5, 10**8, False),
    ],
)
def test_a_port_that_is_slower_than_its_rate_is_told(kind, of_nominal, rate_bps, is_slow):
    queue: Any = SimpleNamespace(kind=kind, rate_bps=rate_bps)
    noise: Any = SimpleNamespace(mean_of_nominal=of_nominal)
    lines = slow_warnings("s1-eth1", queue, {"s1-eth1": noise})
    assert len(lines) == is_slow
    if of_nominal == 1.1328:
        assert lines == [
            "s1-eth1: while packets waited, it sent 11.7% less than its rate of 100mbit, because "
            "its shaper's timer was late or the processor was busy; a larger queue.burst lets it "
            "catch up"
        ]


def test_a_share_that_is_at_least_so_much_is_marked():
    seconds = LEAST_SAMPLES - 2
    limited = limits(samples(1, 0, 0.4, seconds=seconds, **ROOM), span(end_s=20))
    assert limited["0"].at_least
    assert limited["0"].send_buffer == pytest.approx(0.4)
    assert listings._send_buffer(0.4, at_least=True) == ">= 40.0%"


def test_a_queue_that_was_not_used_is_told_though_its_port_was_busy():
    full = {"0": summary()}
    own = ("h2-eth0", 1.0)
    (line,) = idle_warnings("s1-eth1", 1.0, True, full, None, own, {})
    assert line.startswith(
        "the queue of s1-eth1 was hardly used (one packet at most for 99% of the"
    )
    assert line.endswith("; packets waited at h2-eth0, which was busy for 100% of the time")
    assert idle_warnings("s1-eth1", 1.0, True, {"0": summary(receiver=0.9)}, None, own, {}) == []
