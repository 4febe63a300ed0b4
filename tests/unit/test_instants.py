"""The fixed instants at which parts of a run begin."""

import time

import pytest

from outcast.emulation import instants

STEP_NS, OFFSET_NS = instants.STEP_NS, instants.OFFSET_NS


@pytest.mark.parametrize(
    ("now_ns", "instant_ns"),
    [
        (0, OFFSET_NS),
        (OFFSET_NS - 1, OFFSET_NS),
        (OFFSET_NS, STEP_NS + OFFSET_NS),
        (11 * STEP_NS, 11 * STEP_NS + OFFSET_NS),
        (11 * STEP_NS + 60_000_000, 11 * STEP_NS + OFFSET_NS),
        (11 * STEP_NS + OFFSET_NS + 1, 12 * STEP_NS + OFFSET_NS),
    ],
)
def test_an_instant_follows_however_long_the_part_before_took(now_ns, instant_ns):
    assert instants.following(now_ns, STEP_NS) == instant_ns


def test_a_set_up_that_takes_longer_gets_the_next_instant():
    step_ns = instants.CONNECT_STEP_NS
    early, late = (instants.following(now_ns, step_ns) for now_ns in (11 * 10**9, 14 * 10**9))
    assert early == late == 3 * step_ns + OFFSET_NS
    assert instants.following(early + 1, step_ns) == early + step_ns


def test_it_sleeps_to_the_instant():
    before_ns = time.monotonic_ns()
    instant_ns = instants.sleep_to(STEP_NS // 10)
    assert before_ns < instant_ns <= time.monotonic_ns()
    assert instant_ns % (STEP_NS // 10) == OFFSET_NS % (STEP_NS // 10)
