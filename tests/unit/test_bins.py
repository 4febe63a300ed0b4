"""The queue, the link and unique bytes of goodput in bins."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcast.analysis import analyze
from outcast.analysis.capture.headers import TCP, FlowKey
from outcast.analysis.capture.pcap import read_capture
from outcast.analysis.join.packets import Packets
from outcast.analysis.measure.bins import bytes_between, queue_in_bins, series
from outcast.analysis.measure.queue import Event, Queue
from outcast.analysis.measure.segments import fresh_bytes
from outcast.records.run_directory import RunDirectory
from tests.golden.packets import P, joined
from tests.golden.run_directory import analysed_run


def queue_of(events: list[tuple[int, Event, int]]) -> Queue:
    none32, none8 = np.empty(0, np.int32), np.zeros(len(events), np.int8)
    return Queue(
        found_bytes=none32,
        found_packets=none32,
        time_ns=np.array([time for time, _, _ in events], np.int64),
        event=np.array([event for _, event, _ in events], np.int8),
        packet=none32,
        egress=none8,
        bytes=np.array([held for _, _, held in events], np.int32),
        packets=none32,
    )


def test_the_mean_is_over_time_and_the_level_carries_over():
    queue = queue_of(
        [(105, Event.ENQUEUE, 100), (108, Event.ENQUEUE, 300), (125, Event.DEQUEUE, 0)]
    )
    mean, most = queue_in_bins(queue, np.array([100, 110, 120, 130, 140], np.int64))
    assert mean.tolist() == pytest.approx([(3 * 100 + 2 * 300) / 10, 300, 150, 0])
    assert most.tolist() == [300, 300, 300, 0]


def test_what_left_first_was_there_before():
    queue = queue_of([(115, Event.DEQUEUE, 50), (118, Event.DEQUEUE, 0)])
    mean, most = queue_in_bins(queue, np.array([100, 110, 120], np.int64))
    assert mean[0] == 50
    assert most.tolist() == [50, 50]
    empty, _ = queue_in_bins(queue_of([]), np.array([0, 10], np.int64))
    assert empty.tolist() == [0]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunDirectory:
    return analysed_run(tmp_path_factory.mktemp("bins") / "run", 80_000_000, 9, 6_000)


def test_bins_add_up_to_the_run(run):
    bins = pl.read_parquet(run.path / "bins.parquet")
    packets = pl.read_parquet(run.path / "packets.parquet")
    begin = run.read_manifest().traffic.t_start_ns
    inside = packets.filter(pl.col("t_in") <= begin + 80_000_000)
    for verdict in ("forwarded", "dropped"):
        assert bins[verdict].sum() == inside.filter(pl.col("verdict") == verdict).height
    assert bins["utilisation"].max() <= 1
    assert bins["queue_max_bytes"].max() <= 16_384
    assert (bins["queue_mean_bytes"] <= bins["queue_max_bytes"]).all()
    throughput = pl.read_parquet(run.path / "throughput.parquet")
    sent = throughput.group_by("t").agg(pl.sum("throughput_bps")).sort("t")
    # A bin of 1 ms can differ by the part of a frame that is on the link at its edges.
    apart = (sent["throughput_bps"] / 1e9).to_numpy() - bins["utilisation"].to_numpy()
    assert np.abs(apart).max() <= 1514 * 8 / 1e6
    assert abs(apart.sum()) <= 1514 * 8 / 1e6


def test_what_goes_with_a_frame_takes_its_share_of_the_link(run):
    def used() -> pl.DataFrame:
        analyze(run)
        return pl.read_parquet(run.path / "bins.parquet").select("t", "utilisation")

    manifest = run.read_manifest()
    frames = used()
    (bottleneck,) = manifest.bottlenecks
    queue = bottleneck.queue.model_copy(update={"overhead_bytes": 24, "least_bytes": 84})
    studied = bottleneck.model_copy(update={"queue": queue})
    run.write_manifest(manifest.model_copy(update={"bottlenecks": [studied]}))
    try:
        added = used()["utilisation"] - frames["utilisation"]
        bin_ns = frames["t"][1]
        (file,) = (run.path / "captures").glob("*.out.pcap")
        left = read_capture("out", file).columns
        first = left.stamp_ns - manifest.traffic.t_start_ns < bin_ns
        added_bytes = sum(max(24, 84 - frame) for frame in left.frame_bytes[first].tolist())
        assert added[0] == pytest.approx(added_bytes * 8 / bin_ns, abs=24 * 8 / bin_ns)
    finally:
        run.write_manifest(manifest)


FLOW = FlowKey("10.0.0.2", 20001, "10.0.0.1", 5001, TCP)


def packets(segments: list[tuple[int, int]], flags: int = 0x10) -> Packets:
    made = Packets.empty(len(segments))
    made.flow[:] = 0
    made.seq[:] = [seq % 2**32 for seq, _ in segments]
    made.payload_bytes[:] = [size for _, size in segments]
    made.flags[:] = flags
    made.stamp_ns[:] = np.arange(len(segments)) * 1000
    return made


def test_bytes_count_once_and_when_a_hole_is_filled():
    got = fresh_bytes(packets([(0, 100), (100, 100), (0, 100), (50, 100), (150, 100)]), (FLOW,))
    assert got.tolist() == [100, 100, 0, 0, 50]
    got = fresh_bytes(packets([(0, 100), (200, 100), (100, 100), (50, 250)]), (FLOW,))
    assert got.tolist() == [100, 100, 100, 0]


def test_a_syn_takes_a_number_but_carries_nothing():
    """The SYN's number is 999, so data begins at 1000; a keep-alive at 999 is nothing new."""
    both = packets([(999, 0), (1000, 10), (999, 1), (1010, 10)])
    both.flags[0] = 0x02
    assert fresh_bytes(both, (FLOW,)).tolist() == [0, 10, 1, 10]
    opened = packets([(999, 5), (1000, 10)])
    opened.flags[0] = 0x02
    assert fresh_bytes(opened, (FLOW,)).tolist() == [5, 5]


def test_udp_counts_all_its_payload():
    udp = FlowKey("10.0.0.2", 1, "10.0.0.1", 2, 17)
    assert fresh_bytes(packets([(0, 100), (0, 100)]), (udp,)).tolist() == [100, 100]


@given(
    base=st.integers(0, 2**32 - 1),
    segments=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60)), max_size=60),
)
def test_against_a_set_of_bytes(base, segments):
    """Every byte counts once, when it first appears, also across the wrap at 2^32."""
    got = fresh_bytes(packets([(base + at, size) for at, size in segments]), (FLOW,))
    seen: set[int] = set()
    for (at, size), fresh in zip(segments, got.tolist(), strict=True):
        new = set(range(at, at + size)) - seen
        assert fresh == len(new)
        seen |= new


def test_scattered_segments_take_no_quadratic_time():
    rng = np.random.default_rng(1)
    order = rng.permutation(300_000) * 7
    got = fresh_bytes(packets([(int(at), 5) for at in order]), (FLOW,))
    assert int(got.sum()) == 5 * 300_000


def test_bins_and_intervals(tmp_path):
    came = [P(n * 1000, seq=n * 1448, ip_id=n) for n in range(10)]
    left = [P(n * 1000 + 500, seq=n * 1448, ip_id=n) for n in range(10)]
    made = joined(tmp_path, came, left)
    fresh = fresh_bytes(made.departures, made.flows)
    got = series(made.departures, fresh, 1, 1_000_000, 2_000_000, 9_000_000)
    assert got.tolist() == [[[2896] * 4], [[3028] * 4], [[2] * 4]]
    # The last bin ends with the interval, so what left after it is not in it.
    _, _, counted = series(made.departures, fresh, 1, 1_000_000, 2_000_000, 8_000_000)
    assert counted.tolist() == [[2, 2, 2, 1]]
    assert bytes_between(made.departures, fresh, 1, 500_000, 2_500_000).tolist() == [2896]
