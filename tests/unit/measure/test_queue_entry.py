"""When packets reach a queue behind a link's delay that changes, or behind a link that fails."""

import numpy as np
import pytest

from outcast.analysis.join.join import JoinOptions
from outcast.analysis.measure.blackout import flow_chains, port_chains
from outcast.analysis.measure.queue import Event
from outcast.analysis.measure.queue_levels import replay_behind
from outcast.records.flows import QueueRecord
from outcast.records.interventions import PacketFate
from tests.golden.packets import P, joined

E, X, Q = Event.ENQUEUE, Event.DROP, Event.DEQUEUE


def data(at_us: float, number: int, **more: str) -> P:
    """A frame of 1000 bytes."""
    return P(at_us, seq=number * 1000, ip_id=number, payload=934, **more)


WATCHED = JoinOptions(watched_ns=(0, 10**10))


def queue(**settings: object) -> QueueRecord:
    limits = {"rate_bps": 10**9, "limit_bytes": None, "limit_packets": None}
    return QueueRecord.model_validate({"kind": "pfifo", "delay_ns": 5000, **limits, **settings})


def us(times_ns: np.ndarray) -> list[float]:
    return (times_ns / 1000).tolist()


def test_a_packet_has_the_delay_that_was_in_force_when_it_came_in(tmp_path):
    made = joined(
        tmp_path,
        [data(10, 0), data(20, 1), data(22, 2), data(40, 3)],
        [data(16, 0), data(36, 1), data(44, 2), data(60, 3)],
        WATCHED,
    )
    found, reached = replay_behind(made, queue(), [(20_000, 15_000)])
    assert us(reached) == [15, 35, 37, 55]
    assert us(found.time_ns) == [15, 16, 35, 36, 37, 44, 55, 60]
    assert found.found_packets.tolist() == [0, 0, 0, 0]


def test_a_packet_that_was_held_is_not_in_the_queue(tmp_path):
    """The second one was held for 25 us behind the link's delay, and the others passed it."""
    made = joined(
        tmp_path,
        [data(10, 0), data(11, 1), data(13, 2), data(30, 3)],
        [data(16, 0), data(24, 2), data(36, 3), data(48, 1)],
        WATCHED,
    )
    start_ns = made.arrivals.stamp_ns[0]
    assert us(made.arrivals.stamp_ns - start_ns) == [0, 1, 3, 20]
    times = {"t_in_ns": int(start_ns) + 1000, "queued_ns": int(start_ns) + 31_000, "boot_ns": 0}
    who = {"src": "10.0.0.1", "sport": 1, "dst": "10.0.0.2", "dport": 2, "ip_id": 1, "seq": 1000}
    fate = {"packet": 1, "fate": "delay", "delay_ns": 25_000, "port": "s1-eth1", "flow": 0}
    held = PacketFate.model_validate({**fate, **who, **times})
    found, reached = replay_behind(made, queue(), held=[held])
    assert us(reached - start_ns) == [5, 31, 8, 25]
    assert found.found_packets.tolist() == [0, 0, 0, 0]


def test_after_a_shorter_delay_packets_wait_for_those_ahead(tmp_path):
    made = joined(
        tmp_path,
        [data(10, 0), data(11, 1), data(13, 2), data(40, 3)],
        [data(16, 0), data(24, 1), data(32, 2), data(48, 3)],
        WATCHED,
    )
    found, reached = replay_behind(made, queue(), [(12_000, 1000)])
    assert us(reached) == [15, 16, 16, 41]
    assert found.found_packets.tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize(
    "settings",
    [{"limit_packets": 3}, {"limit_bytes": 3500}, {"limit_packets": 3, "drops": "later"}],
)
def test_a_failing_link_empties_its_queue(tmp_path, settings):
    # Three wait when the link fails at 30; one more was refused, one is on its way, one comes
    # while the link is down.
    came = [data(at, number) for number, at in enumerate([10, 11, 12, 13, 14, 27, 32, 50])]
    made = joined(tmp_path, came, [data(17, 0), data(60, 7)], WATCHED)
    found, reached = replay_behind(made, queue(**settings), (), [(30_000, 40_000)])
    assert us(reached) == [15, 30, 30, 30, 19, 30, 32, 55]
    assert us(found.time_ns) == [15, 16, 17, 17, 18, 19, 30, 30, 30, 30, 32, 55, 60]
    assert found.event.tolist() == [E, E, Q, E, E, X, X, X, X, X, X, E, Q]
    assert found.packets.tolist() == [1, 2, 1, 2, 3, 3, 2, 1, 0, 0, 0, 1, 0]
    assert found.bytes.max() == 3000


def test_the_limit_in_force_says_which_packets_a_failing_link_threw_away(tmp_path):
    came = [data(10, 0), data(11, 1), data(12, 2), data(13, 3)]
    made = joined(tmp_path, came, [data(16, 0)], WATCHED)
    limits = [(1000, 2), (40_000, 9)]
    found, reached = replay_behind(made, queue(limit_packets=5), (), [(30_000, 90_000)], limits)
    assert us(reached) == [15, 30, 30, 18]
    assert found.packets.max() == 2


def test_only_the_drops_of_a_chain_that_count(tmp_path):
    other = {"src": "10.0.0.3"}
    came = [
        *(data(10, 0), data(11, 1), data(12, 2, **other), data(13, 3), data(14, 4, **other)),
        *(data(15, 5), data(16, 6)),
    ]
    made = joined(tmp_path, came, [data(20, 5)], WATCHED)
    part = np.array([0, 1, 1, 0, 0, 0, 0], np.bool_)
    assert port_chains(made).drops.tolist() == [5, 1]
    of_port, of_flow = port_chains(made, part), flow_chains(made, part)
    assert of_port.drops.tolist() == [1, 2, 2, 1]
    assert of_port.first.tolist() == [0, 1, 3, 6]
    assert [
        of_flow.first[part[of_flow.first]].tolist(),
        of_flow.drops[part[of_flow.first]].tolist(),
    ] == [[1, 2], [1, 1]]
    everything, nothing = np.ones(7, np.bool_), np.zeros(7, np.bool_)
    for counts in (everything, nothing):
        assert port_chains(made, counts).drops.tolist() == [5, 1]
        assert flow_chains(made, counts).drops.tolist() == flow_chains(made).drops.tolist()
