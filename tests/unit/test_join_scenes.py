"""Captures of a bridge, made and spoiled as in practice: tc's drops by port, or a loud refusal."""

from __future__ import annotations

from pathlib import Path

import pytest

from outcast.api.joins import join_captures
from tests.golden import scenes

SCENES = {folder.name: scenes.read_scene(folder) for folder in sorted(scenes.STORED.iterdir())}
CASES = [(name, case) for name, scene in SCENES.items() for case in scenes.cases(scene)]


@pytest.mark.parametrize(
    ("name", "case"), CASES, ids=[f"{name}: {case.name}" for name, case in CASES]
)
def test_exact_or_refused(name: str, case: scenes.Case, tmp_path: Path) -> None:
    outcome = scenes.judge(SCENES[name], case, tmp_path)
    assert case.fits(outcome), outcome


def test_an_output_whose_clock_leaps_forward(tmp_path: Path) -> None:
    scene = SCENES["three"]
    (case,) = [case for case in scenes.cases(scene) if case.name == "R set forward by 1.5 s"]
    paths = {name: tmp_path / f"{name}.pcap" for name in case.files}
    for name, file in case.files.items():
        file.write(paths[name])
    result = join_captures(ports=paths)
    joined = result.joined
    sojourn_ns = (joined.t_out_ns - joined.arrivals.stamp_ns)[joined.t_out_ns >= 0]
    # The queue of 16 KB drains at 50 Mbps, and the bridge stops for some ms once.
    assert sojourn_ns.max() < 10_000_000
    assert result.joined.clocks[0].startswith("R: its clock stepped by about 1500.")
    assert all(one.rate_bps is None and one.limit_unit is None for one in result.estimates)
    assert any("rates and limits of queues are not estimated" in text for text in result.remarks)
