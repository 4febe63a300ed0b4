"""What stands before a packet: its link layer, tags, and the outer headers of tunnels.

Tunnels are GRE (RFC 2784, 2890), IP in IP (RFC 2003, 2473), 6in4 (RFC 4213), VXLAN (RFC 7348),
Geneve (RFC 8926) and GTP-U (3GPP TS 29.281). A hop at the end of one adds or takes away the outer
headers, and the packet inside stays the same. So packets of foreign captures are known by it, and
their length is that of the whole, which is what the link carries.
"""

from __future__ import annotations

import numpy as np

from outcast.analysis.compiled import I64, U8, Scalar, compiled, load16, load32

TUNNELS = ("GRE", "IPv4 in IP", "IPv6 in IP", "Ethernet in GRE", "VXLAN", "Geneve", "GTP", "ERSPAN")
"""What can carry another packet; codes are indices into it. ERSPAN is counted, and not read."""
_GRE_OF_IP, _IPV4, _IPV6, _GRE_OF_ETHERNET, _VXLAN, _GENEVE, _GTP, ERSPAN = range(len(TUNNELS))

_DEEPEST = 4
"""The most tunnels, one in another, whose inner headers are read."""

_GRE, _UDP = 47, 17
_VXLAN_PORTS = (4789, 8472)
"""IANA's, and the one that Linux used before."""
_GENEVE_PORT, _GTP_PORT = 6081, 2152


@compiled
def link_layer(data: U8, at: Scalar, end: Scalar, link: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """Reads a packet's link layer, with tags.

    Returns (EtherType, where the network layer begins, what makes a length that of an Ethernet
    frame). The EtherType is -1 if the packet is too short, and 0 if it is unknown.
    """
    kind: Scalar = np.int64(0)
    overhead: Scalar = np.int64(0)
    if link == 1:
        if at + 14 > end:
            return np.int64(-1), at, overhead
        kind = load16(data, at + 12)
        at += 14
    elif link == 113:
        if at + 16 > end:
            return np.int64(-1), at, overhead
        kind = load16(data, at + 14)
        at += 16
        overhead = np.int64(14 - 16)
    elif link == 276:
        if at + 20 > end:
            return np.int64(-1), at, overhead
        kind = load16(data, at)
        at += 20
        overhead = np.int64(14 - 20)
    elif link == 0 or link == 108:
        # The address family of the machine that captured: AF_INET is 2, AF_INET6 differs.
        if at + 4 > end:
            return np.int64(-1), at, overhead
        family = data[at] + data[at + 3]
        is_6 = family == 10 or family == 24 or family == 28 or family == 30
        kind = np.int64(0x0800 if family == 2 else (0x86DD if is_6 else 0))
        at += 4
        overhead = np.int64(14 - 4)
    else:
        if at + 1 > end:
            return np.int64(-1), at, overhead
        overhead = np.int64(14)
        version = data[at] >> 4
        kind = np.int64(0x0800 if version == 4 else (0x86DD if version == 6 else 0))
    # VLAN tags (IEEE 802.1Q, 802.1ad), also old ones of vendors.
    while kind == 0x8100 or kind == 0x88A8 or kind == 0x9100 or kind == 0x9200:
        if at + 4 > end:
            return np.int64(-1), at, overhead
        kind = load16(data, at + 2)
        at += 4
    return kind, at, overhead


@compiled
def _gre(data: U8, at: Scalar, end: Scalar) -> tuple[Scalar, Scalar]:
    """Reads a GRE header (RFC 2784, 2890): the payload's EtherType, and where that begins.

    The EtherType is -1 if the header is cut off or of another kind: PPTP's (version 1), or one with
    routing (RFC 1701).
    """
    if at + 4 > end:
        return np.int64(-1), at
    flags = load16(data, at)
    if flags & 0x4007:
        return np.int64(-1), at
    payload = load16(data, at + 2)
    at += 4
    # A checksum, a key and a sequence number of 4 bytes each.
    for bit in (0x8000, 0x2000, 0x1000):
        if flags & bit:
            at += 4
    return payload, at


@compiled
def inside(data: U8, at: Scalar, end: Scalar, kind: Scalar, tally: I64) -> tuple[Scalar, Scalar]:
    """The innermost packet; `at` is where that of EtherType `kind` begins. Counts in `tally`.

    Returns (its EtherType, where it begins). These are the given ones if there is no tunnel, if the
    outer packet is a fragment, or if the addresses of the packet inside were not captured.
    """
    for _ in range(_DEEPEST):
        code, inner_kind, inner_at = _in_tunnel(data, at, end, kind)
        if code < 0:
            break
        tally[code] += 1
        if code == ERSPAN:
            break
        kind, at = inner_kind, inner_at
    return kind, at


@compiled
def _in_tunnel(data: U8, at: Scalar, end: Scalar, kind: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """The packet that an IP packet carries.

    Returns (the tunnel's code or -1, its EtherType, where it begins).
    """
    none = np.int64(-1), np.int64(0), np.int64(0)
    protocol: Scalar = np.int64(0)
    inner: Scalar = np.int64(0)
    code: Scalar = np.int64(0)
    if kind == 0x0800:
        if at + 20 > end or load16(data, at + 6) & 0x3FFF:
            return none
        protocol = np.int64(data[at + 9])
        at += (np.int64(data[at]) & 15) * 4
    elif kind == 0x86DD:
        if at + 48 > end:
            return none
        protocol = np.int64(data[at + 6])
        at += 40
        if protocol == 60:
            # Linux puts a limit on nested tunnels into destination options (RFC 2473, 4.1.1).
            protocol = np.int64(data[at])
            at += 8 + 8 * np.int64(data[at + 1])
    if protocol == 4:
        inner = np.int64(0x0800)
        code = np.int64(_IPV4)
    elif protocol == 41:
        inner = np.int64(0x86DD)
        code = np.int64(_IPV6)
    elif protocol == _GRE:
        inner, at = _gre(data, at, end)
        if inner == 0x88BE or inner == 0x22EB:
            return np.int64(ERSPAN), inner, at
        code = np.int64(_GRE_OF_ETHERNET if inner == 0x6558 else _GRE_OF_IP)
    elif protocol == _UDP:
        code, inner, at = _in_udp(data, at, end)
    if inner == 0x6558:
        inner, at, _ = link_layer(data, at, end, 1)
        if inner == 0x0806:
            return code, inner, at
    if inner == 0x0800 and at + 20 <= end and data[at] >> 4 == 4:
        return code, inner, at
    if inner == 0x86DD and at + 40 <= end and data[at] >> 4 == 6:
        return code, inner, at
    return none


@compiled
def _in_udp(data: U8, at: Scalar, end: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """What a datagram carries: (the tunnel's code or -1, EtherType, its begin)."""
    none = np.int64(-1), np.int64(0), at
    if at + 16 > end:
        return none
    port = load16(data, at + 2)
    at += 8
    if port == _VXLAN_PORTS[0] or port == _VXLAN_PORTS[1]:
        # All bits but that of a valid network number are reserved, and 0.
        if load32(data, at) == 0x08000000 and data[at + 7] == 0:
            return np.int64(_VXLAN), np.int64(0x6558), at + 8
    elif port == _GENEVE_PORT and data[at] >> 6 == 0:
        return np.int64(_GENEVE), load16(data, at + 2), at + 8 + 4 * (np.int64(data[at]) & 63)
    elif port == _GTP_PORT and data[at] >> 4 == 3 and data[at + 1] == 255:
        has_more = data[at] & 7
        following: Scalar = np.int64(0)
        at += 8
        if has_more and at + 4 <= end:
            following = np.int64(data[at + 3])
            at += 4
        while following and at + 4 <= end and data[at]:
            at += 4 * np.int64(data[at])
            following = np.int64(data[min(at, end) - 1])
        if at < end:
            version = data[at] >> 4
            inner = np.int64(0x0800 if version == 4 else 0x86DD)
            return np.int64(_GTP), inner, at
    return none
