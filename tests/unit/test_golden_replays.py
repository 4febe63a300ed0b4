"""The golden runs' file; samples of the checks below tests/golden still find what they change."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from outcast import experiment
from outcast.api import experiments
from tests.golden import hostile, mutations, replays
from tests.golden.mutations import MUTATIONS
from tests.golden.replays import Golden, Guest

GOLDENS = replays.read_goldens()
DIGEST = re.compile("[0-9a-f]{64}")
GUEST = Guest(kernel="1" * 64, root="2" * 20)
GOLDEN = Golden("configs/fig3c.yaml", {}, {"in.pcap": "a" * 64, "out.pcap": "b" * 64})


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


def differences(captures: dict[str, str], guest: Guest = GUEST) -> list[str]:
    return replays.differences("bic", GOLDEN, captures, GUEST, guest)


def test_equal_captures_of_the_same_guest_are_no_difference():
    assert differences(dict(GOLDEN.captures)) == []


@pytest.mark.parametrize(
    ("captures", "line"),
    [
        ({"in.pcap": "a" * 64}, "bic: out.pcap is missing"),
        ({**GOLDEN.captures, "x.pcap": "c"}, "bic: x.pcap is a capture that was not there before"),
        (
            {**GOLDEN.captures, "in.pcap": "c" * 64},
            f"bic: in.pcap differs: its SHA-256 is {'c' * 64} and was {'a' * 64}",
        ),
    ],
)
def test_each_difference_is_one_line(captures, line):
    assert differences(captures) == [line]


@pytest.mark.parametrize(
    ("guest", "what"),
    [
        (replace(GUEST, kernel="3" * 64), "the guest's kernel is not the locked one"),
        (replace(GUEST, root="host"), "the guest's root is not the locked one"),
    ],
)
def test_another_guest_is_a_difference_even_where_captures_are_equal(guest, what):
    (line,) = differences(dict(GOLDEN.captures), guest)
    assert what in line
    assert "`scripts/guest/build`" in line


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_changes_its_module(mutation):
    assert mutation.path(ROOT).read_text().count(mutation.text) == 1
    assert mutation.replacement != mutation.text


def test_the_tests_that_are_run_exist():
    names = {name for mutation in MUTATIONS for name in mutation.tests}
    there = {path.stem for path in (ROOT / "tests/unit").rglob("test_*.py")}
    assert {f"test_{name}" for name in names} <= there


def test_mutations_run_as_a_user_who_owns_nothing(tmp_path, monkeypatch):
    started: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        started.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(mutations.subprocess, "run", run)
    assert mutations.passes(tmp_path, ["ledger"])
    ((first, *words),) = started
    assert first == "unshare"
    assert {"--mount", "--pid", f"--reuid={mutations.OWNS_NOTHING}", "--clear-groups"} <= {*words}
    monkeypatch.setattr(mutations.os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit, match="root is needed"):
        mutations.main()


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
