"""Random switches on one clock: no clock is corrected, and every verdict and wait is exact.

`python -m tests.golden.queues 500 --faults 200` tries more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from outcast.analysis.join import clock
from tests.golden import queues


@pytest.mark.parametrize("seed", range(30))
def test_a_switch_on_one_clock_is_exact(seed: int, tmp_path: Path) -> None:
    scene = queues.make(seed)
    assert queues.faults(scene, queues.joined(scene, tmp_path)) == [], scene.words


def test_clocks_that_are_wrong_are_found_or_refused(tmp_path: Path) -> None:
    outcomes, wrong = queues.try_faults(range(5, 17), tmp_path)
    assert wrong == []
    assert outcomes["found"] >= 6


def test_a_clock_that_is_moved_for_a_queue_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Waits that change and stay changed were once taken for a clock that stepped.
    monkeypatch.setattr(clock, "_agree", lambda *_: False)
    monkeypatch.setattr(clock, "_parts_what_can_be", lambda *_: True)
    for seed in (12, 17, 22):
        scene = queues.make(seed)
        assert queues.faults(scene, queues.joined(scene, tmp_path)), scene.words
