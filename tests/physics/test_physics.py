"""The quick part of the cases; `python -m tests.physics.run` has all of them."""

import pytest

from tests.physics.cases import CASES
from tests.physics.run import experiments, programs_read, receivers_differ, run_cases

RECEIVERS = ("the period of Reno's sawtooth", "a receive buffer of 128 KB over 100 ms")
QUICK = experiments(case for case in CASES if case.quick and case.name not in RECEIVERS)


@pytest.mark.parametrize("cases", QUICK, ids=lambda cases: cases[0].name)
def test_an_experiment_with_a_known_answer(cases, tmp_path):
    outcomes = run_cases(cases, tmp_path)
    assert {c.name: made.faults(c) for c, made in zip(cases, outcomes, strict=True)} == {
        case.name: [] for case in cases
    }


@pytest.mark.parametrize("name", RECEIVERS)
def test_the_receivers_window_limits_as_where_programs_read(name, tmp_path):
    """A kernel that reads at once is no other receiver; all cases: `run.py --receivers`."""
    (case,) = [case for case in CASES if case.name == name]
    (usual,) = run_cases([case], tmp_path)
    with programs_read():
        (read,) = run_cases([case], tmp_path / "programs-read")
    assert usual.faults(case) == []
    assert usual.receiver
    assert receivers_differ(usual, read) == []
    assert read.faults(case) == []
