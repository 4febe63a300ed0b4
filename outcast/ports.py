"""What every port of the network is to have: its rate, its delay and its queue."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from outcast.experiment import Experiment, Limit, Pfifo, Queue

HOST_QUEUE = Limit(packets=1000)
"""A host's own transmit queue: Linux's default of 1000 packets (ip-link(8), txqueuelen)."""


@dataclass(frozen=True, slots=True)
class PortQueue:
    """What one port is to have."""

    port: str
    rate_bps: int
    delay_ns: int
    jitter_ns: int
    queue: Queue


def switch_queue(experiment: Experiment, port: str, *, is_bottleneck: bool) -> PortQueue:
    """The queue of a switch port."""
    queue: Queue = experiment.queue
    if queue.where == "bottleneck" and not is_bottleneck:
        queue = _host_queue(experiment)
    return _port_queue(experiment, port, queue)


def host_queue(experiment: Experiment, port: str) -> PortQueue:
    """The queue of a host's port: the link's rate, and room for all it may send.

    No jitter: TCP hands over bursts at one instant, which different delays would put out of order.
    """
    return replace(_port_queue(experiment, port, _host_queue(experiment)), jitter_ns=0)


def _port_queue(experiment: Experiment, port: str, queue: Queue) -> PortQueue:
    links = experiment.links
    return PortQueue(
        port, port_rate_bps(experiment, port), links.delay_ns or 0, links.jitter_ns or 0, queue
    )


def port_rate_bps(experiment: Experiment, port: str) -> int:
    """The rate of a port's own oscillator, drawn by the seed and the port's name."""
    links = experiment.links
    if not links.clock_offset_ppm:
        return links.rate_bps
    draw = random.Random(f"{experiment.seed} {port}").uniform(-1.0, 1.0)
    # The kernel keeps rates in whole bytes a second.
    return round(links.rate_bps * (1 + draw * links.clock_offset_ppm * 1e-6) / 8) * 8


def _host_queue(experiment: Experiment) -> Pfifo:
    return Pfifo.model_construct(
        kind="pfifo",
        limit=HOST_QUEUE,
        shaper="tbf",
        where="every_port",
        burst_bytes=experiment.queue.burst_bytes,
    )
