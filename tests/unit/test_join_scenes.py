"""Captures of a bridge, made and spoiled as in practice: tc's drops by port, or a loud refusal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import scenes

SCENES = {folder.name: scenes.read_scene(folder) for folder in sorted(scenes.STORED.iterdir())}
CASES = [(name, case) for name, scene in SCENES.items() for case in scenes.cases(scene)]


@pytest.mark.parametrize(
    ("name", "case"), CASES, ids=[f"{name}: {case.name}" for name, case in CASES]
)
def test_exact_or_refused(name: str, case: scenes.Case, tmp_path: Path) -> None:
    outcome = scenes.judge(SCENES[name], case, tmp_path)
    assert case.fits(outcome), outcome
