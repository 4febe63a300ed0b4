"""The packets of several captures on one clock, in one order, with their identity.

The identity of a packet is what a switch leaves unchanged. It always has addresses, ports,
protocol, IP id, sequence and acknowledgement number, flags and payload length. It also has TTL,
checksum and TCP time stamp if the captures agree on them. MAC addresses, VLAN tags and the ECN bits
may change.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from outcast.analysis.capture.headers import HAS_TIMESTAMP, SYN, Columns, FlowKey
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import I8, I32, I64, U8, U16, U32, U64, Array, Bool, Scalar, compiled
from outcast.analysis.join.offsets import Clock
from outcast.analysis.join.pairs import numbered

PARTS = ("ttl", "checksum", "timestamp", "timestamp of SYN")
"""Parts of the identity that a hop may change or a capture may lack."""


@dataclass(frozen=True, slots=True)
class Packets:
    """Packets in the order of their stamps; arrays of one length.

    Attributes:
        stamp_ns: when it was seen, on the clock of the first output.
        frame_bytes: length of the Ethernet frame without its check sequence.
        payload_bytes, seq, flags: payload above TCP or UDP, and TCP's fields; 0 without.
        tsval, tsecr: a TCP packet's time stamp, and the one that it echoes; 0 without any.
        tos: IPv4's TOS or IPv6's traffic class; ECN is its two low bits.
    """

    port: I8
    flow: I32
    stamp_ns: I64
    frame_bytes: I32
    payload_bytes: I32
    seq: U32
    tsval: U32
    tsecr: U32
    ip_id: U16
    flags: U8
    tos: U8

    def __len__(self) -> int:
        return self.port.size

    def rows(self, rows: Array, *, port: int) -> Packets:
        """These packets, as those of one port."""
        packets = Packets(*(getattr(self, name)[rows] for name in Packets.__slots__))
        packets.port[:] = port
        return packets

    @classmethod
    def empty(cls, size: int) -> Packets:
        """Packets with undefined content."""
        kinds: list[Any] = [np.int8, np.int32, np.int64, *[np.int32] * 2, *[np.uint32] * 3]
        kinds += [np.uint16, *[np.uint8] * 2]
        return cls(*(np.empty(size, kind) for kind in kinds))


def number_flows(captures: Sequence[PortCapture]) -> tuple[tuple[FlowKey, ...], list[I32]]:
    """Numbers the flows of all captures. Returns them, and each capture's flows by number."""
    return numbered([capture.flows for capture in captures])


@compiled
def part_of(columns: Columns, row: Scalar, which: Scalar) -> Scalar:
    """Value of one of PARTS, by index, for one packet."""
    if which == 0:
        return np.uint64(columns.ttl[row])
    if which == 1:
        # A router that clamps the MSS changes the checksums of SYNs alone (RFC 4459, 3.2).
        if columns.flags[row] & SYN:
            return np.uint64(0)
        return np.uint64(columns.checksum[row])
    # A snaplen that holds the time stamp of all other segments can cut off that of a SYN.
    of_syn = columns.flags[row] & SYN != 0
    if columns.marks[row] & HAS_TIMESTAMP and of_syn == (which == 3):
        return (np.uint64(columns.tsval[row]) << np.uint64(32)) + np.uint64(columns.tsecr[row])
    return np.uint64(0x5851F42D4C957F2D)


@compiled
def _fold(columns: Columns, row: Scalar, use: Bool) -> Scalar:
    """The identity of one packet, including the parts in use."""
    h: Scalar = columns.identity[row]
    for which in range(4):
        if use[which]:
            h ^= part_of(columns, row, which) * np.uint64(0x9E3779B97F4A7C15)
            h ^= h >> np.uint64(32)
            h *= np.uint64(0xD6E8FEB86659FD93)
            h ^= h >> np.uint64(32)
    return h


@compiled
def _fold_all(columns: Columns, use: Bool, flow_of: I32, to_flow: I32, to_identity: U64) -> None:
    for row in range(to_identity.size):
        to_flow[row] = flow_of[columns.flow[row]]
        to_identity[row] = _fold(columns, row, use)


@compiled
def _rank(own: I64, other: I64, other_first: bool, position: I32) -> None:
    """Adds to each position how many elements of `other` precede it. Both are sorted."""
    passed = 0
    for i in range(own.size):
        while passed < other.size and (
            other[passed] < own[i] or (other_first and other[passed] == own[i])
        ):
            passed += 1
        position[i] += passed


@compiled
def _place(
    columns: Columns,
    rows: I32,
    stamps: I64,
    position: I32,
    flow_of: I32,
    port: int,
    use: Bool,
    to: tuple[Array, ...],
    to_identity: U64,
) -> None:
    """Copies the packets of a capture to their positions, and folds their identities.

    `to` are the arrays of Packets.
    """
    to_port, to_flow, to_stamp, to_frame, to_payload = to[:5]
    to_seq, to_tsval, to_tsecr, to_ip_id, to_flags, to_tos = to[5:]
    for i in range(rows.size):
        row = rows[i]
        at = position[i]
        to_port[at] = port
        to_flow[at] = flow_of[columns.flow[row]]
        to_stamp[at] = stamps[i]
        to_frame[at] = columns.frame_bytes[row]
        to_payload[at] = columns.payload_bytes[row]
        to_seq[at] = columns.seq[row]
        to_tsval[at] = columns.tsval[row]
        to_tsecr[at] = columns.tsecr[row]
        to_ip_id[at] = columns.ip_id[row]
        to_flags[at] = columns.flags[row]
        to_tos[at] = columns.tos[row]
        to_identity[at] = _fold(columns, row, use)


@dataclass(frozen=True, slots=True)
class Side:
    """A capture as an input or as an output.

    Attributes:
        counts: for each of its flows, whether it counts here; None if none does.
        release: whether its columns are emptied as they are copied, because memory does not have to
            hold both.
    """

    capture: PortCapture
    flows: I32
    counts: Bool | None
    clock: Clock
    release: bool


def _in_order(side: Side) -> tuple[I32, I64]:
    """The rows of packets that count, in the order of time, and their corrected stamps."""
    columns = side.capture.columns
    chosen = np.arange(columns.flow.size, dtype=np.int32)
    if side.counts is None:
        chosen = chosen[:0]
    elif not side.counts.all():
        chosen = chosen[side.counts[columns.flow]]
    stamps = side.clock.correct(columns.stamp_ns)[chosen]
    if (stamps[1:] < stamps[:-1]).any():
        order = np.argsort(stamps, kind="stable")
        chosen, stamps = chosen[order], stamps[order]
    return chosen, stamps


def merge(sides: Sequence[Side], parts: Sequence[str]) -> tuple[Packets, U64]:
    """Merges the packets of flows that count. Returns them and their identities.

    Ties are ordered by capture, then by place in the file.
    """
    captures = [side.capture for side in sides]
    rows, stamps = zip(*(_in_order(side) for side in sides), strict=True)
    use = np.array([part in parts for part in PARTS], np.bool_)
    if len(sides) == 1 and sides[0].release and rows[0].size == captures[0].columns.flow.size:
        return _adopt(captures[0], sides[0].flows, stamps[0], use)
    packets = Packets.empty(sum(chosen.size for chosen in rows))
    identity = np.empty(len(packets), np.uint64)
    places = tuple(getattr(packets, name) for name in Packets.__slots__)

    def place(index: int) -> None:
        position = np.arange(rows[index].size, dtype=np.int32)
        for other, other_stamps in enumerate(stamps):
            if other != index:
                _rank(stamps[index], other_stamps, other < index, position)
        _place(
            captures[index].columns,
            rows[index],
            stamps[index],
            position,
            sides[index].flows,
            index,
            use,
            places,
            identity,
        )
        if sides[index].release:
            captures[index].columns = Columns.empty(0)

    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(place, range(len(captures))))
    return packets, identity


def _adopt(capture: PortCapture, flow_of: I32, stamps: I64, use: Bool) -> tuple[Packets, U64]:
    """The packets of a single capture that is in order, without copying them."""
    columns = capture.columns
    _fold_all(columns, use, flow_of, columns.flow, columns.identity)
    capture.columns = Columns.empty(0)
    fields = {name: getattr(columns, name) for name in Packets.__slots__ if name != "port"}
    fields["stamp_ns"] = stamps
    return Packets(np.zeros(stamps.size, np.int8), **fields), columns.identity
