"""Matches departures with arrivals, packet by packet: rules 2 and 3 of `join`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import NamedTuple

import numpy as np

from outcast.analysis.capture.headers import FlowKey
from outcast.analysis.join.packets import Packets
from outcast.analysis.machine_code import I8, I32, I64, U64, Bool, Scalar, compiled

NEVER = np.iinfo(np.int64).min // 2
_TELLING, _ALIKE = ("flow", "ip_id", "seq"), ("payload_bytes", "tsval", "tsecr", "flags")
_STEP = 0x9E3779B97F4A7C15
MOST_TAGS = 8
"""The most bytes by which VLAN tags of a hop change a frame's length."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The conditions of a match.

    Attributes:
        max_sojourn_ns: the longest time between arrival and departure.
        tolerance_ns: how long before its arrival a packet may seem to leave.
        apart: whether packets pass those of other flows, as in a queue with classes.
    """

    max_sojourn_ns: int
    tolerance_ns: int = 0
    apart: bool = False


class Order(NamedTuple):
    """The result of the walk: each arrival's departure, and their order.

    Attributes:
        left_as: for each arrival, the departure that it became, or -1.
        came_as: for each departure, the arrival that it was, or -1.
        reordered: for each arrival, whether a later one of its flow left before.
        inversions: for each input, how many packets left after a later one by the same output.
        last_of_flow, last_of_pair: the last arrival that left, of each flow, and of each input and
            output. One more output is for packets whose output is unknown.
        flow_left_by: the output by which the last one of each flow left.
        newest: for each output, the latest arrival time of what has left by it.
        slack: for each output, by how much at most a later departure came in before `newest`.
        extremes: the longest sojourn time, and the first arrival that left.
    """

    left_as: I32
    came_as: I32
    reordered: Bool
    inversions: I64
    last_of_flow: I32
    last_of_pair: I32
    flow_left_by: I8
    newest: I64
    slack: I64
    extremes: I64


@compiled
def _unlink(row: Scalar, bucket: Scalar, heads: I32, tails: I32, following: I32) -> None:
    before: Scalar = -1
    at: Scalar = heads[bucket]
    while at >= 0 and at != row:
        before = at
        at = following[at]
    if at < 0:
        return
    if before < 0:
        heads[bucket] = following[row]
    else:
        following[before] = following[row]
    if tails[bucket] == row:
        tails[bucket] = before


@compiled
def _match(
    in_stamp: I64,
    in_identity: U64,
    in_flow: I32,
    in_port: I8,
    out_stamp: I64,
    out_identity: U64,
    out_port: I8,
    max_sojourn: int,
    apart: bool,
    tolerance: int,
    buckets: int,
    order: Order,
) -> None:
    """Walks both sides in the order of time, and fills `order`.

    Arrivals that have not left are kept in a hash table of chains, each in order of arrival. The
    walk is whole, because in parts it takes two to three times as long.
    """
    left_as, came_as, reordered, inversions, last_of_flow, last_of_pair = order[:6]
    flow_left_by, newest, slack, extremes = order[6:]
    heads, tails = np.full(buckets, -1, np.int32), np.full(buckets, -1, np.int32)
    following = np.empty(in_stamp.size, np.int32)
    mask = np.uint64(heads.size - 1)
    arrived = 0
    expired = 0
    for out in range(out_stamp.size):
        now = out_stamp[out]
        while arrived < in_stamp.size and in_stamp[arrived] <= now + tolerance:
            bucket = np.int64((in_identity[arrived] >> np.uint64(16)) & mask)
            following[arrived] = -1
            if tails[bucket] < 0:
                heads[bucket] = arrived
            else:
                following[tails[bucket]] = arrived
            tails[bucket] = arrived
            arrived += 1
        while expired < arrived and in_stamp[expired] < now - max_sojourn:
            if left_as[expired] < 0:
                bucket = np.int64((in_identity[expired] >> np.uint64(16)) & mask)
                _unlink(expired, bucket, heads, tails, following)
            expired += 1

        identity = out_identity[out]
        bucket = np.int64((identity >> np.uint64(16)) & mask)
        first: Scalar = -1
        chosen: Scalar = -1
        at: Scalar = heads[bucket]
        while at >= 0:
            if in_identity[at] == identity:
                if first < 0:
                    first = at
                output = out_port[out]
                flow = in_flow[at]
                # Each equal path has its own queue, so packets of different paths keep no order.
                in_order = (at > last_of_flow[flow] or flow_left_by[flow] != output) and (
                    apart
                    or (
                        (inversions[in_port[at]] > 0 or at > last_of_pair[in_port[at], output])
                        and in_stamp[at] >= newest[output] - slack[output]
                    )
                )
                if in_order:
                    chosen = at
                    break
            at = following[at]
        if chosen < 0:
            chosen = first
        if chosen < 0:
            continue
        # Equal packets that are passed over came in before something that has left, so they were
        # dropped.
        while first != chosen:
            after = following[first]
            if in_identity[first] == identity:
                _unlink(first, bucket, heads, tails, following)
            first = after
        _unlink(chosen, bucket, heads, tails, following)
        left_as[chosen] = out
        came_as[out] = chosen
        flow = in_flow[chosen]
        port = in_port[chosen]
        if chosen < last_of_flow[flow]:
            reordered[chosen] = True
        else:
            last_of_flow[flow] = chosen
            flow_left_by[flow] = out_port[out]
        output = out_port[out]
        if chosen < last_of_pair[port, output]:
            inversions[port] += 1
        else:
            last_of_pair[port, output] = chosen
        extremes[0] = max(extremes[0], now - in_stamp[chosen])
        extremes[1] = min(extremes[1], chosen)
        slack[output] = max(slack[output], newest[output] - in_stamp[chosen])
        newest[output] = max(newest[output], in_stamp[chosen])


@dataclass(frozen=True, slots=True)
class Matched:
    """Arrivals and departures with their identities, matched; see `Order`."""

    arrivals: Packets
    arriving: U64
    departures: Packets
    leaving: U64
    order: Order

    def settle(self) -> int:
        """Moves the arrivals so that no packet leaves before its arrival. Returns the shift."""
        left_as, came_ns = self.order.left_as, self.arrivals.stamp_ns
        forwarded = left_as >= 0
        if forwarded.any():
            delay = self.departures.stamp_ns[left_as[forwarded]] - came_ns[forwarded]
            by_ns = min(int(delay.min()), 0)
            np.add(came_ns, by_ns, out=came_ns)
            return by_ns
        return 0


def match(
    came: tuple[Packets, U64],
    outgoing: tuple[Packets, U64],
    sizes: tuple[int, int, int],
    limits: Limits,
) -> Matched:
    """Matches packets in order of time; `sizes` gives the numbers of flows, inputs and outputs."""
    (arrivals, arriving), (departures, leaving) = came, outgoing
    flows, inputs, outputs = sizes
    buckets = 1 << min(max(len(arrivals).bit_length(), 8), 18)
    order = Order(
        left_as=np.full(len(arrivals), -1, np.int32),
        came_as=np.full(len(departures), -1, np.int32),
        reordered=np.zeros(len(arrivals), np.bool_),
        inversions=np.zeros(inputs, np.int64),
        last_of_flow=np.full(flows, -1, np.int32),
        last_of_pair=np.full((inputs, outputs + 1), -1, np.int32),
        flow_left_by=np.full(flows, -1, np.int8),
        newest=np.full(outputs, NEVER, np.int64),
        slack=np.zeros(outputs, np.int64),
        extremes=np.array([0, len(arrivals)], np.int64),
    )
    _match(
        *(arrivals.stamp_ns, arriving, arrivals.flow, arrivals.port),
        *(departures.stamp_ns, leaving, departures.port),
        limits.max_sojourn_ns,
        limits.apart,
        limits.tolerance_ns,
        buckets,
        order,
    )
    return Matched(arrivals, arriving, departures, leaving, order)


def match_changed(matched: Matched, flows: Sequence[FlowKey], limits: Limits) -> dict[str, I64]:
    """Matches packets that were changed on the way. Returns the arrivals by the changed field.

    A changed packet has no equal on the other side. All but one field are those of an arrival, and
    of no other packet. The field that differs does so in one bit, or covers others (a checksum).
    """
    rows = {"checksum, flags or length": _match_named(matched, ("flow", "ip_id", "seq"), limits)}
    for what, field in (
        ("IP id", "ip_id"),
        ("sequence number", "seq"),
        ("address or port", "flow"),
    ):
        same = [name for name in (*_TELLING, *_ALIKE) if name != field]

        def is_flipped(came: I64, left: I64, field: str = field) -> Bool:
            pair = getattr(matched.arrivals, field)[came], getattr(matched.departures, field)[left]
            if field != "flow":
                apart = pair[0] ^ pair[1]
                return np.asarray((apart > 0) & (apart & (apart - 1) == 0), np.bool_)
            ends = ((flows[came], flows[left]) for came, left in zip(*pair, strict=True))
            return np.array([(_bits(a) ^ _bits(b)).bit_count() == 1 for a, b in ends], np.bool_)

        rows[what] = _match_named(matched, same, limits, is_flipped)
    return rows


def _bits(flow: FlowKey) -> int:
    """A flow's addresses, ports and protocol as one number."""
    parts = int(ip_address(flow.src)), int(ip_address(flow.dst)), flow.sport, flow.dport
    return sum(part << 128 * place for place, part in enumerate((*parts, flow.protocol)))


def _match_named(
    matched: Matched,
    fields: Sequence[str],
    limits: Limits,
    fits: Callable[[I64, I64], Bool] | None = None,
) -> I64:
    """Matches packets that share these fields with no other; see `match_changed`."""
    order, arrivals, departures = matched.order, matched.arrivals, matched.departures
    missing, alone = np.flatnonzero(order.left_as < 0), np.flatnonzero(order.came_as < 0)
    if not missing.size or not alone.size:
        return missing[:0]
    missing = missing[~np.isin(matched.arriving[missing], matched.leaving)]
    alone = alone[~np.isin(matched.leaving[alone], matched.arriving)]
    sides = _names(arrivals, fields), _names(departures, fields)
    shared, *rows = np.intersect1d(sides[0][missing], sides[1][alone], return_indices=True)
    came, left = missing[rows[0]], alone[rows[1]]
    counts, left_counts = (
        np.unique(side[np.isin(side, shared)], return_counts=True)[1] for side in sides
    )
    waits = departures.stamp_ns[left] - arrivals.stamp_ns[came]
    longest = min(limits.max_sojourn_ns, 2 * int(order.extremes[0]) + 1_000_000)
    longer = np.abs(departures.frame_bytes[left] - arrivals.frame_bytes[came])
    is_one = (counts == 1) & (left_counts == 1) & (arrivals.ip_id[came] != 0)
    is_one &= (waits >= -limits.tolerance_ns) & (waits <= longest) & (longer <= MOST_TAGS)
    came, left = came[is_one], left[is_one]
    if fits is not None and came.size:
        # Packets without a sequence number resemble each other.
        is_flipped = fits(came, left) & (arrivals.seq[came] > 0)
        came, left = came[is_flipped], left[is_flipped]
    order.left_as[came], order.came_as[left] = left, came
    return np.asarray(came, np.int64)


def _names(packets: Packets, fields: Sequence[str]) -> U64:
    """A number for each packet's fields."""
    names = np.zeros(len(packets), np.uint64)
    for field in fields:
        names = (names + getattr(packets, field).astype(np.uint64)) * np.uint64(_STEP)
        names ^= names >> np.uint64(32)
    return names
