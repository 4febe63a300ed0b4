from __future__ import annotations

from dataclasses import replace

import pytest

from outcast.emulation import sockets, traffic
from outcast.errors import ReadBackError
from tests.flows import FLOW, wants

# One socket of `ss -tinHO`, shortened where it does not matter.
SS = (
    "ESTAB 0 190720 10.0.0.2:20001 10.0.0.1:5001 ts sack cubic wscale:10,10 rto:8 backoff:1 "
    "rtt:2.393/1.363 ato:40 mss:1448 cwnd:1 ssthresh:2 bytes_sent:931144 bytes_received:28 "
    "send 3246637bps lastsnd:36 pacing_rate 3895688bps delivery_rate 1446728bps delivered:578 "
    "app_limited busy:1500ms unacked:1 retrans:1/66\n"
)


RECEIVER = (
    "ESTAB 0 0 10.0.0.1:5001 10.0.0.2:20001 ts sack cubic wscale:10,10 rto:200 rtt:1/1 cwnd:10\n"
)


def test_sockets() -> None:
    (sample,) = sockets.parse_ss(SS, 5)
    assert sample.local_port == 20001
    assert sample.peer_port == 5001
    assert sample.state == "ESTAB"
    assert sample.congestion_control == "cubic"
    assert sample.values["rto"] == "8"
    assert sample.values["retrans"] == "1/66"
    assert sample.values["send"] == "3246637bps"
    assert sample.values["flags"] == "ts,sack,app_limited"


def test_every_flow_has_what_was_asked_for() -> None:
    samples = sockets.parse_ss(SS + RECEIVER, 5)
    sockets.check_sockets([FLOW], samples)
    for settings, message in (
        ({"congestion_control": "bic"}, "flow 0 at h2: .* requested bic, the kernel shows cubic"),
        ({"sack": False}, "sack: requested off, the kernel shows on"),
        ({"ecn": True}, "ecn: requested on, the kernel shows off"),
    ):
        with pytest.raises(ReadBackError, match=message):
            sockets.check_sockets([wants(**settings)], samples)
    with pytest.raises(ReadBackError, match="no socket seen"):
        sockets.check_sockets([replace(FLOW, sport=20002)], samples)


def test_the_receivers_congestion_control_counts_too() -> None:
    samples = sockets.parse_ss(SS + RECEIVER.replace("cubic", "reno"), 5)
    with pytest.raises(ReadBackError, match=r"flow 0 at h1: .* the kernel shows reno"):
        sockets.check_sockets([FLOW], samples)
    with pytest.raises(ReadBackError, match=r"flow 0 at h1: .* the kernel shows no socket seen"):
        sockets.check_sockets([FLOW], sockets.parse_ss(SS, 5))


def test_a_pacing_rate_shows_at_the_socket() -> None:
    paced = wants(pacing="internal", pacing_rate="100mbit")
    argv = traffic.client_arguments(paced, 0)
    assert argv[argv.index("--fq-rate") + 1] == "100000000"
    limited = SS.replace("pacing_rate 3895688bps", "pacing_rate 3895688bps/100000000bps")
    sockets.check_sockets([paced], sockets.parse_ss(limited + RECEIVER, 5))
    with pytest.raises(ReadBackError, match=r"pacing_rate: requested 100000000bps, .* none"):
        sockets.check_sockets([paced], sockets.parse_ss(SS, 5))


def test_dctcp_always_negotiates_ecn() -> None:
    shown = "sack ecn dctcp dctcp:(ce_state:0,alpha:1023)"
    text = (SS + RECEIVER).replace("sack cubic", shown)
    sockets.check_sockets([wants(congestion_control="dctcp")], sockets.parse_ss(text, 5))


def test_the_minimum_rto_must_show_at_some_socket() -> None:
    samples = sockets.parse_ss(SS.replace(" backoff:1", ""), 5)
    sockets.check_min_rto(samples, 4_000_000)
    stuck = sockets.parse_ss(SS.replace(" backoff:1", "").replace("rto:8 ", "rto:204 "), 5)
    with pytest.raises(ReadBackError, match="RTO"):
        sockets.check_min_rto(stuck, 4_000_000)
    sockets.check_min_rto(stuck, 200_000_000)
    with pytest.raises(ReadBackError, match="RTO"):
        sockets.check_min_rto(samples, 200_000_000)
