"""The queue and the link in bins."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from outcast.analysis import analyze
from outcast.analysis.capture.pcap import read_capture
from outcast.analysis.measure.bins import queue_in_bins
from outcast.analysis.measure.queue import Event, Queue
from outcast.records.run_directory import RunDirectory
from tests.golden import model
from tests.golden.run_directory import write_run


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


def test_the_mean_is_over_time_and_the_level_carries_over() -> None:
    queue = queue_of(
        [(105, Event.ENQUEUE, 100), (108, Event.ENQUEUE, 300), (125, Event.DEQUEUE, 0)]
    )
    mean, most = queue_in_bins(queue, np.array([100, 110, 120, 130, 140], np.int64))
    assert mean.tolist() == pytest.approx([(3 * 100 + 2 * 300) / 10, 300, 150, 0])
    assert most.tolist() == [300, 300, 300, 0]


def test_what_left_first_was_there_before() -> None:
    queue = queue_of([(115, Event.DEQUEUE, 50), (118, Event.DEQUEUE, 0)])
    mean, most = queue_in_bins(queue, np.array([100, 110, 120], np.int64))
    assert mean[0] == 50
    assert most.tolist() == [50, 50]
    empty, _ = queue_in_bins(queue_of([]), np.array([0, 10], np.int64))
    assert empty.tolist() == [0]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    traffic = model.drop_tail(model.make_traffic(9, 6_000), 16_384, 10**9)
    directory = write_run(tmp_path_factory.mktemp("bins") / "run", traffic, 80_000_000)
    analyze(directory)
    return directory


def test_bins_add_up_to_the_run(run: RunDirectory) -> None:
    bins = pl.read_parquet(run.path / "bins.parquet")
    packets = pl.read_parquet(run.path / "packets.parquet")
    begin = run.read_manifest().traffic.t_start_ns
    inside = packets.filter(pl.col("t_in") <= begin + 80_000_000)
    for verdict in ("forwarded", "dropped"):
        assert bins[verdict].sum() == inside.filter(pl.col("verdict") == verdict).height
    assert bins["utilisation"].max() <= 1  # type: ignore[operator]
    assert bins["queue_max_bytes"].max() <= 16_384  # type: ignore[operator]
    assert (bins["queue_mean_bytes"] <= bins["queue_max_bytes"]).all()
    throughput = pl.read_parquet(run.path / "throughput.parquet")
    sent = throughput.group_by("t").agg(pl.sum("throughput_bps")).sort("t")
    # A bin of 1 ms can differ by the part of a frame that is on the link at its edges.
    apart = (sent["throughput_bps"] / 1e9).to_numpy() - bins["utilisation"].to_numpy()
    assert np.abs(apart).max() <= 1514 * 8 / 1e6
    assert abs(apart.sum()) <= 1514 * 8 / 1e6


def test_what_goes_with_a_frame_takes_its_share_of_the_link(run: RunDirectory) -> None:
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
