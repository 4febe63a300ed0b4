"""Which packets take part in a join: what came in, what left, and what is set aside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from outcast.analysis.capture.headers import FlowKey
from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.compiled import I32, Bool
from outcast.analysis.join.directions import (
    ASIDE,
    CAME,
    LEFT,
    UNTOLD,
    Directions,
    sent_by_the_machine,
)
from outcast.analysis.join.identities import UNCHANGED, United
from outcast.analysis.join.pairs import Sightings
from outcast.analysis.join.places import ELSEWHERE, NEARLY_ALL
from outcast.errors import InputError, UntrustedError

FIRST_TTLS = (64, 128, 255)
"""What operating systems begin with (RFC 1700 and practice)."""


@dataclass(frozen=True, slots=True)
class Hop:
    """The captures of a hop's ports, each once, and what they show of its flows.

    Attributes:
        inputs, outputs: the places of the captures that are inputs, and that are outputs.
        flows: the flows of all captures.
        rows: for each capture and each of its flows, the flow's place in `flows`.
        sightings: a sample of packets, and which captures saw them.
        said: for each capture, CAME or LEFT if the caller says that it is of one side only.
        told: which way flows go; None if the captures are known to have one direction.
        united: flows that the hop changes.
        notes: what the hop does besides queueing, and what takes no part, a line each.
    """

    captures: list[PortCapture]
    inputs: list[int]
    outputs: list[int]
    flows: tuple[FlowKey, ...]
    rows: list[I32]
    sightings: Sightings
    said: Sequence[int | None]
    told: Directions | None = None
    united: United = UNCHANGED
    notes: tuple[str, ...] = ()

    def require_departures(self, left_flows: Sequence[Bool | None], to: Collection[str]) -> None:
        """Raises InputError or UntrustedError, which say why, if nothing leaves for `to`."""
        told = self.told
        if told is None or any(mask is not None and mask.any() for mask in left_flows):
            return
        if self.united.refusals:
            raise UntrustedError(self.united.refusals[0])
        untold = [told.packets(index, UNTOLD) for index in range(len(self.captures))]
        if any(untold):
            if self._untold_are_alone(told):
                index = untold.index(max(untold))
                raise InputError(told.why_untold(index, self.captures[index]))
            raise InputError(
                "nothing tells which way packets go: of packets that can be told from others, no "
                "stamps differ between two captures; say it with --in and --out"
            )
        if all(told.packets(index, CAME) for index in self.outputs) and all(
            told.packets(index, LEFT) for index in self.inputs
        ):
            ins, outs = (
                ", ".join(self.captures[index].port for index in side)
                for side in (self.inputs, self.outputs)
            )
            raise InputError(
                f"packets came in at {outs} and left by {ins}, so inputs and outputs are exchanged"
            )
        addresses = f" to {', '.join(sorted(to))}" if to else ""
        raise InputError(f"no packets{addresses} leave the switch: nothing left by the output")

    def _untold_are_alone(self, told: Directions) -> bool:
        """Whether no two captures have packets of the same conversation that is untold."""
        seen: Counter[frozenset[str]] = Counter()
        for ways, row in zip(told.ways, self.rows, strict=True):
            flows = (self.flows[number] for number in row[ways == UNTOLD].tolist())
            seen.update({frozenset((flow.src, flow.dst)) for flow in flows})
        return max(seen.values()) == 1


def taking_part(
    hop: Hop, inputs: Collection[int], outputs: Collection[int]
) -> tuple[list[Bool | None], list[Bool | None]]:
    """For each capture and each of its flows, whether it counts as coming in, and as leaving.

    What leaves counts. What comes in counts if packets leave for its destination.
    """
    captures, told = hop.captures, hop.told
    left_flows: list[Bool | None] = [None] * len(captures)
    came: list[Bool | None] = [None] * len(captures)
    for index in set(outputs):
        count = np.bincount(captures[index].columns.flow, minlength=len(captures[index].flows))
        left_flows[index] = (count > 0) & (told is None or told.ways[index] == LEFT)
    if told is not None:
        _leave_out_one_sided(left_flows, captures, told)
    addresses = {
        hop.flows[number].dst
        for row, mask in zip(hop.rows, left_flows, strict=True)
        if mask is not None
        for number in row[mask].tolist()
    }
    for index in set(inputs):
        there = goes_to(captures[index], addresses)
        came[index] = there & (told is None or told.ways[index] == CAME)
    return came, left_flows


def goes_to(capture: PortCapture, addresses: Collection[str]) -> Bool:
    """For each flow of a capture, whether it goes to one of the addresses."""
    return capture.flows_with(lambda flow: flow.dst in addresses)


def _leave_out_one_sided(
    left_flows: list[Bool | None], captures: Sequence[PortCapture], told: Directions
) -> None:
    """Leaves out outputs whose packets all come from ports where only what left was captured.

    Their queues cannot be told, and no other queue depends on them.
    """
    ports = [capture.port for capture in captures]
    # A port with a file of what came in was captured, though nothing did.
    silent = {
        index
        for index, port in enumerate(ports)
        if ports.count(port) == 1 and not told.packets(index, CAME)
    }
    for index, here in enumerate(left_flows):
        if here is None or not here.any():
            continue
        packets = told.counts[index]
        hidden = captures[index].flows_with(
            lambda flow: silent.issuperset(told.places.get(flow.src, (ELSEWHERE,)))
        )
        if packets[here & hidden].sum() >= NEARLY_ALL * packets[here].sum():
            left_flows[index] = np.zeros_like(here)


def set_own_aside(captures: Sequence[PortCapture], told: Directions, is_router: bool) -> list[str]:
    """Sets aside what a router, or the capturing machine, sent or got itself. Returns lines."""
    unseen = "What the queue dropped of them, no capture shows"
    notes = []
    for index, capture in enumerate(captures if is_router else ()):
        others = {flow for other in captures if other is not capture for flow in other.flows}
        sent, got = _of_router(capture, index, told, others)
        why = f"they bear its MAC address and a TTL that nobody has counted down. {unseen}"
        notes += _set_aside(capture, index, told, sent, " that the router itself sent", why)
        why = "no other capture has them, nor have they its MAC address: they were for the router"
        notes += _set_aside(capture, index, told, got, "", why)
    addresses = sent_by_the_machine(captures)
    for index, capture in enumerate(captures if addresses else ()):
        own = capture.flows_with(lambda flow: flow.src in addresses) & (told.ways[index] != ASIDE)
        why = f"by its capture they left and never came in. {unseen}"
        notes += _set_aside(capture, index, told, own, " that this machine itself sent", why)
    return notes


def _set_aside(
    capture: PortCapture, index: int, told: Directions, own: Bool, which: str, why: str
) -> list[str]:
    """Sets flows aside. Returns what is said of their packets, nothing if there are none."""
    told.ways[index][own] = ASIDE
    packets = int(told.counts[index][own].sum())
    senders = sorted({capture.flows[row].src for row in np.flatnonzero(own).tolist()})[:3]
    who = f"{capture.port}: {packets:,} packets{which} ({', '.join(senders)})"
    return [f"{who} take no part; {why}"] if packets else []


def _of_router(
    capture: PortCapture, index: int, told: Directions, others: Collection[FlowKey]
) -> tuple[Bool, Bool]:
    """For each flow of a capture at a router, whether the router itself sent it, and got it.

    What it sent (ping, ssh, BGP) bears its own MAC address like all that it forwards, but the TTL
    is as the sender set it. A host that talks with the router alone may look as if it were behind
    another port, but what answers it is the router's own. `others` are the other captures' flows.
    """
    here: Bool = (told.ways[index] == LEFT) & (told.counts[index] > 0)
    own, first = np.zeros((2, len(capture.flows)), np.bool_)
    if not here.any() or len(capture.macs) < len(capture.flows):
        return own, own
    macs = np.array(capture.macs, np.int64)
    forwarded = here & capture.flows_with(lambda flow: flow in others)
    routers: Counter[int] = Counter()
    for row in np.flatnonzero(forwarded if forwarded.any() else here).tolist():
        routers[int(macs[row])] += int(told.counts[index][row])
    router_mac, packets = routers.most_common(1)[0]
    if not router_mac:
        return own, own
    alone = ~forwarded & (told.counts[index] > 0)
    for row in np.flatnonzero(alone & (macs == router_mac)).tolist():
        ttls = np.unique(capture.columns.ttl[capture.columns.flow == row])
        first[row] = ttls.size == 1 and int(ttls[0]) in FIRST_TTLS
        is_away = told.place(capture.flows[row].src) == ELSEWHERE
        own[row] = here[row] and is_away and first[row]
    is_sure = forwarded.any() and packets >= NEARLY_ALL * routers.total()
    its = {capture.flows[row].src for row in np.flatnonzero(first)} - {flow.src for flow in others}
    got = here & alone & (macs != router_mac) & capture.flows_with(lambda flow: flow.dst in its)
    # Hosts behind a port that was not captured come with a lower TTL, but so near a bridge that
    # nothing shows which these are: then all that left would be the router's own.
    return own if not own[here].all() else np.zeros_like(own), got & is_sure
