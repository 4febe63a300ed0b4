"""The noise of the hosts: what a network card and a busy processor do to arrivals and departures.

The noise of ports, oscillators and the latency of switches, is among the settings of links and
ports (outcast/plan/links.py, outcast/plan/ports.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from outcast.experiment import Experiment

IFB_OF_HOST = "arrivals"
"""The interface through which a host's arrivals go, in its own namespace."""


@dataclass(frozen=True, slots=True)
class Span:
    """A time that is drawn anew each time, uniformly between two bounds in nanoseconds."""

    least_ns: int
    most_ns: int


@dataclass(frozen=True, slots=True)
class HostNoise:
    """What every host does.

    Attributes:
        interrupts: how long after the first arrival a host gets all that has arrived; None where it
            gets each packet at once.
        sender: how long after the first packet all that a host sends leaves; None where each packet
            leaves at once.
    """

    interrupts: Span | None = None
    sender: Span | None = None

    @property
    def round_trip_ns(self) -> int:
        """The most that it adds to a round trip, over both hosts."""
        spans = [span for span in (self.interrupts, self.sender) if span is not None]
        return 2 * sum(span.most_ns for span in spans)


def of_hosts(experiment: Experiment) -> HostNoise:
    """The noise of every host."""
    interrupts, sender = experiment.noise.interrupts, experiment.noise.sender
    return HostNoise(
        interrupts=Span(interrupts.least_ns, interrupts.most_ns) if interrupts else None,
        sender=Span(sender.least_ns, sender.most_ns) if sender else None,
    )
