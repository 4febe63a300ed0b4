"""The golden runs give the same captures, to the byte, on every machine that runs this."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.golden import replays

GOLDENS = replays.read_goldens()
EVENTS = [
    *("tcp:tcp_probe", "tcp:tcp_retransmit_skb", "tcp:tcp_timer", "mptcp:mptcp_subflow_get_send"),
    *("qdisc:qdisc_enqueue", "qdisc:qdisc_dequeue", "qdisc:qdisc_drop", "skb:kfree_skb"),
]


@pytest.mark.parametrize("name", GOLDENS)
def test_a_golden_run_gives_the_same_captures_as_elsewhere(name: str, tmp_path: Path) -> None:
    target = tmp_path / name
    replays.run(GOLDENS[name], target)
    different = replays.differences(
        *(name, GOLDENS[name], replays.digests(target)),
        *(replays.read_guest(), replays.guest_of(target)),
    )
    assert not different, "\n".join([*different, replays.remedy(name, target)])


@pytest.mark.parametrize("name", GOLDENS)
def test_recording_events_leaves_a_golden_run_as_it_is(name: str, tmp_path: Path) -> None:
    golden = GOLDENS[name]
    traced = replace(golden, overrides={**golden.overrides, "trace.events": EVENTS})
    replays.run_engine_only(traced, tmp_path / name)
    assert replays.digests(tmp_path / name) == golden.captures
    assert (tmp_path / name / "trace" / "events.raw").stat().st_size > 0
