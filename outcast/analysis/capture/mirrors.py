"""What carries packets: mirrors of a switch, and tunnels.

Mirrored packets are in ERSPAN types I, II and III (draft-foschiano-erspan), and are taken out of
it. A plain SPAN copy has at most VLAN tags, which the decoder looks through.

Tunnels are GRE (RFC 2784, 2890), IP in IP (RFC 2003, 2473), 6in4 (RFC 4213), VXLAN (RFC 7348),
Geneve (RFC 8926) and GTP-U (3GPP TS 29.281). A hop at the end of one adds or takes away the outer
headers, and the packet inside stays the same. So packets of foreign captures are known by it, and
their length is that of the whole, which is what the link carries. Switches also mirror into VXLAN
and GRE; `carried` finds out which it was.
"""

from __future__ import annotations

import numpy as np

from outcast.analysis.capture.formats import Records
from outcast.analysis.compiled import I64, U8, Scalar, compiled, load16, load32

CARRIERS = ("ERSPAN I", "ERSPAN II", "ERSPAN III")
"""What carries mirrored packets alone; codes are indices into it."""

TUNNELS = ("GRE", "IPv4 in IP", "IPv6 in IP", "Ethernet in GRE", "VXLAN", "Geneve", "GTP")
"""What can carry another packet; codes are indices into it."""
_GRE_OF_IP, _IPV4, _IPV6, _GRE_OF_ETHERNET, _VXLAN, _GENEVE, _GTP = range(len(TUNNELS))

_DEEPEST = 4
"""A tunnel in a tunnel is looked through, so many in all."""

_GRE, _UDP = 47, 17
_VXLAN_PORTS = (4789, 8472)
"""IANA's, and the one that Linux used before."""
_GENEVE_PORT, _GTP_PORT = 6081, 2152


@compiled
def link_layer(data: U8, at: Scalar, end: Scalar, link: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """Reads a packet's link layer, with what stands between it and IP; see `_inner`.

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
    elif link == 9 or link == 104:
        # PPP (RFC 1662), with or without address and control; Cisco HDLC has an EtherType there.
        if at + 4 > end:
            return np.int64(-1), at, overhead
        begin = at
        if link == 104:
            kind = load16(data, at + 2)
            at += 4
        else:
            if load16(data, at) == 0xFF03:
                at += 2
            kind = _of_ppp(load16(data, at))
            at += 2
        overhead = 14 - (at - begin)
    elif link == 239:
        begin = at
        at = _nflog_payload(data, at, end)
        if at < 0:
            return np.int64(-1), begin, overhead
        overhead = 14 - (at - begin)
        version = data[at] >> 4
        kind = np.int64(0x0800 if version == 4 else (0x86DD if version == 6 else 0))
    elif link < 0:
        return np.int64(0), at, overhead
    else:
        if at + 1 > end:
            return np.int64(-1), at, overhead
        overhead = np.int64(14)
        version = data[at] >> 4
        kind = np.int64(0x0800 if version == 4 else (0x86DD if version == 6 else 0))
    while kind > 0x0800 and kind != 0x86DD:
        following, after = _inner(data, at, end, kind)
        if following < 0 or after == at:
            return following, at, overhead
        kind, at = following, after
    return kind, at, overhead


@compiled
def _inner(data: U8, at: Scalar, end: Scalar, kind: Scalar) -> tuple[Scalar, Scalar]:
    """What stands behind a tag or a label: the EtherType, and where its network layer begins.

    These are VLAN tags (IEEE 802.1Q, 802.1ad), provider backbones (802.1ah), E-tags (802.1BR),
    FabricPath, PPPoE (RFC 2516) and MPLS (RFC 3032; pseudowires with a control word, RFC 4448).
    The EtherType is -1 if the packet is too short. Of anything else it is `kind`, at `at`.
    """
    size: Scalar = np.int64(0)
    if kind == 0x8100 or kind == 0x88A8 or kind == 0x9100 or kind == 0x9200:
        size = np.int64(4)
    elif kind == 0x88E7:
        size = np.int64(18)
    elif kind == 0x893F:
        size = np.int64(8)
    elif kind == 0x8903:
        size = np.int64(16)
    elif kind == 0x8864:
        size = np.int64(8)
    if size:
        if at + size > end:
            return np.int64(-1), at
        following = load16(data, at + size - 2)
        return (_of_ppp(following) if kind == 0x8864 else following), at + size
    if kind != 0x8847 and kind != 0x8848:
        return kind, at
    last = False
    while not last:
        if at + 5 > end:
            return np.int64(-1), at
        last = (data[at + 2] & 1) == 1
        at += 4
    version = data[at] >> 4
    if version == 4:
        return np.int64(0x0800), at
    if version == 6:
        return np.int64(0x86DD), at
    if version:
        return np.int64(0), at
    if at + 18 > end:
        return np.int64(-1), at
    return load16(data, at + 16), at + 18


@compiled
def _of_ppp(protocol: Scalar) -> Scalar:
    """The EtherType of a PPP protocol number; 0 if it is not IP."""
    return np.int64(0x0800 if protocol == 0x0021 else (0x86DD if protocol == 0x0057 else 0))


@compiled
def _nflog_payload(data: U8, at: Scalar, end: Scalar) -> Scalar:
    """Where the IP packet of an NFLOG record begins (tcpdump.org, LINKTYPE_NFLOG); -1 without one.

    Its attributes are in the byte order of the machine that captured, mostly the little endian.
    """
    at += 4
    while at + 4 <= end:
        size = np.int64(data[at]) | np.int64(data[at + 1]) << 8
        kind = np.int64(data[at + 2]) | np.int64(data[at + 3]) << 8
        if size < 4:
            return np.int64(-1)
        if kind == 9:
            return at + 4 if at + 4 < end else np.int64(-1)
        at += (size + 3) & ~3
    return np.int64(-1)


@compiled
def gre(data: U8, at: Scalar, end: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """Reads a GRE header (RFC 2784, 2890): its flags, the payload's EtherType, where that begins.

    The EtherType is -1 if the header is cut off or of another kind: PPTP's (version 1), or one with
    routing (RFC 1701).
    """
    if at + 4 > end:
        return np.int64(0), np.int64(-1), at
    flags = load16(data, at)
    if flags & 0x4007:
        return flags, np.int64(-1), at
    payload = load16(data, at + 2)
    at += 4
    # A checksum, a key and a sequence number of 4 bytes each.
    for bit in (0x8000, 0x2000, 0x1000):
        if flags & bit:
            at += 4
    return flags, payload, at


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
        flags, payload, at = gre(data, at, end)
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
    return none


@compiled
def unwrap_mirrored(records: Records, tally: I64) -> None:
    """Moves mirrored packets to the frames that they carry; `tally` counts them by carrier.

    Only the outermost carrier is taken away, because what it carries was on the switch's link.
    """
    data, offset, length = records.data, records.offset, records.length
    original, link = records.original, records.link
    for packet in range(records.count):
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


@compiled
def inside(
    data: U8, at: Scalar, end: Scalar, kind: Scalar, tally: I64
) -> tuple[Scalar, Scalar, Scalar]:
    """The innermost packet; `at` is where that of EtherType `kind` begins. Counts in `tally`.

    Returns (its EtherType, where it begins, where the frame begins that could be mirrored, or -1).
    The first two are the given ones if there is no tunnel, if the outer packet is a fragment, or if
    the addresses of the packet inside were not captured.
    """
    mirrored: Scalar = np.int64(-1)
    for depth in range(_DEEPEST):
        code, inner_kind, inner_at, frame_at = _in_tunnel(data, at, end, kind)
        if code < 0:
            break
        tally[code] += 1
        kind, at = inner_kind, inner_at
        if depth == 0 and code in (_VXLAN, _GRE_OF_ETHERNET):
            mirrored = frame_at
    return kind, at, mirrored


@compiled
def _in_tunnel(
    data: U8, at: Scalar, end: Scalar, kind: Scalar
) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """The packet that an IP packet carries.

    Returns (the tunnel's code or -1, its EtherType, where it begins, where its frame begins).
    """
    none = np.int64(-1), np.int64(0), np.int64(0), np.int64(0)
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
        _, inner, at = gre(data, at, end)
        code = np.int64(_GRE_OF_ETHERNET if inner == 0x6558 else _GRE_OF_IP)
    elif protocol == _UDP:
        code, inner, at = _in_udp(data, at, end)
    frame_at = at
    if inner == 0x6558:
        inner, at, _ = link_layer(data, at, end, 1)
        if inner == 0x0806:
            return code, inner, at, frame_at
    if inner == 0x0800 and at + 20 <= end and data[at] >> 4 == 4:
        return code, inner, at, frame_at
    if inner == 0x86DD and at + 40 <= end and data[at] >> 4 == 6:
        return code, inner, at, frame_at
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


@compiled
def outer(
    data: U8, at: Scalar, frame_at: Scalar, end: Scalar, kind: Scalar, own: Scalar, whole: Scalar
) -> Scalar:
    """What `carried` asks of the headers around a frame, in one number that is not 0.

    The outer packet of EtherType `kind` begins at `at`, the frame inside at `frame_at`; they have
    `whole` and `own` bytes as Ethernet frames. From the highest bit on the number has a hash of the
    outer headers (32 bits), one of their addresses (16), and `whole` less `own` (16).
    """
    numbers: Scalar = np.uint64(1)
    first = at + (12 if kind == 0x0800 else 8)
    last = first + (8 if kind == 0x0800 else 32)
    for place in range(first, last, 2):
        numbers = (numbers ^ np.uint64(load16(data, place))) * np.uint64(0x9E3779B97F4A7C15)
    ends = numbers >> np.uint64(48)
    if kind == 0x0800:
        numbers ^= np.uint64(load16(data, at + 4))
    for place in range(last, frame_at - 1, 2):
        numbers = (numbers ^ np.uint64(load16(data, place))) * np.uint64(0x9E3779B97F4A7C15)
    within, network, _ = link_layer(data, frame_at, end, 1)
    # A mirror may cut packets off, and then only their own headers have their length.
    if within == 0x0800 and network + 4 <= end:
        own = max(own, network - frame_at + load16(data, network + 2))
    elif within == 0x86DD and network + 6 <= end:
        own = max(own, network - frame_at + 40 + load16(data, network + 4))
    more = np.uint64((whole - own) & 0xFFFF)
    high = ((numbers >> np.uint64(32)) | np.uint64(1)) << np.uint64(32)
    return high | (ends << np.uint64(16)) | more
