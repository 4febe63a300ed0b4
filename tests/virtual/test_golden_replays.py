"""The golden runs give the same captures, to the byte, on every machine that runs this."""

from dataclasses import replace

import pytest

from tests.golden import replays

GOLDENS = replays.read_goldens()
TRACED = ("hashed-generated", "mptcp", "bic-default")
EVENTS = [
    *("tcp:tcp_probe", "tcp:tcp_retransmit_skb", "tcp:tcp_timer", "mptcp:mptcp_subflow_get_send"),
    *("qdisc:qdisc_enqueue", "qdisc:qdisc_dequeue", "qdisc:qdisc_drop", "skb:kfree_skb"),
]


@pytest.mark.parametrize("name", TRACED)
def test_a_golden_run_gives_the_same_captures_as_elsewhere(name, tmp_path):
    """The kernel's events are recorded meanwhile, which must not change a packet.

    scripts/test-elsewhere.sh makes all seven runs without events.
    """
    golden = GOLDENS[name]
    target = tmp_path / name
    traced = replace(golden, overrides={**golden.overrides, "trace.events": EVENTS})
    replays.run_engine_only(traced, target)
    different = replays.differences(
        *(name, golden, replays.digests(target)), *(replays.read_guest(), replays.guest_of(target))
    )
    assert not different, "\n".join([*different, replays.remedy(name, target)])
    assert (target / "trace" / "events.raw").stat().st_size > 0
