"""Takes packets that a switch has mirrored out of what carries them to the collector.

Mirrored are: ERSPAN types I, II and III (draft-foschiano-erspan), Ethernet in GRE (RFC 2784 and
2890, protocol 0x6558) and VXLAN (RFC 7348). A plain SPAN copy has at most VLAN tags, which the
decoder looks through.
"""

from __future__ import annotations

import numpy as np

from outcast.analysis.compiled import I32, I64, U8, Scalar, compiled, load16, load32

CARRIERS = ("ERSPAN I", "ERSPAN II", "ERSPAN III", "GRE", "VXLAN")
"""What can carry a mirrored packet; codes are indices into it."""

_GRE, _UDP = 47, 17
_VXLAN_PORTS = (4789, 8472)
"""IANA's, and the one that Linux used before."""


@compiled
def link_layer(data: U8, at: Scalar, end: Scalar, link: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """Reads a packet's link layer, with its VLAN tags (IEEE 802.1Q and 802.1ad).

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
    elif link < 0:
        return np.int64(0), at, overhead
    else:
        if at + 1 > end:
            return np.int64(-1), at, overhead
        overhead = np.int64(14)
        version = data[at] >> 4
        kind = np.int64(0x0800 if version == 4 else (0x86DD if version == 6 else 0))
    while kind == 0x8100 or kind == 0x88A8 or kind == 0x9100 or kind == 0x9200:
        if at + 4 > end:
            return np.int64(-1), at, overhead
        kind = load16(data, at + 2)
        at += 4
    return kind, at, overhead


@compiled
def _carried(data: U8, at: Scalar, end: Scalar, kind: Scalar) -> tuple[Scalar, Scalar]:
    """Finds the frame that a packet carries; `at` is where its network layer begins.

    Returns (the carrier's code, where the frame begins), or (-1, 0) if it carries none. A code of
    100 more means that it carries an IP packet without a link layer.
    """
    none = np.int64(-1), np.int64(0)
    protocol: Scalar = np.int64(-1)
    if kind == 0x0800:
        # The first fragment has the headers; later ones have nothing that could be found.
        if at + 20 > end or data[at] >> 4 != 4 or load16(data, at + 6) & 0x1FFF:
            return none
        protocol = np.int64(data[at + 9])
        at += (np.int64(data[at]) & 15) * 4
    elif kind == 0x86DD:
        if at + 40 > end or data[at] >> 4 != 6:
            return none
        protocol = np.int64(data[at + 6])
        at += 40
    if protocol == _GRE:
        if at + 4 > end:
            return none
        flags = load16(data, at)
        payload = load16(data, at + 2)
        # Version 1 is PPTP's, and routing (0x4000) is of RFC 1701.
        if flags & 0x4007:
            return none
        at += 4
        for bit in (0x8000, 0x2000, 0x1000):
            if flags & bit:
                at += 4
        if payload == 0x6558:
            return np.int64(3), at
        if payload == 0x88BE and not flags & 0x1000:
            return np.int64(0), at
        if payload == 0x88BE:
            if at + 8 > end or data[at] >> 4 != 1:
                return none
            return np.int64(1), at + 8
        if payload == 0x22EB:
            if at + 12 > end or data[at] >> 4 != 2:
                return none
            last = load16(data, at + 10)
            frame_type = (last >> 10) & 31
            # The last bit tells of a subheader of the platform's.
            at += 20 if last & 1 else 12
            if frame_type == 0:
                return np.int64(2), at
            if frame_type == 2:
                return np.int64(102), at
        return none
    if protocol == _UDP:
        if at + 16 > end:
            return none
        port = load16(data, at + 2)
        if port != _VXLAN_PORTS[0] and port != _VXLAN_PORTS[1]:
            return none
        # All bits but that of a valid network number are reserved, and 0.
        if load32(data, at + 8) != 0x08000000 or data[at + 15] != 0:
            return none
        return np.int64(4), at + 16
    return none


@compiled
def unwrap_mirrored(
    data: U8, count: int, offset: I64, length: I64, original: I64, link: I32, tally: I64
) -> None:
    """Moves mirrored packets to the frames that they carry; `tally` counts them by carrier.

    Only the outermost carrier is taken away, because what it carries was on the switch's link.
    """
    for packet in range(count):
        begin = offset[packet]
        end = begin + length[packet]
        kind, at, _ = link_layer(data, begin, end, link[packet])
        if kind != 0x0800 and kind != 0x86DD:
            continue
        carrier, at = _carried(data, at, end, kind)
        if carrier < 0:
            continue
        inner_link = 1
        if carrier >= 100:
            carrier -= 100
            inner_link = 101
        at = min(at, end)
        inner, network, _ = link_layer(data, at, end, inner_link)
        is_ip = inner == 0x0800 or inner == 0x86DD
        # What is no Ethernet frame behind VXLAN's or GRE's number is left as it is.
        if carrier >= 3 and not is_ip and inner != 0x0806 and inner != -1:
            continue
        size = original[packet] - (at - begin)
        # A mirror may cut packets off, and then only their own headers have their length.
        if inner == 0x0800 and network + 4 <= end:
            size = max(size, network - at + load16(data, network + 2))
        elif inner == 0x86DD and network + 6 <= end:
            size = max(size, network - at + 40 + load16(data, network + 4))
        offset[packet] = at
        length[packet] = end - at
        original[packet] = size
        link[packet] = inner_link
        tally[carrier] += 1
