"""Sockets as the kernel shows them, and whether they have what was asked for."""

import socket
import struct
import time
from dataclasses import replace

import pytest

from outcast import netlink
from outcast.emulation.kernel import sockets
from outcast.emulation.traffic import iperf
from outcast.errors import ReadBackError, RunError
from tests.flows import FLOW, RECEIVER, SAMPLE, wants

_INFO, _CONTROL, _ULP = 2, 4, 19


def message(state: int = 1, mptcp: bool = False, **fields: tuple[int, int]) -> bytes:
    """A socket's struct inet_diag_msg. A field is its place in struct tcp_info and its value."""
    head = struct.pack("=BBBB", socket.AF_INET, state, 0, 0) + struct.pack("!HH", 20001, 5001)
    info = bytearray(280)
    for offset, value in fields.values():
        size = {4: 1, 5: 1}.get(offset, 8 if offset in (112, 120, 128, 200) else 4)
        info[offset : offset + size] = value.to_bytes(size, "little")
    attributes = netlink.encode(_INFO, bytes(info)) + netlink.encode(_CONTROL, b"cubic\0")
    if mptcp:
        tokens = netlink.encode(1, b"\1\0\0\0") + netlink.encode(2, b"\2\0\0\0")
        ulp = netlink.encode(1, b"mptcp\0") + netlink.encode(0x8000 | 3, tokens)
        attributes += netlink.encode(0x8000 | _ULP, ulp)
    return (head + socket.inet_aton("10.0.0.2")).ljust(72, b"\0") + attributes


def test_a_message_of_the_kernel_is_read():
    raw = message(
        options=(5, 0b0010),
        rto=(8, 8000),
        rtt=(68, 2393),
        rttvar=(72, 1363),
        cwnd=(80, 1),
        retransmits=(100, 66),
        sent=(200, 931_144),
        acked=(120, 900_000),
        received=(128, 28),
    )
    assert sockets.parse_socket(raw, 5) == SAMPLE
    other = sockets.parse_socket(
        message(
            state=8,
            mptcp=True,
            backoff=(4, 3),
            options=(5, 0b1000),
            most=(112, 12_500_000),
            marked=(196, 7),
            timeouts=(240, 2),
            ecn_mode=(276, 0b0110),
        ),
        5,
    )
    assert (other.is_established, other.sack, other.ecn) == (False, False, True)
    assert other.accurate_ecn
    assert (other.backoff, other.timeouts, other.delivered_ce) == (3, 2, 7)
    assert (other.most_pacing_bps, other.mptcp_token) == (100_000_000, 2)
    unlimited = sockets.parse_socket(message(most=(112, 2**64 - 1)), 5)
    assert unlimited.most_pacing_bps is None
    # Linux 6.1 has no count of timeouts.
    old = sockets.parse_socket(message()[:72] + netlink.encode(_INFO, bytes(240)), 5)
    assert old.timeouts is None
    # A socket without struct tcp_info, as the kernel has for connections that are just beginning.
    assert sockets.parse_socket(raw[:72], 5) is None


def test_the_kernel_is_asked():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert sockets.listens(None, port)
        with socket.create_connection(("127.0.0.1", port)) as sender:
            receiver, _ = server.accept()
            with receiver:
                sender.sendall(b"x" * 1000)
                assert len(receiver.recv(1000, socket.MSG_WAITALL)) == 1000
                own_port = sender.getsockname()[1]
                before_ns = time.time_ns()
                samples = sockets.sample_sockets(None)
                assert before_ns <= samples[0].t_ns <= time.time_ns()
                found = {sample.local_port: sample for sample in samples}
                # The listening socket has the receiver's port, but it is no connection.
                assert [s.peer_port for s in samples if s.local_port == port] == [own_port]
                assert found[own_port].bytes_sent == 1000
                assert found[port].bytes_received == 1000
                control = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
                assert found[own_port].congestion_control == control.rstrip(b"\0").decode()
                assert found[own_port].is_established
    assert not sockets.listens(None, port)


def test_what_the_kernel_refuses_is_an_error(monkeypatch):
    monkeypatch.setattr(sockets, "SOCK_DIAG_BY_FAMILY", 999)
    with pytest.raises(RunError, match="Invalid argument"):
        sockets.sample_sockets(None)


def test_every_flow_has_what_was_asked_for():
    samples = [SAMPLE, RECEIVER]
    sockets.check_sockets([FLOW], samples)
    for settings, said in (
        ({"congestion_control": "bic"}, "flow 0 at h2: .* requested bic, the kernel shows cubic"),
        ({"sack": False}, "sack: requested off, the kernel shows on"),
        ({"ecn": True}, "ecn: requested on, the kernel shows off"),
    ):
        with pytest.raises(ReadBackError, match=said):
            sockets.check_sockets([wants(**settings)], samples)
    with pytest.raises(ReadBackError, match="no socket seen"):
        sockets.check_sockets([replace(FLOW, sport=20002)], samples)


def test_the_receivers_congestion_control_counts_too():
    other = replace(RECEIVER, congestion_control="reno")
    with pytest.raises(ReadBackError, match=r"flow 0 at h1: .* the kernel shows reno"):
        sockets.check_sockets([FLOW], [SAMPLE, other])
    with pytest.raises(ReadBackError, match=r"flow 0 at h1: .* the kernel shows no socket seen"):
        sockets.check_sockets([FLOW], [SAMPLE])


def test_a_pacing_rate_shows_at_the_socket():
    paced = wants(pacing="internal", pacing_rate="100mbit")
    argv = iperf.client_arguments(paced, 0)
    assert argv[argv.index("--fq-rate") + 1] == "100000000"
    limited = replace(SAMPLE, most_pacing_bps=100_000_000)
    sockets.check_sockets([paced], [limited, RECEIVER])
    with pytest.raises(ReadBackError, match=r"pacing_rate: requested 100000000bps, .* none"):
        sockets.check_sockets([paced], [SAMPLE])


def test_dctcp_always_negotiates_ecn():
    shown = [replace(end, congestion_control="dctcp", ecn=True) for end in (SAMPLE, RECEIVER)]
    sockets.check_sockets([wants(congestion_control="dctcp")], shown)


def test_accurate_ecn_must_show_at_the_socket():
    accurate, marking = wants(ecn="accurate"), replace(SAMPLE, ecn=True)
    with pytest.raises(ReadBackError, match=r"accurate ECN: requested on, .* off"):
        sockets.check_sockets([accurate], [marking, RECEIVER])
    shown = replace(marking, accurate_ecn=True)
    sockets.check_sockets([accurate], [shown, RECEIVER])
    with pytest.raises(ReadBackError, match=r"accurate ECN: requested off, .* on"):
        sockets.check_sockets([wants(ecn=True)], [shown, RECEIVER])


def test_the_minimum_rto_must_show_at_some_socket():
    sockets.check_min_rto([SAMPLE], 4_000_000)
    stuck = replace(SAMPLE, rtt_us=500, rto_us=204_000)
    with pytest.raises(ReadBackError, match="RTO"):
        sockets.check_min_rto([stuck], 4_000_000)
    sockets.check_min_rto([stuck], 200_000_000)
    with pytest.raises(ReadBackError, match="RTO"):
        sockets.check_min_rto([SAMPLE], 200_000_000)
    with pytest.raises(ReadBackError, match="minimum RTO"):
        sockets.check_min_rto([SAMPLE], 200_000_000, steady=False)
    sockets.check_min_rto([stuck], 4_000_000, steady=False)
    # On a slow link four variations are more than the minimum (RFC 6298, section 2.3).
    slow = replace(SAMPLE, rtt_us=900_000, rto_us=2_622_000, rttvar_us=150_000)
    sockets.check_min_rto([slow], 200_000_000)
    with pytest.raises(ReadBackError, match="minimum RTO"):
        sockets.check_min_rto([replace(slow, rto_us=950_000)], 200_000_000)
    # Neither tells anything, because no round trip was measured, or timeouts doubled the RTO.
    sockets.check_min_rto([replace(stuck, rtt_us=0), replace(stuck, backoff=2)], 4_000_000)


def test_a_timeout_leaves_a_longer_rto_for_a_while():
    """The sockets of a run with `min_rto: 10ms` in which a segment waited for a delayed ACK."""
    after = replace(SAMPLE, rtt_us=4923, rto_us=38_000, rttvar_us=539, retransmits=17, timeouts=2)
    sockets.check_min_rto([after], 10_000_000)
    unknown = replace(after, timeouts=None)
    sockets.check_min_rto([unknown, replace(after, rto_us=39_000)], 10_000_000)
    for telling in (replace(after, timeouts=0), replace(unknown, retransmits=0)):
        with pytest.raises(ReadBackError, match=r"minimum RTO: requested 10 ms, .* 33\.077 ms"):
            sockets.check_min_rto([after, telling], 10_000_000)
    # One that is shorter than the minimum tells that in any case.
    with pytest.raises(ReadBackError, match="minimum RTO"):
        sockets.check_min_rto([after], 200_000_000)
