"""Finds the packet that brought the data of an earlier one again, from the packets of a bottleneck.

A sender usually cuts a retransmission as it cut the first copy, so the next packet of the flow with
the same sequence number is it. If the sender cut it otherwise, the next retransmission counts that
has the first byte. Both are inferences: the captures do not show why a packet was sent.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from outcast.analysis.compiled import I64, U8, U32, Array, Bool, compiled, first_at_least
from outcast.analysis.measure.throughput import unwrap

MOST_PIECES = 256
"""Of a retransmission that joins more lost segments than this, only so many count."""
MOST_SHORT = 2**16 - 1
_NONE = -1
_THREADS = 2


@dataclass(frozen=True, slots=True)
class Segments:
    """For each packet, the row of the next one that has its first byte, or -1.

    `is_new` says whether it begins beyond all data that came before.
    """

    following: I64
    is_new: Bool


def sent_again(path: Array, seq: U32, payload: Array, flags: U8, dropped: Bool) -> I64:
    """Returns for each packet the row of the next one that has its first byte, or -1.

    Arguments are those of `segments`.
    """
    return segments(path, seq, payload, flags, dropped).following


def segments(path: Array, seq: U32, payload: Array, flags: U8, dropped: Bool) -> Segments:
    """Finds new data, and what was sent again.

    Arrays have one length, in the order of arrival. A packet without data, and one that is not TCP,
    has no successor and is not new. A TCP segment with data always has a flag.

    `path` numbers each pair of a flow and an output, because a packet that passes two outputs was
    not sent twice. Only for `dropped` packets is a retransmission sought that was cut otherwise.
    """
    following = np.full(path.size, _NONE, np.int64)
    is_new = np.zeros(path.size, np.bool_)
    of_data = np.flatnonzero((payload > 0) & (flags > 0))
    paths = path[of_data]
    if paths.size and paths.min() >= 0 and paths.max() <= MOST_SHORT:
        # numpy sorts short integers by their digits, which is three times as fast.
        paths = paths.astype(np.uint16)
    by_path = np.argsort(paths, kind="stable")
    order = of_data[by_path]
    of_paths = np.split(order, np.flatnonzero(np.diff(paths[by_path])) + 1)

    def follow(first: int) -> None:
        for rows in of_paths[first::_THREADS]:
            if rows.size:
                low = unwrap(seq[rows], flags[rows])
                successor, again = _in_flow(low, low + payload[rows], dropped[rows])
                known = successor >= 0
                following[rows[known]] = rows[successor[known]]
                is_new[rows] = ~again

    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        list(pool.map(follow, range(_THREADS)))
    return Segments(following, is_new)


def _in_flow(low: I64, high: I64, dropped: Bool) -> tuple[I64, Bool]:
    """For each packet its successor's place in its flow, or -1; and whether it is not new."""
    successor = np.full(low.size, _NONE, np.int64)
    order = np.argsort(low, kind="stable")
    same = low[order][1:] == low[order][:-1]
    successor[order[:-1][same]] = order[1:][same]
    before = np.concatenate([low[:1], np.maximum.accumulate(high)[:-1]])
    again: Bool = low < before
    lost = dropped & (successor < 0)
    if again.any() and lost.any():
        wanted = np.sort(low[lost], kind="stable")
        wanted = wanted[np.diff(wanted, prepend=wanted[:1] - 1) > 0]
        _cover(low, high, again, lost, wanted, successor)
    return successor, again


@compiled
def _cover(low: I64, high: I64, again: Bool, lost: Bool, wanted: I64, successor: I64) -> None:
    """Sets `successor` of each lost packet to the next one in `again` with its first byte.

    It goes back in time. `coming` has for each of the first bytes `wanted`, which are sorted, the
    next packet that has it.
    """
    coming = np.full(wanted.size, -1, np.int64)
    for i in range(low.size - 1, -1, -1):
        if not (again[i] or lost[i]):
            continue
        at = first_at_least(wanted, low[i])
        if lost[i]:
            successor[i] = coming[at]
        if again[i]:
            end = min(wanted.size, at + MOST_PIECES)
            while at < end and wanted[at] < high[i]:
                coming[at] = i
                at += 1
