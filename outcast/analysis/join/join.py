"""The join: which packet came in where and when, and whether and when it left.

The captures of a switch's ports are matched packet by packet (the method of section 4.1 of the
TCP outcast paper). docs/join.md states the rules. These decide:

1. Identity: addresses, ports, protocol, IP id, sequence and acknowledgement number, flags and
   payload length have to agree. So do TTL, checksum and TCP time stamp, if the captures agree on
   them.
2. Causality: a packet leaves after it came in, and within `max_sojourn_ns`.
3. Order: among equal packets, the match is the first one that came in after whatever has left
   already: of the same flow, of the same port (if it is a FIFO), and of any port (by more than the
   switch is seen to reorder). If there is none, the match is the first one. Where the queue has
   classes, only the order within a flow counts, here and in rule 4.
4. A packet that never left was dropped if one that came in later left by the same output (later
   by more than the switch is seen to reorder), or if the output was watched long enough after it.
   Otherwise its fate is unknown: it was in flight at the end, or it came in before the output was
   watched.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from outcast.analysis.capture.headers import Columns, FlowKey
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import I8, I32, I64, U64, Bool, Scalar, compiled
from outcast.analysis.join import clock, fragments, hop, identities
from outcast.analysis.join.directions import (
    ASIDE,
    CAME,
    LEFT,
    NEARLY_ALL,
    UNTOLD,
    Directions,
    sent_by_the_machine,
    tell,
)
from outcast.analysis.join.packets import PARTS, Packets, Side, merge, number_flows, part_of
from outcast.analysis.join.pairs import Pairs, pair_up, sample
from outcast.errors import InputError, UntrustedError

DEFAULT_MAX_SOJOURN_NS = 1_000_000_000

LATE_START_GAPS = 8
"""If nothing that came in leaves for so many packet times, the output was not watched yet, because
no queue that drains meanwhile refuses everything."""

CLOCK_TOLERANCE_NS = 1_000_000
"""If clocks are estimated, a packet may seem to leave this much before it came in."""

_NEVER = np.iinfo(np.int64).min // 2


class Verdict(IntEnum):
    """What became of a packet that came in."""

    FORWARDED = 0
    DROPPED = 1
    UNKNOWN = 2


class Note(IntEnum):
    """What is remarkable about a packet that came in."""

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
class JoinOptions:
    """What the join may assume.

    Attributes:
        max_sojourn_ns: no packet stays in the switch for longer.
        routed: the switch routes, so the TTL may differ between input and output.
        one_clock: one clock stamped all captures, so no clock is corrected.
        one_way: inputs hold only what came in, and outputs only what left. Otherwise a capture may
            hold both directions, and be an input and an output at once; packets tell which is
            which.
        destinations: only packets to these addresses take part; empty takes all.
        release: the captures are not needed any more, so their columns are emptied to save memory.
        watched_ns: the span, on the output's clock, over which the outputs are known to have been
            captured. The span of their packets counts in any case.
        checksums: whether checksums may tell packets apart. With offloads a switch may complete
            that of a packet on its way, as Open vSwitch does where its kernel module asks it.
        apart: whether packets pass those of other flows, as in a queue with classes.
        may_be_empty: whether it is no error that nothing left by the outputs.
    """

    max_sojourn_ns: int = DEFAULT_MAX_SOJOURN_NS
    routed: bool = False
    one_clock: bool = False
    one_way: bool = True
    destinations: frozenset[str] = frozenset()
    release: bool = False
    watched_ns: tuple[int, int] | None = None
    checksums: bool = True
    may_be_empty: bool = False
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Counts:
    """The books of a join.

    `entered` = forwarded + dropped + in_flight + before_output, and
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


@compiled
def _stamps_of(stamps: I64, rows: I32, to: I64) -> None:
    for i in range(rows.size):
        to[i] = stamps[rows[i]] if rows[i] >= 0 else -1


@dataclass(frozen=True, slots=True)
class Sources:
    """What a join found out about its captures, each of which is listed once.

    Attributes:
        came, left: for each capture and each of its flows, whether its packets count as what came
            in, and as what left; None if the capture is no input, or no output.
        directions: which way flows go; None if the captures were known to have one direction.
        clocks: the captures' clocks; None if one clock stamped all.
        notes: what the hop does besides queueing, a line each: flows that were joined by a looser
            identity, fragments, and what takes no part because the router itself sent it.
        differing: what of some flows no identity joins, a line each.
        is_assembled: whether fragments were put together, so that packets are not what queues hold.
        late_ns: how long ago an equal packet had come in, for each departure that nothing else
            explains, though longer ago than `max_sojourn_ns` allows.
    """

    ports: tuple[str, ...]
    came: tuple[Bool | None, ...]
    left: tuple[Bool | None, ...]
    directions: Directions | None
    clocks: clock.Clocks | None
    notes: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    is_assembled: bool = False
    late_ns: I64 = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Joined:
    """The result of a join.

    Attributes:
        left_as: for each arrival, the departure that it became, or -1.
        came_as: for each departure, the arrival that it was, or -1.
        verdict, note: for each arrival, its Verdict and Note.
        egress: for each arrival, the output that it left by or, if dropped, would have left by; -1
            if that is unknown.
        stray: for each departure without an arrival, its Stray; -1 for all others.
        fifo: for each input, whether its packets left in the order in which they came.
        identity: the optional parts of the identity that were used.
        clocks: the corrections of the captures' clocks, a line each.
        sources: what was found out about the captures themselves.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    flows: tuple[FlowKey, ...]
    arrivals: Packets
    departures: Packets
    left_as: I32
    came_as: I32
    verdict: I8
    note: I8
    egress: I8
    stray: I8
    fifo: tuple[bool, ...]
    identity: tuple[str, ...]
    counts: Counts
    clocks: tuple[str, ...]
    sources: Sources

    @property
    def t_out_ns(self) -> I64:
        """When each arrival left; -1 if it did not."""
        return self.t_out(slice(None))

    def t_out(self, rows: slice) -> I64:
        """When each of these arrivals left; -1 if it did not."""
        left_as = self.left_as[rows]
        stamps = np.empty(left_as.size, np.int64)
        _stamps_of(self.departures.stamp_ns, left_as, stamps)
        return stamps


def join(
    inputs: Sequence[PortCapture],
    outputs: Sequence[PortCapture],
    options: JoinOptions | None = None,
) -> Joined:
    """Matches what came in at `inputs` with what left by `outputs`.

    A packet takes part only if its destination address is seen at an output, so the captures may
    also hold other traffic. Raises InputError if nothing can be joined, and UntrustedError if
    the hop changes packets so that nothing can be.
    """
    options = options or JoinOptions()
    _require_ports(inputs, outputs)
    captures = list({id(capture): capture for capture in [*inputs, *outputs]}.values())
    place = {id(capture): index for index, capture in enumerate(captures)}
    in_places = [place[id(capture)] for capture in inputs]
    out_places = [place[id(capture)] for capture in outputs]
    empty = not any(capture.columns.flow.size for capture in outputs)
    if empty and not options.may_be_empty:
        names = ", ".join(str(capture.path) for capture in outputs)
        raise InputError(f"{names}: no IP packets; nothing left by the output")
    assembled = [] if options.one_way else fragments.assemble(captures)
    sightings = sample(
        captures, [not options.one_way or index in out_places for index in range(len(captures))]
    )
    told = None
    united = identities.United()
    if not options.one_way:
        said = [_said(index, in_places, out_places) for index in range(len(captures))]
        united = identities.unite(captures, sightings, said)
        if united.changed:
            sightings = sample(captures)
        told = tell(captures, sightings, said, options.max_sojourn_ns)
    flows, rows = number_flows(captures)
    notes = [*assembled, *united.notes]
    if told is not None:
        for index, unsure in enumerate(united.unsure):
            told.ways[index][unsure] = ASIDE
        for index, capture in enumerate(captures if options.routed else ()):
            own = hop.own_flows(capture, index, told)
            if own.any():
                notes.append(hop.own_remark(capture, index, own, told))
                told.ways[index][own] = ASIDE
        notes += _set_own_aside(captures, told)
    came, left = _taking_part(captures, in_places, out_places, flows, rows, told)
    pairs = pair_up(sightings, captures, came, left)
    parts = _identity_parts(captures, pairs, options)
    clocks = None
    if not options.one_clock:
        between, leaving_at = pairs, left
        if told is not None and len(in_places) + len(out_places) < 2 * len(captures):
            # What comes in at outputs and leaves by inputs takes no part, but it tells the clocks.
            everywhere = range(len(captures))
            came_at, leaving_at = _taking_part(captures, everywhere, everywhere, flows, rows, told)
            between = pair_up(sightings, captures, came_at, leaving_at)
        clocks = clock.estimate(captures, between, leaving_at, out_places, options.max_sojourn_ns)
    all_came, all_left = tuple(came), tuple(left)
    if options.destinations:
        # Packets of the other direction have told the clocks and are not needed any more.
        for side in (came, left):
            for index, mask in enumerate(side):
                if mask is not None:
                    side[index] = mask & _goes_to(captures[index].flows, options.destinations)
    if told is not None and not any(mask is not None and mask.any() for mask in left):
        if united.refusals:
            raise UntrustedError(united.refusals[0])
        if any(told.packets(index, UNTOLD) for index in range(len(captures))):
            raise InputError(
                "nothing tells which way packets go: no stamps differ between two captures; say "
                "it with --in and --out"
            )
        addresses = f" to {', '.join(sorted(options.destinations))}" if options.destinations else ""
        raise InputError(f"no packets{addresses} leave the switch: nothing left by the output")
    corrections = clocks.notes if clocks else []
    settings = clocks.clocks if clocks else [clock.Clock()] * len(captures)
    watched = [
        settings[index].span(captures[index].first_ns or 0, captures[index].last_ns or 0)
        for index in out_places
    ]
    # A capture that is also an output is needed once more.
    releases = [options.release and index not in out_places for index in in_places]
    arrivals, arriving = merge(
        [Side(captures[index], rows[index], came[index], settings[index]) for index in in_places],
        parts,
        releases,
    )
    departures, leaving = merge(
        [Side(captures[index], rows[index], left[index], settings[index]) for index in out_places],
        parts,
        [options.release] * len(outputs),
    )
    matched = _run_match(
        arrivals,
        arriving,
        departures,
        leaving,
        len(flows),
        len(inputs),
        len(outputs),
        options.max_sojourn_ns,
        options.apart,
        max(CLOCK_TOLERANCE_NS if corrections else 0, clocks.slack_ns if clocks else 0),
    )
    left_as, came_as = matched.left_as, matched.came_as
    if corrections:
        _settle(arrivals, departures, left_as)
    egress = _egress(arrivals, departures, left_as, flows, len(outputs))
    verdict, note = _judge(arrivals, departures, matched, egress, watched, options, len(flows))
    stray = _strays(departures, left_as, came_as, arriving, leaving)
    late = _late_ns(arrivals, departures, left_as, stray, arriving, leaving)
    counts = count(verdict, note, stray)
    _check_conservation(counts, len(arrivals), len(departures))
    return Joined(
        inputs=tuple(capture.port for capture in inputs),
        outputs=tuple(capture.port for capture in outputs),
        flows=flows,
        arrivals=arrivals,
        departures=departures,
        left_as=left_as,
        came_as=came_as,
        verdict=verdict,
        note=note,
        egress=egress,
        stray=stray,
        fifo=tuple(bool(value == 0) for value in matched.inversions),
        identity=parts,
        counts=counts,
        clocks=tuple(corrections),
        sources=Sources(
            tuple(capture.port for capture in captures),
            all_came,
            all_left,
            told,
            clocks,
            tuple(notes),
            united.refusals,
            bool(assembled),
            late,
        ),
    )


def _set_own_aside(captures: Sequence[PortCapture], told: Directions) -> list[str]:
    """Sets aside what the machine that captured sent itself, where captures tell; notes on it."""
    addresses = sent_by_the_machine(captures)
    notes = []
    for index, capture in enumerate(captures if addresses else ()):
        own = np.array([flow.src in addresses for flow in capture.flows], np.bool_)
        own &= told.ways[index] != ASIDE
        packets = int(told.counts[index][own].sum())
        told.ways[index][own] = ASIDE
        if packets:
            senders = sorted({capture.flows[row].src for row in np.flatnonzero(own).tolist()})
            notes.append(
                f"{capture.port}: {packets:,} packets that this machine itself sent "
                f"({', '.join(senders[:3])}) take no part; by its capture they left and never "
                "came in. What the queue dropped of them, no capture shows"
            )
    return notes


def _require_ports(inputs: Sequence[PortCapture], outputs: Sequence[PortCapture]) -> None:
    for role, captures in (("input", inputs), ("output", outputs)):
        if not captures:
            raise InputError(f"no {role} capture; at least one is needed")
        if len(captures) > 127:
            raise InputError(f"{len(captures)} {role} captures; at most 127 are allowed")
        names = [capture.port for capture in captures]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"{role} port {name} is given twice")


def _said(index: int, in_places: Sequence[int], out_places: Sequence[int]) -> int | None:
    """What the caller says of a capture that is of an input only, or of an output only."""
    if index in in_places and index in out_places:
        return None
    return CAME if index in in_places else LEFT


def _taking_part(
    captures: Sequence[PortCapture],
    in_places: Sequence[int],
    out_places: Sequence[int],
    flows: Sequence[FlowKey],
    rows: Sequence[I32],
    told: Directions | None,
) -> tuple[list[Bool | None], list[Bool | None]]:
    """For each capture and each of its flows, whether it counts as coming in, and as leaving.

    What leaves counts. What comes in counts if packets leave for its destination.
    """
    left: list[Bool | None] = [None] * len(captures)
    came: list[Bool | None] = [None] * len(captures)
    for index in set(out_places):
        count = np.bincount(captures[index].columns.flow, minlength=len(captures[index].flows))
        here: Bool = count > 0
        if told is not None:
            here = here & (told.ways[index] == LEFT)
        left[index] = here
    if told is not None:
        _leave_out_one_sided(left, captures, told)
    addresses = {
        flows[number].dst
        for row, mask in zip(rows, left, strict=True)
        if mask is not None
        for number in row[mask].tolist()
    }
    for index in set(in_places):
        there = _goes_to(captures[index].flows, addresses)
        if told is not None:
            there = there & (told.ways[index] == CAME)
        came[index] = there
    return came, left


def _goes_to(flows: Sequence[FlowKey], addresses: Collection[str]) -> Bool:
    return np.array([flow.dst in addresses for flow in flows], np.bool_)


def _leave_out_one_sided(
    left: list[Bool | None], captures: Sequence[PortCapture], told: Directions
) -> None:
    """Leaves out outputs whose packets all come from ports where only what left was captured.

    Their queues cannot be told, and no other queue depends on them.
    """
    silent = {index for index in range(len(captures)) if not told.packets(index, CAME)}
    for index, here in enumerate(left):
        if here is None or not here.any():
            continue
        packets = told.counts[index]
        hidden = np.array(
            [told.place.get(flow.src) in silent for flow in captures[index].flows], np.bool_
        )
        if packets[here & hidden].sum() >= NEARLY_ALL * packets[here].sum():
            left[index] = np.zeros_like(here)


# --- identity


@compiled
def _agree(
    came: Columns, left: Columns, came_row: I32, left_row: I32, which: int, agree: Bool
) -> None:
    for i in range(came_row.size):
        agree[i] = part_of(came, came_row[i], which) == part_of(left, left_row[i], which)


def _identity_parts(
    captures: Sequence[PortCapture], pairs: Pairs, options: JoinOptions
) -> tuple[str, ...]:
    """The optional parts of the identity on which at least 99 % of the sampled pairs agree.

    SYNs are few, so all of them have to agree.
    """
    if not len(pairs):
        return ()
    parts = []
    for which, name in enumerate(PARTS):
        if name == "checksum" and not options.checksums:
            continue
        agreeing = 0
        for came, left, mine in pairs.groups():
            agree = np.zeros(mine.size, np.bool_)
            _agree(
                captures[came].columns,
                captures[left].columns,
                pairs.came_row[mine],
                pairs.left_row[mine],
                which,
                agree,
            )
            agreeing += int(agree.sum())
        least = len(pairs) if name == "timestamp of SYN" else 0.99 * len(pairs)
        if agreeing >= least:
            parts.append(name)
        elif name == "ttl" and not options.routed:
            raise InputError(
                "packets leave with another TTL than they came in with; if the hop routes, "
                "say --routed"
            )
    return tuple(parts)


# --- matching


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


class _Came(NamedTuple):
    """What came in, for the walk."""

    stamp: I64
    identity: U64
    flow: I32
    port: I8


class _Left(NamedTuple):
    """What left, for the walk."""

    stamp: I64
    identity: U64
    port: I8


class _Matched(NamedTuple):
    """The result of the walk; see `_match`."""

    left_as: I32
    came_as: I32
    reordered: Bool
    inversions: I64
    last_of_flow: I32
    last_of_pair: I32
    newest: I64
    slack: I64
    extremes: I64


@compiled
def _match(
    came: _Came,
    left: _Left,
    max_sojourn: int,
    apart: bool,
    tolerance: int,
    buckets: int,
    matched: _Matched,
) -> None:
    """Walks both sides in the order of time.

    Arrivals that have not left are kept in a hash table of chains, each in order of arrival.
    These arrays of `matched` are filled besides those that the join has:

    - `newest`: for each output, the latest arrival time of what has left by it.
    - `slack`: for each output, by how much at most a later departure came in before `newest`.
    - `last_of_flow`, `last_of_pair` (input, output): the last arrivals that left.
    - `extremes`: the longest sojourn time, and the first arrival that left.
    """
    in_stamp, in_identity, in_flow, in_port = came
    out_stamp, out_identity, out_port = left
    left_as, came_as, reordered, inversions, last_of_flow, last_of_pair = matched[:6]
    newest, slack, extremes = matched[6:]
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
                in_order = at > last_of_flow[in_flow[at]] and (
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
        output = out_port[out]
        if chosen < last_of_pair[port, output]:
            inversions[port] += 1
        else:
            last_of_pair[port, output] = chosen
        extremes[0] = max(extremes[0], now - in_stamp[chosen])
        extremes[1] = min(extremes[1], chosen)
        slack[output] = max(slack[output], newest[output] - in_stamp[chosen])
        newest[output] = max(newest[output], in_stamp[chosen])


def _run_match(
    arrivals: Packets,
    arriving: U64,
    departures: Packets,
    leaving: U64,
    flows: int,
    inputs: int,
    outputs: int,
    max_sojourn_ns: int,
    apart: bool,
    tolerance_ns: int,
) -> _Matched:
    size = 1 << min(max(len(arrivals).bit_length(), 8), 18)
    matched = _Matched(
        left_as=np.full(len(arrivals), -1, np.int32),
        came_as=np.full(len(departures), -1, np.int32),
        reordered=np.zeros(len(arrivals), np.bool_),
        inversions=np.zeros(inputs, np.int64),
        last_of_flow=np.full(flows, -1, np.int32),
        # One more column is for packets whose output is unknown.
        last_of_pair=np.full((inputs, outputs + 1), -1, np.int32),
        newest=np.full(outputs, _NEVER, np.int64),
        slack=np.zeros(outputs, np.int64),
        extremes=np.array([0, len(arrivals)], np.int64),
    )
    _match(
        _Came(arrivals.stamp_ns, arriving, arrivals.flow, arrivals.port),
        _Left(departures.stamp_ns, leaving, departures.port),
        *(max_sojourn_ns, apart, tolerance_ns, size, matched),
    )
    return matched


def _settle(arrivals: Packets, departures: Packets, left_as: I32) -> None:
    """After clocks were estimated, moves the arrivals so that none leaves before it came."""
    left = left_as >= 0
    if left.any():
        delay = departures.stamp_ns[left_as[left]] - arrivals.stamp_ns[left]
        np.add(arrivals.stamp_ns, min(int(delay.min()), 0), out=arrivals.stamp_ns)


# --- verdicts


def _egress(
    arrivals: Packets,
    departures: Packets,
    left_as: I32,
    flows: Sequence[FlowKey],
    outputs: int,
) -> I8:
    """The output of each arrival: the one it left by, or its flow's, or its destination's."""
    if outputs == 1:
        return np.zeros(len(arrivals), np.int8)
    of_flow = np.full(len(flows), -1, np.int8)
    of_flow[departures.flow] = departures.port
    by_address = {
        flow.dst: int(port) for flow, port in zip(flows, of_flow.tolist(), strict=True) if port >= 0
    }
    for number, flow in enumerate(flows):
        if of_flow[number] < 0:
            of_flow[number] = by_address.get(flow.dst, -1)
    egress = of_flow[arrivals.flow]
    left = left_as >= 0
    egress[left] = departures.port[left_as[left]]
    return egress


def _judge(
    arrivals: Packets,
    departures: Packets,
    matched: _Matched,
    egress: I8,
    watched: Sequence[tuple[int, int]],
    options: JoinOptions,
    flows: int,
) -> tuple[I8, I8]:
    """Verdict and note of every arrival, by the rules under "Verdicts" in docs/join.md."""
    left_as = matched.left_as
    verdict = np.full(len(arrivals), Verdict.FORWARDED, np.int8)
    note = np.zeros(len(arrivals), np.int8)
    note[matched.reordered] = Note.REORDERED
    missing = np.flatnonzero(left_as < 0)
    if not missing.size:
        return verdict, note
    stamps = arrivals.stamp_ns[missing]
    longest, first_left = matched.extremes.tolist()
    # What left shows how long packets wait.
    patience = min(options.max_sojourn_ns, DEFAULT_MAX_SOJOURN_NS)
    if first_left < len(arrivals):
        patience = min(options.max_sojourn_ns, 2 * longest + 1_000_000)

    # Overtaken by a later packet of the same flow, of the same port if that is a FIFO, or of any.
    port, to = arrivals.port[missing], egress[missing]
    newest = np.append(matched.newest - matched.slack, _NEVER)
    overtaken = missing < matched.last_of_flow[arrivals.flow[missing]]
    if not options.apart:
        overtaken |= (matched.inversions[port] == 0) & (missing < matched.last_of_pair[port, to])
        overtaken |= stamps < newest[to]

    begins = np.array([first for first, _ in watched], np.int64)
    ends = np.array([last for _, last in watched], np.int64)
    if options.watched_ns is not None:
        begins = np.minimum(begins, options.watched_ns[0])
        ends = np.maximum(ends, options.watched_ns[1])
    # An unknown output (index -1) was watched while all outputs were.
    begins = np.append(begins, begins.max())
    ends = np.append(ends, ends.min())
    left_ns = departures.stamp_ns[:1001]
    gap = int(np.median(np.diff(left_ns))) if left_ns.size > 1 else 10**9
    some_left = first_left < len(arrivals)
    first_ns = int(arrivals.stamp_ns[first_left]) if some_left else int(begins[-1])
    before = (stamps < begins[to]) & (stamps < first_ns - LATE_START_GAPS * gap)
    dropped = ~before & (overtaken | (stamps + patience <= ends[to]))
    verdict[missing] = np.where(dropped, Verdict.DROPPED, Verdict.UNKNOWN)
    note[missing] = np.where(
        dropped, Note.NONE, np.where(before, Note.BEFORE_OUTPUT, Note.IN_FLIGHT)
    )
    return verdict, note


def _strays(departures: Packets, left_as: I32, came_as: I32, arriving: U64, leaving: U64) -> I8:
    """For each departure without an arrival, why it has none; -1 for all others."""
    stray = np.full(len(departures), -1, np.int8)
    alone = np.flatnonzero(came_as < 0)
    if not alone.size:
        return stray
    gone = np.unique(arriving[left_as >= 0])
    stray[alone] = np.where(np.isin(leaving[alone], gone), Stray.DUPLICATE, Stray.UNEXPLAINED)
    left = np.flatnonzero(came_as >= 0)
    # For each output: what left before the first packet that was seen coming in.
    for port in range(int(departures.port.max()) + 1):
        of_port = left[departures.port[left] == port]
        limit = of_port[0] if of_port.size else len(departures)
        here = alone[departures.port[alone] == port]
        stray[here[here < limit]] = Stray.EARLY
    return stray


def _late_ns(
    arrivals: Packets, departures: Packets, left_as: I32, stray: I8, arriving: U64, leaving: U64
) -> I64:
    """The waits of departures whose own arrival is too long ago; see `Sources.late_ns`."""
    alone = np.flatnonzero(stray == Stray.UNEXPLAINED)
    missing = np.flatnonzero(left_as < 0)
    if not alone.size or not missing.size:
        return np.empty(0, np.int64)
    order = missing[np.argsort(arriving[missing], kind="stable")]
    at = np.searchsorted(arriving[order], leaving[alone]).clip(max=order.size - 1)
    equal = arriving[order[at]] == leaving[alone]
    waits: I64 = departures.stamp_ns[alone[equal]] - arrivals.stamp_ns[order[at[equal]]]
    return waits[waits > 0]


def count(verdict: I8, note: I8, stray: I8) -> Counts:
    """Counts the packets that came in and that left by what became of them."""

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


def _check_conservation(counts: Counts, arrivals: int, departures: int) -> None:
    """Checks that every packet is accounted for once. A failure is a fault of this module."""
    came = counts.forwarded + counts.dropped + counts.in_flight + counts.before_output
    left = counts.forwarded + counts.early + counts.duplicates + counts.unexplained
    if came != arrivals or left != departures:
        raise AssertionError(f"the join lost packets: {counts}, {arrivals} in, {departures} out")
