"""The join's rules on captures written by hand, on the reference switch's, and at random."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcast.analysis.capture.pcap import PortCapture, read_capture, read_captures
from outcast.analysis.join.join import Joined, JoinOptions, Note, Stray, Verdict, join
from outcast.errors import InputError
from tests.golden import model
from tests.golden.packets import P, capture

F, D, U = Verdict.FORWARDED, Verdict.DROPPED, Verdict.UNKNOWN
SAME = {"seq": 5000, "ip_id": 0}
"""What packets that look alike have in common."""
OTHER = {"src": "10.0.0.3", "sport": 9}
THIRD = {"src": "10.0.0.4", "sport": 7}
"""Further flows to the same receiver."""


def joined(
    folder: Path, inputs: dict[str, list[P]], output: list[P], options: JoinOptions | None = None
) -> Joined:
    captures = [
        read_capture(name, capture(folder / f"{name}.pcap", packets))
        for name, packets in inputs.items()
    ]
    out = read_capture("out", capture(folder / "out.pcap", output))
    return join(captures, [out], options)


def data(at_us: float, number: int, **fields: object) -> P:
    """The n-th segment of a flow, with its own sequence number and IP id."""
    return P(at_us, seq=1000 + 1448 * number, ip_id=100 + number, **fields)


def test_forwarded_and_dropped(tmp_path):
    packets = [data(10, 0), data(20, 1), data(30, 2)]
    got = joined(tmp_path, {"a": packets}, [data(15, 0), data(40, 2)])
    assert got.verdict.tolist() == [F, D, F]
    assert got.t_out_ns.tolist() == [15_000, -1, 40_000]
    assert got.counts.forwarded == 2
    assert got.counts.dropped == 1
    assert got.fifo == (True,)


OF_ONE_PORT = {
    "bytes sent again under a new IP id are another packet: the first copy was dropped": (
        [data(10, 0), data(20, 1), P(900, 1000, ip_id=105)],
        [data(30, 1), P(910, 1000, ip_id=105)],
        [D, F, F],
    ),
    # Its number is one below the next, and it has one byte of payload or none.
    "a keep-alive is told from the byte it repeats": (
        [
            P(10, seq=1000, ip_id=0, payload=1, flags=0x18),
            P(200, seq=1000, ip_id=0, payload=0),
            P(300, seq=1000, ip_id=0, payload=1, flags=0x10),
        ],
        [P(310, seq=1000, ip_id=0, payload=1, flags=0x10)],
        [D, D, F],
    ),
    "of three equal packets two left, in the order they came": (
        [P(10, **SAME), P(20, **SAME), P(30, **SAME), data(40, 9)],
        [P(50, **SAME), P(60, **SAME), data(70, 9)],
        [F, F, D, F],
    ),
    "what left between two equal packets came between them: the first was dropped": (
        [P(10, **SAME), data(20, 1), P(30, **SAME)],
        [data(45, 1), P(60, **SAME)],
        [D, F, F],
    ),
    "so it is over two flows of a port, as long as that port is a FIFO": (
        [P(10, **SAME), data(20, 1, **OTHER), P(30, **SAME)],
        [data(45, 1, **OTHER), P(60, **SAME)],
        [D, F, F],
    ),
    "a packet that another flow of a FIFO has overtaken was dropped": (
        [data(10, 0), data(20, 0, **OTHER), data(30, 1), data(31, 1, **OTHER)],
        [data(24, 0), data(25, 0, **OTHER), data(40, 1, **OTHER)],
        [F, F, D, F],
    ),
    "what the queue refused just before it took the first packet was dropped, not missed": (
        [data(at, n) for n, at in enumerate((300, 310, 320, 330))],
        [data(500 + 12 * n, n) for n in range(2, 4)],
        [D, D, F, F],
    ),
    "a duplicate that came in twice leaves twice": (
        [data(10, 0), data(11, 0)],
        [data(15, 0), data(16, 0)],
        [F, F],
    ),
}


@pytest.mark.parametrize("rule", OF_ONE_PORT)
def test_verdicts_of_one_port(tmp_path, rule):
    packets, leaving, verdicts = OF_ONE_PORT[rule]
    got = joined(tmp_path, {"a": packets}, leaving)
    assert got.verdict.tolist() == verdicts
    # Those that left did so in the order in which they came.
    left = iter(range(len(leaving)))
    assert got.left_as.tolist() == [next(left) if verdict == F else -1 for verdict in verdicts]


def test_equal_packets_and_what_another_port_let_through(tmp_path):
    """One queue serves all ports: what left between two equal packets came in between them,
    unless the switch is seen to reorder that much."""
    inputs = {"a": [P(50, **SAME), P(70, **SAME)], "b": [data(60, 1, **OTHER)]}
    leaving = [data(85, 1, **OTHER), P(100, **SAME)]
    assert joined(tmp_path, inputs, leaving).left_as.tolist() == [-1, 0, 1]
    inputs["a"].insert(0, data(10, 7))
    inputs["b"].insert(0, data(25, 7, **OTHER))
    leaving = [data(30, 7, **OTHER), data(31, 7), *leaving]
    assert joined(tmp_path, inputs, leaving).left_as.tolist() == [1, 0, 3, 2, -1]


def test_a_packet_leaves_after_it_came(tmp_path):
    """An equal packet that left earlier is not this one's departure."""
    leaving = [data(12, 0), P(40, seq=9000), P(55, seq=9000)]
    got = joined(tmp_path, {"a": [data(10, 0), P(50, seq=9000)]}, leaving)
    assert got.t_out_ns.tolist() == [12_000, 55_000]
    assert got.stray.tolist() == [-1, Stray.DUPLICATE, -1]


def test_nothing_stays_longer_than_the_longest_sojourn(tmp_path):
    packets = [P(10, **SAME), P(2_000_000, **SAME)]
    leaving = [P(2_000_010, **SAME)]
    assert joined(tmp_path, {"a": packets}, leaving).left_as.tolist() == [-1, 0]
    long = JoinOptions(max_sojourn_ns=3 * 10**9)
    assert joined(tmp_path, {"a": packets}, leaving, long).left_as.tolist() == [0, -1]
    # A single candidate that is too old does not count.
    got = joined(tmp_path, {"a": packets[:1]}, leaving)
    assert got.left_as.tolist() == [-1]
    assert got.counts.forwarded == 0


def test_the_ip_id_wraps(tmp_path):
    """After 65536 packets the same IP id names another packet. The flow here is like UDP."""
    early = [P(1 + 0.01 * n, seq=0, ip_id=n % 65536) for n in range(65_540)]
    kept = [n for n in range(65_540) if n != 2]
    leaving = [P(5 + 0.01 * n, seq=0, ip_id=n % 65536) for n in kept]
    got = joined(tmp_path, {"a": early}, leaving)
    assert np.flatnonzero(got.verdict == D).tolist() == [2]
    assert got.left_as[65_538] == 65_537


def test_packets_in_flight_at_the_end_are_not_drops(tmp_path):
    packets = [data(10, 0), data(20, 1), data(30, 2), data(31, 3)]
    got = joined(tmp_path, {"a": packets}, [data(15, 0), data(28, 1)])
    assert got.verdict.tolist() == [F, F, U, U]
    assert got.note.tolist()[2:] == [Note.IN_FLIGHT] * 2
    assert got.counts.in_flight == 2
    assert got.counts.dropped == 0


def test_a_drop_at_the_end_is_one_when_the_output_was_watched_on(tmp_path):
    packets = {"a": [data(10, 0), data(20, 1)]}
    watched = JoinOptions(watched_ns=(0, 10**9))
    assert joined(tmp_path, packets, [data(15, 0)], watched).verdict.tolist() == [F, D]
    # Any packet in the output's capture shows that it was watched, even one that takes no part.
    late = P(9000, src="10.0.0.1", dst="10.0.0.2")
    got = joined(tmp_path, packets, [data(15, 0), late])
    assert got.verdict.tolist() == [F, D]


def test_a_later_packet_of_another_port_left(tmp_path):
    """One queue serves all ports in order, unless the switch is seen to reorder by more."""
    inputs = {"a": [data(10, 0), data(40, 1)], "b": [data(41, 0, **OTHER), data(80, 1, **OTHER)]}
    leaving = [data(20, 0), data(60, 0, **OTHER)]
    assert joined(tmp_path, inputs, leaving).verdict.tolist() == [F, D, F, U]
    inputs["b"].insert(0, data(12, 7, **OTHER))
    leaving = [data(19, 7, **OTHER), *leaving]
    assert joined(tmp_path, inputs, leaving).verdict.tolist() == [F, F, U, F, U]


def test_a_capture_of_the_output_that_began_late(tmp_path):
    packets = {"a": [data(10, 0), data(20, 1), data(300, 2), data(310, 3)]}
    leaving = [data(305, 2), data(315, 3)]
    got = joined(tmp_path, packets, leaving)
    assert got.verdict.tolist() == [U, U, F, F]
    assert got.note.tolist()[:2] == [Note.BEFORE_OUTPUT] * 2
    # But if it is known to have been watched, they were dropped.
    watched = JoinOptions(watched_ns=(0, 0))
    assert joined(tmp_path, packets, leaving, watched).verdict.tolist() == [D, D, F, F]


def test_a_capture_of_the_input_that_began_late(tmp_path):
    leaving = [data(32, 1), data(35, 2), data(45, 3)]
    got = joined(tmp_path, {"a": [data(30, 2), data(40, 3)]}, leaving)
    assert got.stray.tolist() == [Stray.EARLY, -1, -1]
    assert got.counts.early == 1


def test_a_duplicate_and_an_unexplained_departure(tmp_path):
    leaving = [data(15, 0), data(16, 0), data(18, 7), data(25, 1)]
    got = joined(tmp_path, {"a": [data(10, 0), data(20, 1)]}, leaving)
    assert got.stray.tolist() == [-1, Stray.DUPLICATE, Stray.UNEXPLAINED, -1]
    assert (got.counts.duplicates, got.counts.unexplained) == (1, 1)


def test_packets_reordered_in_the_switch(tmp_path):
    """Both are forwarded. The port is no FIFO, and the overtaken packet carries a note."""
    packets = [data(10, 0), data(20, 1), data(30, 2)]
    got = joined(tmp_path, {"a": packets}, [data(25, 1), data(27, 0), data(35, 2)])
    assert got.verdict.tolist() == [F, F, F]
    assert got.note.tolist() == [Note.REORDERED, Note.NONE, Note.NONE]
    assert got.fifo == (False,)


def test_without_a_fifo_only_the_own_flow_tells_a_drop_at_once(tmp_path):
    """Fair queueing: another flow of the port has overtaken, so its leaving proves nothing."""
    packets = [data(10, 0), data(20, 0, **OTHER), data(30, 1), data(31, 1, **OTHER)]
    leaving = [data(25, 0, **OTHER), data(26, 0), data(40, 1, **OTHER)]
    got = joined(tmp_path, {"a": packets}, leaving)
    assert got.fifo == (False,)
    assert got.verdict.tolist() == [F, F, U, F]


def test_other_traffic_takes_no_part(tmp_path):
    back = P(12, src="10.0.0.1", dst="10.0.0.2", sport=5001)
    got = joined(tmp_path, {"a": [data(10, 0), back, data(20, 1)]}, [data(15, 0), data(25, 1)])
    assert len(got.arrivals) == 2
    assert {flow.dst for flow in got.flows} >= {"10.0.0.1"}


def test_several_outputs(tmp_path):
    """A dropped packet is attributed to the output that its destination uses."""
    to_b = {"dst": "10.0.0.9"}

    def read(name: str, *packets: P) -> PortCapture:
        return read_capture(name, capture(tmp_path / name, [*packets]))

    sent = [data(10, 0), data(20, 1, **to_b), data(30, 2), data(40, 3, **to_b), data(50, 4)]
    outs = [
        read("x", data(15, 0), data(55, 4)),
        read("y", data(25, 1, **to_b), data(5000, 3, **to_b)),
    ]
    got = join([read("in", *sent)], outs)
    assert got.verdict.tolist() == [F, F, D, F, F]
    assert got.egress.tolist() == [0, 1, 0, 1, 0]
    # The destination decides also for a flow of which nothing left.
    lost = data(30, 9, src="10.0.0.7", **to_b)
    assert join([read("in", *sent[:2], lost)], outs).egress.tolist() == [0, 1, 1]


def test_ttl_counts_unless_the_hop_routes(tmp_path):
    inputs = {"a": [data(10 * n, n, ttl=64) for n in range(1, 5)]}
    leaving = [data(10 * n + 5, n, ttl=63) for n in (1, 2, 4)]
    with pytest.raises(InputError, match=r"another TTL .*--routed"):
        joined(tmp_path, inputs, leaving)
    got = joined(tmp_path, inputs, leaving, JoinOptions(routed=True))
    assert got.verdict.tolist() == [F, F, D, F]
    assert "ttl" not in got.identity


def test_a_ttl_that_differs_for_one_packet_only_tells_it_apart(tmp_path):
    inputs = {"a": [data(10 * n, n) for n in range(1, 300)]}
    leaving = [data(10 * n + 5, n, ttl=63 if n == 7 else 64) for n in range(1, 300)]
    got = joined(tmp_path, inputs, leaving)
    assert np.flatnonzero(got.verdict == D).tolist() == [6]
    assert got.counts.unexplained + got.counts.early == 1


@pytest.mark.parametrize("field", ["checksum", "tsval"])
def test_checksum_and_time_stamp_tell_equal_packets_apart(tmp_path, field):
    same = {"seq": 5000, "ip_id": 0, "checksum": 9, "tsval": 9}
    first, second = (P(at, **{**same, field: at}) for at in (10, 12))
    rest = [data(100 + n, n) for n in range(200)]
    left = [data(100.5 + n, n) for n in range(200)]
    leaving = P(50, **{**same, field: 12})
    got = joined(tmp_path, {"a": [first, second, *rest]}, [leaving, *left])
    assert got.verdict[:2].tolist() == [D, F]


def test_a_checksum_that_the_hop_fills_in_is_left_out(tmp_path):
    """With checksum offload, what came in may carry an unfinished checksum."""
    inputs = {"a": [data(10 * n, n, checksum=1) for n in range(1, 5)]}
    leaving = [data(10 * n + 5, n, checksum=n) for n in (1, 2, 4)]
    got = joined(tmp_path, inputs, leaving)
    assert got.identity == ("ttl", "timestamp", "timestamp of SYN")
    assert got.verdict.tolist() == [F, F, D, F]


def test_ports_are_checked(tmp_path):
    one = read_capture("a", capture(tmp_path / "a", [data(10, 0)]))
    none = read_capture("b", capture(tmp_path / "b", []))
    for inputs, outputs, said in (
        ([], [one], "0 input captures; allowed are 1 to 127"),
        ([one], [], "0 output captures"),
        ([one], [none], "nothing left by the output"),
    ):
        with pytest.raises(InputError, match=said):
            join(inputs, outputs)
    assert join([none], [one]).counts.early == 1
    nothing = join([none], [none], JoinOptions(may_be_empty=True))
    assert (nothing.counts.entered, nothing.counts.left) == (0, 0)
    unseen = join([one], [none], JoinOptions(may_be_empty=True))
    assert unseen.counts.entered == 0


# --- against the reference switch


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    flows=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    limit=st.integers(1514, 30_000),
    load=st.floats(0.3, 3),
    lost_in=st.floats(0, 0.2),
    lost_out=st.floats(0, 0.2),
    doubled=st.floats(0, 0.1),
)
def test_conservation_whatever_the_captures_lost(
    tmp_path_factory, seed, flows, limit, load, lost_in, lost_out, doubled
):
    """in = out + dropped + in flight + before the output, and nothing is used twice."""
    rng = np.random.default_rng(seed)
    traffic = model.make_traffic(seed, 400, tuple(flows), load=load)
    traffic = model.drop_tail(traffic, limit, 10**9)
    made = model.captures(traffic)
    for name, records in made.items():
        lost = lost_out if name == "out" else lost_in
        kept = records[rng.random(records.size) >= lost]
        made[name] = np.repeat(kept, 1 + (rng.random(kept.size) < doubled))
    folder = tmp_path_factory.mktemp("join")
    captures = read_captures(list(model.write_captures(folder, made).items()))
    if not captures[-1].records:
        return
    got = join(captures[:-1], captures[-1:])
    counts = got.counts
    assert counts.entered == sum(capture.records for capture in captures[:-1])
    assert counts.left == captures[-1].records
    of_inputs = (counts.forwarded, counts.dropped, counts.in_flight, counts.before_output)
    assert counts.entered == sum(of_inputs)
    assert counts.left == (counts.forwarded + counts.early + counts.duplicates + counts.unexplained)
    matched = got.left_as[got.left_as >= 0]
    assert len(set(matched.tolist())) == matched.size == counts.forwarded
    assert (got.came_as[matched] == np.flatnonzero(got.left_as >= 0)).all()
    out, came = got.departures, got.arrivals
    forwarded = got.left_as >= 0
    assert (out.stamp_ns[matched] >= came.stamp_ns[forwarded]).all()
    for field in ("flow", "seq", "ip_id", "payload_bytes", "flags"):
        assert (getattr(out, field)[matched] == getattr(came, field)[forwarded]).all()
    if not lost_in and not lost_out and not doubled:
        wrong = (got.verdict == D) & (traffic.t_out >= 0)
        assert not wrong.any()


# --- a switch that takes packets of different ports in another order than they came in


def slack() -> tuple[P, P, list[P]]:
    """One packet of either port, and their departures in the wrong order, 0.9 ms apart."""
    late, early = data(1, 90), data(900, 91, **OTHER)
    return late, early, [data(910, 91, **OTHER), data(920, 90)]


def test_within_a_port_order_is_kept_all_the_same(tmp_path):
    late, early, left = slack()
    # Of two equal packets, the first was dropped, because another flow of their port was forwarded
    # since.
    got = joined(
        tmp_path,
        {"a": [late, P(1000, **SAME), data(1010, 1, **THIRD), P(1020, **SAME)], "b": [early]},
        [*left, data(1030, 1, **THIRD), P(1040, **SAME)],
    )
    assert got.fifo == (True, True)
    assert got.verdict.tolist() == [F, F, D, F, F]
    # A packet that another flow of its port has overtaken was dropped too.
    packets = [late, data(1000, 5), data(1010, 1, **THIRD)]
    got = joined(tmp_path, {"a": packets, "b": [early]}, [*left, data(1030, 1, **THIRD)])
    assert got.verdict.tolist() == [F, F, D, F]


def test_within_a_flow_order_is_kept_even_without_a_fifo(tmp_path):
    late, early, left = slack()
    # Port a reorders its flows as well.
    first = [data(930, 1, **THIRD), data(940, 2)]
    first_left = [data(950, 2), data(960, 1, **THIRD)]
    got = joined(
        tmp_path,
        {"a": [late, *first, P(1000, **SAME), data(1010, 3), P(1020, **SAME)], "b": [early]},
        [*left, *first_left, data(1030, 3), P(1040, **SAME)],
    )
    assert got.fifo == (False, True)
    assert got.verdict.tolist() == [F, F, F, F, D, F, F]
    packets = [late, *first, data(1000, 5), data(1010, 6)]
    got = joined(tmp_path, {"a": packets, "b": [early]}, [*left, *first_left, data(1030, 6)])
    assert got.verdict.tolist() == [F, F, F, F, D, F]
