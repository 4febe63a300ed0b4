"""Decodes the packets of a capture into columns, and numbers their flows.

One compiled loop reads the headers of a block of packets (RFC 791, 8200, 4302, 9293, 768; IEEE
802.1Q; tcpdump.org's LINKTYPE_LINUX_SLL and SLL2), also of packets in tunnels, and appends them to
flat arrays. It folds the fields that a switch leaves unchanged into one 64-bit identity per packet.
Fields that some captures lack or some hops change (TTL, checksum, TCP time stamps) stay separate,
so that the join can choose to include them.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from outcast.analysis.capture.formats import COOKED_V1, COOKED_V2, Records
from outcast.analysis.capture.headers import (
    AUTHENTICATION,
    FRAGMENT,
    HAS_TIMESTAMP,
    INBOUND,
    LATER_FRAGMENT,
    OPTIONS_CUT,
    OUTBOUND,
    SOURCE_MAC,
    TCP,
    TUNNELS,
    UDP,
    WANTED,
    Columns,
    FlowKey,
    Flows,
    Others,
    flow_row,
    inside,
    link_layer,
    mix,
)
from outcast.analysis.machine_code import I8, I64, U8, Scalar, compiled, load16, load32, load64

_NOT_IP, _CUT, _UNWANTED = 0, 1, 2
_LOOKED_AT, _LEAST_LOOKED_AT = 40, 8
"""The bytes behind the EtherType that identify a frame that is not decoded, and the least."""


@compiled
def _source_mac(data: U8, at: Scalar, link: Scalar) -> Scalar:
    """The source MAC address of the frame that begins at `at`; 0 if the link type has none."""
    place: Scalar = 12 if link == COOKED_V2 else 6
    if link != 1 and link != COOKED_V1 and link != COOKED_V2:
        return np.uint64(0)
    return (np.uint64(load16(data, at + place)) << np.uint64(32)) | np.uint64(
        load32(data, at + place + 2)
    )


@compiled
def _decode(
    records: Records,
    first: int,
    columns: Columns,
    filled: int,
    flows: Flows,
    skipped: I8,
    tunnels: I64,
) -> tuple[int, int]:
    """Decodes packets from `first` on. Returns (packet reached, rows filled).

    Stops early if the flow table is full. `skipped` is the reason why a packet is left out: it is
    not IP, was captured too short for its headers, or goes to no wanted destination; else -1.
    `tunnels` counts packets that are known by the packet inside; if it is empty, tunnels are not
    read.
    """
    data, count, offset, length, original, stamp, link, _ = records
    table = flows.rows
    entry = np.zeros(5, np.uint64)
    last = np.zeros(5, np.uint64)
    last_row = -1
    last_hash: Scalar = np.uint64(0)
    looks_inside = tunnels.size > 0
    # Most packets are in no tunnel. This finds them without a call.
    may_carry = np.zeros(256, np.bool_)
    for number in (4, 17, 41, 47, 60):
        may_carry[number] = True
    for packet in range(first, count):
        at = offset[packet]
        end = at + length[packet]
        kind, at, overhead = link_layer(data, at, end, link[packet])
        if kind < 0:
            skipped[packet] = _CUT
            continue
        if looks_inside and at + 20 <= end and may_carry[data[at + (9 if kind == 0x0800 else 6)]]:
            kind, at = inside(data, at, end, kind, tunnels)
        short = False
        # Network layer: addresses. `rest` is the number of bytes above it, by the header's length.
        beyond = original[packet] - (at - offset[packet])
        ip_id: Scalar = 0
        marks: Scalar = 0
        fragment_offset: Scalar = 0
        protocol: Scalar = 0
        if kind == 0x0800:
            if at + 20 > end:
                skipped[packet] = _CUT
                continue
            header: Scalar = (data[at] & 15) * 4
            if data[at] >> 4 != 4 or header < 20:
                skipped[packet] = _NOT_IP
                continue
            total = load16(data, at + 2)
            rest = (total if total else beyond) - header
            ip_id = load16(data, at + 4)
            fragment = load16(data, at + 6)
            fragment_offset = fragment & 0x1FFF
            if fragment & 0x3FFF:
                marks |= FRAGMENT
            tos = data[at + 1]
            ttl = data[at + 8]
            protocol = np.int64(data[at + 9])
            entry[1] = np.uint64(0)
            entry[2] = np.uint64(load32(data, at + 12))
            entry[3] = np.uint64(0)
            entry[4] = np.uint64(load32(data, at + 16))
            family = 4
            at += header
            if protocol == AUTHENTICATION and not fragment_offset:
                if at + 8 > end:
                    skipped[packet] = _CUT
                    continue
                protocol = np.int64(data[at])
                size: Scalar = 8 + 4 * np.int64(data[at + 1])
                rest -= size
                at += size
        elif kind == 0x86DD:
            if at + 40 > end:
                skipped[packet] = _CUT
                continue
            if data[at] >> 4 != 6:
                skipped[packet] = _NOT_IP
                continue
            total = load16(data, at + 4)
            rest = total if total else beyond - 40
            protocol = np.int64(data[at + 6])
            tos = (load16(data, at) >> 4) & 255
            ttl = data[at + 7]
            entry[1] = load64(data, at + 8)
            entry[2] = load64(data, at + 16)
            entry[3] = load64(data, at + 24)
            entry[4] = load64(data, at + 32)
            family = 6
            at += 40
            while (
                protocol == 0
                or protocol == 43
                or protocol == 44
                or protocol == AUTHENTICATION
                or protocol == 60
                or protocol == 135
                or protocol == 139
                or protocol == 140
            ):
                if at + 8 > end:
                    short = True
                    break
                if protocol == 44:
                    fragment_offset = load16(data, at + 2) >> 3
                    marks |= FRAGMENT
                    ip_id = load16(data, at + 6)
                    size = np.int64(8)
                elif protocol == AUTHENTICATION:
                    size = 8 + 4 * np.int64(data[at + 1])
                else:
                    size = 8 + 8 * np.int64(data[at + 1])
                protocol = np.int64(data[at])
                rest -= size
                at += size
                if fragment_offset:
                    break
        else:
            skipped[packet] = _NOT_IP
            continue
        if short:
            skipped[packet] = _CUT
            continue
        # Transport layer.
        sport: Scalar = 0
        dport: Scalar = 0
        seq: Scalar = 0
        ack: Scalar = 0
        flags: Scalar = 0
        checksum = 0
        tsval = 0
        tsecr = 0
        sacked: Scalar = 0
        payload = rest
        if fragment_offset:
            seq = fragment_offset
            marks |= LATER_FRAGMENT
        elif protocol == TCP:
            if at + 20 > end:
                skipped[packet] = _CUT
                continue
            sport = load16(data, at)
            dport = load16(data, at + 2)
            seq = load32(data, at + 4)
            ack = load32(data, at + 8)
            header = (np.int64(data[at + 12]) >> 4) * 4
            if header < 20:
                skipped[packet] = _NOT_IP
                continue
            flags = np.int64(data[at + 13])
            checksum = load16(data, at + 16)
            payload = rest - header
            option = at + 20
            stop = at + header
            while option < stop:
                if option >= end:
                    marks |= OPTIONS_CUT
                    break
                code = data[option]
                if code == 0:
                    break
                if code == 1:
                    option += 1
                    continue
                if option + 1 >= end:
                    marks |= OPTIONS_CUT
                    break
                size = np.int64(data[option + 1])
                if size < 2:
                    break
                if code == 8 and size == 10:
                    if option + 10 > end:
                        marks |= OPTIONS_CUT
                        break
                    tsval = load32(data, option + 2)
                    tsecr = load32(data, option + 6)
                    marks |= HAS_TIMESTAMP
                    if payload > 0:
                        break
                elif code == 5 and size >= 10 and payload <= 0 and option + 10 <= end:
                    sacked = load32(data, option + 6)
                option += size
            if marks & HAS_TIMESTAMP:
                marks &= ~OPTIONS_CUT
        elif protocol == UDP:
            if at + 8 > end:
                skipped[packet] = _CUT
                continue
            sport = load16(data, at)
            dport = load16(data, at + 2)
            checksum = load16(data, at + 6)
            payload = rest - 8
        elif at + 8 <= end:
            seq = load32(data, at)
            ack = load32(data, at + 4)
        payload = max(payload, 0)
        entry[0] = np.uint64((family << 48) | (protocol << 32) | (sport << 16) | dport)

        same = last_row >= 0
        for i in range(5):
            if entry[i] != last[i]:
                same = False
        if not same:
            row, h = flow_row(flows, entry)
            if row < 0:
                return packet, filled
            last_row = row
            last_hash = h
            for i in range(5):
                last[i] = entry[i]
            if table[row, SOURCE_MAC] == 0:
                table[row, SOURCE_MAC] = _source_mac(data, offset[packet], link[packet])
        if table[last_row, WANTED] == 0:
            skipped[packet] = _UNWANTED
            continue
        if link[packet] == COOKED_V1:
            marks |= OUTBOUND if data[offset[packet] + 1] == 4 else INBOUND
        elif link[packet] == COOKED_V2:
            marks |= OUTBOUND if data[offset[packet] + 10] == 4 else INBOUND
        identity = mix(
            last_hash,
            (np.uint64(ip_id) << np.uint64(40))
            | (np.uint64(flags) << np.uint64(32))
            | np.uint64(payload),
        )
        identity = mix(identity, (np.uint64(seq) << np.uint64(32)) | np.uint64(ack))
        columns.stamp_ns[filled] = stamp[packet]
        columns.identity[filled] = identity
        columns.flow[filled] = last_row
        columns.frame_bytes[filled] = original[packet] + overhead
        columns.payload_bytes[filled] = payload
        columns.seq[filled] = seq
        columns.ack[filled] = ack
        columns.tsval[filled] = tsval
        columns.tsecr[filled] = tsecr
        columns.sacked[filled] = sacked
        columns.ip_id[filled] = ip_id
        columns.checksum[filled] = checksum
        columns.flags[filled] = flags
        columns.ttl[filled] = ttl
        columns.marks[filled] = marks
        columns.tos[filled] = tos
        filled += 1
    return count, filled


@compiled
def _other_frames(records: Records, skipped: I8, others: Others, kinds: I64) -> int:
    """Fills in the frames that are left out, and their EtherTypes. Returns their number.

    The EtherType and the bytes behind it are their identity, without ARP's padding, which a capture
    at the sender lacks.
    """
    data, count, offset, length, original, stamp, link, _ = records
    filled = 0
    for packet in range(count):
        if skipped[packet] < 0:
            continue
        begin = offset[packet]
        end = begin + length[packet]
        kind, at, overhead = link_layer(data, begin, end, link[packet])
        identity = np.uint64(0)
        stop = min(end, at + (28 if kind == 0x0806 else _LOOKED_AT))
        if kind >= 0 and stop - at >= _LEAST_LOOKED_AT:
            identity = np.uint64(kind) * np.uint64(0x9E3779B97F4A7C15)
            for place in range(at, stop):
                # Hops change the ECN bits, the TTL and the check sum of IPv4's header.
                is_fixed = place - at != 1 and place - at != 8 and (place - at) // 2 != 5
                if kind != 0x0800 or is_fixed:
                    identity = mix(identity, np.uint64(data[place]))
        mark = 0
        if link[packet] == COOKED_V1 and begin + 2 <= end:
            mark = OUTBOUND if data[begin + 1] == 4 else INBOUND
        elif link[packet] == COOKED_V2 and begin + 11 <= end:
            mark = OUTBOUND if data[begin + 10] == 4 else INBOUND
        kinds[filled] = kind
        others.stamp_ns[filled] = stamp[packet]
        others.frame_bytes[filled] = original[packet] + overhead
        others.identity[filled] = identity
        others.mac[filled] = _source_mac(data, begin, link[packet]) if begin + 20 <= end else 0
        others.marks[filled] = mark
        filled += 1
    return filled


class Decoder:
    """Appends the packets of one capture to columns, and numbers the flows.

    Attributes:
        columns: until `finish`, only the first `filled` rows are valid.
        not_ip, cut, unwanted: packets left out because they are not IP, were captured too short
            for their headers, or go to no wanted destination.
        kinds: the packets left out by EtherType, if they are kept.
    """

    def __init__(
        self,
        destinations: frozenset[str] | None,
        looks_inside: bool = True,
        keeps_others: bool = True,
    ) -> None:
        """Keeps only packets to `destinations`; None keeps all.

        With `looks_inside`, a packet in a tunnel is known by the packet inside.
        """
        self._others: list[Others] | None = [] if keeps_others else None
        self._tunnels = np.zeros(len(TUNNELS) if looks_inside else 0, np.int64)
        self.kinds: Counter[int] = Counter()
        self.columns = Columns.empty(1024)
        self.filled = 0
        self.flows = Flows.to(destinations)
        self.not_ip = self.cut = self.unwanted = 0

    @property
    def tunnelled(self) -> dict[str, int]:
        """The packets that are known by the packet inside, by kind of tunnel."""
        return {
            name: count
            for name, count in zip(TUNNELS, self._tunnels.tolist(), strict=False)
            if count
        }

    def reserve(self, packets: int) -> None:
        """Makes empty columns this long."""
        if not self.filled:
            self.columns = Columns.empty(max(packets, self.columns.stamp_ns.size))

    def add(self, records: Records) -> None:
        needed = self.filled + records.count
        if needed > self.columns.stamp_ns.size:
            self.columns = self.columns.resized(max(needed, 2 * self.columns.stamp_ns.size))
        first = 0
        skipped = np.full(records.count, -1, np.int8)
        while first < records.count:
            first, self.filled = _decode(
                records, first, self.columns, self.filled, self.flows, skipped, self._tunnels
            )
            if first < records.count:
                self.flows = self.flows.grown()
        counts = np.bincount(skipped + 1, minlength=4)[1:]
        self.not_ip += int(counts[_NOT_IP])
        self.cut += int(counts[_CUT])
        self.unwanted += int(counts[_UNWANTED])
        if counts.any() and self._others is not None:
            others = Others.empty(int(counts.sum()))
            kinds = np.empty(int(counts.sum()), np.int64)
            _other_frames(records, skipped, others, kinds)
            of_kinds = (each.tolist() for each in np.unique(kinds, return_counts=True))
            self.kinds.update(dict(zip(*of_kinds, strict=True)))
            self._others.append(others)

    @property
    def others(self) -> Others:
        """The frames that were left out, in the file's order, if they are kept."""
        parts = self._others or [Others.empty(0)]
        return Others(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def finish(self) -> tuple[Columns, list[FlowKey]]:
        """The columns, cut to their length, and the flows by row."""
        self.columns = self.columns.resized(self.filled)
        return self.columns, self.flows.keys()
