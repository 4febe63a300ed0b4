"""The quick part of the cases; `python -m tests.physics.run` has all of them."""

import pytest

from tests.physics.cases import CASES
from tests.physics.run import experiments, run_cases

QUICK = experiments(case for case in CASES if case.quick)


@pytest.mark.parametrize("cases", QUICK, ids=lambda cases: cases[0].name)
def test_an_experiment_with_a_known_answer(cases, tmp_path):
    outcomes = run_cases(cases, tmp_path)
    assert {c.name: made.faults(c) for c, made in zip(cases, outcomes, strict=True)} == {
        case.name: [] for case in cases
    }
