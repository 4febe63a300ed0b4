"""The queue's content over time: by hand, and against the reference switch."""

import json

import numpy as np
import pytest

from outcast import quantities
from outcast.analysis.capture.pcap import read_capture
from outcast.analysis.join.join import join
from outcast.analysis.measure.queue import Event, first_bits_ns, replay
from outcast.records.run import Run
from tests.golden import model
from tests.golden.packets import P, capture, joined, joined_model
from tests.golden.run_directory import analysed_run

E, X, Q = Event.ENQUEUE, Event.DROP, Event.DEQUEUE


def data(at_us: float, number: int, payload: int = 934) -> P:
    """A frame of 1000 bytes."""
    return P(at_us, seq=number * 1000, ip_id=number, payload=payload)


def test_by_hand(tmp_path):
    a = [data(10, 0), data(20, 1), data(30, 2), data(40, 3, payload=34)]
    out = [data(25, 0), data(35, 1), data(45, 3, payload=34)]
    got = replay(joined(tmp_path, a, out))
    assert got.found_bytes.tolist() == [0, 1000, 1000, 0]
    assert got.found_packets.tolist() == [0, 1, 1, 0]
    assert got.time_ns.tolist() == [10_000, 20_000, 25_000, 30_000, 35_000, 40_000, 45_000]
    assert got.event.tolist() == [E, E, Q, X, Q, E, Q]
    assert got.packet.tolist() == [0, 1, 0, 2, 1, 3, 3]
    assert got.bytes.tolist() == [1000, 2000, 1000, 1000, 0, 100, 0]
    assert got.packets.tolist() == [1, 2, 1, 1, 0, 1, 0]


def test_what_was_queued_before_the_capture_counts(tmp_path):
    a = [data(10, 1)]
    out = [data(12, 0), data(24, 1)]
    got = replay(joined(tmp_path, a, out))
    assert got.found_bytes.tolist() == [1000]
    assert got.packet.tolist() == [0, -1, 0]
    assert got.bytes.tolist() == [2000, 1000, 0]


def test_at_equal_times_a_departure_comes_first_but_not_before_its_arrival(tmp_path):
    a = [data(10, 0), data(20, 1), data(30, 2)]
    out = [data(20, 0), data(20, 1), data(30, 2)]
    got = replay(joined(tmp_path, a, out))
    assert got.found_bytes.tolist() == [0, 0, 0]
    assert got.bytes.tolist() == [1000, 0, 1000, 0, 1000, 0]


def test_two_outputs_have_two_queues(tmp_path):
    a = [data(10, 0), P(11, seq=5, dst="10.0.0.9", payload=34), data(12, 1)]
    out = [data(20, 0), data(30, 1)]
    other = [P(40, seq=5, dst="10.0.0.9", payload=34)]
    got = replay(joined(tmp_path, a, {"out": out, "other": other}))
    assert got.found_bytes.tolist() == [0, 0, 1000]
    assert got.egress.tolist() == [0, 1, 0, 0, 0, 1]


def test_a_tag_that_is_taken_off_leaves_nothing_in_the_queue(tmp_path):
    a = read_capture("a", capture(tmp_path / "a", [data(10, 0), data(20, 1)]))
    a.columns.frame_bytes[:] += 4
    out = read_capture("out", capture(tmp_path / "out", [data(30, 0), data(40, 1)]))
    assert replay(join([a], [out])).bytes.tolist() == [1000, 2000, 1000, 0]


@pytest.mark.parametrize("limit", [3000, 16_384])
def test_the_reference_switch(tmp_path, limit):
    traffic = model.drop_tail(model.make_traffic(11, 30_000), limit, 10**9)
    made = joined_model(tmp_path, traffic)
    got = replay(made)
    assert got.found_bytes.tolist() == traffic.found.tolist()
    assert got.bytes.max() <= limit
    assert got.bytes.min() == 0
    assert got.bytes[-1] == 0
    assert (got.time_ns[1:] >= got.time_ns[:-1]).all()
    assert got.time_ns.size == len(made.arrivals) + len(made.departures)


def test_a_known_delay_before_the_queue_is_not_time_in_it(tmp_path):
    a = [data(10, 0), data(20, 1), data(30, 2)]
    # The second packet was delayed by less, so it entered at the latest when it left.
    out = [data(18, 0), data(23, 1), data(40, 2)]
    got = replay(joined(tmp_path, a, out), delay_ns=5000)
    assert got.time_ns.tolist() == [15_000, 18_000, 23_000, 23_000, 35_000, 40_000]
    assert got.event.tolist() == [E, Q, E, Q, E, Q]
    assert got.bytes.tolist() == [1000, 0, 1000, 0, 1000, 0]
    assert got.found_bytes.tolist() == [0, 0, 0]


def test_a_small_frame_waits_for_the_larger_one_before_it():
    departed_ns = np.array([0, 180, 12_484, 40_000, 40_180, 40_360])
    took_ns = np.array([12_304, 180, 12_304, 12_304, 180, 180])
    first = first_bits_ns(departed_ns, took_ns)
    assert first.tolist() == [0, 12_304, 12_484, 40_000, 52_304, 52_484]


# --- Quantities that name the function that measures them: of a queue, and of every other level


def test_the_time_that_a_queue_was_full(tmp_path):
    run = Run(analysed_run(tmp_path / "run", 20_000_000, 9, 1_000))
    ((port, queue),) = run.summary.queue.items()
    (record,) = run.manifest.bottlenecks
    begin = run.manifest.traffic.t_start_ns
    end = begin + run.manifest.traffic.duration_ns
    full_ns, was_full, since = 0, False, begin
    room = record.queue.limit_bytes - record.queue.frame_bytes
    for t_ns, held in run.table("queue").select("t", "queue_bytes").iter_rows():
        at = min(max(t_ns, begin), end)
        full_ns += (at - since) * was_full
        was_full, since = held > room, at
    full_ns += (end - since) * was_full
    assert queue.full_s == pytest.approx(full_ns / 1e9)
    assert 0 < queue.full_s < 0.02
    assert json.loads(run.directory.summary.read_text())["queue"][port]["full_s"] == queue.full_s


MEASURES = {
    "run": lambda analysis: len(analysis.manifest.flows),
    "class": lambda analysis, records: sum(record.flow for record in records),
    "flow": lambda analysis, record: 2.5 * record.flow,
}


def test_one_function_and_one_entry_make_a_measure(tmp_path, monkeypatch):
    for level, measure in MEASURES.items():
        monkeypatch.setattr(f"outcast.analysis.measure.flows.{level}", measure, raising=False)
    form = quantities.COUNT
    more = [
        quantities.Quantity(level, "mine", "mine", "mine", form, measure=f"flows:{level}")
        for level in MEASURES
    ]
    monkeypatch.setattr(quantities, "TABLE", (*quantities.TABLE, *more))
    run = Run(analysed_run(tmp_path / "run", 20_000_000, 9, 1_000))
    flows = run.table("flows")
    assert flows["mine"].to_list() == [2.5 * flow for flow in flows["flow"]]
    assert run.summary.mine == flows.height
    for hops, part in run.summary.classes.items():
        assert part.mine == flows.filter(hops=int(hops))["flow"].sum()
        assert run.summary.groups["hops"][f"{hops}-hop"].mine == part.mine
