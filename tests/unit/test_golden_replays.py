"""The golden runs' file, and what is said where captures differ from it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from outcast import experiment
from outcast.api import experiments
from tests.golden import replays
from tests.golden.replays import Golden, Guest

GOLDENS = replays.read_goldens()
DIGEST = re.compile("[0-9a-f]{64}")
GUEST = Guest(kernel="1" * 64, root="2" * 20)
GOLDEN = Golden("configs/fig3c.yaml", {}, {"in.pcap": "a" * 64, "out.pcap": "b" * 64})


@pytest.mark.parametrize("name", GOLDENS)
def test_every_golden_run_can_be_planned_and_has_hashes(name: str) -> None:
    golden = GOLDENS[name]
    for overrides in (dict(golden.overrides), golden.settings):
        source = experiment.read(replays.REPOSITORY / golden.config, overrides)
        assert experiments.checked(source).duration_ns == 100_000_000
    assert len(golden.captures) >= 3
    assert all(DIGEST.fullmatch(digest) for digest in golden.captures.values())
    assert all(file.endswith((".in.pcap", ".out.pcap")) for file in golden.captures)


def test_the_golden_runs_differ_in_what_they_exercise() -> None:
    assert set(GOLDENS) == {
        *("bic-default", "bic-fattree", "bic-hosts-2011"),
        *("hashed-generated", "red-dctcp", "mptcp", "tcprand"),
    }
    assert DIGEST.fullmatch(replays.read_guest().kernel)


def differences(captures: dict[str, str], guest: Guest = GUEST) -> list[str]:
    return replays.differences("bic", GOLDEN, captures, GUEST, guest)


def test_equal_captures_of_the_same_guest_are_no_difference() -> None:
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
def test_each_difference_is_one_line(captures: dict[str, str], line: str) -> None:
    assert differences(captures) == [line]


@pytest.mark.parametrize(
    ("guest", "what", "allowed"),
    [
        (replace(GUEST, kernel="3" * 64), "the guest's kernel is not the locked one", "kernel"),
        (replace(GUEST, root="host"), "the guest's root is not the locked one", "root"),
    ],
)
def test_another_guest_is_a_difference_even_where_captures_are_equal(
    guest: Guest, what: str, allowed: str
) -> None:
    (line,) = differences(dict(GOLDEN.captures), guest)
    assert what in line
    assert f"`outcast {allowed} build`" in line
