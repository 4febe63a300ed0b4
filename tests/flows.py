"""A flow for tests that need one and no network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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


def wants(flow: Flow = FLOW, **settings: Any) -> Flow:
    """The flow with settings of `transport`, as a configuration has them."""
    return replace(flow, transport=Transport.model_validate(settings))
