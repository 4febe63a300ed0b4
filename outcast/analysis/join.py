"""The join: which packet came in where and when, and whether and when it left.

The captures of a switch's ports are matched packet by packet (the method of section 4.1 of the
TCP outcast paper). The rules are stated in docs/join.md; the ones that decide are

1. Identity: addresses, ports, protocol, IP id, sequence and acknowledgement number, flags and
   payload length; TTL, checksum and TCP time stamp where the captures agree on them.
2. Causality: a packet leaves after it came in, and within `max_sojourn_ns`.
3. Order: of equal packets, the first one that came in after whatever of the same port (in a FIFO
   queue) or flow (in any queue) has left already; failing that, the first one.
4. A packet that never left was dropped if one that came in later left by the same output (later
   by more than the switch is seen to reorder), or if the output was watched long enough after it;
   otherwise it is unknown: in flight at the end, or come in before the output was watched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from outcast.analysis.compiled import I8, I32, I64, U64, Array, Bool, Scalar, compiled
from outcast.analysis.headers import HAS_TIMESTAMP, Columns, FlowKey
from outcast.analysis.pcap import PortCapture
from outcast.errors import InputError

DEFAULT_MAX_SOJOURN_NS = 1_000_000_000

LATE_START_GAPS = 8
"""Where nothing that came in leaves for so many packet times, the output was not watched yet: no
queue that drains meanwhile refuses everything."""

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
    """Why a packet that left has no packet that came in."""

    EARLY = 0
    """It left before anything that came in did: it was in the queue when the capture began."""
    DUPLICATE = 1
    """An equal packet that came in had left already."""
    UNEXPLAINED = 2


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """What the join may assume.

    Attributes:
        max_sojourn_ns: no packet stays in the switch for longer.
        routed: the TTL may differ between input and output (a routed hop).
        watched_ns: the span, on the output's clock, over which the outputs are known to have been
            captured; the span of their packets counts in any case.
    """

    max_sojourn_ns: int = DEFAULT_MAX_SOJOURN_NS
    routed: bool = False
    watched_ns: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Packets:
    """Packets of several captures in the order of their stamps; arrays of one length each.

    Attributes:
        port: index of the capture each one is from.
        flow: index of the join's flows.
    """

    port: I8
    flow: I32
    columns: Columns

    def __len__(self) -> int:
        return self.port.size


@dataclass(frozen=True, slots=True)
class Counts:
    """The books of a join. `entered` = forwarded + dropped + in_flight + before_output, and
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


@dataclass(frozen=True, slots=True)
class Joined:
    """The result of a join.

    Attributes:
        inputs, outputs: the ports' names, by index.
        flows: every flow of the packets that take part.
        arrivals: the packets that came in, merged over the inputs.
        departures: the packets that left, merged over the outputs.
        left_as: for each arrival the departure it became, or -1.
        came_as: for each departure the arrival it was, or -1.
        verdict, note: for each arrival, of Verdict and Note.
        egress: for each arrival the output it left by or, if dropped, was to leave by; -1 where
            that is not known.
        stray: for each departure without an arrival its Stray; -1 for all others.
        fifo: whether each input's packets left in the order they came.
        identity: the optional parts of the identity that were used.
        counts: the totals.
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
    warnings: tuple[str, ...] = field(default=())

    @property
    def t_out_ns(self) -> I64:
        """When each arrival left; -1 where it did not."""
        out = np.full(len(self.arrivals), -1, np.int64)
        left = self.left_as >= 0
        out[left] = self.departures.columns.stamp_ns[self.left_as[left]]
        return out


def join(
    inputs: Sequence[PortCapture],
    outputs: Sequence[PortCapture],
    options: JoinOptions | None = None,
) -> Joined:
    """Matches what came in at `inputs` with what left by `outputs`.

    Only packets whose destination address is seen at an output take part, so the captures may
    hold other traffic too. Raises InputError where nothing can be joined.
    """
    options = options or JoinOptions()
    _require_ports(inputs, outputs)
    flows, rows = _unify(inputs, outputs)
    arrivals = _merge(inputs, rows[: len(inputs)])
    departures = _merge(outputs, rows[len(inputs) :])
    served = _destinations_of(departures, flows)
    arrivals = _keep(arrivals, served[arrivals.flow])
    if not len(departures):
        names = ", ".join(str(capture.path) for capture in outputs)
        raise InputError(f"{names}: no IP packets; nothing left by the output")
    parts = _identity_parts(arrivals, departures, options)
    matched = _run_match(
        arrivals,
        departures,
        parts,
        len(flows),
        len(inputs),
        len(outputs),
        options.max_sojourn_ns,
    )
    left_as, came_as = matched.left_as, matched.came_as
    egress = _egress(arrivals, departures, left_as, flows, len(outputs))
    verdict, note = _judge(arrivals, departures, matched, egress, outputs, options, len(flows))
    stray = _strays(arrivals, departures, left_as, came_as, _identities(arrivals, parts), parts)
    counts = _count(verdict, note, stray)
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
    )


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


def _unify(
    inputs: Sequence[PortCapture], outputs: Sequence[PortCapture]
) -> tuple[tuple[FlowKey, ...], list[I32]]:
    """One numbering of the flows of all captures, and each capture's rows in it."""
    numbers: dict[FlowKey, int] = {}
    rows = []
    for capture in (*inputs, *outputs):
        row = [numbers.setdefault(flow, len(numbers)) for flow in capture.flows]
        rows.append(np.array(row, np.int32))
    return tuple(numbers), rows


def _merge(captures: Sequence[PortCapture], rows: Sequence[I32]) -> Packets:
    """The captures' packets in one order of time; ties by capture, then by place in the file."""
    port = np.repeat(
        np.arange(len(captures), dtype=np.int8),
        [capture.columns.stamp_ns.size for capture in captures],
    )
    flow = [
        row[capture.columns.flow] if row.size else np.empty(0, np.int32)
        for capture, row in zip(captures, rows, strict=True)
    ]
    if len(captures) == 1:
        merged = Packets(port, flow[0], captures[0].columns)
    else:
        merged = Packets(
            port,
            np.concatenate(flow),
            Columns.of(map(np.concatenate, zip(*(c.columns for c in captures), strict=True))),
        )
    stamps = merged.columns.stamp_ns
    if (stamps[1:] < stamps[:-1]).any():
        return _take(merged, np.argsort(stamps, kind="stable"))
    return merged


def _take(packets: Packets, index: Array) -> Packets:
    return Packets(
        packets.port[index],
        packets.flow[index],
        Columns.of(column[index] for column in packets.columns),
    )


def _keep(packets: Packets, wanted: Bool) -> Packets:
    return packets if wanted.all() else _take(packets, wanted)


def _destinations_of(departures: Packets, flows: Sequence[FlowKey]) -> Bool:
    """For each flow, whether its destination is one that packets leave for."""
    present = np.zeros(len(flows), np.bool_)
    present[departures.flow] = True
    addresses = {flow.dst for flow, here in zip(flows, present.tolist(), strict=True) if here}
    return np.array([flow.dst in addresses for flow in flows], np.bool_)


# --- identity


_PARTS = ("ttl", "checksum", "timestamp")
_SAMPLE = 20_000


def _part(columns: Columns, name: str, index: Array | slice) -> Array:
    if name == "ttl":
        return columns.ttl[index].astype(np.uint64)
    if name == "checksum":
        return columns.checksum[index].astype(np.uint64)
    stamp = columns.tsval[index].astype(np.uint64) << np.uint64(32)
    stamp |= columns.tsecr[index].astype(np.uint64)
    return stamp + (columns.marks[index] & HAS_TIMESTAMP)


def _sample_pairs(arrivals: Packets, departures: Packets) -> tuple[Array, Array]:
    """Rows of packets that came in and left, of a sample whose identities are unique there.

    Both sides are thinned by the same bits of the identity, so pairs stay together.
    """
    size = min(len(arrivals), len(departures))
    mask = np.uint64((1 << max(0, (size // _SAMPLE).bit_length() - 1)) - 1)
    sides = []
    for packets in (arrivals, departures):
        rows = np.flatnonzero((packets.columns.identity & mask) == 0)
        keys, first, count = np.unique(
            packets.columns.identity[rows], return_index=True, return_counts=True
        )
        sides.append((keys[count == 1], rows[first[count == 1]]))
    _, left, right = np.intersect1d(
        sides[0][0], sides[1][0], assume_unique=True, return_indices=True
    )
    return sides[0][1][left], sides[1][1][right]


def _identity_parts(
    arrivals: Packets, departures: Packets, options: JoinOptions
) -> tuple[str, ...]:
    """The optional parts of the identity on which nearly all pairs of a sample agree."""
    came, left = _sample_pairs(arrivals, departures)
    if not came.size:
        return ()
    parts = []
    for name in _PARTS:
        agree = _part(arrivals.columns, name, came) == _part(departures.columns, name, left)
        share = float(agree.mean())
        if name == "ttl" and share < 0.99:
            if not options.routed:
                fall = arrivals.columns.ttl[came].astype(int) - departures.columns.ttl[left]
                raise InputError(
                    f"packets leave with another TTL than they came in with (lower by "
                    f"{int(np.median(fall))} in the middle); if the hop routes, say --routed"
                )
            continue
        if share >= 0.99:
            parts.append(name)
    return tuple(parts)


@compiled
def _fold(identity: U64, part: U64) -> None:
    for i in range(identity.size):
        h: Scalar = identity[i] ^ (part[i] * np.uint64(0x9E3779B97F4A7C15))
        h ^= h >> np.uint64(32)
        h *= np.uint64(0xD6E8FEB86659FD93)
        identity[i] = h ^ (h >> np.uint64(32))


def _identities(packets: Packets, parts: Sequence[str]) -> U64:
    identity = packets.columns.identity.copy()
    for name in parts:
        _fold(identity, _part(packets.columns, name, slice(None)))
    return identity


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
    heads: I32,
    tails: I32,
    following: I32,
    last_of_flow: I32,
    last_of_port: I32,
    inversions: I64,
    newest: I64,
    slack: I64,
    left_as: I32,
    came_as: I32,
    reordered: Bool,
) -> None:
    """Walks both sides in the order of time.

    Arrivals that have not left are kept in a hash table of chains, each in order of arrival.
    `newest` becomes the latest stamp of what has left by each output, `slack` how far behind it
    came in what left later.
    """
    mask = np.uint64(heads.size - 1)
    arrived = 0
    expired = 0
    for out in range(out_stamp.size):
        now = out_stamp[out]
        while arrived < in_stamp.size and in_stamp[arrived] <= now:
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
                in_order = at > last_of_flow[in_flow[at]] and (
                    inversions[in_port[at]] > 0 or at > last_of_port[in_port[at]]
                )
                if in_order:
                    chosen = at
                    break
            at = following[at]
        if chosen < 0:
            chosen = first
        if chosen < 0:
            continue
        # Equal packets passed over came in before something that has left: they were dropped.
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
        if chosen < last_of_port[port]:
            inversions[port] += 1
        else:
            last_of_port[port] = chosen
        output = out_port[out]
        slack[output] = max(slack[output], newest[output] - in_stamp[chosen])
        newest[output] = max(newest[output], in_stamp[chosen])


@dataclass(frozen=True, slots=True)
class _Matched:
    """What the walk found; `newest` and `slack` as in `_match`, per output."""

    left_as: I32
    came_as: I32
    reordered: Bool
    inversions: I64
    newest: I64
    slack: I64


def _run_match(
    arrivals: Packets,
    departures: Packets,
    parts: Sequence[str],
    flows: int,
    inputs: int,
    outputs: int,
    max_sojourn_ns: int,
) -> _Matched:
    size = 1 << min(max(len(arrivals).bit_length(), 8), 18)
    matched = _Matched(
        left_as=np.full(len(arrivals), -1, np.int32),
        came_as=np.full(len(departures), -1, np.int32),
        reordered=np.zeros(len(arrivals), np.bool_),
        inversions=np.zeros(inputs, np.int64),
        newest=np.full(outputs, _NEVER, np.int64),
        slack=np.zeros(outputs, np.int64),
    )
    _match(
        arrivals.columns.stamp_ns,
        _identities(arrivals, parts),
        arrivals.flow,
        arrivals.port,
        departures.columns.stamp_ns,
        _identities(departures, parts),
        departures.port,
        max_sojourn_ns,
        np.full(size, -1, np.int32),
        np.full(size, -1, np.int32),
        np.empty(len(arrivals), np.int32),
        np.full(flows, -1, np.int32),
        np.full(inputs, -1, np.int32),
        matched.inversions,
        matched.newest,
        matched.slack,
        matched.left_as,
        matched.came_as,
        matched.reordered,
    )
    return matched


# --- verdicts


def _egress(
    arrivals: Packets,
    departures: Packets,
    left_as: I32,
    flows: Sequence[FlowKey],
    outputs: int,
) -> I8:
    """The output of each arrival: where it left, or where its flow or destination does."""
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
    outputs: Sequence[PortCapture],
    options: JoinOptions,
    flows: int,
) -> tuple[I8, I8]:
    """Verdict and note of every arrival (rule 4)."""
    left_as = matched.left_as
    verdict = np.full(len(arrivals), Verdict.FORWARDED, np.int8)
    note = np.where(matched.reordered, Note.REORDERED, Note.NONE).astype(np.int8)
    missing = np.flatnonzero(left_as < 0)
    if not missing.size:
        return verdict, note
    left = np.flatnonzero(left_as >= 0)
    stamps = arrivals.columns.stamp_ns
    out_stamps = departures.columns.stamp_ns
    patience = options.max_sojourn_ns
    if left.size:
        sojourn = out_stamps[left_as[left]] - stamps[left]
        patience = min(patience, 2 * int(sojourn.max()) + 1_000_000)

    # Overtaken by a later one of the same flow, of the same port if that is a FIFO, or of any.
    port, to = arrivals.port[missing], egress[missing]
    last_of_flow = np.full(flows, -1, np.int64)
    last_of_flow[arrivals.flow[left]] = left
    last_of_pair = np.full((matched.inversions.size, len(outputs) + 1), -1, np.int64)
    last_of_pair[arrivals.port[left], egress[left]] = left
    newest = np.append(matched.newest - matched.slack, _NEVER)
    overtaken = missing < last_of_flow[arrivals.flow[missing]]
    overtaken |= (matched.inversions[port] == 0) & (missing < last_of_pair[port, to])
    overtaken |= stamps[missing] < newest[to]

    begins = np.array([capture.first_ns or 0 for capture in outputs], np.int64)
    ends = np.array([capture.last_ns or 0 for capture in outputs], np.int64)
    if options.watched_ns is not None:
        begins = np.minimum(begins, options.watched_ns[0])
        ends = np.maximum(ends, options.watched_ns[1])
    # An output that is not known (index -1) was watched while all of them were.
    begins = np.append(begins, begins.max())
    ends = np.append(ends, ends.min())
    first = int(stamps[left[0]]) if left.size else int(begins[-1])
    gap = int(np.median(np.diff(out_stamps[:1001]))) if out_stamps.size > 1 else 10**9
    before = (stamps[missing] < begins[to]) & (stamps[missing] < first - LATE_START_GAPS * gap)
    dropped = ~before & (overtaken | (stamps[missing] + patience <= ends[to]))
    verdict[missing] = np.where(dropped, Verdict.DROPPED, Verdict.UNKNOWN)
    note[missing] = np.where(
        dropped, Note.NONE, np.where(before, Note.BEFORE_OUTPUT, Note.IN_FLIGHT)
    )
    return verdict, note


def _strays(
    arrivals: Packets,
    departures: Packets,
    left_as: I32,
    came_as: I32,
    arrived: U64,
    parts: Sequence[str],
) -> I8:
    """Why departures have no arrival."""
    stray = np.full(len(departures), -1, np.int8)
    alone = np.flatnonzero(came_as < 0)
    if not alone.size:
        return stray
    stray[alone] = Stray.UNEXPLAINED
    left = np.flatnonzero(came_as >= 0)
    # Per output: what left before the first packet that was seen coming in.
    for port in range(int(departures.port.max()) + 1):
        of_port = left[departures.port[left] == port]
        limit = of_port[0] if of_port.size else len(departures)
        here = alone[departures.port[alone] == port]
        stray[here[here < limit]] = Stray.EARLY
    gone = np.unique(arrived[left_as >= 0])
    leaving = _identities(departures, parts)[alone]
    stray[alone[np.isin(leaving, gone)]] = Stray.DUPLICATE
    return stray


def _count(verdict: I8, note: I8, stray: I8) -> Counts:
    def count(values: I8, wanted: int) -> int:
        return int((values == wanted).sum())

    return Counts(
        entered=verdict.size,
        forwarded=count(verdict, Verdict.FORWARDED),
        dropped=count(verdict, Verdict.DROPPED),
        in_flight=count(note, Note.IN_FLIGHT),
        before_output=count(note, Note.BEFORE_OUTPUT),
        reordered=count(note, Note.REORDERED),
        left=stray.size,
        early=count(stray, Stray.EARLY),
        duplicates=count(stray, Stray.DUPLICATE),
        unexplained=count(stray, Stray.UNEXPLAINED),
    )


def _check_conservation(counts: Counts, arrivals: int, departures: int) -> None:
    """Every packet is accounted for once; a failure is a fault of this module."""
    came = counts.forwarded + counts.dropped + counts.in_flight + counts.before_output
    left = counts.forwarded + counts.early + counts.duplicates + counts.unexplained
    if came != arrivals or left != departures:
        raise AssertionError(f"the join lost packets: {counts}, {arrivals} in, {departures} out")
