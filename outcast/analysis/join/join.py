"""The join: which packet came in where and when, and whether and when it left.

The captures of a switch's ports are matched packet by packet (the method of section 4.1 of the
TCP outcast paper). docs/join.md states the rules. These decide:

1. Identity: addresses, ports, protocol, IP id, sequence and acknowledgement number, flags and
   payload length have to agree. So do TTL, checksum and TCP time stamp, if the captures agree on
   them.
2. Causality: a packet leaves after it came in, and within `max_sojourn_ns`.
3. Order: of equal packets, the match is the first that came in after all packets that have left
   already: those of its flow, of its port (if that is a FIFO), and of any port (by more than the
   switch is seen to reorder). If there is none, the match is the first. In a queue with classes,
   only the order within a flow counts, here and in rule 4.
4. A packet that never left was dropped if a later arrival left by the same output (later by more
   than the switch is seen to reorder), or if the output was watched long enough after it.
   Otherwise its fate is unknown: it was in flight at the end, or it came in before the output was
   watched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from outcast.analysis.capture.headers import Columns, FlowKey
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.join import same_flows, verdicts
from outcast.analysis.join.clocks import RIGHT, Clock, Clocks, estimate
from outcast.analysis.join.directions import (
    ASIDE,
    CAME,
    LEFT,
    UNKNOWN,
    Directions,
    Hop,
    find_directions,
    goes_to,
    set_own_aside,
    taking_part,
)
from outcast.analysis.join.matching import Limits, Matched, match, match_changed
from outcast.analysis.join.packets import (
    PARTS,
    Crossing,
    Packets,
    Side,
    crossings,
    merge,
    number_flows,
    part_of,
    sample,
)
from outcast.analysis.join.service import MOST_UNSEEN, Whole, others_of, whole
from outcast.analysis.join.verdicts import (
    DEFAULT_MAX_SOJOURN_NS,
    Counts,
    Note,
    Stray,
    Verdict,
    count,
)
from outcast.analysis.machine_code import I8, I32, I64, Bool, compiled
from outcast.errors import InputError

__all__ = [
    "DEFAULT_MAX_SOJOURN_NS",
    "Counts",
    "JoinOptions",
    "Joined",
    "Note",
    "Sources",
    "Stray",
    "Verdict",
    "count",
    "join",
]

CLOCK_TOLERANCE_NS = 1_000_000
"""If clocks are estimated, a packet may seem to leave this much before it came in."""


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """What the join may assume.

    Attributes:
        max_sojourn_ns: no packet stays in the switch for longer.
        routed: the switch routes, so the TTL may differ between input and output.
        one_clock: one clock stamped all captures, so no clock is corrected.
        one_way: inputs hold only arrivals, and outputs only departures. Otherwise a capture may
            hold both directions, and be an input and an output; packets show which is which.
        destinations: only packets to these addresses take part; empty takes all.
        release: empty the columns of the captures once they are copied, to save memory.
        watched_ns: a span, on the output's clock, in which the outputs were captured. The span of
            their packets counts in any case.
        checksums: whether checksums may identify packets. With offloads a switch may complete
            the checksum of a packet on its way, as Open vSwitch does on its kernel's request.
        apart: whether packets pass those of other flows, as in a queue with classes.
        may_be_empty: whether outputs without packets are allowed.
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


@compiled
def _stamps_of(stamps: I64, rows: I32, to: I64) -> None:
    for i in range(rows.size):
        to[i] = stamps[rows[i]] if rows[i] >= 0 else -1


@dataclass(frozen=True, slots=True)
class Sources:
    """What a join found out about its captures, each of which is listed once.

    Attributes:
        came, left: for each capture and each of its flows, whether its packets count as arrivals,
            and as departures; None if the capture is no input, or no output.
        directions: the way of each flow; None if each capture was known to have one direction.
        clocks: the captures' clocks; None if one clock stamped all.
        notes: a line on flows that were joined by a looser identity, and on packets that the router
            itself sent.
        differing: a line on flows that are ambiguous.
        impossible_ns: for each departure without an arrival, the time since an equal packet came
            in that did not leave: below 0, or longer than `max_sojourn_ns`.
        alike: the rows of arrivals that did not leave and are equal to one that left before them.
    """

    ports: tuple[str, ...]
    came: tuple[Bool | None, ...]
    left: tuple[Bool | None, ...]
    directions: Directions | None
    clocks: Clocks | None
    notes: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    impossible_ns: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    alike: I64 = field(default_factory=lambda: np.empty(0, np.int64))

    def away(self, index: int) -> Bool:
        """The flows that came in at a capture and take no part; the directions are known."""
        assert self.directions is not None
        came = self.came[index]
        away: Bool = self.directions.ways[index] == CAME
        return away if came is None else away & ~came


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
        whole: the join with the frames that left and take no part; None if there are none.
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
    whole: Whole | None = None

    @property
    def all_left(self) -> Joined:
        """The join with all frames that left."""
        return self if self.whole is None else self.whole.joined

    def shows_content(self, output: int) -> bool:
        """Whether the arrival times of nearly all bytes that an output sent are known."""
        return self.unknown_share(output) <= MOST_UNSEEN

    def unknown_share(self, output: int) -> float:
        """The share of an output's bytes whose arrival no capture shows."""
        whole = self.whole
        return 0.0 if whole is None else whole.unseen_share[output] + whole.untold_share[output]

    def shows_service(self, output: int) -> bool:
        """Whether nearly all bytes that an output sent are known."""
        return self.whole is None or self.whole.untold_share[output] <= MOST_UNSEEN

    @property
    def t_out_ns(self) -> I64:
        return self.t_out(slice(None))

    def t_out(self, rows: slice) -> I64:
        """The departure time of each of these arrivals; -1 if it did not leave."""
        left_as = self.left_as[rows]
        stamps = np.empty(left_as.size, np.int64)
        _stamps_of(self.departures.stamp_ns, left_as, stamps)
        return stamps


def join(
    inputs: Sequence[PortCapture],
    outputs: Sequence[PortCapture],
    options: JoinOptions | None = None,
) -> Joined:
    """Matches the arrivals at `inputs` with the departures by `outputs`.

    A packet takes part only if its destination address is seen at an output, so the captures may
    also hold other traffic. Raises InputError if nothing can be joined, and UntrustedError if
    the hop changes packets too much.
    """
    options = options or JoinOptions()
    _require_ports(inputs, outputs)
    if not options.may_be_empty and not any(capture.columns.flow.size for capture in outputs):
        paths = ", ".join(str(capture.path) for capture in outputs)
        raise InputError(f"{paths}: no IP packets; nothing left by the output")
    hop = _look(inputs, outputs, options)
    came, leaving = taking_part(hop, hop.inputs, hop.outputs)
    between = crossings(hop.observations, hop.captures, came, leaving)
    parts = _identity_parts(hop.captures, between, options)
    clocks = None if options.one_clock else _clocks(hop, between, leaving, options.max_sojourn_ns)
    sources = Sources(
        tuple(capture.port for capture in hop.captures),
        tuple(came),
        tuple(leaving),
        hop.directions,
        clocks,
        hop.notes,
        hop.united.refusals,
    )
    if options.destinations:
        # Packets of the other direction were needed for the clocks alone.
        came, leaving = (
            _only_to(hop.captures, side, options.destinations) for side in (came, leaving)
        )
    hop.require_departures(leaving, options.destinations)
    settings = clocks.clocks if clocks else [RIGHT] * len(hop.captures)
    watched = [_span(settings[index], hop.captures[index]) for index in hop.outputs]
    if options.watched_ns is not None:
        first_ns, last_ns = options.watched_ns
        watched = [(min(first, first_ns), max(last, last_ns)) for first, last in watched]
    others = others_of(
        hop.captures,
        hop.outputs,
        hop.directions,
        hop.given,
        (came, leaving),
        settings,
        "checksum" in parts,
    )
    is_corrected = clocks is not None and bool(clocks.notes)
    slack_ns = clocks.slack_ns if clocks else 0
    tolerance_ns = max(CLOCK_TOLERANCE_NS if is_corrected else 0, slack_ns)
    limits = Limits(options.max_sojourn_ns, tolerance_ns, options.apart)
    matched = _match(hop, (came, leaving), settings, parts, limits, options.release)
    notes = [] if options.one_way else _notes_on_changed(hop, matched, limits)
    moved_ns = matched.settle() if is_corrected else 0
    egress = verdicts.egress_of(matched, hop.flows, len(outputs))
    verdict, note = verdicts.judge(
        matched, hop.flows, egress, watched, options.max_sojourn_ns, options.apart
    )
    stray = verdicts.strays(matched)
    joined = Joined(
        inputs=tuple(capture.port for capture in inputs),
        outputs=tuple(capture.port for capture in outputs),
        flows=hop.flows,
        arrivals=matched.arrivals,
        departures=matched.departures,
        left_as=matched.order.left_as,
        came_as=matched.order.came_as,
        verdict=verdict,
        note=note,
        egress=egress,
        stray=stray,
        fifo=tuple(bool(value == 0) for value in matched.order.inversions),
        identity=parts,
        counts=count(verdict, note, stray),
        clocks=tuple(clocks.notes if clocks else ()),
        sources=replace(
            sources,
            notes=(*sources.notes, *notes),
            impossible_ns=verdicts.impossible_ns(matched, options.max_sojourn_ns),
            alike=verdicts.alike(matched),
        ),
    )
    if others is None:
        return joined
    names = [capture.port for capture in hop.captures]
    identities = matched.arriving, matched.leaving
    found = whole(joined, names, hop.outputs, others, identities, limits, moved_ns)
    return replace(joined, whole=found)


def _look(
    inputs: Sequence[PortCapture], outputs: Sequence[PortCapture], options: JoinOptions
) -> Hop:
    """Finds the packets that several captures have, and the way of each flow."""
    captures = list({id(capture): capture for capture in [*inputs, *outputs]}.values())
    place = {id(capture): index for index, capture in enumerate(captures)}
    ins, outs = ([place[id(capture)] for capture in side] for side in (inputs, outputs))
    if options.one_way:
        observations = sample(captures, [index in outs for index in range(len(captures))])
        ways = [LEFT if index in outs else CAME for index in range(len(captures))]
        return Hop(captures, ins, outs, *number_flows(captures), observations, ways)
    observations = sample(captures)
    # None if a capture is both.
    given: list[int | None] = [
        None if index in ins and index in outs else CAME if index in ins else LEFT
        for index in range(len(captures))
    ]
    united = same_flows.unite(captures, observations, given)
    if united.changed:
        observations = sample(captures)
    directions = find_directions(captures, observations, given, options.max_sojourn_ns)
    for index, unsure in enumerate(united.unsure):
        directions.ways[index][unsure] = ASIDE
    if options.destinations:
        # Packets to other addresses fill queues too, in either direction.
        for capture, of_flow in zip(captures, directions.ways, strict=True):
            of_flow[(of_flow == UNKNOWN) & ~goes_to(capture, options.destinations)] = ASIDE
    notes = (*united.notes, *set_own_aside(captures, directions, options.routed))
    flows = number_flows(captures)
    return Hop(captures, ins, outs, *flows, observations, given, directions, united, notes)


def _clocks(
    hop: Hop, between: list[Crossing], leaving: Sequence[Bool | None], max_sojourn_ns: int
) -> Clocks:
    captures = hop.captures
    if hop.directions is not None and len(hop.inputs) + len(hop.outputs) < 2 * len(captures):
        # Packets that come in at outputs and leave by inputs take no part, but show the clocks.
        everywhere = range(len(captures))
        came, leaving = taking_part(hop, everywhere, everywhere)
        between = crossings(hop.observations, captures, came, leaving)
    return estimate(captures, between, leaving, hop.outputs, max_sojourn_ns)


def _span(clock: Clock, capture: PortCapture) -> tuple[int, int]:
    """The corrected earliest and latest stamps of a capture."""
    ends = clock.correct(np.array([capture.first_ns or 0, capture.last_ns or 0], np.int64))
    return int(ends[0]), int(ends[1])


def _only_to(
    captures: Sequence[PortCapture], side: Sequence[Bool | None], destinations: frozenset[str]
) -> list[Bool | None]:
    """The flows of one side that go to these addresses."""
    return [
        None if mask is None else mask & goes_to(capture, destinations)
        for capture, mask in zip(captures, side, strict=True)
    ]


def _match(
    hop: Hop,
    sides: tuple[Sequence[Bool | None], Sequence[Bool | None]],
    settings: Sequence[Clock],
    parts: tuple[str, ...],
    limits: Limits,
    release: bool,
) -> Matched:
    """Merges the inputs and the outputs, by their corrected stamps, and matches their packets."""

    def side(index: int, counts: Sequence[Bool | None], is_last: bool) -> Side:
        mine = hop.captures[index], hop.rows[index], counts[index], settings[index]
        return Side(*mine, release and is_last)

    came, leaving = sides
    # A capture that is also an output is needed once more.
    arrivals = merge([side(index, came, index not in hop.outputs) for index in hop.inputs], parts)
    departures = merge([side(index, leaving, True) for index in hop.outputs], parts)
    sizes = len(hop.flows), len(hop.inputs), len(hop.outputs)
    return match(arrivals, departures, sizes, limits)


def _notes_on_changed(hop: Hop, matched: Matched, limits: Limits) -> list[str]:
    """Matches packets that were changed on the way. Returns a line on each of their outputs."""
    notes = []
    changed = match_changed(matched, hop.flows, limits)
    for output, index in enumerate(hop.outputs):
        by = matched.departures.port[matched.order.left_as] == output
        counts = {what: int(by[rows].sum()) for what, rows in changed.items()}
        if parts := [f"{n:,} with another {what}" for what, n in counts.items() if n]:
            notes.append(
                f"{hop.captures[index].port}: {sum(counts.values()):,} packets were changed on "
                f"the way, as by a flipped bit: {', '.join(parts)}. They count as forwarded"
            )
    return notes


def _require_ports(inputs: Sequence[PortCapture], outputs: Sequence[PortCapture]) -> None:
    for role, captures in (("input", inputs), ("output", outputs)):
        if not 1 <= len(captures) <= 127:
            raise InputError(f"{len(captures)} {role} captures; allowed are 1 to 127")


@compiled
def _agreeing(came: Columns, output: Columns, came_row: I32, left_row: I32, which: int) -> int:
    """How many packets agree on one of PARTS, by index."""
    count = 0
    for i in range(came_row.size):
        count += part_of(came, came_row[i], which) == part_of(output, left_row[i], which)
    return count


def _identity_parts(
    captures: Sequence[PortCapture], between: Sequence[Crossing], options: JoinOptions
) -> tuple[str, ...]:
    """The optional parts of the identity on which at least 99 % of the sampled packets agree.

    SYNs are few, so all of them have to agree.
    """
    total = sum(crossing.left_row.size for crossing in between)
    if not total:
        return ()
    parts = []
    for which, name in enumerate(PARTS):
        if name == "checksum" and not options.checksums:
            continue
        agreeing = 0
        for each in between:
            columns = captures[each.came].columns, captures[each.left].columns
            agreeing += _agreeing(*columns, each.came_row, each.left_row, which)
        least = total if name == "timestamp of SYN" else 0.99 * total
        if agreeing >= least:
            parts.append(name)
        elif name == "ttl" and not options.routed:
            raise InputError(
                "packets leave with another TTL than they came in with; if the hop routes, "
                "say --routed"
            )
    return tuple(parts)
