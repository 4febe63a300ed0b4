"""Random queues on one clock: no clock is corrected, and every verdict and wait is exact.

`python -m tests.golden.queues 500` tries more, and clocks that are wrong.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import queues


@pytest.mark.parametrize("seed", range(30))
def test_a_queue_on_one_clock_is_exact(seed: int, tmp_path: Path) -> None:
    scene = queues.make(seed)
    assert queues.faults(scene, queues.joined(scene, tmp_path)) == [], scene.words


def test_clocks_that_are_wrong_are_found() -> None:
    assert queues.main(12) == 0
