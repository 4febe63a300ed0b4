"""The golden runs' file; samples of the checks below tests/golden still find what they change."""

import re
from pathlib import Path

import pytest

from outcast import experiment
from outcast.api import experiments
from tests.golden import hostile, replays
from tests.golden.mutations import MUTATIONS

GOLDENS = replays.read_goldens()
DIGEST = re.compile("[0-9a-f]{64}")


@pytest.mark.parametrize("name", GOLDENS)
def test_every_golden_run_can_be_planned_and_has_hashes(name):
    golden = GOLDENS[name]
    for overrides in (dict(golden.overrides), golden.settings):
        source = experiment.read(replays.REPOSITORY / golden.config, overrides)
        assert experiments.checked(source).experiment.duration_ns == 100_000_000
    assert len(golden.captures) >= 3
    assert all(DIGEST.fullmatch(digest) for digest in golden.captures.values())
    assert all(file.endswith((".in.pcap", ".out.pcap")) for file in golden.captures)
    assert DIGEST.fullmatch(replays.read_guest().kernel)


ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_changes_its_module(mutation):
    assert mutation.path(ROOT).read_text().count(mutation.text) == 1
    assert mutation.replacement != mutation.text


def test_the_tests_that_are_run_exist():
    names = {name for mutation in MUTATIONS for name in mutation.tests}
    there = {path.stem for path in (ROOT / "tests/unit").rglob("test_*.py")}
    assert {f"test_{name}" for name in names} <= there


def test_wrong_answers_are_told():
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
