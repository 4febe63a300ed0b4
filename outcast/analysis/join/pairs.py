"""A sample of packets that several captures saw, found before any clock is known.

Blocks of packets, spread over each capture, are looked up in all others. Only packets whose
identity occurs at most once in each capture are used.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import I32, I64, U64, Array, Bool, compiled

Name = TypeVar("Name", bound=Hashable)

BLOCKS = 16
BLOCK_PACKETS = 1500
MOST_SAMPLED = 400_000
"""Over all captures. With many captures the blocks are shorter."""


@dataclass(frozen=True, slots=True)
class Sightings:
    """For each sampled packet and capture, the packet's row there, or a negative number."""

    row: I32

    def between(self, first: int, second: int) -> tuple[I32, I32]:
        """The packets that two captures saw: their rows in the one and in the other."""
        both = (self.row[:, first] >= 0) & (self.row[:, second] >= 0)
        return self.row[both, first], self.row[both, second]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Sampled packets that came in and left, by output in the order in which they left."""

    came: I32
    came_row: I32
    left: I32
    left_row: I32

    def __len__(self) -> int:
        return self.came.size

    def groups(self) -> dict[tuple[int, int], I64]:
        """For each two captures where common packets came in and left: which ones."""
        key = self.came.astype(np.int64) << 32 | self.left
        return {divmod(ends, 1 << 32): mine for ends, mine in grouped(key).items()}


def numbered(lists: Sequence[Sequence[Name]]) -> tuple[tuple[Name, ...], list[I32]]:
    """Numbers the names in all lists. Returns them, and the names of each list by number."""
    numbers: dict[Name, int] = {}
    rows = [[numbers.setdefault(name, len(numbers)) for name in names] for names in lists]
    return tuple(numbers), [np.array(row, np.int32) for row in rows]


def grouped(keys: Array) -> dict[int, I64]:
    """For each of the keys, which are not negative, its places in their order."""
    order = np.argsort(keys, kind="stable")
    edges = np.flatnonzero(np.diff(keys[order], prepend=-1, append=-1)).tolist()
    return {int(keys[order[first]]): order[first:end] for first, end in pairwise(edges)}


@compiled
def _enter(keys: U64, slots: I32, number: I32) -> int:
    """Numbers distinct keys in a hash table of their first rows. Returns how many there are."""
    mask = np.uint64(slots.size - 1)
    count = 0
    for i in range(keys.size):
        slot = (keys[i] >> np.uint64(13)) & mask
        while slots[slot] >= 0 and keys[slots[slot]] != keys[i]:
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] < 0:
            slots[slot] = i
            number[i] = count
            count += 1
    return count


@compiled
def _seek(identity: U64, keys: U64, slots: I32, number: I32, seen: I32) -> None:
    """Looks up all packets of a capture: notes the row of each key, or that it occurs twice."""
    mask = np.uint64(slots.size - 1)
    for row in range(identity.size):
        slot = (identity[row] >> np.uint64(13)) & mask
        while slots[slot] >= 0 and keys[slots[slot]] != identity[row]:
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] >= 0:
            key = number[slots[slot]]
            seen[key] = row if seen[key] == -1 else -2


def sample(captures: Sequence[PortCapture], sampled: Sequence[bool] | None = None) -> Sightings:
    """Looks up blocks of packets of each capture in all captures.

    With `sampled`, blocks are taken only from captures for which it is true.
    """
    chosen: list[U64] = []
    block = min(BLOCK_PACKETS, max(1, MOST_SAMPLED // (BLOCKS * max(1, len(captures)))))
    for index, capture in enumerate(captures):
        if sampled is not None and not sampled[index]:
            continue
        identity = capture.columns.identity
        if identity.size <= BLOCKS * block:
            chosen.append(identity)
            continue
        starts: I64 = np.linspace(0, identity.size - block, BLOCKS).astype(np.int64)
        chosen += [identity[start : start + block] for start in starts.tolist()]
    keys = np.concatenate(chosen) if chosen else np.empty(0, np.uint64)
    slots = np.full(1 << (2 * keys.size).bit_length(), -1, np.int32)
    number = np.full(keys.size, -1, np.int32)
    count = _enter(keys, slots, number)
    rows: Array = np.full((len(captures), count), -1, np.int32)
    for capture, seen in zip(captures, rows, strict=True):
        if count:
            _seek(capture.columns.identity, keys, slots, number, seen)
    return Sightings(rows.T)


def pair_up(
    sightings: Sightings,
    captures: Sequence[PortCapture],
    came_flows: Sequence[Bool | None],
    left_flows: Sequence[Bool | None],
) -> Pairs:
    """The sampled packets that came in at one capture and left by another.

    `came_flows` and `left_flows` have for each capture and each of its flows whether it came in and
    left there; None if nothing did.
    """
    parts: list[tuple[I32, I32, I32, I32]] = []
    for output, leaving in enumerate(left_flows):
        for came, coming in enumerate(came_flows):
            if came == output or leaving is None or coming is None:
                continue
            came_row, left_row = sightings.between(came, output)
            counts = coming[captures[came].columns.flow[came_row]]
            counts &= leaving[captures[output].columns.flow[left_row]]
            came_row, left_row = came_row[counts], left_row[counts]
            here = np.full(came_row.size, came, np.int32)
            parts.append((here, came_row, np.full(came_row.size, output, np.int32), left_row))
    if not parts:
        none = np.empty(0, np.int32)
        return Pairs(none, none, none, none)
    came_at, came_rows, left_at, left_rows = (
        np.concatenate([part[column] for part in parts]) for column in range(4)
    )
    order = np.lexsort((left_rows, left_at))
    return Pairs(came_at[order], came_rows[order], left_at[order], left_rows[order])


@dataclass(frozen=True, slots=True)
class Crossing:
    """Sampled packets that came in at one capture and left by another, in the order of leaving.

    Attributes:
        came_ns, left_ns: the stamps there, each on its own clock.
        slack_ns: by how much sooner packets may seem to leave, because stamps' units differ.
    """

    came: int
    left: int
    came_ns: I64
    left_ns: I64
    slack_ns: int = 0

    @property
    def delay_ns(self) -> I64:
        """From coming in to leaving, if the clocks were equal."""
        return self.left_ns - self.came_ns + self.slack_ns


def crossings(
    pairs: Pairs, stamps: Sequence[I64], slack_ns: Callable[[int, int], int]
) -> list[Crossing]:
    """The sampled pairs by captures, each of which has its stamps."""
    return [
        Crossing(
            came,
            output,
            stamps[came][pairs.came_row[mine]],
            stamps[output][pairs.left_row[mine]],
            slack_ns(came, output),
        )
        for (came, output), mine in pairs.groups().items()
    ]
