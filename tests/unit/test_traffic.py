from __future__ import annotations

from dataclasses import replace

import pytest

from outcast import traffic
from outcast.errors import ReadBackError
from outcast.plan import Flow

FLOW = Flow(
    flow=0,
    group=0,
    src="h2",
    src_ip="10.0.0.2",
    sport=20001,
    dst="h1",
    dst_ip="10.0.0.1",
    dport=5001,
    path=("h2", "s1", "h1"),
    start_ns=100_000_000,
    duration_ns=2_500_000_000,
    size_bytes=None,
)

CLIENT = """[  1] local 10.0.0.2%h2-eth0 port 20001 connected with 10.0.0.1 port 5001
[ ID] Interval            Transfer    Bandwidth       Write/Err  Rtry     Cwnd/RTT(var)
[  1] 0.0000-3.1502 sec  7077968 Bytes  17974690 bits/sec  54/0        192        2K/1072(375) us
"""

# One socket of `ss -tinHO`, shortened where it does not matter.
SS = (
    "ESTAB 0 190720 10.0.0.2:20001 10.0.0.1:5001 ts sack cubic wscale:10,10 rto:8 backoff:1 "
    "rtt:2.393/1.363 ato:40 mss:1448 cwnd:1 ssthresh:2 bytes_sent:931144 bytes_received:28 "
    "send 3246637bps lastsnd:36 pacing_rate 3895688bps delivery_rate 1446728bps delivered:578 "
    "app_limited busy:1500ms unacked:1 retrans:1/66\n"
)


def test_a_client_waits_for_its_start() -> None:
    argv = traffic.client_arguments(FLOW, 1_700_000_000_950_000_000)
    assert argv[argv.index("--txstart-time") + 1] == "1700000001.050000"
    assert argv[argv.index("-B") + 1] == "10.0.0.2:20001"
    assert argv[argv.index("-t") + 1] == "2.5"
    sized = replace(FLOW, duration_ns=None, size_bytes=70_000)
    assert traffic.client_arguments(sized, 0)[-2:] == ["-n", "70000"]


def test_iperfs_report() -> None:
    assert traffic.client_bytes(CLIENT) == 7_077_968
    assert traffic.client_bytes("tcp connect failed: Connection refused\n") is None


def test_sockets() -> None:
    (sample,) = traffic.parse_ss(SS, 5)
    assert sample.local_port == 20001
    assert sample.peer_port == 5001
    assert sample.state == "ESTAB"
    assert sample.congestion_control == "cubic"
    assert sample.values["rto"] == "8"
    assert sample.values["retrans"] == "1/66"
    assert sample.values["send"] == "3246637bps"
    assert sample.values["flags"] == "ts,sack,app_limited"


def test_every_flow_must_use_the_congestion_control() -> None:
    samples = traffic.parse_ss(SS, 5)
    traffic.check_sockets([FLOW], samples, "cubic")
    with pytest.raises(ReadBackError, match="requested bic, the kernel shows cubic"):
        traffic.check_sockets([FLOW], samples, "bic")
    with pytest.raises(ReadBackError, match="no socket seen"):
        traffic.check_sockets([replace(FLOW, sport=20002)], samples, "cubic")


def test_the_minimum_rto_must_show_at_some_socket() -> None:
    samples = traffic.parse_ss(SS.replace(" backoff:1", ""), 5)
    traffic.check_min_rto(samples, 4_000_000)
    stuck = traffic.parse_ss(SS.replace(" backoff:1", "").replace("rto:8 ", "rto:204 "), 5)
    with pytest.raises(ReadBackError, match="RTO"):
        traffic.check_min_rto(stuck, 4_000_000)
    traffic.check_min_rto(stuck, 200_000_000)
    with pytest.raises(ReadBackError, match="RTO"):
        traffic.check_min_rto(samples, 200_000_000)
