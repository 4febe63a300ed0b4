"""The quick part of the cases; `python -m tests.physics.run` has all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.physics.cases import CASES, Case
from tests.physics.run import run_case


@pytest.mark.parametrize("case", [case for case in CASES if case.quick], ids=lambda case: case.name)
def test_an_experiment_with_a_known_answer(case: Case, tmp_path: Path) -> None:
    assert run_case(case, tmp_path).faults(case) == []
