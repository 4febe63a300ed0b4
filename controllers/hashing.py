"""Computes in advance by which of several ports Open vSwitch's select groups send a flow.

OpenFlow leaves the choice of a select group's bucket to the switch. Open vSwitch's selection
method `hash` (ovs-ofctl(8), "Group Syntax") computes it from named header fields and a parameter
alone, without a random start. The code is pick_hash_fields_select_group and group_best_live_bucket
in ofproto/ofproto-dpif-xlate.c. The hash is that of lib/hash.h: MurmurHash3 by Austin Appleby in
generic builds, another one in builds for SSE 4.2. Before every run the result of this module is
compared with what the switches do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address

TCP, UDP = 6, 17
"""IP protocol numbers. For any other, Open vSwitch hashes only the addresses and the number."""

_MASK = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class FiveTuple:
    """The header fields by which a switch distinguishes flows.

    Attributes:
        src, dst: addresses, as text, both of IPv4 or both of IPv6.
        sport, dport: the ports.
        protocol: `TCP` or `UDP`.
    """

    src: str
    sport: int
    dst: str
    dport: int
    protocol: int = TCP

    def reversed(self) -> FiveTuple:
        """The fields of the other direction, which acknowledgements have."""
        return FiveTuple(self.dst, self.dport, self.src, self.sport, self.protocol)


def choose(flow: FiveTuple, parameter: int, ports: Sequence[int]) -> int:
    """The port by which a switch sends the flow.

    Every bucket gets a score from its number (from 0) and the hash of the flow. The highest score
    wins; of equal ones the last.

    Args:
        flow: the packet's addresses, ports and protocol.
        parameter: the group's selection_method_param, 64 bits.
        ports: the ports of the group's buckets, in their order; each bucket has weight 1.
    """
    basis = _basis(flow, parameter)
    best = max(
        range(len(ports)), key=lambda bucket: (_finish(_add(bucket, 0, basis), 8) & 0xFFFF, bucket)
    )
    return ports[best]


@lru_cache(maxsize=65536)
def _basis(flow: FiveTuple, parameter: int) -> int:
    basis = _finish(_add(0, parameter & _MASK, parameter >> 32), 8)
    # Open vSwitch hashes the fields in the order of their numbers, with the packet's byte order.
    for field in (
        ip_address(flow.src).packed,
        ip_address(flow.dst).packed,
        flow.protocol.to_bytes(1, "big"),
        flow.sport.to_bytes(2, "big"),
        flow.dport.to_bytes(2, "big"),
    ):
        words = (int.from_bytes(field[at : at + 4], "little") for at in range(0, len(field), 4))
        basis = _finish(_add(basis, *words), len(field))
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
