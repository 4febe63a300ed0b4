"""Decodes the packets of a capture into columns, and numbers their flows.

One compiled loop reads the headers of a block of packets (RFC 791, 8200, 4302, 9293, 768; IEEE
802.1Q; tcpdump.org's LINKTYPE_LINUX_SLL and SLL2) and appends what the analysis needs to flat
arrays. It looks through what carries a packet (`mirrors`, `tunnels`). It folds the fields that a
switch leaves unchanged into one 64-bit identity per packet. Fields that some captures lack or some
hops change (TTL, checksum, TCP time stamps) stay separate, so that the join can choose to include
them.
"""

from __future__ import annotations

import socket
from typing import NamedTuple

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
    TCP,
    UDP,
    Columns,
    FlowKey,
)
from outcast.analysis.capture.mirrors import CARRIERS, link_layer, unwrap_mirrored
from outcast.analysis.capture.tunnels import TUNNELS, inside
from outcast.analysis.compiled import I32, I64, U8, U64, Scalar, compiled, load16, load32, load64
from outcast.errors import InputError

_FLOW_WORDS = 7
_WANTED, _SOURCE_MAC = 5, 6
_NOT_IP, _CUT, _UNWANTED = 0, 1, 2


class _Flows(NamedTuple):
    """The flows seen so far, as a hash table.

    Attributes:
        rows: each is [family and protocol and ports, source (2), destination (2), 1 if the flow is
            wanted, source MAC of its first packet].
        slots: the row at each place of the hash table, or -1.
        used: how many rows there are.
        wanted: the addresses to which packets count, of two words each; unless `wanted_all`.
    """

    rows: U64
    slots: I32
    used: I64
    wanted_all: bool
    wanted: U64


@compiled
def _mix(value: Scalar, word: Scalar) -> Scalar:
    """One round of a 64-bit hash (the finalizer of MurmurHash3 over a running value)."""
    h = np.uint64(value) ^ (np.uint64(word) * np.uint64(0x9E3779B97F4A7C15))
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xFF51AFD7ED558CCD)
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    h ^= h >> np.uint64(33)
    return h


@compiled
def _hash(entry: U64) -> Scalar:
    h: Scalar = np.uint64(0x243F6A8885A308D3)
    for i in range(5):
        h = _mix(h, entry[i])
    return h | np.uint64(1)


@compiled
def _flow_row(
    slots: I32, table: U64, used: I64, wanted_all: bool, wanted: U64, entry: U64
) -> tuple[Scalar, Scalar]:
    """Finds or adds a flow's row in `table`. Returns (row, hash); row is -1 if there is no room."""
    h = _hash(entry)
    mask = slots.size - 1
    slot = np.int64(h >> np.uint64(8)) & mask
    while slots[slot] >= 0:
        row = slots[slot]
        same = True
        for i in range(5):
            if table[row, i] != entry[i]:
                same = False
                break
        if same:
            return row, h
        slot = (slot + 1) & mask
    row = used[0]
    if row >= table.shape[0]:
        return -1, h
    for i in range(5):
        table[row, i] = entry[i]
    is_wanted = wanted_all
    if not wanted_all:
        for i in range(wanted.shape[0]):
            if wanted[i, 0] == entry[3] and wanted[i, 1] == entry[4]:
                is_wanted = True
                break
    table[row, _WANTED] = np.uint64(1) if is_wanted else np.uint64(0)
    slots[slot] = row
    used[0] = row + 1
    return row, h


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
    flows: _Flows,
    skipped: I64,
    tunnels: I64,
) -> tuple[int, int]:
    """Decodes packets from `first` on, behind whatever `link_layer` reads through.

    Returns (packet reached, rows filled).

    Stops early if the flow table is full. `skipped` counts packets that are left out because they
    are not IP, were captured too short for their headers, or go to no wanted destination. `tunnels`
    counts those that are known by the packet inside; if it is empty, none are.
    """
    data, count, offset, length, original, stamp, link, _ = records
    table, slots, used, wanted_all, wanted = flows
    entry = np.zeros(5, np.uint64)
    last = np.zeros(5, np.uint64)
    last_row = -1
    last_hash: Scalar = np.uint64(0)
    looks_inside = tunnels.size > 0
    # Most packets are not in a tunnel, which is told here without a call.
    may_carry = np.zeros(256, np.bool_)
    for number in (4, 41, 47, 60):
        may_carry[number] = True
    for packet in range(first, count):
        at = offset[packet]
        end = at + length[packet]
        kind, at, overhead = link_layer(data, at, end, link[packet])
        if kind < 0:
            skipped[_CUT] += 1
            continue
        if looks_inside and at + 20 <= end and may_carry[data[at + (9 if kind == 0x0800 else 6)]]:
            kind, at = inside(data, at, end, kind, tunnels)
        short = False
        # Network layer: addresses. `rest` is the number of bytes above it, by the header's count.
        beyond = original[packet] - (at - offset[packet])
        ip_id: Scalar = 0
        marks: Scalar = 0
        fragment_offset: Scalar = 0
        protocol: Scalar = 0
        if kind == 0x0800:
            if at + 20 > end:
                skipped[_CUT] += 1
                continue
            header: Scalar = (data[at] & 15) * 4
            if data[at] >> 4 != 4 or header < 20:
                skipped[_NOT_IP] += 1
                continue
            total = load16(data, at + 2)
            rest = (total if total else beyond) - header
            ip_id = load16(data, at + 4)
            fragment = load16(data, at + 6)
            fragment_offset = fragment & 0x1FFF
            if fragment & 0x3FFF:
                marks |= FRAGMENT
            dscp = data[at + 1] >> 2
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
                    skipped[_CUT] += 1
                    continue
                protocol = np.int64(data[at])
                size: Scalar = 8 + 4 * np.int64(data[at + 1])
                rest -= size
                at += size
        elif kind == 0x86DD:
            if at + 40 > end:
                skipped[_CUT] += 1
                continue
            if data[at] >> 4 != 6:
                skipped[_NOT_IP] += 1
                continue
            total = load16(data, at + 4)
            rest = total if total else beyond - 40
            protocol = np.int64(data[at + 6])
            dscp = (load16(data, at) >> 6) & 63
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
            skipped[_NOT_IP] += 1
            continue
        if short:
            skipped[_CUT] += 1
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
                skipped[_CUT] += 1
                continue
            sport = load16(data, at)
            dport = load16(data, at + 2)
            seq = load32(data, at + 4)
            ack = load32(data, at + 8)
            header = (np.int64(data[at + 12]) >> 4) * 4
            if header < 20:
                skipped[_NOT_IP] += 1
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
                skipped[_CUT] += 1
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
            row, h = _flow_row(slots, table, used, wanted_all, wanted, entry)
            if row < 0:
                return packet, filled
            last_row = row
            last_hash = h
            for i in range(5):
                last[i] = entry[i]
            if table[row, _SOURCE_MAC] == 0:
                table[row, _SOURCE_MAC] = _source_mac(data, offset[packet], link[packet])
        if table[last_row, _WANTED] == 0:
            skipped[_UNWANTED] += 1
            continue
        if link[packet] == COOKED_V1:
            marks |= OUTBOUND if data[offset[packet] + 1] == 4 else INBOUND
        elif link[packet] == COOKED_V2:
            marks |= OUTBOUND if data[offset[packet] + 10] == 4 else INBOUND
        identity = _mix(
            last_hash,
            (np.uint64(ip_id) << np.uint64(40))
            | (np.uint64(flags) << np.uint64(32))
            | np.uint64(payload),
        )
        identity = _mix(identity, (np.uint64(seq) << np.uint64(32)) | np.uint64(ack))
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
        columns.dscp[filled] = dscp
        filled += 1
    return count, filled


@compiled
def _rehash(rows: U64, slots: I32, used: int) -> None:
    mask = slots.size - 1
    for row in range(used):
        slot = np.int64(_hash(rows[row]) >> np.uint64(8)) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = row


def _address_words(address: str) -> tuple[int, int]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        packed = socket.inet_pton(family, address).rjust(16, b"\0")
    except OSError:
        raise InputError(f"{address!r} is not an IP address; allowed is one as 10.0.0.1") from None
    return int.from_bytes(packed[:8]), int.from_bytes(packed[8:])


def _address_text(family: int, high: int, low: int) -> str:
    if family == 4:
        return socket.inet_ntop(socket.AF_INET, low.to_bytes(4))
    return socket.inet_ntop(socket.AF_INET6, high.to_bytes(8) + low.to_bytes(8))


class Decoder:
    """Appends the packets of one capture to columns, and numbers the flows.

    Attributes:
        columns: the packets. Until `finish`, only the first `filled` rows are valid.
        not_ip, cut, unwanted: packets left out because they are not IP, were captured too short
            for their headers, or go to no wanted destination.
    """

    def __init__(self, destinations: frozenset[str] | None, unwraps: bool = True) -> None:
        """Keeps only packets to `destinations`; None keeps all.

        With `unwraps`, a mirrored packet is taken out of what carries it, and one in a tunnel is
        known by the packet inside.
        """
        self._unwraps = unwraps
        self._carried = np.zeros(len(CARRIERS), np.int64)
        self._tunnels = np.zeros(len(TUNNELS) if unwraps else 0, np.int64)
        self.columns = Columns.empty(1024)
        self.filled = 0
        wanted = [_address_words(address) for address in sorted(destinations or ())]
        self._flows = _Flows(
            rows=np.zeros((256, _FLOW_WORDS), np.uint64),
            slots=np.full(1024, -1, np.int32),
            used=np.zeros(1, np.int64),
            wanted_all=destinations is None,
            wanted=np.array(wanted, np.uint64).reshape(-1, 2),
        )
        self._skipped = np.zeros(3, np.int64)

    @property
    def not_ip(self) -> int:
        return int(self._skipped[_NOT_IP])

    @property
    def cut(self) -> int:
        return int(self._skipped[_CUT])

    @property
    def unwanted(self) -> int:
        return int(self._skipped[_UNWANTED])

    @property
    def mirrored(self) -> dict[str, int]:
        """How many packets were taken out of each carrier of mirrored packets."""
        counts = zip(CARRIERS, self._carried.tolist(), strict=True)
        return {carrier: count for carrier, count in counts if count}

    @property
    def tunnelled(self) -> dict[str, int]:
        """How many packets are known by the packet inside, for each kind of tunnel."""
        counts = zip(TUNNELS, self._tunnels.tolist(), strict=False)
        return {tunnel: count for tunnel, count in counts if count}

    def reserve(self, packets: int) -> None:
        """Makes room for so many packets, before any is there."""
        if not self.filled:
            self.columns = Columns.empty(max(packets, self.columns.stamp_ns.size))

    def add(self, records: Records) -> None:
        """Decodes a block. Its arrays change where packets are taken out of what carries them."""
        if self._unwraps:
            unwrap_mirrored(records, self._carried)
        needed = self.filled + records.count
        if needed > self.columns.stamp_ns.size:
            self.columns = self.columns.resized(max(needed, 2 * self.columns.stamp_ns.size))
        first = 0
        while first < records.count:
            first, self.filled = _decode(
                *(records, first, self.columns, self.filled),
                *(self._flows, self._skipped, self._tunnels),
            )
            if first < records.count:
                self._grow()

    def _grow(self) -> None:
        """Makes room for four times as many flows."""
        old = self._flows
        rows = np.zeros((4 * len(old.rows), _FLOW_WORDS), np.uint64)
        rows[: len(old.rows)] = old.rows
        slots = np.full(4 * len(old.slots), -1, np.int32)
        _rehash(rows, slots, int(old.used[0]))
        self._flows = old._replace(rows=rows, slots=slots)

    @property
    def _rows(self) -> U64:
        return self._flows.rows[: int(self._flows.used[0])]

    def source_macs(self) -> list[int]:
        """The source MAC address of each flow's first packet, by row; 0 where there is none."""
        macs: list[int] = self._rows[:, _SOURCE_MAC].tolist()
        return macs

    def finish(self) -> tuple[Columns, list[FlowKey]]:
        """Returns the columns, cut to their length, and the flows by row."""
        self.columns = self.columns.resized(self.filled)
        flows = [
            FlowKey(
                _address_text(row[0] >> 48, row[1], row[2]),
                (row[0] >> 16) & 0xFFFF,
                _address_text(row[0] >> 48, row[3], row[4]),
                row[0] & 0xFFFF,
                (row[0] >> 32) & 0xFFFF,
            )
            for row in self._rows.tolist()
        ]
        return self.columns, flows
