"""Drops that nobody repaired: they show that the capture of an output lacks packets.

TCP sends again what a queue dropped, or its receiver waits for ever. So if a flow goes on for long
after a drop, and its data never came again, the packet left, and the capture did not see it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from outcast.analysis.capture.headers import TCP
from outcast.analysis.compiled import I64, Array, Bool
from outcast.analysis.join.doubts import MOST_SHARE
from outcast.analysis.join.findings import Reason, Refusal
from outcast.analysis.join.join import Joined, Verdict
from outcast.analysis.measure.segments import segments, unwrap

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

    An output that stands still sends later what waits, in the order in which it came in.
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


def silence_remarks(joined: Joined, repaired: Repairs, found: Collection[Silence]) -> list[str]:
    """A line on each time in which an output's capture has nothing."""
    lines = []
    for silence in found:
        alone, again = (
            int(mask[silence.rows].sum()) for mask in (repaired.is_alone, repaired.is_proven)
        )
        whys = [f"{again:,} were dropped, because their data were sent again"] if again else []
        if alone:
            whys.append(f"{alone:,} were never sent again, so the capture may lack them")
        if again + alone < silence.rows.size:
            other = "nothing tells whether it lacks them or they were dropped"
            whys.append("nothing tells of the others" if whys else other)
        lines.append(
            f"{joined.outputs[silence.output]}: its capture has {silence.words(joined)}, though "
            f"{silence.rows.size:,} packets for it came in and never left: {'; '.join(whys)}"
        )
    return lines


def unrepaired(joined: Joined, repaired: Repairs, found: Collection[Silence]) -> list[Refusal]:
    """Why a join cannot be believed whose dropped data nobody sent again; empty if it can."""
    refusals = []
    for output, name in enumerate(joined.outputs):
        here = joined.egress == output
        due, alone = int((repaired.is_due & here).sum()), int((repaired.is_alone & here).sum())
        if alone > max(MOST_SHARE * due, 1):
            times = "".join(
                f"; it has {one.words(joined)}" for one in found if one.output == output
            )
            refusals.append(
                Refusal(
                    Reason.UNEXPLAINED,
                    f"{alone:,} of {due:,} packets that {name} would have dropped were never "
                    "sent again, though their flows went on; its capture lacks packets, or the "
                    f"senders do not send again{times}",
                )
            )
    return refusals
