"""The right answer of each question, number by number, in a run of known content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from outcast.analysis import analyze
from outcast.assignment import old_tasks as tasks
from outcast.assignment.old_questions import QUESTIONS
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from tests.golden import model
from tests.golden.run_directory import write_run

MS = 1_000_000


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    traffic = model.drop_tail(model.make_traffic(9, 3_000), 16_384, 10**9)
    directory = write_run(tmp_path_factory.mktemp("questions") / "run", traffic, 40 * MS)
    analyze(directory)
    tree: dict[str, Any] = json.loads(directory.summary.read_text())
    classes = {"2": tree["classes"]["2"], "6": tree["classes"]["3"]}
    for number, each in enumerate(classes.values(), 1):
        each["mean_goodput_bps"] = number * 1e6
        each["srtt_ms"] = {"mean": 9, "p50": number / 10, "p90": 9, "p99": 9, "max": 9}
    tree |= {"classes": classes, "outcast_ratio": 2.5, "total_goodput_bps": 9e8}
    lone = {
        **next(iter(tree["drops"].values())),
        "packets": 50,
        "dropped": 10,
        "hops": [2],
    }
    rivals = {**lone, "packets": 400, "dropped": 10, "hops": [6]}
    tree["drops"] = {"s1-eth2": lone, "s1-eth3": rivals}
    (phase,) = tree["phase"].values()
    phase |= {
        "packet_time_us": 12.1,
        "blackouts": 3,
        "during_lost": [0.8, 0.2, *[0.0] * 8],
        "during_others": [0.1, 0.9, *[0.0] * 8],
        "before_lost": [0.3] * 10,
        "before_others": [0.4] * 10,
    }
    directory.summary.write_text(json.dumps(tree))
    began = directory.read_manifest().traffic.t_start_ns
    rows = [
        ("s1-eth2", 5, 0.5, 4, 7),
        ("s1-eth2", 8, 0.5, 4, 9),
        ("s1-eth2", 9, 0.5, 3, 1),
        ("s1-eth2", 11, 1.5, 6, 1),
        ("s1-eth2", 12, 0.5, 7, 0),
        ("s1-eth3", 13, 0.5, 8, 1),
    ]
    pl.DataFrame(
        {
            "ingress": [port for port, *_ in rows],
            "t_start": [began + at * MS for _, at, *_ in rows],
            "t_end": [began + round((at + lasts) * MS) for _, at, lasts, *_ in rows],
            "drops": [drops for *_, drops, _ in rows],
            "others_through": [through for *_, through in rows],
        },
        schema_overrides={"ingress": pl.Categorical},
    ).write_parquet(directory.path / "blackouts.parquet")
    pl.DataFrame(
        {"src": ["h0_1_2", "h0_1_3", "h0_1_3"], "goodput_bps": [1e6, 2e6, 4e6]}
    ).write_parquet(directory.path / "flows.parquet")
    return directory


KNOWN: dict[str, tuple[float, ...]] = {
    "lone_goodput_mbps": (1,),
    "rival_goodput_mbps": (2,),
    "outcast_ratio": (2.5,),
    "lone_rtt_ms": (0.1,),
    "rival_rtt_ms": (0.2,),
    "equal_rtt_lone_mbps": (1,),
    "equal_rtt_rival_mbps": (3,),
    "lone_port_lost_percent": (20,),
    "rival_port_lost_percent": (2.5,),
    # It has four drops. Longer chains lasted too long, were of the other port, or no other packet
    # got through.
    "blackout_drops": (4,),
    "blackout_start_ms": (5, 8),
    "blackout_others": (7, 9),
    "packet_time_us": (12.1,),
    "phase_lost_percent": (80,),
    "phase_others_percent": (10,),
    "remedy_ratio": (2.5,),
    "remedy_total_mbps": (900,),
}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.key)
def test_the_right_answer(run: RunDirectory, question: Any) -> None:
    assert sorted(question.known(Run(run))) == pytest.approx(KNOWN[question.key])


def test_a_run_without_what_is_asked_for_has_no_right_answer(tmp_path: Path) -> None:
    traffic = model.drop_tail(model.make_traffic(9, 300), 10**9, 10**9)
    directory = write_run(tmp_path / "run", traffic, 20 * MS)
    analyze(directory)
    of = {question.key: question.known(Run(directory)) for question in QUESTIONS}
    for key in ("rival_goodput_mbps", "lone_rtt_ms", "equal_rtt_lone_mbps", "blackout_drops"):
        assert of[key] == ()
    assert of["phase_lost_percent"] == of["blackout_start_ms"] == ()


def test_a_gap_in_a_comment_is_none(tmp_path: Path) -> None:
    config = tmp_path / "one.yaml"
    config.write_text(f"# {tasks.GAP} is a gap\nqueue: {tasks.GAP}\nflows: 1  # not {tasks.GAP}\n")
    assert tasks.gaps(config) == [2]
