"""The hop's own packets, which leave without having come in: ping, ssh, BGP.

They bear the router's own MAC address like all that it forwards, but their TTL is as their sender
set it.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import Bool
from outcast.analysis.join.directions import ELSEWHERE, LEFT, Directions

FIRST_TTLS = (64, 128, 255)
"""What operating systems begin with (RFC 1700 and practice)."""


def own_flows(capture: PortCapture, index: int, told: Directions) -> Bool:
    """For each flow of a capture at a router, whether the router itself sent it."""
    here = (told.ways[index] == LEFT) & (told.counts[index] > 0)
    own = np.zeros(len(capture.flows), np.bool_)
    if not here.any() or len(capture.macs) < len(capture.flows):
        return own
    macs = np.array(capture.macs, np.int64)
    routers = Counter({int(mac): 0 for mac in macs[here]})
    for row in np.flatnonzero(here).tolist():
        routers[int(macs[row])] += int(told.counts[index][row])
    router_mac, _ = routers.most_common(1)[0]
    if not router_mac:
        return own
    for row in np.flatnonzero(here & (macs == router_mac)).tolist():
        if told.place.get(capture.flows[row].src, ELSEWHERE) != ELSEWHERE:
            continue
        ttls = np.unique(capture.columns.ttl[capture.columns.flow == row])
        own[row] = ttls.size == 1 and int(ttls[0]) in FIRST_TTLS
    # Hosts behind a port that was not captured come with a lower TTL, but so near a bridge that
    # nothing tells them apart: then all that left would be the router's own.
    return own if not own[here].all() else np.zeros_like(own)


def own_remark(capture: PortCapture, index: int, own: Bool, told: Directions) -> str:
    """What is said of the router's own packets."""
    packets = int(told.counts[index][own].sum())
    addresses = sorted({capture.flows[row].src for row in np.flatnonzero(own).tolist()})
    return (
        f"{capture.port}: {packets:,} packets that the router itself sent "
        f"({', '.join(addresses[:3])}) take no part; they bear its MAC address and a TTL that "
        "nobody has counted down. What the queue dropped of them, no capture shows"
    )
