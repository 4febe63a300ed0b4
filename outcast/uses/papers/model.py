"""A computed model of two endless packet streams into one full queue (TCPRand, section 3.2).

Input ports X and Y send packets back to back at the link's rate. Their payloads are drawn uniformly
from [payload_min, MSS]. The output port sends the queue's packets, drawn in the same way, at the
same rate. Each case begins when packet Y1 has just filled the queue. At that moment the output is
anywhere within a packet, and so is port X. A case counts if X1 comes before a place is free, so
that X1 is dropped. It is followed to the next packet of each port, X2 and Y2.

The source does not say how a case begins. From the steady state of two such streams X2 and Y2 are
queued with probability 0.44 each, and neither with 0.26, at a least payload of 1 B.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from outcast.records import Run

MSS_BYTES = 1448
OVERHEAD_BYTES = 40 + 12 + 18 + 8 + 12
"""Bytes that a packet adds to its payload on the wire: 40 bytes of TCP and IP, 12 of the timestamp
option, 18 of Ethernet with its checksum, 8 of preamble, and 12 of gap (0.096 us at 1 Gbps)."""


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The shares of cases in which these packets were queued, from 0 to 1."""

    x2: float
    y2: float
    both: float
    neither: float


class ModelRun(Run):
    """A computation instead of a run."""

    def __init__(self, enqueued: Enqueued) -> None:
        self.enqueued = enqueued


def compute(payload_min: int, seed: int, cases: int = 1000) -> Enqueued:
    """Follows `cases` cases; the source follows 1,000 for each least payload."""
    draw = random.Random(f"{seed} {payload_min} port blackout")
    x2 = y2 = both = neither = 0
    for _ in range(cases):
        x2_queued, y2_queued = _case(payload_min, draw)
        x2 += x2_queued
        y2 += y2_queued
        both += x2_queued and y2_queued
        neither += not x2_queued and not y2_queued
    return Enqueued(x2 / cases, y2 / cases, both / cases, neither / cases)


def _case(payload_min: int, draw: random.Random) -> tuple[bool, bool]:
    """Whether X2 and Y2 are queued. Times are counted in bytes on the wire after Y1."""
    while True:
        departure = draw.random() * _wire_bytes(payload_min, draw)
        x1 = draw.random() * _wire_bytes(payload_min, draw)
        if x1 < departure:
            break
    arrivals = [
        (x1 + _wire_bytes(payload_min, draw), "x"),
        (float(_wire_bytes(payload_min, draw)), "y"),
    ]
    free = 0
    queued = {}
    for time, port in sorted(arrivals):
        while departure <= time:
            free += 1
            departure += _wire_bytes(payload_min, draw)
        queued[port] = free > 0
        free -= queued[port]
    return queued["x"], queued["y"]


def _wire_bytes(payload_min: int, draw: random.Random) -> int:
    return draw.randint(payload_min, MSS_BYTES) + OVERHEAD_BYTES
