"""A sample of packets that were seen coming in and leaving, found before any clock is known.

Blocks of departures, spread over each output's capture, are looked up among all arrivals. Only
packets whose identity occurs once on both sides are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import I32, I64, U64, Bool, compiled

BLOCKS = 16
BLOCK_PACKETS = 1500


@dataclass(frozen=True, slots=True)
class Pairs:
    """Sampled packets in the order in which they left; arrays of one length.

    Attributes:
        input, output: indices of the two captures.
        in_row, out_row: the packet's rows in these captures.
        block: the block of departures that it is from. Blocks of one output are consecutive.
    """

    input: I32
    in_row: I32
    output: I32
    out_row: I32
    block: I32

    def __len__(self) -> int:
        return self.input.size


@compiled
def _table(keys: U64, slots: I32, count: I32) -> None:
    """Fills an open hash table with keys. `count` says how often each occurs, at its first row."""
    mask = np.uint64(slots.size - 1)
    for i in range(keys.size):
        slot = (keys[i] >> np.uint64(13)) & mask
        while slots[slot] >= 0 and keys[slots[slot]] != keys[i]:
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] < 0:
            slots[slot] = i
        count[slots[slot]] += 1


@compiled
def _seek(
    identity: U64,
    flow: I32,
    takes_part: Bool,
    capture: int,
    keys: U64,
    slots: I32,
    matches: I32,
    match_input: I32,
    match_row: I32,
) -> None:
    """Looks up all packets of an input. Counts matches for each key, and notes the last match."""
    mask = np.uint64(slots.size - 1)
    for row in range(identity.size):
        slot = (identity[row] >> np.uint64(13)) & mask
        while slots[slot] >= 0 and keys[slots[slot]] != identity[row]:
            slot = (slot + np.uint64(1)) & mask
        key = slots[slot]
        if key >= 0 and takes_part[flow[row]]:
            matches[key] += 1
            match_input[key] = capture
            match_row[key] = row


def sample(
    inputs: Sequence[PortCapture],
    outputs: Sequence[PortCapture],
    in_rows: Sequence[I32],
    takes_part: Bool,
) -> Pairs:
    """Pairs of a sample of departures.

    Args:
        inputs: the captures of the inputs.
        outputs: those of the outputs.
        in_rows: for each input, the join's number of each of its flows.
        takes_part: for each flow of the join, whether it takes part.
    """
    outs: list[I32] = []
    rows: list[I32] = []
    blocks: list[I32] = []
    for index, capture in enumerate(outputs):
        size = capture.columns.flow.size
        if size <= BLOCKS * BLOCK_PACKETS:
            starts: I64 = np.arange(0, size, BLOCK_PACKETS)
        else:
            starts = np.linspace(0, size - BLOCK_PACKETS, BLOCKS).astype(np.int64)
        for number, start in enumerate(starts.tolist()):
            chosen = np.arange(start, min(start + BLOCK_PACKETS, size), dtype=np.int32)
            rows.append(chosen)
            outs.append(np.full(chosen.size, index, np.int32))
            blocks.append(np.full(chosen.size, index * BLOCKS + number, np.int32))
    if not rows:
        none = np.empty(0, np.int32)
        return Pairs(none, none, none, none, none)
    out, row, block = np.concatenate(outs), np.concatenate(rows), np.concatenate(blocks)
    keys = np.empty(row.size, np.uint64)
    for index, capture in enumerate(outputs):
        keys[out == index] = capture.columns.identity[row[out == index]]
    slots = np.full(1 << (2 * row.size).bit_length(), -1, np.int32)
    count, matches = np.zeros(row.size, np.int32), np.zeros(row.size, np.int32)
    match_input, match_row = np.zeros(row.size, np.int32), np.zeros(row.size, np.int32)
    _table(keys, slots, count)
    for index, (capture, in_row) in enumerate(zip(inputs, in_rows, strict=True)):
        columns = capture.columns
        if columns.flow.size:
            _seek(
                columns.identity,
                columns.flow,
                takes_part[in_row],
                index,
                keys,
                slots,
                matches,
                match_input,
                match_row,
            )
    once = (count == 1) & (matches == 1)
    return Pairs(match_input[once], match_row[once], out[once], row[once], block[once])
