"""Quantities that name the function that measures them: of a queue, and of every other level."""

import json

import pytest

from outcast import quantities
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
