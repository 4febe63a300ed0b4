"""Finds retransmissions, timeouts and round trips in the data packets that came in at a bottleneck.

A *retransmission* is a segment that its sender had sent before (`segments.sent_twice`). A packet
that others overtook does not count, nor does a copy that a link made. A retransmission is
*spurious* if all its bytes had come in before in packets that were forwarded.

A *timeout* is a retransmission that no acknowledgement called for. Two conditions must hold:

- The flow was idle for long enough.
- The echo of the time stamp (RFC 7323) is older than usual by the minimum RTO. It shows how old
  the news was that the sender had heard last. Without time stamps the idle time alone decides.

"Long enough" depends on the minimum RTO:

- Up to 10 ms it is one and a half times the minimum RTO. The RTO is clearly longer than its
  minimum there, because Linux adds the round trip and rounds up to its tick.
- Above 10 ms it is nine tenths of the minimum RTO, because the timer may have been set some time
  before the last segment passed here.

Two more timers of RFC 8985 look alike:

- A tail loss probe sends the very last segment again. If new data follows soon, the sender had some
  all along, and would have sent that as its probe. So it was a timeout.
- RACK's reordering timer goes off some two ticks after an acknowledgement that does not prove a
  loss, so after one or two later segments got through. With a short minimum RTO both timers take
  as long. Such a retransmission counts as RACK's, if the sender uses SACK and the copy before it
  came in here.

The idle time before a timeout or RACK's timer is the time waiting for it, which TCPRand's figure 9
shows. A timeout is missed if all copies of what timed out were lost on the way here.
docs/analysis.md compares the result with the kernel's own events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from outcast.analysis.capture.headers import TCP, Columns
from outcast.analysis.join.join import Joined, Verdict
from outcast.analysis.join.packets import Packets, grouped
from outcast.analysis.machine_code import I8, I64, U32, Array, Bool, compiled
from outcast.analysis.measure.segments import paint, sent_twice, unwrap

LEAST_ACKNOWLEDGED = 3
"""This number of later segments selectively acknowledged proves a loss (tcp_reordering, tcp(7))."""
SHORT_RTO_NS = 10_000_000
"""Up to this minimum RTO, the round trip and the tick are a large part of an RTO."""


@dataclass(frozen=True, slots=True)
class Resent:
    """For each arrival of a join, whether and why TCP sent it again. Arrays of one length.

    `halted_ns` is how long a timeout, or RACK's reordering timer, was waited for; 0 for all others.
    """

    retransmission: Bool
    spurious: Bool
    timeout: Bool
    halted_ns: I64


@compiled
def _waits_for_reordering(low: I64, stamp: I64, forwarded: Bool, row: int, most_ns: int) -> bool:
    """Whether one or two segments got through after the copy that was sent before, and lately.

    If no such copy came in here, nothing shows which timer it was.
    """
    through = 0
    for i in range(row - 1, -1, -1):
        if low[i] == low[row]:
            return through > 0
        if low[i] > low[row] and forwarded[i]:
            through += 1
        if stamp[row - 1] - stamp[i] > most_ns or through >= LEAST_ACKNOWLEDGED:
            break
    return False


@compiled
def _classify(
    low: I64,
    high: I64,
    sent_twice: Bool,
    stamp: I64,
    unseen: Array,
    unheard: I64,
    forwarded: Bool,
    least_silence: int,
    least_unheard: int,
    reordering_ns: int,
) -> tuple[Bool, Bool, I64]:
    """`spurious`, `timeout` and `halted_ns` of Resent for the packets of one flow."""
    spurious = np.zeros(low.size, np.bool_)
    timeout, halted = np.zeros(low.size, np.bool_), np.zeros(low.size, np.int64)
    highest = low[0]
    for i in range(low.size):
        again = sent_twice[i]
        probe = False
        if high[i] > low[i]:
            probe = high[i] == highest
            highest = max(highest, high[i])
        spurious[i] = again and high[i] > low[i] and unseen[i] == 0
        silence = stamp[i] - stamp[i - 1] if i > 0 else 0
        if not again or silence < least_silence or unheard[i] < least_unheard:
            continue
        if probe:
            later = i + 1
            while later < low.size and stamp[later] - stamp[i] < least_silence:
                if high[later] > highest:
                    probe = False
                    break
                later += 1
        if not probe:
            halted[i] = silence
            timeout[i] = unheard[i] >= 2 * reordering_ns or not _waits_for_reordering(
                low, stamp, forwarded, i, reordering_ns
            )
    return spurious, timeout, halted


def resent(joined: Joined, min_rto_ns: int, sack: bool = True) -> Resent:
    """Classifies every arrival. A packet that is not TCP is never a retransmission.

    `sack` says whether the senders use selective acknowledgements, and so RACK.
    """
    arrivals = joined.arrivals
    size = len(arrivals)
    if min_rto_ns <= SHORT_RTO_NS:
        least_silence_ns, least_unheard_ns = 3 * min_rto_ns // 2, min_rto_ns
    else:
        least_silence_ns = least_unheard_ns = 9 * min_rto_ns // 10
    # A longer RTO cannot be taken for RACK's timer, which takes some two ticks.
    reordering_ns = min_rto_ns if sack and min_rto_ns <= SHORT_RTO_NS else 0
    again, spurious, timeout = (np.zeros(size, np.bool_) for _ in range(3))
    result = Resent(again, spurious, timeout, np.zeros(size, np.int64))
    for number, rows in grouped(arrivals.flow).items():
        if joined.flows[number].protocol != TCP:
            continue
        flags = arrivals.flags[rows]
        low = unwrap(arrivals.seq[rows], flags)
        high = low + arrivals.payload_bytes[rows]
        forwarded = joined.verdict[rows] == Verdict.FORWARDED
        unseen = paint(low, high, forwarded)
        stamps = arrivals.stamp_ns[rows]
        unheard = _unheard(stamps, arrivals.tsecr[rows])
        twice = sent_twice(low, high, flags, arrivals.ip_id[rows], arrivals.tsval[rows])
        classified = _classify(
            low,
            high,
            twice,
            stamps,
            unseen,
            unheard,
            forwarded,
            least_silence_ns,
            least_unheard_ns,
            reordering_ns,
        )
        for field, values in zip(fields(result), (twice, *classified), strict=True):
            getattr(result, field.name)[rows] = values
    return result


_TICKS_NS = (1_000, 1_000_000, 4_000_000, 10_000_000, 100_000_000)
"""Usual ticks of the time stamps' clock. RFC 7323 allows 1 ms to 1 s; newer Linux also has 1 µs."""

NEAR = 17
"""The usual age of an echo is the median over this many packets of its flow."""


def _unheard(stamps: I64, tsecr: U32) -> I64:
    """By how much longer than usual each packet's sender had heard nothing, in ns.

    A packet echoes the receiver's clock, read when the receiver sent what the sender heard last. It
    is somewhat old, because packets take time; the packets around it show how old it usually is.
    """
    silence = np.diff(stamps, prepend=stamps[:1])
    echoes = np.flatnonzero(tsecr)
    if tsecr.size < NEAR or echoes.size < 0.9 * tsecr.size:
        return silence
    # A SYN echoes nothing, so it takes the echo of the packet after it.
    tsecr = tsecr[
        echoes[np.minimum(np.searchsorted(echoes, np.arange(tsecr.size)), echoes.size - 1)]
    ]
    ticks = int(_signed(tsecr[-1:] - tsecr[:1])[0])
    if ticks <= 0:
        return silence
    measured = (int(stamps[-1]) - int(stamps[0])) / ticks
    tick_ns = min(_TICKS_NS, key=lambda usual: abs(np.log(usual / max(measured, 1.0))))
    if not 0.8 < measured / tick_ns < 1.25:
        return silence
    age = stamps - np.cumsum(_signed(np.diff(tsecr, prepend=tsecr[:1]))) * tick_ns
    mirrored = np.pad(age, NEAR // 2, mode="reflect")
    around = np.lib.stride_tricks.sliding_window_view(mirrored, NEAR)
    unheard = np.empty(age.size, np.int64)
    for first in range(0, age.size, 1 << 16):
        part = slice(first, first + (1 << 16))
        unheard[part] = age[part] - np.median(around[part], axis=1)
    return unheard


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """Round-trip times seen at a port, in the order of the segments; arrays of one length.

    `rtt_ns` is the time until the first acknowledgement of all of it passed back, be it selective.
    """

    flow: Array
    sent_ns: I64
    rtt_ns: I64


class Acks(NamedTuple):
    """The acknowledgements that a flow's sender got, in the order of time; see Columns."""

    ack: U32
    sacked: U32
    seen_ns: I64


@compiled
def _trips(
    low: I64, high: I64, sent: I64, ack: I64, sacked: I64, seen: I64, clean: I8, rtt: I64
) -> None:
    """Sets `rtt` to the delay of the first acknowledgement that covers each segment.

    An entry stays -1 if its delay is unknown. An acknowledgement counts only if it advances,
    and only for the last segment that it covers, as in TCP. `clean` says that a segment was sent
    once (Karn's rule). An acknowledgement that fills a hole shows nothing, because it waited for
    what was lost or sent again. A selective one is for the segment at the end of its first block,
    if that is beyond all blocks before.
    """
    highest = ack[0] - 1
    beyond = highest
    segment = 0
    for i in range(ack.size):
        if sacked[i] > max(beyond, ack[i]):
            beyond = sacked[i]
            at = np.searchsorted(high, beyond)
            if at < high.size and high[at] == beyond and clean[at] and sent[at] <= seen[i]:
                rtt[at] = seen[i] - sent[at]
        if ack[i] <= highest:
            continue
        covered = highest if i > 0 else -1
        highest = ack[i]
        last = -1
        whole = True
        while segment < high.size and sent[segment] <= seen[i] and high[segment] <= ack[i]:
            if clean[segment] == 0 or (covered >= 0 and low[segment] != covered):
                whole = False
            covered = high[segment]
            last = segment
            segment += 1
        if last >= 0 and whole and high[last] == ack[i]:
            rtt[last] = seen[i] - sent[last]


def round_trips(data: Packets | Columns, flows: Sequence[tuple[int, Array, Acks]]) -> RoundTrips:
    """Round trips from each flow's index, its rows in `data` and its acknowledgements."""
    parts = []
    for number, rows, acks in flows:
        low = unwrap(data.seq[rows], data.flags[rows])
        high = low + data.payload_bytes[rows]
        if not rows.size or not acks.ack.size:
            continue
        # Acknowledgement numbers are put on the unwrapped scale of the segments.
        near = int(low[0])
        first = near + ((int(acks.ack[0]) - near + 2**31) % 2**32 - 2**31)
        ack = first + np.concatenate([[0], np.cumsum(_signed(np.diff(acks.ack)))])
        sacked = np.where(acks.sacked == 0, ack, ack + _signed(acks.sacked - acks.ack))
        clean = _sent_once(low, high)
        in_order = np.maximum.accumulate(high) == high
        rtt = np.full(rows.size, -1, np.int64)
        keep = in_order & (high > low)
        sent = data.stamp_ns[rows][keep]
        part = np.full(sent.size, -1, np.int64)
        _trips(low[keep], high[keep], sent, ack, sacked, acks.seen_ns, clean[keep], part)
        rtt[keep] = part
        known = rtt >= 0
        parts.append((np.full(int(known.sum()), number), data.stamp_ns[rows][known], rtt[known]))
    if not parts:
        none = np.empty(0, np.int64)
        return RoundTrips(none, none, none)
    flow, sent, rtt = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(sent, kind="stable")
    return RoundTrips(flow[order], sent[order], rtt[order])


def untimed_ns(sent_ns: I64, rtt_ns: I64, start_ns: int, end_ns: int) -> int:
    """For how long of [start_ns, end_ns) no segment with a known round trip was under way."""
    until_ns = np.maximum.accumulate(
        np.clip(np.append(start_ns, sent_ns + rtt_ns), start_ns, end_ns)
    )
    next_ns = np.clip(np.append(sent_ns, end_ns), start_ns, end_ns)
    return int(np.maximum(next_ns - until_ns, 0).sum())


def _signed(difference: U32) -> I64:
    """Differences of 32-bit numbers as steps forward or back, whichever is shorter."""
    return difference.view(np.int32).astype(np.int64)


def _sent_once(low: I64, high: I64) -> I8:
    """For each segment, whether no other segment has any of its bytes."""
    covers = np.ones(low.size, np.bool_)
    first = paint(low, high, covers) == high - low
    again = paint(low[::-1].copy(), high[::-1].copy(), covers)[::-1] == high - low
    clean: I8 = (first & again).astype(np.int8)
    return clean
