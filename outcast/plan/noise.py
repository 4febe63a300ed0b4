"""The noise of the hosts: what a network card and a busy processor do to arrivals and departures.

The noise of ports, oscillators and the latency of switches, is among the settings of links and
ports (outcast/plan/links.py, outcast/plan/ports.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from outcast.experiment import Experiment
from outcast.experiment.noise import Throttled

IFB_OF_HOST = "arrivals"
"""The interface through which a host's arrivals go, in its own namespace."""


@dataclass(frozen=True, slots=True)
class Span:
    """A time that is drawn each time, uniformly between two bounds in nanoseconds."""

    least_ns: int
    most_ns: int


CARD_ENDS = ("waiting", "behind")
"""The ends of the veth pair through which packets go that wait for an interrupt."""
GIGABIT_BPS = 10**9
BURST_UNIT_NS = 64
"""The kernel's unit for what a police action saves up (PSCHED_TICKS2NS in net/pkt_sched.h)."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """Cards that count from their last interrupt.

    Attributes:
        per_second: the most interrupts in a second, where a host's link has 1 Gbps or more.
        below_gigabit: the same where it has less.
    """

    per_second: int
    below_gigabit: int

    def at(self, rate_bps: int) -> int:
        """The most interrupts in a second at a link of this rate, as the kernel can have it."""
        return possible(self.per_second if rate_bps >= GIGABIT_BPS else self.below_gigabit)

    @property
    def longest_ns(self) -> int:
        """The longest interval of any card."""
        return max(interval_ns(possible(rate)) for rate in (self.per_second, self.below_gigabit))


def possible(per_second: int) -> int:
    """The nearest number of intervals in a second whose length the kernel's police action can save.

    It saves up whole units of 64 ns. If an interval had another length, what is left over would let
    the next packet pass too early.
    """
    return next(
        rate
        for apart in range(per_second)
        for rate in (per_second - apart, per_second + apart)
        if interval_ns(rate) % BURST_UNIT_NS == 0
    )


def interval_ns(per_second: int) -> int:
    """The time between packets at a rate in packets per second, as the kernel rounds it.

    The kernel multiplies and shifts instead of dividing (psched_ratecfg_precompute__ in
    net/sched/sch_generic.c), and so do we.
    """
    factor, shift = 10**9, 0
    while not (multiplier := factor // per_second) & 1 << 31 and not factor & 1 << 63:
        factor, shift = factor << 1, shift + 1
    return (multiplier & (1 << 32) - 1) >> shift


@dataclass(frozen=True, slots=True)
class HostNoise:
    """What every host does.

    Attributes:
        interrupts: how long after the first arrival a host gets all that has arrived; None where it
            gets each packet at once.
        sender: how long after the first packet all that a host sends leaves; None where each packet
            leaves at once.
        throttle: how often a host is interrupted, where its card counts from the last interrupt.
    """

    interrupts: Span | None = None
    sender: Span | None = None
    throttle: Throttle | None = None

    @property
    def round_trip_ns(self) -> int:
        """The most that it adds to a round trip, over both hosts."""
        most_ns = [span.most_ns for span in (self.interrupts, self.sender) if span is not None]
        if self.throttle is not None:
            most_ns.append(self.throttle.longest_ns)
        return 2 * sum(most_ns)


def of_hosts(experiment: Experiment) -> HostNoise:
    interrupts, sender = experiment.noise.interrupts, experiment.noise.sender
    held = sender_span = throttle = None
    if isinstance(interrupts, Throttled):
        below_gigabit = interrupts.below_gigabit or interrupts.per_second
        throttle = Throttle(interrupts.per_second, below_gigabit)
    elif interrupts:
        held = Span(interrupts.least_ns, interrupts.most_ns)
    if sender:
        sender_span = Span(sender.least_ns, sender.most_ns)
    return HostNoise(interrupts=held, sender=sender_span, throttle=throttle)
