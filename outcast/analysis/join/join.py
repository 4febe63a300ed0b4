"""The join: which packet came in where and when, and whether and when it left.

The captures of a switch's ports are matched packet by packet (the method of section 4.1 of the
TCP outcast paper). docs/join.md states the rules. These decide:

1. Identity: addresses, ports, protocol, IP id, sequence and acknowledgement number, flags and
   payload length have to agree. So do TTL, checksum and TCP time stamp, if the captures agree on
   them.
2. Causality: a packet leaves after it came in, and within `max_sojourn_ns`.
3. Order: among equal packets, the match is the first one that came in after whatever has left
   already: of the same flow, of the same port (if it is a FIFO), and of any port (by more than the
   switch is seen to reorder). Without such, the match is the first one. Where the queue has
   classes, only the order within a flow counts, here and in rule 4.
4. A packet that never left was dropped if one that came in later left by the same output (later
   by more than the switch is seen to reorder), or if the output was watched long enough after it.
   Otherwise its fate is unknown: it was in flight at the end, or it came in before the output was
   watched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from outcast.analysis.capture.headers import Columns, FlowKey
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import I8, I32, I64, Bool, compiled
from outcast.analysis.join import same_flows, verdicts
from outcast.analysis.join.clocks import Clocks, estimate
from outcast.analysis.join.directions import (
    ASIDE,
    CAME,
    LEFT,
    UNTOLD,
    Directions,
    Hop,
    goes_to,
    set_own_aside,
    taking_part,
    tell,
)
from outcast.analysis.join.matching import Matched, match, match_changed
from outcast.analysis.join.offsets import RIGHT, Clock
from outcast.analysis.join.packets import (
    PARTS,
    Packets,
    Pairs,
    Side,
    merge,
    number_flows,
    pair_up,
    part_of,
    sample,
)
from outcast.analysis.join.service import MOST_UNSEEN, Limits, Whole, others_of, whole
from outcast.analysis.join.verdicts import (
    DEFAULT_MAX_SOJOURN_NS,
    Counts,
    Note,
    Stray,
    Verdict,
    count,
)
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
        one_way: inputs hold only what came in, and outputs only what left. Otherwise a capture may
            hold both directions, and be an input and an output at once; packets tell which is
            which.
        destinations: only packets to these addresses take part; empty takes all.
        release: the captures are not needed any more, so their columns are emptied to save memory.
        watched_ns: the span, on the output's clock, over which the outputs are known to have been
            captured. The span of their packets counts in any case.
        checksums: whether checksums may identify packets. With offloads a switch may complete
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
            identity, and what takes no part because the router itself sent it.
        differing: which flows could be one of several, a line each.
        late_ns: how long ago an equal packet had come in, for each departure that nothing else
            explains, though longer ago than `max_sojourn_ns` allows.
        backwards: how many packets left before they came in.
        alike: the rows of arrivals that did not leave and are equal to what left before them.
    """

    ports: tuple[str, ...]
    came: tuple[Bool | None, ...]
    left: tuple[Bool | None, ...]
    directions: Directions | None
    clocks: Clocks | None
    notes: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    late_ns: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    backwards: int = 0
    alike: I64 = field(default_factory=lambda: np.empty(0, np.int64))


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
        whole: the join with what left and takes no part; None if all that left takes part.
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
        """The join with all that left, also what takes no part."""
        return self if self.whole is None else self.whole.joined

    def shows_content(self, output: int) -> bool:
        """Whether it is known when nearly all that left by an output had come in."""
        return self.unknown_share(output) <= MOST_UNSEEN

    def unknown_share(self, output: int) -> float:
        """Of which share of an output's bytes no capture shows when they came in."""
        whole = self.whole
        return 0.0 if whole is None else whole.unseen_share[output] + whole.untold_share[output]

    def shows_service(self, output: int) -> bool:
        """Whether it is known of nearly all bytes whether they left by an output."""
        return self.whole is None or self.whole.untold_share[output] <= MOST_UNSEEN

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
    if not options.may_be_empty and not any(capture.columns.flow.size for capture in outputs):
        paths = ", ".join(str(capture.path) for capture in outputs)
        raise InputError(f"{paths}: no IP packets; nothing left by the output")
    hop = _look(inputs, outputs, options)
    came, leaving = taking_part(hop, hop.inputs, hop.outputs)
    pairs = pair_up(hop.sightings, hop.captures, came, leaving)
    parts = _identity_parts(hop.captures, pairs, options)
    clocks = None if options.one_clock else _clocks(hop, pairs, leaving, options.max_sojourn_ns)
    sources = Sources(
        tuple(capture.port for capture in hop.captures),
        tuple(came),
        tuple(leaving),
        hop.told,
        clocks,
        hop.notes,
        hop.united.refusals,
    )
    if options.destinations:
        # Packets of the other direction have given the clocks and are not needed any more.
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
        hop.told,
        hop.said,
        (came, leaving),
        settings,
        "checksum" in parts,
    )
    matched, moved_ns, notes = _match(hop, came, leaving, settings, parts, clocks, options)
    egress = verdicts.egress_of(matched, hop.flows, len(outputs))
    verdict, note = verdicts.judge(
        matched, hop.flows, egress, watched, options.max_sojourn_ns, options.apart
    )
    stray = verdicts.strays(matched)
    counts = count(verdict, note, stray)
    verdicts.require_conservation(counts)
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
        counts=counts,
        clocks=tuple(clocks.notes if clocks else ()),
        sources=replace(
            sources,
            notes=(*sources.notes, *notes),
            late_ns=verdicts.late_ns(matched, stray),
            backwards=verdicts.backwards(matched),
            alike=verdicts.alike(matched),
        ),
    )
    if others is None:
        return joined
    names = [capture.port for capture in hop.captures]
    identities = matched.arriving, matched.leaving
    limits = Limits(options.max_sojourn_ns, *moved_ns, options.apart)
    found = whole(joined, names, hop.outputs, others, identities, limits)
    return replace(joined, whole=found)


def _look(
    inputs: Sequence[PortCapture], outputs: Sequence[PortCapture], options: JoinOptions
) -> Hop:
    """Looks through captures for packets that several have, and finds which way flows go."""
    captures = list({id(capture): capture for capture in [*inputs, *outputs]}.values())
    place = {id(capture): index for index, capture in enumerate(captures)}
    ins, outs = ([place[id(capture)] for capture in side] for side in (inputs, outputs))
    if options.one_way:
        sightings = sample(captures, [index in outs for index in range(len(captures))])
        ways = [LEFT if index in outs else CAME for index in range(len(captures))]
        return Hop(captures, ins, outs, *number_flows(captures), sightings, ways)
    sightings = sample(captures)
    # None if a capture is both, or else what the caller says of it.
    said: list[int | None] = [
        None if index in ins and index in outs else CAME if index in ins else LEFT
        for index in range(len(captures))
    ]
    united = same_flows.unite(captures, sightings, said)
    if united.changed:
        sightings = sample(captures)
    told = tell(captures, sightings, said, options.max_sojourn_ns)
    for index, unsure in enumerate(united.unsure):
        told.ways[index][unsure] = ASIDE
    if options.destinations:
        # What goes elsewhere takes room in queues, whichever way it is going.
        for capture, of_flow in zip(captures, told.ways, strict=True):
            of_flow[(of_flow == UNTOLD) & ~goes_to(capture, options.destinations)] = ASIDE
    notes = (*united.notes, *set_own_aside(captures, told, options.routed))
    flows = number_flows(captures)
    return Hop(captures, ins, outs, *flows, sightings, said, told, united, notes)


def _clocks(hop: Hop, pairs: Pairs, leaving: Sequence[Bool | None], max_sojourn_ns: int) -> Clocks:
    """The clocks of all captures, by the pairs of packets that take part."""
    captures = hop.captures
    between, leaving_at = pairs, leaving
    if hop.told is not None and len(hop.inputs) + len(hop.outputs) < 2 * len(captures):
        # What comes in at outputs and leaves by inputs takes no part, but it shows the clocks.
        everywhere = range(len(captures))
        came_at, leaving_at = taking_part(hop, everywhere, everywhere)
        between = pair_up(hop.sightings, captures, came_at, leaving_at)
    return estimate(captures, between, leaving_at, hop.outputs, max_sojourn_ns)


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
    came: Sequence[Bool | None],
    leaving: Sequence[Bool | None],
    settings: Sequence[Clock],
    parts: tuple[str, ...],
    clocks: Clocks | None,
    options: JoinOptions,
) -> tuple[Matched, tuple[int, int], list[str]]:
    """Merges the inputs and the outputs, by their corrected stamps, and matches their packets.

    Returns also by how much arrivals were moved, how much later than they left they may come, and
    a line on each output by which packets left that were changed on the way.
    """

    def side(index: int, counts: Sequence[Bool | None], is_last: bool) -> Side:
        release = options.release and is_last
        return Side(hop.captures[index], hop.rows[index], counts[index], settings[index], release)

    # A capture that is also an output is needed once more.
    ins = [side(index, came, index not in hop.outputs) for index in hop.inputs]
    arrivals = merge(ins, parts)
    departures = merge([side(index, leaving, True) for index in hop.outputs], parts)
    is_corrected = clocks is not None and bool(clocks.notes)
    sizes = len(hop.flows), len(hop.inputs), len(hop.outputs)
    tolerance_ns = max(CLOCK_TOLERANCE_NS if is_corrected else 0, clocks.slack_ns if clocks else 0)
    matched = match(
        arrivals, departures, sizes, options.max_sojourn_ns, options.apart, tolerance_ns
    )
    notes: list[str] = []
    if not options.one_way:
        changed = match_changed(matched, hop.flows, options.max_sojourn_ns, tolerance_ns)
        for output, index in enumerate(hop.outputs):
            by = departures[0].port[matched.order.left_as] == output
            counts = {what: int(by[rows].sum()) for what, rows in changed.items()}
            if parts_of := [f"{n:,} with another {what}" for what, n in counts.items() if n]:
                notes.append(
                    f"{hop.captures[index].port}: {sum(counts.values()):,} packets were changed on "
                    f"the way, as by a flipped bit: {', '.join(parts_of)}. They count as forwarded"
                )
    return matched, (matched.settle() if is_corrected else 0, tolerance_ns), notes


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


@compiled
def _agreeing(came: Columns, output: Columns, came_row: I32, left_row: I32, which: int) -> int:
    """How many of these packets agree on one of PARTS, by index."""
    count = 0
    for i in range(came_row.size):
        count += part_of(came, came_row[i], which) == part_of(output, left_row[i], which)
    return count


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
        for (came, output), mine in pairs.groups().items():
            columns = captures[came].columns, captures[output].columns
            rows = pairs.came_row[mine], pairs.left_row[mine]
            agreeing += _agreeing(*columns, *rows, which)
        least = len(pairs) if name == "timestamp of SYN" else 0.99 * len(pairs)
        if agreeing >= least:
            parts.append(name)
        elif name == "ttl" and not options.routed:
            raise InputError(
                "packets leave with another TTL than they came in with; if the hop routes, "
                "say --routed"
            )
    return tuple(parts)
