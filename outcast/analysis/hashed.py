"""Packets of an input port that hashed routes send out by another port than the one analysed.

Where a switch has several ports towards one receiver, a packet's addresses and ports decide which
of them it takes. The routes compute that choice (controllers/hashing.py). Every run verifies it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from controllers import routes
from controllers.hashing import FiveTuple
from outcast.analysis.capture.headers import Columns, FlowKey
from outcast.analysis.capture.pcap import PortCapture
from outcast.plan.model import Plan
from outcast.plan.paths import port_name


def only_by(capture: PortCapture, plan: Plan, egress: str) -> PortCapture:
    """The capture of an input without the packets whose path does not lead over `egress`.

    A packet between addresses that the plan does not know stays. Without a choice by hash the
    capture is returned as it is.
    """
    if not plan.routes.choices:
        return capture
    hosts = plan.host_of

    def leaves(flow: FlowKey) -> bool:
        if flow.src not in hosts or flow.dst not in hosts:
            return True
        packet = FiveTuple(flow.src, flow.sport, flow.dst, flow.dport, flow.protocol)
        path = routes.path(plan.routes, plan.graph, hosts[flow.src], hosts[flow.dst], packet)
        return any(port_name(plan.graph, *hop) == egress for hop in pairwise(path[1:]))

    mine = np.array([leaves(flow) for flow in capture.flows], bool)
    kept = mine[capture.columns.flow]
    return replace(
        capture,
        columns=Columns.of(column[kept] for column in capture.columns),
        unwanted=capture.unwanted + int(np.count_nonzero(~kept)),
    )
