"""The segments of a flow: which bytes are new, and what its sender sent twice.

Goodput counts unique TCP payload bytes. A byte counts once, when its first copy leaves the output,
so a retransmission of what had already passed adds nothing. Throughput counts Ethernet frames
without preamble and check sequence. A UDP flow has no sequence numbers, so all its payload counts.

Links may duplicate packets and let them overtake, so the order of arrival is not that of sending.
Two fields have the order of sending:

- Linux numbers what a connection sends by the IP id (`ip_select_ident_segs`). So a packet that is
  sent again has another id than before, and a link's duplicate has the same.
- Without ids, as in IPv6, the time stamp of TCP grows with the sender's clock (RFC 7323). Within a
  tick of that clock it shows no order. A copy is a duplicate there if it follows closely, because
  a sender hears of a loss by later segments.

Where a capture has neither, what comes late counts as sent again.

A sender usually cuts a retransmission as it cut the first copy, so the next packet of the flow with
the same sequence number is it. If the sender cut it otherwise, the next retransmission counts that
has the first byte.

TCP sends again what a queue dropped, or its receiver waits for ever. So if a flow goes on for long
after a drop, and its data never came again, the packet left, and the output's capture lacks it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from outcast.analysis.capture.headers import SYN, TCP, FlowKey
from outcast.analysis.join.doubts import MOST_SHARE, Reason, Refusal
from outcast.analysis.join.join import Joined, Verdict
from outcast.analysis.join.packets import Packets, grouped
from outcast.analysis.machine_code import (
    I32,
    I64,
    U8,
    U16,
    U32,
    Array,
    Bool,
    compiled,
    first_at_least,
)


@compiled
def _unwrap(seq: U32, flags: U8, start: I64) -> None:
    """Unwraps sequence numbers. A SYN's own number precedes its data."""
    last = np.int64(0)
    for i in range(seq.size):
        if i == 0:
            last = np.int64(seq[0])
        else:
            step = (np.int64(seq[i]) - last) & 0xFFFFFFFF
            if step >= 0x80000000:
                step -= 0x100000000
            last += step
        start[i] = last + (1 if flags[i] & SYN else 0)


@compiled
def _paint(low: I64, high: I64, covers: Bool, edges: I64, fresh: I32) -> None:
    """See `paint`. Union-find over the segments between `edges`; a covered one is visited once."""
    following = np.arange(edges.size)
    for i in range(low.size):
        if high[i] <= low[i]:
            fresh[i] = 0
            continue
        at = first_at_least(edges, low[i])
        total = np.int64(0)
        while True:
            root = at
            while following[root] != root:
                root = following[root]
            while following[at] != root:
                above = following[at]
                following[at] = root
                at = above
            at = root
            if edges[at] >= high[i]:
                break
            total += edges[at + 1] - edges[at]
            if covers[i]:
                following[at] = at + 1
            at += 1
        fresh[i] = total


def unwrap(seq: U32, flags: U8) -> I64:
    """The first sequence number of each segment's data, on a scale that does not wrap."""
    start = np.empty(seq.size, np.int64)
    _unwrap(seq, flags, start)
    return start


def paint(low: I64, high: I64, covers: Bool) -> I32:
    """For each interval [low, high), how many numbers no earlier one in `covers` covered."""
    fresh = np.empty(low.size, np.int32)
    # Segments come nearly in order, so a stable sort is quicker than the hashing of np.unique.
    edges = np.sort(np.concatenate([low, high]), kind="stable")
    _paint(low, high, covers, edges[np.diff(edges, prepend=edges[:1] - 1) > 0], fresh)
    return fresh


def fresh_bytes(packets: Packets, flows: tuple[FlowKey, ...]) -> I32:
    """For each packet, how many payload bytes it has that no earlier packet of its flow had."""
    fresh = packets.payload_bytes.copy()
    for number, rows in grouped(packets.flow).items():
        if flows[number].protocol != TCP:
            continue
        low = unwrap(packets.seq[rows], packets.flags[rows])
        high = low + packets.payload_bytes[rows]
        fresh[rows] = paint(low, high, np.ones(rows.size, np.bool_))
    return fresh


MOST_PIECES = 256
"""Of a retransmission that joins more lost segments only this number counts."""
MOST_SHORT = 2**16 - 1
CLOSELY = 3
"""Most packets of its flow between a packet and its duplicate, where no IP id distinguishes that
from what was sent again (tcp_reordering of tcp(7))."""
_NEAR_IDS = 1024
"""Most IP ids of a flow that counts its packets are this near to the id before."""
_MOSTLY = 0.9
_LEAST_COUNTED = 0.25
"""At least this share of its ids differs from the id before; the others are duplicates."""
_NONE = -1
_THREADS = 2


@dataclass(frozen=True, slots=True)
class Segments:
    """For each packet, the row of the next one that was sent again with its first byte, or -1.

    `first` is the row of the first arrival of the same sending: another one than its own for a
    link's duplicate. `is_new` says whether it begins beyond all data that came before.
    """

    following: I64
    first: I64
    is_new: Bool


def sent_twice(low: I64, high: I64, flags: U8, ip_id: U16, tsval: U32) -> Bool:
    """For each packet of a TCP flow, whether its sender had sent part of its data, or its SYN.

    Arrays have one length, in the order of arrival. Data is [`low`, `high`), on a scale that does
    not wrap.
    """
    again = np.zeros(low.size, np.bool_)
    opening = np.flatnonzero(flags & SYN)
    if opening.size > 1:
        marks = ip_id[opening].astype(np.int64) << 32 | tsval[opening]
        again[opening[1:]] = (marks[1:] != marks[0]) | (marks[1:] == 0)
    rows = np.flatnonzero(high > low)
    low, high, sending = low[rows], high[rows], _sending(ip_id[rows], tsval[rows])
    first = _first_arrivals(low, high, sending)
    late: Bool = low < _reached_before(low, high, sending.order)
    if sending.closely:  # Of the order within a tick nothing else is known.
        late |= first != _first_arrivals(low, high, sending._replace(closely=False))
    again[rows] = late & (first == np.arange(low.size))
    return again


class _Sending(NamedTuple):
    """The sending of a flow's data packets.

    `number` differs if packets were sent apart; if `closely`, equal ones may have been too.
    `order` grows with the time of sending, where that is known.
    """

    number: I64
    order: I64
    closely: bool


def _sending(ip_id: U16, tsval: U32) -> _Sending:
    number = _unwrapped(ip_id.view(np.int16))
    steps = np.abs(np.diff(number))
    is_near = np.count_nonzero(steps <= _NEAR_IDS) >= _MOSTLY * steps.size
    if steps.size and is_near and np.count_nonzero(steps) >= _LEAST_COUNTED * steps.size:
        return _Sending(number, number, closely=False)
    if np.count_nonzero(tsval) >= _MOSTLY * tsval.size:
        number = _unwrapped(tsval.view(np.int32))
        return _Sending(number, number, closely=True)
    return _Sending(np.zeros(tsval.size, np.int64), np.arange(tsval.size), closely=True)


def _unwrapped(values: Array) -> I64:
    """Signed integers as if they did not wrap."""
    steps = np.diff(values, prepend=values[:1])
    return np.asarray(np.cumsum(steps, dtype=np.int64))


def _first_arrivals(low: I64, high: I64, sending: _Sending) -> I64:
    """For each packet the first one of the same sending."""
    number = sending.number
    if (np.diff(number) > 0).all():
        return np.arange(low.size)
    order = np.lexsort((number, high, low))
    same = np.logical_and.reduce([np.diff(each[order]) == 0 for each in (low, high, number)])
    if sending.closely:
        same &= np.diff(order) <= CLOSELY + 1
    begins = np.flatnonzero(np.append(True, ~same))
    first = np.empty(low.size, np.int64)
    first[order] = np.repeat(order[begins], np.diff(begins, append=low.size))
    return first


def _reached_before(low: I64, high: I64, order: I64) -> I64:
    """For each packet the end of the data that was sent before it; its own begin for the first."""
    if not low.size:
        return low
    by_order = np.argsort(order, kind="stable")
    reached = np.maximum.accumulate(high[by_order])
    begin = np.searchsorted(order[by_order], order)
    return np.where(begin > 0, reached[begin - 1], low)


def segments(
    path: Array,
    seq: U32,
    payload: Array,
    flags: U8,
    dropped: Bool,
    ip_id: U16,
    tsval: U32 | None = None,
) -> Segments:
    """Finds new data, links' duplicates, and what was sent again.

    Arrays have one length, in the order of arrival. A packet without data, and one that is not TCP,
    has no successor and is not new. A TCP segment with data always has a flag.

    `path` numbers each pair of a flow and an output, because a packet that passes two outputs was
    not sent twice. Only for `dropped` packets is a retransmission sought that was cut otherwise.
    """
    tsval = np.zeros(path.size, np.uint32) if tsval is None else tsval
    following = np.full(path.size, _NONE, np.int64)
    first = np.arange(path.size)
    is_new = np.zeros(path.size, np.bool_)
    of_data = np.flatnonzero((payload > 0) & (flags > 0))
    paths = path[of_data]
    if paths.size and paths.min() >= 0 and paths.max() <= MOST_SHORT:
        # numpy sorts short integers by their digits, which is three times as fast.
        paths = paths.astype(np.uint16)
    by_path = np.argsort(paths, kind="stable")
    order = of_data[by_path]
    of_paths = np.split(order, np.flatnonzero(np.diff(paths[by_path])) + 1)

    def follow(begin: int) -> None:
        for rows in of_paths[begin::_THREADS]:
            if rows.size:
                low = unwrap(seq[rows], flags[rows])
                high = low + payload[rows]
                here = _first_arrivals(low, high, _sending(ip_id[rows], tsval[rows]))
                successor, again = _in_flow(low, high, dropped[rows], here)
                first[rows] = rows[here]
                known = successor >= 0
                following[rows[known]] = rows[successor[known]]
                is_new[rows] = ~again

    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        list(pool.map(follow, range(_THREADS)))
    return Segments(following, first, is_new)


def _in_flow(low: I64, high: I64, dropped: Bool, first: I64) -> tuple[I64, Bool]:
    """For each packet its successor's place in its flow, or -1; and whether it is not new."""
    successor = np.full(low.size, _NONE, np.int64)
    is_first = first == np.arange(low.size)
    once = np.flatnonzero(is_first)
    order = once[np.argsort(low[once], kind="stable")]
    same = low[order][1:] == low[order][:-1]
    successor[order[:-1][same]] = order[1:][same]
    successor = successor[first]
    before = np.concatenate([low[:1], np.maximum.accumulate(high)[:-1]])
    again: Bool = low < before
    lost = dropped & (successor < 0)
    resent = again & is_first
    if resent.any() and lost.any():
        wanted = np.sort(low[lost], kind="stable")
        wanted = wanted[np.diff(wanted, prepend=wanted[:1] - 1) > 0]
        _cover(low, high, resent, lost, wanted, successor)
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


REPAIRED_WITHIN_NS = 250_000_000
"""A flow that forwards new data after a longer time has repaired a drop. Linux waits for 200 ms and
a round trip at most before it sends again (include/net/tcp.h, TCP_RTO_MIN). If that is lost too, it
waits for twice as long, and again; but then it sends nothing new before all drops are repaired."""


SILENT_NS = 50_000_000
SILENT_GAPS = 20
"""Nothing left for both, in gaps between packets."""
LEAST_LOST = 8
"""The fewest packets that have to have come in meanwhile."""


@dataclass(frozen=True, slots=True)
class Silence:
    """A time in which nothing left by an output, though what should have left then never did.

    `rows` are the arrivals between the last packet that left before and the first one after it.
    """

    output: int
    since_ns: int
    until_ns: int
    rows: Array

    def words(self, joined: Joined) -> str:
        """From when to when it was."""
        first_ns = int(joined.arrivals.stamp_ns[0])
        since_s, until_s = ((at - first_ns) / 1e9 for at in (self.since_ns, self.until_ns))
        return f"nothing from {since_s:.3f} to {until_s:.3f} s after the first packet came in"


@dataclass(frozen=True, slots=True)
class Repairs:
    """What senders did about the packets that seem dropped; for each arrival of a join.

    `is_due`: it has data that nobody had forwarded, and its flow went on to new data long enough
    after it. `is_alone`: it is due, and nobody sent the data again. `is_proven`: its sender did. A
    duplicate that a link made is neither due nor sent again.
    """

    is_due: Bool
    is_alone: Bool
    is_proven: Bool


def repairs(joined: Joined) -> Repairs:
    """Finds the drops whose data were sent again, and those whose data should have been.

    A drop is due if its flow forwards new data REPAIRED_WITHIN_NS later, and if no earlier copy of
    the data was forwarded. Senders repair in the order of sequence numbers, one loss in a round
    trip without SACK. So the time begins again with each repair of earlier data.
    """
    arrivals = joined.arrivals
    of_tcp = np.array([flow.protocol == TCP for flow in joined.flows], np.bool_)
    of_data = (arrivals.payload_bytes > 0) & of_tcp[arrivals.flow]
    is_dropped: Bool = of_data & (joined.verdict == Verdict.DROPPED)
    if not is_dropped.any():
        return Repairs(is_dropped, is_dropped, is_dropped)
    path = arrivals.flow.astype(np.int64) * (len(joined.outputs) + 1) + joined.egress + 1
    payload = arrivals.payload_bytes.astype(np.int64)
    tags = arrivals.ip_id, arrivals.tsval
    sent = segments(path, arrivals.seq, payload, arrivals.flags, is_dropped, *tags)
    is_forwarded = of_data & (joined.verdict == Verdict.FORWARDED)
    latest_ns = np.full(len(joined.flows), np.iinfo(np.int64).min, np.int64)
    news = np.flatnonzero(is_forwarded & sent.is_new)
    np.maximum.at(latest_ns, arrivals.flow[news], arrivals.stamp_ns[news])
    is_due: Bool = is_dropped & (latest_ns[arrivals.flow] > arrivals.stamp_ns + REPAIRED_WITHIN_NS)
    is_through = np.zeros(is_dropped.size, np.bool_)
    is_through[sent.first[is_forwarded]] = True
    is_due &= ~is_through & (sent.first == np.arange(is_due.size))
    copies = sent.following[is_forwarded]
    while (copies := copies[copies >= 0]).size:
        is_due[copies] = False
        copies = sent.following[copies[is_dropped[copies]]]
    is_followed = sent.following >= 0
    is_alone = is_due & ~is_followed
    again = np.zeros(is_due.size, np.bool_)
    again[sent.following[is_followed]] = True
    # One sort, because strangers' captures can have as many flows as packets.
    data = np.flatnonzero(of_data)
    data = data[np.argsort(arrivals.flow[data], kind="stable")]
    flows = arrivals.flow[data]
    for flow in np.unique(arrivals.flow[is_alone]):
        begin, end = np.searchsorted(flows, (flow, flow + 1))
        rows = data[begin:end]
        low = unwrap(arrivals.seq[rows], arrivals.flags[rows])
        since_ns = _repaired_ns(low, arrivals.stamp_ns[rows], again[rows])
        is_alone[rows] &= latest_ns[flow] > since_ns + REPAIRED_WITHIN_NS
    is_due &= is_followed | is_alone
    return Repairs(is_due, is_alone, is_dropped & is_followed)


def _repaired_ns(low: I64, stamp_ns: I64, again: Bool) -> I64:
    """For each segment of a flow, when data before its own was last sent again, or its own time."""
    order = np.flatnonzero(again)[np.argsort(low[again], kind="stable")]
    last_ns = np.maximum.accumulate(np.append(stamp_ns[:1], stamp_ns[order]))
    return np.maximum(stamp_ns, last_ns[np.searchsorted(low[order], low)])


def silences(joined: Joined) -> Iterator[Silence]:
    """When an output's capture has nothing, though packets for it came in and never left.

    An output that only stands still sends later what waits.
    """
    departures, stamps = joined.all_left.departures, joined.arrivals.stamp_ns
    for output in range(len(joined.outputs)):
        left_ns = departures.stamp_ns[departures.port == output]
        known = np.flatnonzero((joined.departures.port == output) & (joined.came_as >= 0))
        known_ns, came_ns = joined.departures.stamp_ns[known], stamps[joined.came_as[known]]
        gaps = np.diff(left_ns)
        came = np.flatnonzero(joined.egress == output)
        least_ns = max(SILENT_NS, SILENT_GAPS * int(np.median(gaps))) if gaps.size else 0
        for row in np.flatnonzero(gaps > least_ns).tolist():
            before, after = np.searchsorted(known_ns, left_ns[row : row + 2], "right") - (1, 1)
            first_ns = came_ns[before] if before >= 0 else left_ns[row]
            last_ns = came_ns[after] if after > before else left_ns[row + 1]
            mine = came[slice(*np.searchsorted(stamps[came], (first_ns + 1, last_ns)))]
            mine = mine[joined.verdict[mine] == Verdict.DROPPED]
            if mine.size >= LEAST_LOST and 2 * np.ptp(stamps[mine]) > gaps[row]:
                yield Silence(output, int(left_ns[row]), int(left_ns[row + 1]), mine)


def silence_remarks(joined: Joined, repaired: Repairs, found: Collection[Silence]) -> Iterator[str]:
    for silence in found:
        again = int(repaired.is_proven[silence.rows].sum())
        yield (
            f"{joined.outputs[silence.output]}: its capture has {silence.words(joined)}, though "
            f"{silence.rows.size:,} packets for it came in and never left; the data of {again:,} "
            "were sent again, so these were dropped, and the capture may lack the others"
        )


def unrepaired(joined: Joined, repaired: Repairs, found: Collection[Silence]) -> Iterator[Refusal]:
    """Why a join cannot be believed: nobody sent again the data that it says were dropped."""
    for output, name in enumerate(joined.outputs):
        here = joined.egress == output
        due, alone = int((repaired.is_due & here).sum()), int((repaired.is_alone & here).sum())
        if alone > max(MOST_SHARE * due, 1):
            times = "".join(
                f"; it has {one.words(joined)}" for one in found if one.output == output
            )
            counted = f"{alone:,} of {due:,} packets that {name} would have dropped"
            yield Reason.UNEXPLAINED, f"{counted} were never sent again{times}"
