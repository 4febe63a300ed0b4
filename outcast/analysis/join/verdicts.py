"""The verdict on each arrival, and why departures have no arrival: rule 4 of `join`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from outcast.analysis.capture.headers import FlowKey
from outcast.analysis.join.matching import NEVER, Matched
from outcast.analysis.join.packets import numbered
from outcast.analysis.join.places import NEARLY_ALL
from outcast.analysis.machine_code import I8, I32, I64, U64, Bool, compiled

DEFAULT_MAX_SOJOURN_NS = 1_000_000_000

LATE_START_GAPS = 8
"""If no arrival leaves for this number of packet times, the output was not watched yet, because a
queue that drains does not refuse all packets."""
FEW_CHANGES = 8
"""A flow moves between paths if its output changes this many times less often than by chance."""


class Verdict(IntEnum):
    FORWARDED = 0
    DROPPED = 1
    UNKNOWN = 2


class Note(IntEnum):
    NONE = 0
    REORDERED = 1
    IN_FLIGHT = 2
    BEFORE_OUTPUT = 3


class Stray(IntEnum):
    """Why a departure has no arrival."""

    EARLY = 0
    """It left before any arrival did, so it was in the queue when the capture began."""
    DUPLICATE = 1
    """An equal packet had come in and left already."""
    UNEXPLAINED = 2


@dataclass(frozen=True, slots=True)
class Counts:
    """`entered` = forwarded + dropped + in_flight + before_output, and
    `left` = forwarded + early + duplicates + unexplained.
    """

    entered: int
    forwarded: int
    dropped: int
    in_flight: int
    before_output: int
    reordered: int
    left: int
    early: int
    duplicates: int
    unexplained: int


def egress_of(matched: Matched, flows: Sequence[FlowKey], outputs: int) -> I8:
    """The output of each arrival: its own, or that of its flow, or that of its destination.

    It is -1 for a drop of a flow, or to an address, with several outputs (equal paths).
    """
    arrivals, departures, left_as = matched.arrivals, matched.departures, matched.order.left_as
    if outputs == 1:
        return np.zeros(len(arrivals), np.int8)
    _, (of_address,) = numbered([[flow.dst for flow in flows]])
    egress = _usual(of_address[departures.flow], departures.port, len(flows))[of_address]
    of_flow = _usual(departures.flow, departures.port, len(flows))
    egress = np.where(np.bincount(departures.flow, minlength=len(flows)) > 0, of_flow, egress)
    egress = egress[arrivals.flow]
    forwarded = left_as >= 0
    egress[forwarded] = departures.port[left_as[forwarded]]
    if (egress < 0).any():
        _of_moved_flows(arrivals.flow, egress, forwarded, outputs)
    return egress


def _usual(group: I32, port: I8, groups: int) -> I8:
    """For each group of departures, the output of nearly all of them, or -1."""
    low, high = np.full(groups, 127, np.int8), np.full(groups, -1, np.int8)
    np.minimum.at(low, group, port)
    np.maximum.at(high, group, port)
    usual = np.where(low == high, low, np.int8(-1))
    several = np.flatnonzero((low < high)[group])
    keys, counts = np.unique(
        group[several].astype(np.int64) << 8 | port[several], return_counts=True
    )
    total = np.bincount(keys >> 8, counts, groups)
    most = counts >= NEARLY_ALL * total[keys >> 8]
    usual[keys[most] >> 8] = keys[most] & 0xFF
    return usual


def _of_moved_flows(flow: I32, egress: I8, forwarded: Bool, outputs: int) -> None:
    """Fills in the output of drops between packets of their flow that left by the same output.

    This holds for flows that move from one path to another now and then. If packets are spread over
    the paths one by one, their outputs change as often as by chance.
    """
    rows = np.flatnonzero(np.isin(flow, np.unique(flow[egress < 0])))
    rows = rows[np.argsort(flow[rows], kind="stable")]
    of_flow, out, left = flow[rows], egress[rows].astype(np.int64), forwarded[rows]
    gone = np.flatnonzero(left)
    if not gone.size:
        return
    names, number = np.unique(of_flow, return_inverse=True)
    share = np.bincount(number[gone] * outputs + out[gone], minlength=names.size * outputs)
    share = share.reshape(names.size, outputs)
    packets = share.sum(axis=1)
    by_chance = packets - (share.astype(np.float64) ** 2).sum(axis=1) / np.maximum(packets, 1)
    steps = (np.diff(out[gone]) != 0) & (np.diff(number[gone]) == 0)
    changes = np.bincount(number[gone[1:]][steps], minlength=names.size)
    moves = (by_chance >= FEW_CHANGES) & (changes * FEW_CHANGES <= by_chance)
    place = np.searchsorted(gone, np.arange(rows.size))
    before, after = gone[np.maximum(place - 1, 0)], gone[np.minimum(place, gone.size - 1)]
    same = [number[at] == number for at in (before, after)]
    # At the ends of a flow there is only one neighbour.
    first, last = (
        np.where(same[0], out[before], out[after]),
        np.where(same[1], out[after], out[before]),
    )
    sure = ~left & moves[number] & (same[0] | same[1]) & (first == last)
    egress[rows[sure]] = first[sure]


def judge(
    matched: Matched,
    flows: Sequence[FlowKey],
    egress: I8,
    watched: Sequence[tuple[int, int]],
    max_sojourn_ns: int,
    apart: bool,
) -> tuple[I8, I8]:
    """Verdict and note of every arrival, by the rules under "Verdicts" in docs/join.md.

    `watched` has the times from which and to which each output was captured.
    """
    arrivals, order = matched.arrivals, matched.order
    verdict = np.full(len(arrivals), Verdict.FORWARDED, np.int8)
    note = np.zeros(len(arrivals), np.int8)
    note[order.reordered] = Note.REORDERED
    missing = np.flatnonzero(order.left_as < 0)
    if not missing.size:
        return verdict, note
    stamps = arrivals.stamp_ns[missing]
    longest, first_left = order.extremes.tolist()
    patience = min(max_sojourn_ns, DEFAULT_MAX_SOJOURN_NS)
    if first_left < len(arrivals):
        patience = min(max_sojourn_ns, 2 * longest + 1_000_000)

    # Overtaken by a later packet of the same flow, of the same port if that is a FIFO, or of any.
    port, to = arrivals.port[missing], egress[missing]
    newest = np.append(order.newest - order.slack, NEVER)
    of_flow = arrivals.flow[missing]
    overtaken = (missing < order.last_of_flow[of_flow]) & (order.flow_left_by[of_flow] == to)
    if not apart:
        overtaken |= (order.inversions[port] == 0) & (missing < order.last_of_pair[port, to])
        overtaken |= stamps < newest[to]

    begins, ends = _watched(matched, watched, flows, missing, to)
    left_ns = matched.departures.stamp_ns[:1001]
    gap = int(np.median(np.diff(left_ns))) if left_ns.size > 1 else 10**9
    some_left = first_left < len(arrivals)
    first_ns = (
        int(arrivals.stamp_ns[first_left]) if some_left else int(np.array(watched)[:, 0].max())
    )
    before = (stamps < begins) & (stamps < first_ns - LATE_START_GAPS * gap)
    dropped = ~before & (overtaken | (stamps + patience <= ends))
    verdict[missing] = np.where(dropped, Verdict.DROPPED, Verdict.UNKNOWN)
    note[missing] = np.where(
        dropped, Note.NONE, np.where(before, Note.BEFORE_OUTPUT, Note.IN_FLIGHT)
    )
    return verdict, note


def _watched(
    matched: Matched,
    watched: Sequence[tuple[int, int]],
    flows: Sequence[FlowKey],
    missing: I64,
    to: I8,
) -> tuple[I64, I64]:
    """The times from which and to which the output of each missing packet was captured.

    If the output is unknown, all outputs of the address count.
    """
    begins, ends = np.array(watched, np.int64).T
    unknown = to < 0
    first, last = begins[to], ends[to]
    if unknown.any():
        departures = matched.departures
        _, (of_address,) = numbered([[flow.dst for flow in flows]])
        latest, earliest = np.full(len(flows), NEVER), np.full(len(flows), -NEVER)
        np.maximum.at(latest, of_address[departures.flow], begins[departures.port])
        np.minimum.at(earliest, of_address[departures.flow], ends[departures.port])
        address = of_address[matched.arrivals.flow[missing[unknown]]]
        is_known = latest[address] > NEVER
        first[unknown] = np.where(is_known, latest[address], begins.max())
        last[unknown] = np.where(is_known, earliest[address], ends.min())
    return first, last


def strays(matched: Matched) -> I8:
    """The Stray of each departure without an arrival; -1 for all others."""
    departures, came_as = matched.departures, matched.order.came_as
    stray = np.full(len(departures), -1, np.int8)
    alone = np.flatnonzero(came_as < 0)
    if not alone.size:
        return stray
    gone = np.unique(matched.arriving[matched.order.left_as >= 0])
    stray[alone] = np.where(
        np.isin(matched.leaving[alone], gone), Stray.DUPLICATE, Stray.UNEXPLAINED
    )
    explained = np.flatnonzero(came_as >= 0)
    # For each output: departures before the first one with an arrival.
    for port in range(int(departures.port.max()) + 1):
        of_port = explained[departures.port[explained] == port]
        limit = of_port[0] if of_port.size else len(departures)
        here = alone[departures.port[alone] == port]
        stray[here[here < limit]] = Stray.EARLY
    return stray


def alike(matched: Matched) -> I64:
    """The arrivals that did not leave and are equal to the last packet of their flow that did.

    That packet left after they came in, so it may be the one that did not leave.
    """
    order, arrivals = matched.order, matched.arrivals
    result = np.zeros(len(arrivals), np.bool_)
    _find_alike(
        arrivals.flow,
        arrivals.stamp_ns,
        matched.arriving,
        order.left_as,
        matched.departures.stamp_ns,
        np.full(order.last_of_flow.size, -1, np.int32),
        result,
    )
    return np.flatnonzero(result)


@compiled
def _find_alike(
    flow: I32,
    came_ns: I64,
    identity: U64,
    left_as: I32,
    left_ns: I64,
    last: I32,
    result: Bool,
) -> None:
    for i in range(flow.size):
        before = last[flow[i]]
        if left_as[i] >= 0:
            last[flow[i]] = i
        elif before >= 0 and identity[before] == identity[i]:
            result[i] = left_ns[left_as[before]] >= came_ns[i]


def impossible_ns(matched: Matched, max_sojourn_ns: int) -> I64:
    """See `Sources.impossible_ns`."""
    arriving, leaving = matched.arriving, matched.leaving
    alone = np.flatnonzero(matched.order.came_as < 0)
    missing = np.flatnonzero(matched.order.left_as < 0)
    if not alone.size or not missing.size:
        return np.empty(0, np.int64)
    order = missing[np.argsort(arriving[missing], kind="stable")]
    at = np.searchsorted(arriving[order], leaving[alone]).clip(max=order.size - 1)
    equal = arriving[order[at]] == leaving[alone]
    waits: I64 = (
        matched.departures.stamp_ns[alone[equal]] - matched.arrivals.stamp_ns[order[at[equal]]]
    )
    return waits[(waits < 0) | (waits > max_sojourn_ns)]


def count(verdict: I8, note: I8, stray: I8) -> Counts:
    def number(values: I8, code: int) -> int:
        return int((values == code).sum())

    return Counts(
        entered=verdict.size,
        forwarded=number(verdict, Verdict.FORWARDED),
        dropped=number(verdict, Verdict.DROPPED),
        in_flight=number(note, Note.IN_FLIGHT),
        before_output=number(note, Note.BEFORE_OUTPUT),
        reordered=number(note, Note.REORDERED),
        left=stray.size,
        early=number(stray, Stray.EARLY),
        duplicates=number(stray, Stray.DUPLICATE),
        unexplained=number(stray, Stray.UNEXPLAINED),
    )
