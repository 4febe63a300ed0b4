"""A sample of `python -m tests.golden.hostile`, which gives the verbs hostile inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import hostile

SEED = 1
NUMBERS = {
    kind: [number for number in range(300) if hostile.kind_of(number) == kind][:12]
    for kind in hostile.KINDS
}


@pytest.mark.parametrize("kind", hostile.KINDS)
def test_hostile_inputs_are_answered_in_one_line(
    kind: str, bases: hostile.Bases, server: hostile.Server, tmp_path: Path
) -> None:
    wrong = [hostile.check(number, SEED, bases, tmp_path, server) for number in NUMBERS[kind]]
    assert [each for each in wrong if each] == []


def test_the_kinds_have_their_shares() -> None:
    kinds = [hostile.kind_of(number) for number in range(300)]
    assert {kind: kinds.count(kind) for kind in hostile.KINDS} == {
        kind: share for kind, (_, share) in hostile.KINDS.items()
    }


def test_wrong_answers_are_told() -> None:
    """The judge finds wrong answers, so it is a check that can fail."""
    right = hostile.Answer(2, "", "outcast: x: no\n", 0.1)
    assert hostile.judge("topo", right) == []
    for answer in (
        hostile.Answer(None, "", "", 30.0),
        hostile.Answer(99, "", "Traceback (most recent call last):\n", 0.1),
        hostile.Answer(2, "", "", 0.1),
        hostile.Answer(2, "", "outcast: x\nand more\n", 0.1),
        hostile.Answer(0, "\x1b[31m", "", 0.1),
        hostile.Answer(0, "", "", 11.0),
    ):
        assert hostile.judge("topo", answer)
