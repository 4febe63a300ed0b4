"""What one capture alone shows of its flows.

A capture sees a flow at one point of its way, which parts it in two: what lies between the sender
and this point, and what lies beyond. So each number has its limits:

- *Sent again*: segments whose data had all passed here before. They were lost beyond this point, or
  their acknowledgements were, or the sender gave up waiting too soon.
- *Late*: segments with data below the highest that had passed, which had not passed itself. Their
  first copies were lost before this point, or packets were reordered there.
- *Round trip beyond*: from here to the receiver and back: the time from a segment to the first
  acknowledgement of all of it (Karn's rule; `tcp.round_trips`). It has the receiver's delay of
  acknowledgements in it.
- *Round trip before*: from here to the sender and back: the time from the first packet with a TCP
  time stamp to the first one that echoes it (RFC 7323; Nichols, pping). It has the time in it that
  the sender waited before it sent, so it is an upper bound.

Not seen: what was lost without being sent again, and which queue a packet waited in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outcast.analysis.capture.copies import copies_in
from outcast.analysis.capture.headers import HAS_TIMESTAMP, SYN, TCP, Columns, FlowKey
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import I64, Array
from outcast.analysis.join.clocks import steps_back
from outcast.analysis.join.pairs import grouped
from outcast.analysis.measure.tcp import Acks, round_trips
from outcast.analysis.measure.throughput import paint, unwrap


@dataclass(frozen=True, slots=True)
class SeenFlow:
    """A flow at the point of a capture. Numbers of TCP are None for other protocols.

    `new_bytes` are of data that passed for the first time; the module defines the segments
    `sent_again` and `late`, and the round trips `beyond_ns` and `before_ns`, in the order of time.
    """

    key: FlowKey
    packets: int
    payload_bytes: int
    first_ns: int
    last_ns: int
    new_bytes: int | None
    sent_again: int | None
    late: int | None
    beyond_ns: I64
    before_ns: I64

    @property
    def goodput_bps(self) -> float | None:
        """New data over the time from the first packet to the last one; None without new data."""
        if self.new_bytes is None or self.last_ns <= self.first_ns:
            return None
        return self.new_bytes * 8e9 / (self.last_ns - self.first_ns)


def seen_flows(capture: PortCapture) -> tuple[list[SeenFlow], list[str]]:
    """The flows of a capture, those with most payload first, and what the reader should know.

    Packets that the file has twice count once.
    """
    remarks = []
    columns = _by_stamps(capture.columns)
    flows = _flows(columns, capture)
    if steps := steps_back(capture):
        remarks.append(
            f"{capture.path}: its time stamps go back {steps:,} times, so the clock may have "
            "stepped: cut the file, `editcap -A START -B STOP FILE NEW`"
        )
    copies = copies_in(columns)
    if copies.any():
        remarks.append(
            f"{capture.path}: {int(copies.sum()):,} packets are there twice, as in a mirror of "
            "both directions of a port or of several ports. Each counts once, when it was first "
            "seen"
        )
        flows = _flows(Columns.of(column[~copies] for column in columns), capture)
    return sorted(flows, key=lambda flow: (-flow.payload_bytes, flow.first_ns, flow.key)), remarks


def _by_stamps(columns: Columns) -> Columns:
    order = np.argsort(columns.stamp_ns, kind="stable")
    if (np.diff(order) < 0).any():
        return Columns.of(column[order] for column in columns)
    return columns


def _flows(columns: Columns, capture: PortCapture) -> list[SeenFlow]:
    """The flows of a capture's packets, which are in the order of time."""
    rows_of = {capture.flows[number]: rows for number, rows in grouped(columns.flow).items()}
    return [_seen(columns, key, rows, rows_of.get(key.reversed)) for key, rows in rows_of.items()]


def _seen(columns: Columns, key: FlowKey, rows: Array, back: Array | None) -> SeenFlow:
    none = np.empty(0, np.int64)
    stamps = columns.stamp_ns[rows]
    payload = columns.payload_bytes[rows]
    new_bytes = sent_again = late = None
    beyond = before = none
    if key.protocol == TCP:
        low = unwrap(columns.seq[rows], columns.flags[rows])
        high = low + payload
        fresh = paint(low, high, np.ones(rows.size, np.bool_))
        highest = np.concatenate([low[:1], np.maximum.accumulate(high)[:-1]])
        below = (payload > 0) & (low < highest)
        new_bytes = int(fresh.sum())
        sent_again = int((below & (fresh == 0)).sum())
        late = int((below & (fresh > 0)).sum())
        if back is not None:
            data = rows[payload > 0]
            acks = back[(columns.flags[back] & SYN) == 0]
            heard = Acks(columns.ack[acks], columns.sacked[acks], columns.stamp_ns[acks])
            trips = round_trips(columns, [(0, data, heard)])
            beyond = trips.rtt_ns
            before = _echoes(columns, data, back)
    return SeenFlow(
        key,
        rows.size,
        int(payload.sum()),
        int(stamps[0]),
        int(stamps[-1]),
        new_bytes,
        sent_again,
        late,
        beyond,
        before,
    )


def _echoes(columns: Columns, data: Array, back: Array) -> I64:
    """From the first packet with each time stamp, towards the sender, to its first echo in data."""
    heard = back[(columns.marks[back] & HAS_TIMESTAMP) != 0]
    said = data[(columns.marks[data] & HAS_TIMESTAMP) != 0]
    stamp, first = np.unique(columns.tsval[heard], return_index=True)
    echo, answer = np.unique(columns.tsecr[said], return_index=True)
    _, mine, its = np.intersect1d(stamp, echo, assume_unique=True, return_indices=True)
    answered = columns.stamp_ns[said[answer[its]]]
    trips: I64 = answered - columns.stamp_ns[heard[first[mine]]]
    return trips[(trips > 0) & (echo[its] > 0)]
