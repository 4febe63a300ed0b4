"""What the hop itself does to packets besides queueing: it sends some, and it may rewrite others.

A router's own packets (ping, ssh, BGP) leave without having come in. They bear the router's own
MAC address like all that it forwards, but their TTL is as their sender set it. A NAT gives packets
other addresses or ports, but leaves their IP id, sequence numbers and lengths as they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from outcast.analysis.capture.headers import Columns
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import U64, Array, Bool
from outcast.analysis.join.directions import ELSEWHERE, LEFT, Directions

FIRST_TTLS = (64, 128, 255)
"""What operating systems begin with (RFC 1700 and practice)."""
SAMPLED = 4_096
LEAST_ALONE = 0.01
"""Only if one capture alone has more than this share of its packets, a NAT is looked for."""
LEAST = 16
"""So many packets have to be found with other addresses."""
LEAST_SHARE = 0.5


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


def rewritten(captures: Sequence[PortCapture]) -> str | None:
    """A sentence if packets leave with other addresses than they came in with; else None.

    Flows that one capture alone has are compared by what a NAT leaves as it is.
    """
    seen_in = Counter(flow for capture in captures for flow in set(capture.flows))
    alone = []
    for capture in captures:
        mine = np.array([seen_in[flow] == 1 for flow in capture.flows], np.bool_)
        rows = np.flatnonzero(mine[capture.columns.flow])
        if rows.size <= LEAST_ALONE * capture.columns.flow.size:
            rows = rows[:0]
        alone.append((capture, rows, _unchanged(capture.columns, rows)))
    for capture, rows, wanted in alone:
        for other, others, seen in alone:
            sample = rows[:SAMPLED]
            if other is capture or sample.size < LEAST or not others.size:
                continue
            order = np.argsort(seen, kind="stable")
            at = np.searchsorted(seen[order], wanted[:SAMPLED]).clip(max=seen.size - 1)
            found = seen[order][at] == wanted[:SAMPLED]
            if int(found.sum()) < max(LEAST, LEAST_SHARE * sample.size):
                continue
            here, there = (
                Counter(one.columns.flow[part].tolist()).most_common(1)[0][0]
                for one, part in ((capture, sample[found]), (other, others[order[at[found]]]))
            )
            one, two = capture.flows[here], other.flows[there]
            return (
                f"{capture.port} and {other.port}: addresses are rewritten between them (NAT): "
                f"{int(found.sum()):,} of {sample.size:,} packets that {capture.port} has as from "
                f"{one.src} to {one.dst}, {other.port} has with the same IP ids, sequence numbers "
                f"and lengths as from {two.src} to {two.dst}. Capture both ports on one side of "
                "the translation"
            )
    return None


def _unchanged(columns: Columns, rows: Array) -> U64:
    """A hash of what a NAT leaves as it is."""
    value = columns.ip_id[rows].astype(np.uint64)
    for part in (columns.seq, columns.ack, columns.payload_bytes, columns.flags):
        value = value * np.uint64(0x9E3779B97F4A7C15) ^ part[rows].astype(np.uint64)
    return value
