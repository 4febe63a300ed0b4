"""The flows of a capture: a hash table that the decoder's compiled loop fills."""

from __future__ import annotations

import socket
from typing import NamedTuple

import numpy as np

from outcast.analysis.capture.headers import FlowKey
from outcast.analysis.compiled import I32, I64, U64, Scalar, compiled
from outcast.errors import InputError

WANTED, SOURCE_MAC = 5, 6
_FLOW_WORDS = 7


class Flows(NamedTuple):
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

    @classmethod
    def to(cls, destinations: frozenset[str] | None) -> Flows:
        """An empty table of flows, of which those to `destinations` are wanted; None wants all."""
        wanted = [_address_words(address) for address in sorted(destinations or ())]
        return cls(
            rows=np.zeros((256, _FLOW_WORDS), np.uint64),
            slots=np.full(1024, -1, np.int32),
            used=np.zeros(1, np.int64),
            wanted_all=destinations is None,
            wanted=np.array(wanted, np.uint64).reshape(-1, 2),
        )

    def grown(self) -> Flows:
        """The same flows with room for four times as many."""
        rows = np.zeros((4 * len(self.rows), _FLOW_WORDS), np.uint64)
        rows[: len(self.rows)] = self.rows
        slots = np.full(4 * len(self.slots), -1, np.int32)
        _rehash(rows, slots, int(self.used[0]))
        return self._replace(rows=rows, slots=slots)

    def macs(self) -> list[int]:
        """The source MAC address of each flow's first packet, by row; 0 where it is missing."""
        macs: list[int] = self.rows[: int(self.used[0]), SOURCE_MAC].tolist()
        return macs

    def keys(self) -> list[FlowKey]:
        """The flows by row."""
        return [
            FlowKey(
                _address_text(row[0] >> 48, row[1], row[2]),
                (row[0] >> 16) & 0xFFFF,
                _address_text(row[0] >> 48, row[3], row[4]),
                row[0] & 0xFFFF,
                (row[0] >> 32) & 0xFFFF,
            )
            for row in self.rows[: int(self.used[0])].tolist()
        ]


@compiled
def mix(value: Scalar, word: Scalar) -> Scalar:
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
        h = mix(h, entry[i])
    return h | np.uint64(1)


@compiled
def flow_row(flows: Flows, entry: U64) -> tuple[Scalar, Scalar]:
    """Finds or adds a flow's row. Returns (row, hash); row is -1 if there is no room."""
    table, slots, used, wanted_all, wanted = flows
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
    table[row, WANTED] = np.uint64(1) if is_wanted else np.uint64(0)
    slots[slot] = row
    used[0] = row + 1
    return row, h


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
