"""Flows whose packets a hop changes, and what still shows which packet is which.

A NAT gives packets other addresses and ports; other hops number IP ids again, or add a constant to
the sequence numbers of a connection (RFC 6528 does so in hosts, firewalls for hosts). Where the
exact identity finds no packet of a flow, looser ones are tried in turn. If one fits, the flow gets
one name and one identity in both captures, so that all that follows sees one flow. What fits more
than one flow is left alone and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import Array, Bool
from outcast.analysis.join.directions import CAME, LEFT, is_group
from outcast.analysis.join.packets import number_flows
from outcast.analysis.join.pairs import Sightings
from outcast.analysis.join.same_flows import (
    FEW,
    ICMP,
    LEVELS,
    Side,
    join_flows,
    matches_by,
    sampled,
)

LEAST = 8
"""A flow with fewer sampled packets shows nothing by itself."""
MOST_FOUND = 0.05
"""A flow whose packets the exact identity finds up to this share is looked for by looser ones."""
LEAST_TOLD = 0.01
"""What differs is said only of more than this share of a capture's packets."""


@dataclass(frozen=True, slots=True)
class United:
    """What was found.

    Attributes:
        changed: whether a capture was changed, so that it has to be looked at again.
        notes: a line on each two captures and each identity by which flows were joined.
        refusals: a line on each capture with flows that could be one of several.
        unsure: for each capture, its flows that could be one of several. They take no part.
    """

    changed: bool = False
    notes: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    unsure: tuple[Bool, ...] = ()


UNCHANGED = United()


def unite(
    captures: Sequence[PortCapture], sightings: Sightings, said: Sequence[int | None]
) -> United:
    """Gives flows that a hop changes the same name and identity in all captures.

    Their columns and flows are changed, but not where the exact identity finds the packets of all
    flows. `said` has CAME or LEFT for captures that have one direction by the caller's word.
    """
    alone = _alone(captures)
    wanted = _failing(captures, sightings, alone)
    if sum(bool(flows.any()) for flows in alone) > 1:
        wanted = [first | other for first, other in zip(alone, wanted, strict=True)]
    if not any(flows.any() for flows in wanted):
        return UNCHANGED
    wanted = [
        _split_echoes(capture, flows) for capture, flows in zip(captures, wanted, strict=True)
    ]
    notes: list[str] = []
    words = {CAME: 1, LEFT: -1, None: 0}
    unsure = [np.zeros_like(flows) for flows in wanted]
    for level in LEVELS:
        sides = [
            Side(capture, index, flows, sampled(capture.columns, flows))
            for index, (capture, flows) in enumerate(zip(captures, wanted, strict=True))
        ]
        for first, other in combinations(sides, 2):
            if not first.rows.size or not other.rows.size:
                continue
            matches, doubtful = matches_by(first, other, level)
            for (flow, other_flow), alike in doubtful.items():
                # A few packets that are alike do not show by themselves that there is a NAT.
                if alike >= FEW or notes or matches:
                    unsure[first.index][flow] = unsure[other.index][other_flow] = True
            if matches:
                by_said = words[said[first.index]] - words[said[other.index]]
                notes.append(join_flows(first.capture, other.capture, matches, level, by_said))
                for match in matches:
                    first.wanted[match.flow] = other.wanted[match.other] = False
    changed = bool(notes)
    refusals: list[str] = []
    for capture, doubtful_flows, flows in zip(captures, unsure, wanted, strict=True):
        doubtful_flows &= flows
        count = int(doubtful_flows[capture.columns.flow].sum())
        if count:
            line = (
                f"{capture.port}: addresses are translated (NAT), but {count:,} of its packets "
                "could be of several flows that are alike in IP ids, sequence numbers and lengths"
            )
            if count > LEAST_TOLD * capture.columns.flow.size:
                refusals.insert(0, f"{line}. Capture both ports on one side of the translation")
            else:
                notes.append(f"{line}; they take no part")
    return United(changed, tuple(notes), tuple(refusals), tuple(unsure))


def _alone(captures: Sequence[PortCapture]) -> list[Bool]:
    """For each capture, the flows that no other capture has, but for those to groups of hosts."""
    seen = Counter(flow for capture in captures for flow in set(capture.flows))
    return [
        capture.flows_with(lambda flow: seen[flow] == 1 and not is_group(flow.dst))
        for capture in captures
    ]


def _failing(
    captures: Sequence[PortCapture], sightings: Sightings, alone: Sequence[Bool]
) -> list[Bool]:
    """For each capture, the flows of which another has the name but not the packets."""
    failing = [np.zeros(len(capture.flows), np.bool_) for capture in captures]
    found = (sightings.row != -1).sum(axis=1) > 1
    for index, capture in enumerate(captures):
        here = np.flatnonzero(sightings.row[:, index] >= 0)
        flow = capture.columns.flow[sightings.row[here, index]]
        sample_sizes = np.bincount(flow, ~alone[index][flow], len(capture.flows))
        common = np.bincount(flow, found[here], len(capture.flows))
        small = sample_sizes < LEAST
        few, few_common = sample_sizes[small].sum(), common[small & ~alone[index]].sum()
        lost = ~small & (common <= MOST_FOUND * sample_sizes)
        if lost.any() or (few >= LEAST and few_common <= MOST_FOUND * few):
            break
    else:
        return failing
    # The sample does not show all flows, so all packets are looked at now.
    names, of_flow = number_flows(captures)
    # A path of several has what another port has, but nothing of the other paths.
    elsewhere = [_found_anywhere(capture, captures) for capture in captures]
    for first, other in combinations(range(len(captures)), 2):
        here, exact_here = _count_in(captures[first], captures[other], of_flow[first], len(names))
        there, exact_there = _count_in(captures[other], captures[first], of_flow[other], len(names))
        fewer = np.minimum(here, there)
        lost = (fewer > 0) & (np.minimum(exact_here, exact_there) <= MOST_FOUND * fewer)
        for index in (first, other):
            failing[index] |= lost[of_flow[index]] & ~elsewhere[index]
    return failing


def _found_anywhere(capture: PortCapture, captures: Sequence[PortCapture]) -> Bool:
    """For each flow of a capture, whether others have its packets."""
    columns = capture.columns
    found = np.zeros(columns.flow.size, np.bool_)
    for other in captures:
        if other is not capture:
            found |= np.isin(columns.identity, other.columns.identity)
    packets = np.bincount(columns.flow, minlength=len(capture.flows))
    is_found: Bool = np.bincount(columns.flow, found, len(capture.flows)) > MOST_FOUND * packets
    return is_found


def _count_in(
    capture: PortCapture, other: PortCapture, of_flow: Array, names: int
) -> tuple[Array, Array]:
    """The packets of each name, and how many of them the exact identity finds in the other."""
    number = of_flow[capture.columns.flow]
    exact = np.isin(capture.columns.identity, other.columns.identity)
    return np.bincount(number, minlength=names), np.bincount(number, exact, names)


def _split_echoes(capture: PortCapture, wanted: Bool) -> Bool:
    """Makes a flow of the echoes of each identifier, because behind a NAT all hosts are one.

    The identifier takes the place of the port of the host that asks. Returns `wanted` with the new
    flows.
    """
    columns, flows = capture.columns, capture.flows
    for row in np.flatnonzero(wanted).tolist():
        if flows[row].protocol not in ICMP:
            continue
        rows = np.flatnonzero(columns.flow == row)
        # The type, and the identifier (RFC 792 and RFC 4443).
        kind, number = columns.seq[rows] >> 24, columns.ack[rows] >> 16
        for kinds, end in (((8, 128), "sport"), ((0, 129), "dport")):
            echoes = np.isin(kind, kinds)
            for identifier in np.unique(number[echoes]).tolist():
                name = replace(flows[row], **{end: identifier})
                columns.flow[rows[echoes & (number == identifier)]] = capture.add_flow(name, row)
    return np.append(wanted, np.ones(len(flows) - wanted.size, np.bool_))
