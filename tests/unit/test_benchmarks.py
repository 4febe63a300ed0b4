"""The benchmark that fills docs/design/cost.md, and the experiment that it gives ns-3."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import against, ns3, single
from benchmarks.against import HEAD, NAME, Cost
from benchmarks.stored import Entry
from outcast import experiment
from outcast.plan.make import make_plan
from scripts import fill_numbers

ROOT = Path(__file__).parents[2]


def test_a_row_has_medians_and_the_median_of_neighbours_ratios():
    # The machine was twice as slow in the second round, which changes no ratio.
    pairs = [
        (Cost(10.0, 8.0, 300_000_000), Cost(5.0, 2.0, 200_000_000)),
        (Cost(20.0, 16.0, 300_000_000), Cost(10.0, 4.0, 200_000_000)),
        (Cost(11.0, 9.0, 300_000_000), Cost(5.5, 9.0, 200_000_000)),
    ]
    assert against.line("a run", pairs) == [
        *("a run", "9.00", "4.00", "0.25", "11.00", "5.50", "0.50", "300", "200")
    ]
    # A state that cannot do it has no cost, and a phase has no processor time of its own.
    only_here = [(None, Cost(5.0, 2.0, 10**8)), (None, Cost(7.0, 2.0, 10**8))]
    assert against.line("k=16", only_here)[1:] == ["-", "2.00", "-", "-", "6.00", "-", "-", "100"]
    phase = against.line("boot", [(Cost(2.0), Cost(1.0))])
    assert phase[1:] == ["-", "-", "-", "2.00", "1.00", "0.50", "-", "-"]


def test_phases_reach_from_the_process_start_to_the_commands_end(tmp_path):
    stored = tmp_path / "run.json"
    marks = {"boot": (11.0, 0.5, 0.4), "traffic": (13.0, 2.5, 0.6), "end": (16.0, 5.0, 0.9)}
    stored.write_text(json.dumps({"marks": marks, "faults": 7}))
    read = single.read(stored, 10.0)
    assert read.phases == {"start": (1.0, 0.5), "boot": (2.0, 2.0), "traffic": (3.0, 2.5)}
    assert (read.own_s, read.faults) == (0.9, 7)


def test_a_single_run_is_shown_by_phase(monkeypatch):
    def measure(*given: object) -> None:
        *_, found, inside = given
        assert isinstance(found, against.Findings)
        assert isinstance(inside, list)
        found.rows["a run"] = [(Cost(9.0, 8.0, 1), Cost(6.0, 5.0, 1))] * 2
        old = single.Inside({"boot": (2.0, 1.5), "traffic": (5.0, 4.0)}, 0.8, 1_000)
        new = single.Inside({"boot": (1.0, 1.5), "done": (3.0, 2.0)}, 0.4, 3_000)
        inside += [(old, new)] * 2

    monkeypatch.setattr(against, "_measure_run", measure)
    found = against.Findings()
    against.measure_single([ROOT, ROOT], argparse.Namespace(), found)
    rows = {what: against.line(what, pairs)[1:7] for what, pairs in found.rows.items()}
    assert next(iter(rows)) == "a run"
    assert rows["of it the guest's boot"] == ["1.50", "1.50", "1.00", "2.00", "1.00", "0.50"]
    # A phase that one of the states does not have.
    assert rows["of it traffic"] == ["4.00", "-", "-", "5.00", "-", "-"]
    assert rows["of it the guest's end"] == ["-", "2.00", "-", "-", "3.00", "-"]
    assert rows["of it outcast's own process"] == ["0.80", "0.40", "0.50", "-", "-", "-"]
    assert found.values == {against.FAULTS: "1,000 before, 3,000 after"}


def test_parts_of_the_same_states_are_one_table():
    boot, net = ["boot", *"12345678"], ["net", *"12345678"]
    one = Entry("--only single", "a against b", [HEAD, boot], {against.NS3: "0.5"})
    assert against.merged(None, one) == one
    newer = ["boot", *"87654321"]
    two = against.merged(one, Entry("--only k4", "a against b", [HEAD, net, newer]))
    assert two == Entry(
        "--only single; --only k4", "a against b", [HEAD, newer, net], {against.NS3: "0.5"}
    )
    same = replace(two, values={against.DIFFERENT: against.NONE_DIFFERS})
    assert against.merged(same, one).values[against.DIFFERENT] == against.NONE_DIFFERS
    differ = replace(one, values={against.DIFFERENT: "a run: the captures differ"})
    assert against.merged(differ, same).values == against.merged(same, differ).values
    assert against.merged(differ, same).values[against.DIFFERENT] == "a run: the captures differ"
    other = Entry("--only k4", "c against b", [HEAD, net])
    assert against.merged(one, other) == other


def test_a_throughput_that_cannot_be_true_says_so():
    assert against.two_at_a_time(1.874) == "1.87"
    assert against.two_at_a_time(2.37).startswith("2.37 (two cannot do more than double")


def test_the_page_takes_what_the_benchmark_can_store():
    page = (ROOT / "docs/design/cost.md").read_text(encoding="utf-8")
    # The other tables have rows of other states, which `--table` stored.
    named = {name for name in fill_numbers.named(page) if not name.startswith(f"{NAME}-")}
    assert named <= {f"{NAME}{value}" for value in against.VALUES}


def test_ns3_is_given_the_plan():
    asked = experiment.load(ROOT / "configs/fig3c.yaml", [])
    plan = make_plan(asked)
    lines = [line.split() for line in ns3.lines_of(asked)]
    assert lines[0] == ["run", "500000000", "TcpBic", "2000000", "128"]
    names = list(plan.graph.nodes)
    assert lines[1] == ["node", str(len(names))]
    links = [line for line in lines if line[0] == "link"]
    assert len(links) == plan.graph.number_of_edges()
    # A full frame, of 1502 bytes there, takes 12.304 us.
    assert 1502 * 8e9 / int(links[0][3]) == pytest.approx(12_304, abs=0.1)
    assert links[0][5] == "16384"
    nexts = {(line[1], line[2]): line[3] for line in lines if line[0] == "route"}
    flows = [line[1:] for line in lines if line[0] == "flow"]
    assert len(flows) == len(plan.flows) == 13
    for flow, (src, dst) in zip(plan.flows, flows, strict=True):
        way = [src]
        while way[-1] != dst:
            way.append(nexts[way[-1], dst])
        assert [names[int(node)] for node in way] == list(flow.path)
    captures = {names[int(line[1])] for line in lines if line[0] == "capture"}
    assert captures == {plan.bottleneck.switch}
