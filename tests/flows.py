"""A flow for tests that need a flow but no network."""

from dataclasses import replace
from typing import Any

from outcast.emulation.kernel.sockets import SocketSample
from outcast.experiment import Transport
from outcast.plan.flows import Flow

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
    return_path=("h1", "s1", "h2"),
    hops=2,
    start_ns=100_000_000,
    duration_ns=2_500_000_000,
    size_bytes=None,
)


SAMPLE = SocketSample(
    t_ns=5,
    local_port=20001,
    peer_port=5001,
    is_established=True,
    congestion_control="cubic",
    sack=True,
    ecn=False,
    accurate_ecn=False,
    backoff=0,
    timeouts=0,
    rto_us=8000,
    rtt_us=2393,
    rttvar_us=1363,
    cwnd=1,
    retransmits=66,
    bytes_sent=931_144,
    bytes_acked=900_000,
    bytes_received=28,
    delivered_ce=0,
    most_pacing_bps=None,
    dscp=0,
    mptcp_token=None,
    local_address="10.0.0.2",
)
"""The flow's sending socket."""

RECEIVER = replace(SAMPLE, local_port=5001, peer_port=20001, rto_us=200_000, rtt_us=1000)


def wants(flow: Flow = FLOW, **settings: Any) -> Flow:
    """The flow with settings of `transport`, written as in a configuration."""
    return replace(flow, transport=Transport.model_validate(settings))
