"""The events of a run, port by port: what changes, when, and what the port then has.

Pure: `changes` says what to do, and `outcast.emulation.network.changes` does it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from pydantic import ValidationError

from outcast import handed_in, units
from outcast.errors import ConfigError, refusals_at
from outcast.experiment import Event, Experiment, Queue
from outcast.experiment.links import MOST_DELAY_NS, Link
from outcast.plan import ports
from outcast.plan.links import no_link
from outcast.plan.model import Plan
from outcast.plan.ports import PortQueue

Fault = Literal["loss_ppm", "burst_loss_ppm", "late_ppm", "duplicate_ppm", "policer_bps"]
What = Fault | Literal["rate_bps", "delay_ns", "limit_bytes", "limit_packets", "up"]
"""A setting of a port, or a share of the packets of the link behind it in millionths."""


@dataclass(frozen=True, slots=True)
class Change:
    """One setting of one port that changes at one time.

    A link fails by its switches' ports. A host's port stays up and loses its carrier, as it does
    where a cable is pulled out of the switch. The host so keeps its address, routes and neighbours.

    Attributes:
        at_ns: when, after the traffic's start.
        event: the event's place in the configuration.
        node, neighbour: the direction of the link: the node that sends, and the one that receives.
        value: its new value; of `up` 0 or 1.
        before, after: all settings of the port.
        wire: of a fault or policer, the interface where packets meet it (outcast.plan.links.Wire).
        seed: of the fault from then on.
        link: of a fault, all that happens on the link from then on.
    """

    at_ns: int
    event: int
    node: str
    neighbour: str
    port: str
    what: What
    value: int
    before: PortQueue
    after: PortQueue
    wire: str | None = None
    seed: int = 0
    link: Link | None = None


@dataclass(frozen=True, slots=True)
class PortTrace:
    """The rates that a trace gives to one port.

    Attributes:
        t_ns: from when each rate holds, after the traffic's start.
    """

    port: PortQueue
    node: str
    trace: str
    t_ns: tuple[int, ...]
    rate_bps: tuple[int, ...]


def port_traces(experiment: Experiment, plan: Plan) -> tuple[PortTrace, ...]:
    """The rates of every port whose link has a trace.

    Raises ConfigError: a rate does not fit the port's burst.
    """
    traces = []
    for trace in plan.traces:
        for node, neighbour in trace.directions:
            port = ports.queue_of(experiment, plan, plan.port(node, neighbour))
            rates = {
                rate_bps: ports.port_rate_bps(experiment, port.port, rate_bps)
                for rate_bps in trace.rate_bps
            }
            with refusals_at(f"links.overrides: {trace.file}: burst of {port.port}"):
                port.queue.check_burst(max(rates.values()), port.frame_bytes)
            rate_bps = tuple(rates[rate_bps] for rate_bps in trace.rate_bps)
            traces.append(PortTrace(port, node, trace.file, trace.t_ns, rate_bps))
    return tuple(traces)


def changes(experiment: Experiment, plan: Plan) -> tuple[Change, ...]:
    """Every change of a run, in the order of time.

    Raises ConfigError: an event names a link that is not there, or asks for what the port
    cannot do.
    """
    planner = _Planner(experiment, plan)
    down: dict[frozenset[str], int] = {}
    for number, event in sorted(enumerate(experiment.events), key=lambda item: item[1].at_ns):
        for direction in _directions(event, plan, f"events.{number}"):
            planner.take(number, event, direction)
        if event.up is not None:
            _note_up(event, number, down)
    return tuple(planner.planned)


def cut_off(experiment: Experiment, plan: Plan) -> frozenset[int]:
    """The flows that cannot hand over what they hold at the end of the duration.

    A link on one of their ways is down then, and stays down.
    """
    down: set[frozenset[str]] = set()
    for event in sorted(experiment.events, key=lambda event: event.at_ns):
        if event.up is not None:
            (down.discard if event.up else down.add)(frozenset(event.between or ()))
    return frozenset(
        flow.flow
        for flow in plan.flows
        if down
        and any(frozenset(hop) in down for way in plan.flow_ways(flow) for hop in pairwise(way))
    )


class _Planner:
    """Takes the events of a run in the order of time.

    Attributes:
        planned: the changes so far.
    """

    def __init__(self, experiment: Experiment, plan: Plan) -> None:
        self.planned: list[Change] = []
        self._experiment, self._plan = experiment, plan
        self._now: dict[str, PortQueue] = {}
        self._wires: dict[tuple[str, str], Link] = {}
        self._taken: dict[tuple[int, str, str], int] = {}

    def take(self, number: int, event: Event, direction: tuple[str, str]) -> None:
        where = f"events.{number}"
        if event.up is not None and not self._has_a_switchs_port(direction, where):
            return
        port = self._plan.port(*direction)
        for what, value, after, link in self._new_settings(event, direction, where):
            earlier = self._taken.setdefault((event.at_ns, port, what), number)
            if earlier != number:
                key = what.rpartition("_")[0] or what
                raise ConfigError(
                    f"{where}: changes {key} of {port} at the same time as events.{earlier}; "
                    "allowed is one change at a time"
                )
            before, self._now[port] = self._now[port], after or self._now[port]
            self.planned.append(
                Change(
                    event.at_ns,
                    number,
                    *direction,
                    port,
                    what,
                    value,
                    before,
                    self._now[port],
                    wire=None if link is None else _wire(self._plan, what, *direction),
                    seed=_seed(self._experiment, event, *direction),
                    link=link,
                )
            )

    def _has_a_switchs_port(self, direction: tuple[str, str], where: str) -> bool:
        """Whether a switch sends. Raises ConfigError where neither end is a switch."""
        sends, receives = (self._plan.graph.nodes[node]["kind"] for node in direction)
        if "switch" not in (sends, receives):
            raise ConfigError(
                f"{where}.up: a router's port that goes down loses its routes; allowed is a link "
                "with a switch at one end"
            )
        return bool(sends == "switch")

    def _new_settings(
        self, event: Event, direction: tuple[str, str], where: str
    ) -> list[tuple[What, int, PortQueue | None, Link | None]]:
        """Settings, their values, and the settings of the port or of the link from then on."""
        plan, port = self._plan, self._plan.port(*direction)
        faults = list(_faults(event, self._wires.get(direction, plan.links[direction]), where))
        settings = self._now.setdefault(port, ports.queue_of(self._experiment, plan, port))
        wanted = list(_wanted(event, self._experiment, plan, settings, where))
        if faults:
            self._wires[direction] = faults[-1][-1]
        return [
            *((what, value, after, None) for what, value, after in wanted),
            *((what, value, None, link) for what, value, link in faults),
        ]


def _directions(event: Event, plan: Plan, where: str) -> Iterator[tuple[str, str]]:
    node, neighbour = event.between or (str(event.source), str(event.to))
    if not plan.graph.has_edge(node, neighbour):
        directions = [end for edge in plan.graph.edges for end in (edge, edge[::-1])]
        raise ConfigError(f"{where}.{event.place}: {no_link((node, neighbour), directions)}")
    yield node, neighbour
    if event.between is not None:
        yield neighbour, node


def _wire(plan: Plan, what: What, node: str, neighbour: str) -> str:
    wire = plan.wires[frozenset((node, neighbour))]
    return wire.facing(node if what == "policer_bps" else neighbour)


def _seed(experiment: Experiment, event: Event, node: str, neighbour: str) -> int:
    words = f"{experiment.seed} loss {node} {neighbour} {event.at_ns}"
    return random.Random(words).getrandbits(63)


def _wanted(
    event: Event, experiment: Experiment, plan: Plan, port: PortQueue, where: str
) -> Iterator[tuple[What, int, PortQueue]]:
    if event.up is not None:
        yield "up", int(event.up), port
    if event.rate_bps is not None:
        if plan.ends[port.port] in plan.traced:
            raise ConfigError(
                f"{where}.rate: the rate of {port.port} comes from a trace (links.overrides); "
                "allowed is one of the two"
            )
        with refusals_at(f"{where}.rate: burst of {port.port}"):
            port.queue.check_burst(event.rate_bps, port.frame_bytes)
        rate_bps = ports.port_rate_bps(experiment, port.port, event.rate_bps)
        port = replace(port, rate_bps=rate_bps)
        yield "rate_bps", rate_bps, port
    if event.delay_ns is not None:
        if event.delay_ns > MOST_DELAY_NS:
            raise ConfigError(
                f"{where}.delay: {units.format_time(event.delay_ns)}: allowed is up to "
                f"{units.format_time(MOST_DELAY_NS)}"
            )
        # The jitter makes no delay negative.
        jitter_ns = min(port.jitter_ns, event.delay_ns)
        noise_ns = min(port.noise_ns, jitter_ns)
        delay_ns = event.delay_ns + noise_ns
        port = replace(port, delay_ns=delay_ns, jitter_ns=jitter_ns, noise_ns=noise_ns)
        yield "delay_ns", event.delay_ns, port
    if event.limit is not None:
        node, neighbour = plan.ends[port.port]
        if plan.graph.nodes[node]["kind"] == "host":
            raise ConfigError(
                f"{where}.limit: {port.port} is a host's port, whose queue is not the "
                f"configuration's; allowed is the other direction alone: from: {neighbour}, "
                f"to: {node}"
            )
        rtt_ns = plan.base_rtts_ns[node, neighbour]
        link = replace(plan.links[node, neighbour], rate_bps=port.rate_bps)
        queue = _with_limit(port.queue, event, link, rtt_ns, where)
        port = replace(port, queue=queue)
        limit = queue.wire_limit
        if limit.packets is not None:
            yield "limit_packets", limit.packets, port
        else:
            yield "limit_bytes", limit.size_bytes or 0, port


def _faults(event: Event, link: Link, where: str) -> Iterator[tuple[Fault, int, Link]]:
    """What an event changes on a link, as the share of its packets, and all that then happens."""
    bursts, late = event.burst_loss, event.late
    if event.loss is not None:
        ppm = round(event.loss * 10**6)
        link = replace(link, loss=ppm / 10**6, burst_loss=None)
        yield "loss_ppm", ppm, link
    if bursts is not None:
        given = None if bursts == "none" else bursts
        link = replace(link, burst_loss=given, loss=0.0)
        yield "burst_loss_ppm", round(given.share * 10**6) if given else 0, link
    if late is not None and link.random_delay:
        raise ConfigError(f"{where}.late: the link has a random_delay; allowed is one of the two")
    if late is not None:
        link = replace(link, late=None if late == "none" else late)
        yield "late_ppm", round(link.late.share * 10**6) if link.late else 0, link
    if event.duplicate is not None:
        link = replace(link, duplicate=event.duplicate)
        yield "duplicate_ppm", round(event.duplicate * 10**6), link
    if event.policer is not None:
        if link.policer is None:
            raise ConfigError(
                f"{where}.policer: the link has none; allowed where links.overrides gives it one"
            )
        link = replace(link, policer=event.policer)
        try:
            link.check()
        except ValueError as error:
            raise ConfigError(f"{where}.{error}") from None
        yield "policer_bps", event.policer.rate_bps, link


def _with_limit(queue: Queue, event: Event, link: Link, base_rtt_ns: int, where: str) -> Queue:
    if queue.limit_options() is None:
        raise ConfigError(
            f"{where}.limit: a queue of kind {queue.kind} would lose its packets when its limit "
            "changes, and count no drop; allowed are tbf, htb, pfifo, bfifo and ecn_threshold"
        )
    written = {**queue.model_dump(mode="json", by_alias=True), "limit": event.limit}
    try:
        changed = type(queue).model_validate(written)
        return ports.counted(changed, link, base_rtt_ns)
    except ValidationError as error:
        message = handed_in.own_words(error.errors()[0])
        raise ConfigError(f"{where}.limit: {message}") from None
    except ValueError as error:
        raise ConfigError(f"{where}.limit: {error}") from None


def _note_up(event: Event, number: int, down: dict[frozenset[str], int]) -> None:
    ends = frozenset(event.between or ())
    named = " and ".join(event.between or ())
    if event.up and ends not in down:
        raise ConfigError(
            f"events.{number}.up: the link between {named} is not down then; allowed is true "
            "after an event with up: false"
        )
    if not event.up and ends in down:
        raise ConfigError(
            f"events.{number}.up: the link between {named} is down already, by "
            f"events.{down[ends]}; allowed is true"
        )
    if event.up:
        del down[ends]
    else:
        down[ends] = number
