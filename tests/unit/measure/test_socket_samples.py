"""Samples of sockets and queues as tables, and what is computed from them."""

import dataclasses
import random
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from outcast.analysis.measure.kernel_counts import grown, synchronisation, while_active
from outcast.analysis.measure.samples import port_table, socket_table
from outcast.analysis.measure.streams import Stream, stream_summary
from outcast.analysis.run_analysis import Interval
from outcast.errors import InputError
from outcast.experiment.queues import KINDS
from outcast.netlink import encode as attribute
from outcast.plan.schedule import Generated
from outcast.records.flows import FlowRecord
from outcast.records.generated import Completed
from outcast.records.queue_statistics import read_message, statistics
from outcast.records.samples import Sample, SamplesWriter
from outcast.sweep import groups
from tests import records


def flow(number: int) -> FlowRecord:
    return records.flow(number, f"10.0.0.{number}", 20_000 + number)


def answer(size: int = 248, **fields: tuple[str, int, int]) -> bytes:
    """A message with a struct tcp_info of a given size. A field is its format, place and value."""
    info = bytearray(size)
    for form, at, value in fields.values():
        if at + struct.calcsize(form) <= size:
            struct.pack_into(form, info, at, value)
    body = bytes(72) + attribute(4, b"dctcp\0") + attribute(2, bytes(info))
    return struct.pack("=IHHII", 16 + len(body), 20, 0, 0, 0) + body


def stored(path: Path, samples: list[Sample], sources: list[str]) -> Path:
    with SamplesWriter(path, 10, sources) as writer:
        writer.write(samples)
    return path


FIELDS = {
    "state": ("B", 1, 3),
    "rto": ("<I", 8, 201_000),
    "rtt": ("<I", 68, 1_500),
    "ssthresh": ("<I", 76, 0x7FFFFFFF),
    "cwnd": ("<I", 80, 17),
    "pacing": ("<Q", 104, 2**64 - 1),
    "delivery": ("<Q", 160, 1_250_000),
    "timeouts": ("<H", 240, 5),
    "time": ("<I", 244, 44),
}


def test_the_fields_of_tcp_info(tmp_path):
    gone = struct.pack("=IHHII", 16 + 72, 20, 0, 0, 0) + bytes(72)
    path = stored(
        tmp_path / "a.zst", [Sample(107, 0, answer(**FIELDS)), Sample(107, 1, gone)], ["3", "8"]
    )
    (row,) = socket_table(path, [flow(3), flow(8)], 100).rows(named=True)
    assert (row["t"], row["flow"], row["host"], row["sport"]) == (7, 3, "h3", 20_003)
    assert (row["cwnd"], row["srtt_us"], row["rto_us"]) == (17, 1_500, 201_000)
    assert (row["timeouts"], row["recovering_ms"], row["ca_state"]) == (5, 44, "recovery")
    assert row["delivery_rate_bps"] == 10_000_000
    # ssthresh is not set, the rate is not limited, and it is not DCTCP.
    assert (row["ssthresh"], row["pacing_rate_bps"], row["dctcp_alpha"]) == (None, None, None)


def test_an_older_kernel_counts_no_timeouts(tmp_path):
    message = answer(240, **FIELDS)
    table = socket_table(stored(tmp_path / "a.zst", [Sample(0, 0, message)], ["3"]), [flow(3)], 0)
    assert table["timeouts"].to_list() == [None]
    assert table["cwnd"].to_list() == [17]
    assert grown(table, Interval(0, 10))[3]["timeouts"] is None


def test_samples_count_while_their_flow_is_active():
    """A socket connects early, and is there before its flow starts and after its last byte."""
    late = flow(3).model_copy(update={"start_ns": 20})
    table = pl.DataFrame(
        [
            *((t, 3, 0, 0) for t in (0, 10)),
            *((t, 3, 5, 0) for t in (20, 30)),
            (40, 3, 0, 0),  # Its program paused.
            (50, 3, 0, 900),
            *((60, 3, 0, 0), (20, 8, 0, 0), (20, 9, 1, 0)),
        ],
        schema=["t", "flow", "unacked", "notsent_bytes"],
        orient="row",
    )
    kept = while_active(table, [late, flow(8)])
    assert kept.select("t", "flow").rows() == [(t, 3) for t in (20, 30, 40, 50)]
    unknown = table.with_columns(notsent_bytes=pl.lit(None, pl.Int64))
    assert while_active(unknown, [late])["t"].to_list() == [20, 30]


def qdisc(kind: str, handle: int, sent: tuple[int, int], queue: tuple[int, ...]) -> bytes:
    """RTM_NEWQDISC with TCA_STATS2: `sent` bytes and packets; qlen, backlog, drops, ..."""
    basic = attribute(1, struct.pack("=QII", *sent, 0))
    stats = attribute(7, basic + attribute(3, struct.pack("=IIIII", *queue)))
    body = struct.pack("=BBHiIII", 0, 0, 0, 5, handle << 16, 0, 0)
    body += attribute(1, kind.encode() + b"\0") + stats
    return struct.pack("=IHHII", 16 + len(body), 36, 0, 0, 0) + body


def test_a_queue_over_time(tmp_path):
    samples = []
    for t_ns, drops in ((100, 0), (110, 4)):
        samples.append(Sample(t_ns, 0, qdisc("tbf", 2, (9000, 6), (2, 3028, drops, 0, 7))))
        samples.append(Sample(t_ns, 0, qdisc("bfifo", 3, (9000, 6), (2, 3028, drops, 0, 0))))
    table = port_table(stored(tmp_path / "p.zst", samples, ["s1-eth1"]), 100)
    assert table["t"].to_list() == [0, 10]
    assert table["port"].to_list() == ["s1-eth1"] * 2
    assert table["drops"].to_list() == [0, 4]
    assert table["backlog_bytes"].to_list() == [3028] * 2
    assert table["sent_packets"].to_list() == [6] * 2
    broken = stored(tmp_path / "q.zst", samples[1:2], ["s1-eth1"])
    with pytest.raises(InputError, match="s1-eth1: "):
        port_table(broken, 100)


@pytest.mark.parametrize("kind", sorted(qdisc for kind in KINDS for qdisc in kind.counters))
def test_statistics_are_read_as_pyroute2_reads_them(kind):
    draw = random.Random(kind)
    for length in (160, 400):
        basic = attribute(1, struct.pack("=QII", draw.getrandbits(60), draw.getrandbits(32), 0))
        queue = attribute(3, struct.pack("=5I", *(draw.getrandbits(32) for _ in range(5))))
        # In cake's own statistics pyroute2 looks for attributes.
        own = attribute(4, attribute(9, draw.randbytes(length - 4)))
        body = struct.pack("=BBHiIII", 0, 0, 0, 5, 3 << 16, 0, 0)
        body += attribute(1, kind.encode() + b"\0")
        body += attribute(7, basic + own + queue + attribute(8, bytes(8)))
        raw = struct.pack("=IHHII", 16 + len(body), 36, 0, 0, 0) + body
        by_pyroute2 = tcmsg(raw)
        by_pyroute2.decode()
        by_pyroute2["event"] = "RTM_NEWQDISC"
        shaper = qdisc("tbf", 2, (9000, 6), (2, 3028, 4, 0, 7))
        ours, theirs = (
            statistics([read_message(shaper), leaf]) for leaf in (read_message(raw), by_pyroute2)
        )
        assert ours == theirs


def test_a_message_without_its_counters_is_refused(tmp_path):
    whole = qdisc("tbf", 2, (1, 1), (1, 1, 1, 1, 1))
    kind_at, stats_at, queue_at = 36, 44, 44 + 4 + 20
    for at, problem in (
        (kind_at, "a message of the kernel lacks TCA_KIND"),
        (stats_at, "a message of the kernel lacks TCA_STATS2"),
        (queue_at, "a message of the kernel lacks TCA_STATS_QUEUE"),
    ):
        changed = bytearray(whole)
        changed[at + 2 : at + 4] = struct.pack("=H", 99)
        path = stored(tmp_path / "p.zst", [Sample(1, 0, bytes(changed))], ["s1-eth1"])
        with pytest.raises(InputError, match=f"s1-eth1: {problem}"):
            port_table(path, 0)


def windows(*of_flow: list[int]) -> pl.DataFrame:
    return pl.concat(
        pl.DataFrame({"t": range(len(values)), "flow": [number] * len(values), "cwnd": values})
        for number, values in enumerate(of_flow)
    )


def test_windows_that_move_together_or_not():
    saw = [1, 2, 3, 4, 5, 6] * 20
    together = synchronisation(windows(saw, [2 * value for value in saw]))
    assert together.mean == pytest.approx(1)
    against = synchronisation(windows(saw, saw[::-1]))
    assert against.mean == pytest.approx(-1)
    random = np.random.default_rng(1).integers(1, 20, (3, 2000)).tolist()
    apart = synchronisation(windows(*random))
    assert apart.flows == 3
    # The standard error of a correlation over 2000 samples is 0.022.
    assert max(abs(apart.min), abs(apart.max)) < 0.1
    assert synchronisation(windows(saw, [5] * len(saw))) is None
    assert synchronisation(windows(saw[:5], saw[:5])) is None


def counted(t: Sequence[int], timeouts: Sequence[int], sport: int = 5) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "t": t,
            "flow": [1] * len(t),
            "sport": [sport] * len(t),
            "timeouts": timeouts,
            "retransmits": [10 * count for count in timeouts],
        }
    )


def test_counts_grow_between_the_samples_nearest_to_an_intervals_ends():
    table = counted([2, 102, 202, 302], [1, 2, 4, 8])
    assert grown(table, Interval(100, 300))[1] == {
        "timeouts": 6,
        "retransmits": 60,
    }
    # Sockets of one flow add up, and one that ended counts to its last sample.
    both = pl.concat([table, counted([2, 102], [0, 5], sport=6)])
    assert grown(both, Interval(0, 300))[1]["timeouts"] == 7 + 5
    assert grown(both, Interval(100, 900))[1]["timeouts"] == 6


def test_sparse_samples_tell_no_counts():
    table = counted([0, 100, 200], [0, 1, 2])
    assert grown(table, Interval(0, 104))[1]["timeouts"] == 1
    assert grown(table, Interval(0, 110))[1]["timeouts"] is None


# --- Generated traffic as the captures show it, and what people see of a run with UDP alone


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
