"""All frames that an output sends, also those that take no part in the join: they share its queue.

Multicast, broadcast, other protocols, a router's own packets, and packets to other addresses than
`--to` leave by the output too. Each such frame is looked for at the other ports for its arrival
time. Frames without a match count as sent all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from outcast.analysis.capture.headers import INBOUND, OUTBOUND, FlowKey, Others
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.join import verdicts
from outcast.analysis.join.clocks import Clock
from outcast.analysis.join.directions import CAME, LEFT, Directions
from outcast.analysis.join.matching import NEVER, Limits, match
from outcast.analysis.join.packets import Packets
from outcast.analysis.join.verdicts import Stray, Verdict
from outcast.analysis.machine_code import I32, I64, U64, Array, Bool

if TYPE_CHECKING:
    from outcast.analysis.join.join import Joined

MOST_UNSEEN = 0.01
"""If the arrival of more of an output's bytes is unknown, its queue's content is unknown."""
NO_PORT = ""
"""The input of frames whose arrival no capture shows."""
NO_FLOW = FlowKey("", 0, "", 0, 0)
"""The flow of all frames that take no part."""


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames that take no part, by time; `place` is the index of their port."""

    place: I32
    stamp_ns: I64
    frame_bytes: I32
    identity: U64

    @classmethod
    def of(cls, part: Others, mine: Bool, place: int) -> Frames:
        rows = np.flatnonzero(mine)
        rows = rows[np.argsort(part.stamp_ns[rows], kind="stable")]
        places = np.full(rows.size, place, np.int32)
        return cls(places, part.stamp_ns[rows], part.frame_bytes[rows], part.identity[rows])

    def rows(self, rows: Array) -> Frames:
        return Frames(*(getattr(self, name)[rows] for name in Frames.__slots__))

    @staticmethod
    def merged(parts: Sequence[Frames], *, in_order: bool = True) -> Frames:
        """All frames, by time or one part behind the other."""
        both = Frames(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in Frames.__slots__)
        )
        return both.rows(np.argsort(both.stamp_ns, kind="stable")) if in_order else both


@dataclass(frozen=True, slots=True)
class Whole:
    """A join with every frame that left.

    Attributes:
        joined: the join, with the frames that take no part as packets of the last flow.
        own, own_left: the rows of the arrivals and of the departures that take part.
        bytes_share: for each output, the share of its bytes that takes no part.
        unseen_share: the share of bytes whose arrival is unknown.
        untold_share: the share of bytes that may have come in or left.
    """

    joined: Joined
    own: I64
    own_left: I64
    bytes_share: tuple[float, ...]
    unseen_share: tuple[float, ...]
    untold_share: tuple[float, ...]


def _apart(
    capture: PortCapture, clock: Clock, joins: Bool, by_checksum: bool
) -> tuple[Others, I32]:
    """The frames that take no part: first the decoded ones, of which it also returns the flows."""
    columns = capture.columns
    rows = np.flatnonzero(~joins[columns.flow]) if joins.size else np.empty(0, np.int64)
    macs = np.array(capture.macs or [0] * len(capture.flows), np.uint64)
    flow, identity = columns.flow[rows], columns.identity[rows]
    if by_checksum:
        identity = identity ^ columns.checksum[rows] * np.uint64(0x9E3779B97F4A7C15)
    stamps, sizes = clock.correct(columns.stamp_ns)[rows], columns.frame_bytes[rows]
    decoded = Others(stamps, sizes, identity, macs[flow], columns.marks[rows])
    rest = capture.others._replace(stamp_ns=clock.correct(capture.others.stamp_ns))
    both: Iterator[tuple[Array, Array]] = zip(decoded, rest, strict=True)
    return Others(*cast(Any, map(np.concatenate, both))), flow


def others_of(
    captures: Sequence[PortCapture],
    outputs: Sequence[int],
    directions: Directions | None,
    given: Sequence[int | None],
    sides: tuple[Sequence[Bool | None], Sequence[Bool | None]],
    clocks: Sequence[Clock],
    by_checksum: bool,
) -> tuple[list[Frames], list[Frames], list[Frames]] | None:
    """The frames of each capture that take no part: those that came in, that left, and others.

    `given` is the direction of all packets of a capture, if known. `sides` are the flows that come
    in and that leave there, and take part. None if no other frames left by the outputs. With
    `by_checksum`, a checksum is part of the identity.
    """
    joins = []
    for capture, came, left in zip(captures, *sides, strict=True):
        joins.append(np.zeros(len(capture.flows), np.bool_))
        for side in (came, left):
            joins[-1] |= False if side is None else side
    if not any(_may_send(index, captures[index], directions, joins[index]) for index in outputs):
        return None
    apart = [_apart(*each, by_checksum) for each in zip(captures, clocks, joins, strict=True)]
    frames, flows = [frames for frames, _ in apart], [flows for _, flows in apart]
    ports = [capture.port for capture in captures]
    ways = [
        _ways(index, capture, directions, given[index], frames, flows[index], ports)
        for index, capture in enumerate(captures)
    ]
    of_came, of_left, untold = (
        [Frames.of(part, ways[index] == way, index) for index, part in enumerate(frames)]
        for way in (CAME, LEFT, -1)
    )
    return of_came, of_left, untold


def _may_send(index: int, capture: PortCapture, directions: Directions | None, joins: Bool) -> bool:
    """Whether an output may have sent frames that take no part."""
    if capture.others.stamp_ns.size:
        return True
    rest = ~joins
    if directions is not None:
        rest &= (directions.ways[index] != CAME) & (directions.counts[index] > 0)
    return bool(rest.any() and rest[capture.columns.flow].any())


def _ways(
    index: int,
    capture: PortCapture,
    directions: Directions | None,
    given: int | None,
    frames: Sequence[Others],
    flows: I32,
    ports: Sequence[str],
) -> Array:
    """The direction of each frame that takes no part, by the sender's address or the capture."""
    mine = frames[index]
    if directions is None or ports.count(capture.port) > 1:
        return np.full(mine.mac.size, -1 if given is None else given, np.int8)
    home = ports.index(capture.port)
    of_flow = directions.ways[index].copy()
    by_mac: dict[int, int] = {}
    for row, flow in enumerate(capture.flows):
        places = directions.places.get(flow.src)
        if of_flow[row] not in (CAME, LEFT):
            of_flow[row] = -1 if places is None else CAME if home in places else LEFT
        if of_flow[row] >= 0 and row < len(capture.macs) and capture.macs[row]:
            by_mac.setdefault(capture.macs[row], int(of_flow[row]))
    ways = np.full(mine.mac.size, -1, np.int8)
    ways[: flows.size] = of_flow[flows]
    ways[(ways < 0) & ((mine.marks & INBOUND) != 0)] = CAME
    ways[(ways < 0) & ((mine.marks & OUTBOUND) != 0)] = LEFT
    if given is not None and directions.packets(index, LEFT if given == CAME else CAME):
        given = None
    unsure = np.flatnonzero(ways < 0)
    elsewhere = [part for other, part in enumerate(frames) if other != index]
    for address in np.unique(mine.mac[unsure]).tolist():
        rows = unsure[mine.mac[unsure] == address]
        if address and address in by_mac:
            ways[rows] = by_mac[address]
        elif given is not None:
            ways[rows] = given
        else:
            ways[rows] = _by_the_others(mine.stamp_ns[rows], mine.identity[rows], elsewhere)
    return ways


def _by_the_others(stamps: I64, identities: U64, elsewhere: Sequence[Others]) -> int:
    """The direction of a sender's frames: they left if one other capture had them before.

    If several captures have them, they were flooded, perhaps from a port that was not captured.
    Returns -1 if no other capture has any.
    """
    wanted, rows = np.unique(identities[identities != 0], return_index=True)
    stamps = stamps[identities != 0][rows]
    seen = np.zeros(len(elsewhere), np.int64)
    before = 0
    for other, part in enumerate(elsewhere):
        there = np.isin(part.identity, wanted)
        names, first = np.unique(part.identity[there], return_index=True)
        seen[other] = names.size
        first_ns = part.stamp_ns[there][first]
        before += int((first_ns < stamps[np.searchsorted(wanted, names)]).sum())
    if not seen.any():
        return -1
    if (seen > 0).sum() > 1:
        return LEFT
    return LEFT if 2 * before > int(seen.sum()) else CAME


def whole(
    joined: Joined,
    ports: Sequence[str],
    outputs: Sequence[int],
    others: tuple[Sequence[Frames], Sequence[Frames], Sequence[Frames]],
    identities: tuple[U64, U64],
    limits: Limits,
    moved_ns: int,
) -> Whole | None:
    """The join with all frames that left; None if no others did.

    `outputs` are the places of the outputs among all `ports`, `identities` those of the arrivals
    and departures of `joined`. Its arrivals were moved by `moved_ns`.
    """
    came, left, untold = others
    if not any(side[place].stamp_ns.size for side in (left, untold) for place in outputs):
        return None
    # Frames may have come from any port.
    inputs = [*joined.inputs, *(name for name in ports if name not in joined.inputs), NO_PORT]
    arriving, leaving, left_as = [], [], []
    begin = 0
    for output, place in enumerate(outputs):
        gone = left[place]
        there = Frames.merged(
            [
                replace(
                    part,
                    place=np.full_like(part.place, inputs.index(ports[index])),
                    stamp_ns=part.stamp_ns + moved_ns,
                )
                for index, part in enumerate(came)
                if ports[index] != ports[place]
            ]
            or [gone.rows(np.empty(0, np.int64))]
        )
        mine = np.flatnonzero(joined.departures.port == output)
        own = (
            (joined.arrivals, identities[0]),
            (joined.departures.rows(mine, port=0), identities[1][mine]),
        )
        there, rows = _find(there, gone, own, len(inputs), limits)
        known_ns = np.append(joined.arrivals.stamp_ns, NEVER)[joined.came_as[mine]]
        there, rows = _with_unseen(
            there, gone, rows, (own[1][0].stamp_ns, known_ns), len(inputs) - 1
        )
        arriving.append(_packets(there, len(joined.flows), there.place))
        leaving.append(_packets(gone, len(joined.flows), output))
        left_as.append(rows + begin)
        begin += gone.place.size
    more = _joined_up(arriving), _joined_up(leaving)
    found = _merged(joined, inputs, *more, np.concatenate(left_as))
    sent = found.joined.departures
    shares = []
    for output, place in enumerate(outputs):
        unsure = int(untold[place].frame_bytes.sum())
        sure = int(sent.frame_bytes[sent.port == output].sum())
        shares.append(unsure / max(unsure + sure, 1))
    return replace(found, untold_share=tuple(shares))


def _find(
    came: Frames,
    left: Frames,
    own: tuple[tuple[Packets, U64], tuple[Packets, U64]],
    inputs: int,
    limits: Limits,
) -> tuple[Frames, Array]:
    """The frames that came in and left by an output, and the row in `left` of each.

    `own` are the arrivals, and the departures by this output, that take part. The order of frames
    is that of these.
    """
    wanted = np.isin(came.identity, left.identity) & (came.identity != 0)
    came = came.rows(np.flatnonzero(wanted))
    names, flow = np.unique(np.concatenate([came.identity, left.identity]), return_inverse=True)
    flows = 1 + max((int(side.flow.max(initial=-1)) for side, _ in own))
    sides: list[tuple[Packets, U64]] = []
    places: list[I64] = []
    for (packets, identities), frames, of_flow, port in (
        (own[0], came, flow[: came.place.size], came.place),
        (own[1], left, flow[came.place.size :], 0),
    ):
        merged, *at = _interleaved(packets, _packets(frames, of_flow + flows, port))
        both = np.empty(len(merged), np.uint64)
        both[at[0]], both[at[1]] = identities, frames.identity
        sides.append((merged, both))
        places.append(at[1])
    sizes = flows + names.size, inputs, 1
    left_as = match(sides[0], sides[1], sizes, limits).order.left_as[places[0]]
    rows = np.flatnonzero(left_as >= 0)
    found, gone = came.rows(rows), np.searchsorted(places[1], left_as[rows])
    return replace(found, stamp_ns=np.minimum(found.stamp_ns, left.stamp_ns[gone])), gone


def _with_unseen(
    came: Frames, left: Frames, left_as: Array, own_ns: tuple[I64, I64], place: int
) -> tuple[Frames, Array]:
    """Adds frames whose arrival is unknown. In a FIFO it is no later than that of the next frame.

    A frame that left first was queued when the capture began. `own_ns` are the departure times of
    packets that take part, and their arrival times or NEVER.
    """
    came_ns = np.full(left.place.size, NEVER, np.int64)
    came_ns[left_as] = came.stamp_ns
    left_ns = np.concatenate([own_ns[0], left.stamp_ns])
    order = np.argsort(left_ns, kind="stable")
    known_ns = np.concatenate([own_ns[1], came_ns])[order]
    is_known = known_ns != NEVER
    latest_ns = np.where(is_known, known_ns, left_ns[order])
    latest_ns = np.minimum.accumulate(latest_ns[::-1])[::-1]
    guessed_ns = np.empty_like(latest_ns)
    guessed_ns[order] = np.where(~is_known & np.logical_or.accumulate(is_known), latest_ns, NEVER)
    guessed_ns = guessed_ns[own_ns[0].size :]
    rows = np.flatnonzero(guessed_ns != NEVER)
    unseen = replace(left.rows(rows), place=np.full(rows.size, place, np.int32))
    both = Frames.merged([came, replace(unseen, stamp_ns=guessed_ns[rows])], in_order=False)
    return both, np.concatenate([left_as, rows])


def _packets(frames: Frames, flow: Array | int, port: Array | int) -> Packets:
    packets = Packets.empty(frames.place.size)
    for name in Packets.__slots__:
        getattr(packets, name)[:] = 0
    packets.stamp_ns[:], packets.frame_bytes[:] = frames.stamp_ns, frames.frame_bytes
    packets.flow[:], packets.port[:] = flow, port
    return packets


def _joined_up(parts: Sequence[Packets]) -> Packets:
    columns = (
        np.concatenate([getattr(part, name) for part in parts]) for name in Packets.__slots__
    )
    return Packets(*columns)


def _merged(
    joined: Joined, inputs: list[str], came: Packets, gone: Packets, left_as: Array
) -> Whole:
    """Puts frames that take no part between the packets of a join, by time."""
    egress = gone.port[left_as]
    arrivals, own_came, other_came = _interleaved(joined.arrivals, came)
    departures, own_gone, other_gone = _interleaved(joined.departures, gone)
    as_departure = np.full(len(arrivals), -1, np.int32)
    forwarded = np.flatnonzero(joined.left_as >= 0)
    as_departure[own_came[forwarded]] = own_gone[joined.left_as[forwarded]]
    as_departure[other_came] = other_gone[left_as]
    as_arrival = np.full(len(departures), -1, np.int32)
    forwarded = np.flatnonzero(as_departure >= 0)
    as_arrival[as_departure[forwarded]] = forwarded
    sides: dict[str, Any] = {}
    for name, value in (("verdict", Verdict.FORWARDED), ("note", 0), ("egress", egress)):
        sides[name] = np.zeros(len(arrivals), np.int8)
        sides[name][own_came], sides[name][other_came] = getattr(joined, name), value
    stray = np.full(len(departures), -1, np.int8)
    stray[own_gone] = joined.stray
    alone = other_gone[as_arrival[other_gone] < 0]
    stray[alone] = Stray.EARLY
    is_other, is_unseen = np.zeros((2, len(departures)), np.bool_)
    is_other[other_gone] = True
    is_unseen[other_gone[left_as]] = came.port == inputs.index(NO_PORT)

    def share(mine: Bool) -> tuple[float, ...]:
        outputs = len(joined.outputs)
        sent, part = (
            np.bincount(departures.port, departures.frame_bytes * counts, outputs)
            for counts in (True, mine)
        )
        return tuple((part / sent.clip(min=1)).tolist())

    extended = replace(
        joined,
        inputs=tuple(inputs),
        flows=(*joined.flows, NO_FLOW),
        arrivals=arrivals,
        departures=departures,
        left_as=as_departure,
        came_as=as_arrival,
        stray=stray,
        fifo=(*joined.fifo, *(True for _ in inputs[len(joined.fifo) :])),
        counts=verdicts.count(sides["verdict"], sides["note"], stray),
        **sides,
    )
    return Whole(extended, own_came, own_gone, share(is_other), share(is_unseen), ())


def _interleaved(own: Packets, more: Packets) -> tuple[Packets, I64, I64]:
    """Both by time, and the rows of each."""
    both = _joined_up((own, more))
    order = np.argsort(both.stamp_ns, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    columns = (getattr(both, name)[order] for name in Packets.__slots__)
    return Packets(*columns), place[: len(own)], place[len(own) :]


def unseen_at_once(full: Joined, output: int, *, in_bytes: bool) -> int:
    """The most bytes or packets of unknown arrival that waited at once.

    Each left within the longest sojourn time seen at the output. `full` has all frames that left.
    """
    departures, came_as = full.departures, full.came_as
    rows = np.flatnonzero(departures.port == output)
    known = rows[came_as[rows] >= 0]
    waits_ns = departures.stamp_ns[known] - full.arrivals.stamp_ns[came_as[known]]
    is_unseen = full.stray[rows] == Stray.UNEXPLAINED
    if NO_PORT in full.inputs:
        is_unseen |= (came_as[rows] >= 0) & (
            full.arrivals.port[came_as[rows]] == full.inputs.index(NO_PORT)
        )
    unseen = rows[is_unseen]
    times_ns, sizes = departures.stamp_ns[unseen], departures.frame_bytes[unseen].astype(np.int64)
    sums = np.append(0, np.cumsum(sizes if in_bytes else np.ones_like(sizes)))
    before = np.searchsorted(times_ns, times_ns - waits_ns.max(initial=0))
    return int((sums[1:] - sums[before]).max(initial=0))
