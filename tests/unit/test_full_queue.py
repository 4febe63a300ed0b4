"""How long a queue was full, against a slow count."""

import json

import pytest

from outcast.records.run import Run
from tests.golden.run_directory import analysed_run


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
