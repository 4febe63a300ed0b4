"""The time that every packet takes between two captures, besides any queue.

A link, a slow switch or a clock that differs by a constant adds it to all waits. The least time
from an input to an output bounds it from above. It is as long as that if packets took no longer
after the output had run empty: then none of them waited.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outcast.analysis.compiled import I8, I32, I64, compiled
from outcast.analysis.join.join import Joined
from outcast.analysis.measure.queue import Busy, Rate, busy

LEAST_EMPTY = 3
"""So many packets have to show that an output had run empty, because one can come in a pause."""
_NONE = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Latency:
    """What joined packets take at least.

    Attributes:
        least_ns: for each input and output, the least time from one to the other; 0 if no packet
            went there.
        busy: for each output, what it sent while packets waited.
        rates: for each output, at what rate it did; None if too few waited.
        delays_ns: for each input and output, what of it is known to be no wait in a queue; 0 if it
            is less than a packet takes there.
        is_empty: for each output, whether it was seen to run empty by packets of all its inputs, so
            that what clocks differ by is in the least times.
        is_known: for each output, whether no more than a packet's time is unknown.
    """

    least_ns: I64
    busy: tuple[Busy, ...]
    rates: tuple[Rate | None, ...]
    delays_ns: I64
    is_empty: tuple[bool, ...]
    is_known: tuple[bool, ...]

    def delay_ns(self, joined: Joined) -> I64 | int:
        """For each arrival, how long it took to its queue, as far as that is known."""
        if not self.delays_ns.any():
            return 0
        # The last column is that of packets whose output is unknown.
        delays = np.pad(self.delays_ns, ((0, 0), (0, 1)))
        return np.asarray(delays[joined.arrivals.port, joined.egress], np.int64)


@compiled
def _least(
    in_stamp: I64, in_port: I8, left_as: I32, out_stamp: I64, out_port: I8, least: I64
) -> None:
    for row in range(in_stamp.size):
        if left_as[row] >= 0:
            output = out_port[left_as[row]]
            wait = out_stamp[left_as[row]] - in_stamp[row]
            least[in_port[row], output] = min(least[in_port[row], output], wait)


@compiled
def _count_empty(
    in_stamp: I64,
    in_port: I8,
    came_as: I32,
    out_stamp: I64,
    out_port: I8,
    out_frame: I32,
    ns_per_byte: float,
    output: int,
    least: I64,
    empty: I64,
) -> None:
    """For each input, counts packets that took the least time when the output had run empty.

    Had they waited, the output would have sent until then. Half a packet's time is allowed.
    """
    before = -1
    for departure in range(out_stamp.size):
        if out_port[departure] != output:
            continue
        arrival = came_as[departure]
        if before >= 0 and arrival >= 0:
            sending = ns_per_byte * out_frame[before]
            wait = out_stamp[departure] - in_stamp[arrival] - least[in_port[arrival], output]
            if out_stamp[departure] - out_stamp[before] > 1.5 * sending and 2 * wait <= sending:
                empty[in_port[arrival], output] += 1
        before = departure


def latency(joined: Joined, unit_ns: int = 0) -> Latency:
    """Finds what the packets of a join take at least, and whether it is no wait.

    Stamps are multiples of `unit_ns`, which makes rates less certain.

    A packet counts as waiting if it came in by so much before the one ahead of it left. So where
    the least time is longer than the latency, fewer packets count, but all of them did wait.
    """
    arrivals, departures = joined.arrivals, joined.departures
    outputs = len(joined.outputs)
    least = np.full((len(joined.inputs), outputs), _NONE, np.int64)
    came = (arrivals.stamp_ns, arrivals.port)
    left = (departures.stamp_ns, departures.port)
    _least(*came, joined.left_as, *left, least)
    unused = least == _NONE
    least[unused] = 0
    sent = tuple(busy(joined, output, least) for output in range(outputs))
    rates = tuple(part.rate(unit_ns) for part in sent)
    empty = np.zeros_like(least)
    for output, rate in enumerate(rates):
        if rate is not None:
            _count_empty(
                *came, joined.came_as, *left, departures.frame_bytes, 8e9 / rate.bps, output,
                least, empty,
            )  # fmt: skip
    is_empty = (empty >= LEAST_EMPTY) | unused
    is_short = least <= np.array([part.usual_gap_ns for part in sent])
    delays = np.where(is_empty & ~is_short, least, 0)
    known = [tuple(part.all(axis=0).tolist()) for part in (is_empty, is_empty | is_short)]
    return Latency(least, sent, rates, delays, *known)
