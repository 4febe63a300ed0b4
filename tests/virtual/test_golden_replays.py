"""The golden runs give the same captures, to the byte, on every machine that runs this."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import replays

GOLDENS = replays.read_goldens()


@pytest.mark.parametrize("name", GOLDENS)
def test_a_golden_run_gives_the_same_captures_as_elsewhere(name: str, tmp_path: Path) -> None:
    target = tmp_path / name
    replays.run(GOLDENS[name], target)
    different = replays.differences(
        *(name, GOLDENS[name], replays.digests(target)),
        *(replays.read_guest(), replays.guest_of(target)),
    )
    assert not different, "\n".join([*different, replays.remedy(name, target)])
