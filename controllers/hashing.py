"""Which port of several Open vSwitch sends a flow out by: its select groups, computed in advance.

OpenFlow leaves the choice of a select group's bucket to the switch. Open vSwitch's selection
method `hash` (ovs-ofctl(8), "Group Syntax") makes it from named header fields and a parameter
alone, with no random start: ofproto/ofproto-dpif-xlate.c, pick_hash_fields_select_group and
group_best_live_bucket, with the hash of lib/hash.h (MurmurHash3 by Austin Appleby, as built for
processors in general; a build for SSE 4.2 has another one). What this module says is compared
with what the switches do before every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address

TCP, UDP = 6, 17
"""IP protocol numbers; of others, Open vSwitch hashes the addresses and the number alone."""

_MASK = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class FiveTuple:
    """What tells a flow from another at a switch.

    Attributes:
        src, dst: IPv4 addresses, as dotted text.
        sport, dport: the ports.
        protocol: `TCP` or `UDP`.
    """

    src: str
    sport: int
    dst: str
    dport: int
    protocol: int = TCP

    def reversed(self) -> FiveTuple:
        """The other direction's, as acknowledgements have it."""
        return FiveTuple(self.dst, self.dport, self.src, self.sport, self.protocol)


def choose(flow: FiveTuple, parameter: int, ports: Sequence[int]) -> int:
    """The port by which a switch sends the flow, among those of a group's buckets in their order.

    Every bucket gets a score out of its number (from 0) and the hash of the flow; the highest
    wins, the last of several.

    Args:
        flow: the packet's addresses, ports and protocol.
        parameter: the group's selection_method_param, 64 bits.
        ports: one bucket each, all of weight 1.
    """
    basis = _basis(flow, parameter)
    best = max(
        range(len(ports)), key=lambda bucket: (_finish(_add(bucket, 0, basis), 8) & 0xFFFF, bucket)
    )
    return ports[best]


@lru_cache(maxsize=65536)
def _basis(flow: FiveTuple, parameter: int) -> int:
    basis = _finish(_add(0, parameter & _MASK, parameter >> 32), 8)
    # In the order in which Open vSwitch numbers its fields, as they stand in the packet.
    for field, width in (
        (int(IPv4Address(flow.src)), 4),
        (int(IPv4Address(flow.dst)), 4),
        (flow.protocol, 1),
        (flow.sport, 2),
        (flow.dport, 2),
    ):
        in_memory = int.from_bytes(field.to_bytes(width, "big"), "little")
        basis = _finish(_add(basis, in_memory), width)
    return basis


def _rotate(value: int, by: int) -> int:
    return (value << by | value >> 32 - by) & _MASK


def _add(state: int, *words: int) -> int:
    for word in words:
        mixed = _rotate(word * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
        state = (_rotate(state ^ mixed, 13) * 5 + 0xE6546B64) & _MASK
    return state


def _finish(state: int, length: int) -> int:
    state ^= length
    state = (state ^ state >> 16) * 0x85EBCA6B & _MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & _MASK
    return state ^ state >> 16
