"""The settings of every port of the network: its rate, its delay and its queue."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from outcast.experiment import Experiment, Limit, PacingFq, Pfifo, Queue

if TYPE_CHECKING:
    from outcast.plan.model import Plan

HOST_QUEUE = Limit(packets=1000)
"""A host's transmit queue: Linux's default of 1000 packets (ip-link(8), txqueuelen)."""


@dataclass(frozen=True, slots=True)
class PortQueue:
    """The settings that are asked for at one port.

    `changes_delay` says whether an event changes the delay, so that a netem stands there from the
    beginning.
    """

    port: str
    rate_bps: int
    delay_ns: int
    jitter_ns: int
    queue: Queue
    changes_delay: bool = False

    @property
    def has_netem(self) -> bool:
        """Whether a netem stands above the shaper."""
        return self.delay_ns > 0 or self.changes_delay


def switch_queue(experiment: Experiment, plan: Plan, port: str) -> PortQueue:
    """The settings of a switch's port; `port` is a name such as `s1-eth1`."""
    is_bottleneck = port == plan.bottleneck.egress
    queue: Queue = experiment.queue
    if queue.where == "bottleneck" and not is_bottleneck:
        queue = _host_queue(experiment)
    layer = plan.graph.nodes[plan.ends[port][0]]["layer"]
    names = {port, layer, "bottleneck"} if is_bottleneck else {port, layer}
    for exception in experiment.queues:
        at = [exception.at] if isinstance(exception.at, str) else exception.at
        if not names.isdisjoint(at):
            queue = exception.queue
    return _port_queue(experiment, plan, port, queue)


def host_queue(experiment: Experiment, plan: Plan, host: str) -> PortQueue:
    """The settings of a host's port: its link's rate, and room for all it may send.

    It has no jitter, because TCP hands over a burst at one instant. Packets keep their order, so
    each would wait for the one before it with the longest delay.
    """
    (switch,) = plan.graph.adj[host]
    paced = any(flow.src == host and flow.transport.pacing == "fq" for flow in plan.flows)
    queue: Queue = _pacing_queue(experiment) if paced else _host_queue(experiment)
    settings = _port_queue(experiment, plan, plan.port(host, switch), queue)
    return replace(settings, jitter_ns=0)


def _port_queue(experiment: Experiment, plan: Plan, port: str, queue: Queue) -> PortQueue:
    node, neighbour = plan.ends[port]
    link = plan.links[node, neighbour]
    return PortQueue(
        port,
        port_rate_bps(experiment, port, link.rate_bps),
        link.delay_ns or 0,
        link.jitter_ns or 0,
        queue,
        changes_delay=any(
            event.delay_ns is not None and event.concerns(node, neighbour)
            for event in experiment.events
        ),
    )


def port_rate_bps(experiment: Experiment, port: str, rate_bps: int) -> int:
    """A port's rate by its own oscillator, drawn from the seed and the port's name."""
    offset_ppm = experiment.links.clock_offset_ppm
    if not offset_ppm:
        return rate_bps
    draw = random.Random(f"{experiment.seed} {port}").uniform(-1.0, 1.0)
    # The kernel keeps rates in whole bytes per second.
    return round(rate_bps * (1 + draw * offset_ppm * 1e-6) / 8) * 8


def _pacing_queue(experiment: Experiment) -> PacingFq:
    return PacingFq.model_construct(
        kind="fq",
        limit=HOST_QUEUE,
        flow_limit=HOST_QUEUE.packets,
        where="every_port",
        shaper="tbf",
        burst_bytes=experiment.queue.burst_bytes,
    )


def _host_queue(experiment: Experiment) -> Pfifo:
    return Pfifo.model_construct(
        kind="pfifo",
        limit=HOST_QUEUE,
        shaper="tbf",
        where="every_port",
        burst_bytes=experiment.queue.burst_bytes,
    )
