"""The queue, the link and unique bytes of goodput in bins."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcast.analysis import analyze
from outcast.analysis.capture.headers import TCP, FlowKey
from outcast.analysis.capture.pcap import read_capture
from outcast.analysis.join.join import Joined
from outcast.analysis.join.packets import Packets
from outcast.analysis.measure.bins import bytes_between, queue_in_bins, series
from outcast.analysis.measure.noise import LEAST_ARRIVALS, kept_phase, noise
from outcast.analysis.measure.queue import Event, Queue
from outcast.analysis.measure.segments import fresh_bytes
from outcast.records.port_summaries import NoiseInput
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


# --- The noise of an output: gaps between departures, and the share of its phase an input keeps


PACKET_NS = 12_000
"""Of the frames of `P`, if they leave so far apart."""


def seen(phase: np.ndarray, every: int = 1) -> NoiseInput:
    """An input that sends a packet in each `every`th packet time, at these phases."""
    begins = np.arange(phase.size) * every * PACKET_NS
    stamps = begins + np.round(phase % 1 * PACKET_NS).astype(np.int64)
    return kept_phase(stamps, phase % 1, PACKET_NS)


@pytest.mark.parametrize("every", [1, 3, 20])
def test_an_input_in_step_keeps_its_phase(every):
    assert seen(np.full(20_000, 0.3), every).kept == pytest.approx(1)


def test_random_phases_keep_nothing():
    assert seen(np.random.default_rng(1).uniform(size=20_000)).kept < 0.02


@pytest.mark.parametrize("seed", range(20))
def test_the_share_is_that_of_the_draws(seed):
    """Phases that are drawn at regular intervals, and delays with a draw of their own.

    Of two packets L apart 1 - L / lasts have one draw, and sinc(2J)^2 is kept where each is late by
    up to J up and down.
    """
    draw = np.random.default_rng(seed)
    lasts, late = int(draw.choice([40, 100, 300, 1000, 4000])), draw.uniform(0, 0.4)
    phase = np.repeat(draw.uniform(size=200_000 // lasts), lasts)
    drawn = seen(phase + draw.uniform(-late, late, phase.size))
    same = np.clip(1 - np.geomspace(64, 256, 100) / lasts, 0, 1).mean() * np.sinc(2 * late) ** 2
    assert drawn.kept == pytest.approx(same, abs=0.1)


def test_few_arrivals_tell_nothing():
    few = seen(np.full(LEAST_ARRIVALS - 1, 0.3))
    assert (few.arrivals, few.kept) == (LEAST_ARRIVALS - 1, None)
    # Many arrivals within a short time say nothing of long lags.
    short = kept_phase(np.arange(200, dtype=np.int64) * 1000, np.full(200, 0.3), PACKET_NS)
    assert short.kept is None


FULL = 1448


def scene(folder: Path, jitter_us: int, packets: int = 3000) -> Joined:
    """Two inputs share an output that is always busy; each 50th packet time is idle.

    `P` counts in microseconds. Input a comes 3 us after a departure, input b by a random phase.
    """
    draw = np.random.default_rng(4)
    came: dict[str, list[P]] = {"a": [], "b": []}
    out: list[P] = []
    for number in range(packets):
        leaves = 1000 + 12 * number + 60 * (number // 50)
        port = "ab"[number % 2]
        address = f"10.0.0.{number % 2 + 2}"
        late = int(draw.integers(-jitter_us, jitter_us + 1))
        if number % 50 == 0:
            # It finds the output idle, and leaves after the switch's latency.
            at = leaves - 20 + late
        else:
            at = leaves - 36 + (3 if port == "a" else int(draw.integers(0, 12)))
        came[port].append(P(at, seq=number, ip_id=number, src=address, payload=FULL))
        out.append(P(leaves, seq=number, ip_id=number, src=address, payload=FULL))
    inputs = {port: sorted(rows, key=lambda row: row.at_us) for port, rows in came.items()}
    return joined(folder, inputs, out)


def test_the_inputs_of_a_scene_are_told_apart(tmp_path):
    found = noise(scene(tmp_path, jitter_us=0), 0, 0, nominal_ns=12_000)
    assert (found.packet_time_us, found.of_nominal, found.mean_of_nominal) == (12, 1, 1)
    assert found.gap_spread == 0
    assert found.inputs["a"].kept > 0.95
    assert found.inputs["b"].kept < 0.15


def test_an_output_that_is_never_busy_has_no_noise(tmp_path):
    few = scene(tmp_path, jitter_us=0, packets=90)
    found = noise(few, 0, 0, 12_000)
    assert (found.back_to_back, found.of_nominal, found.inputs) == (0, None, {})
