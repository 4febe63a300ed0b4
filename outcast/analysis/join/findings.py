"""What a join found out, and why it is refused."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from outcast.errors import UntrustedError
from outcast.records.captures import ClockEstimate, QueueEstimate

if TYPE_CHECKING:
    from outcast.analysis.join.join import Joined
    from outcast.analysis.measure.blackout import Chains
    from outcast.analysis.measure.queue import Queue


@dataclass(frozen=True, slots=True)
class DropRange:
    """How many packets an output dropped of those from an input, where captures lack packets.

    Attributes:
        counted: how many of the captured packets seem dropped.
        least: how many of them the captures prove.
        most: how many there are with those that the input's capture probably lacks.
        sentence: all of it, and what shows that packets are missing.
    """

    ingress: str
    egress: str
    counted: int
    least: int
    most: int
    sentence: str


@dataclass(frozen=True, eq=False, repr=False)
class Found:
    """What captures that were joined show; `outcast.Join` says what each part is."""

    joined: Joined
    queue: Queue
    chains: Chains
    remarks: tuple[str, ...]
    clocks: tuple[ClockEstimate, ...]
    estimates: tuple[QueueEstimate, ...]


class Reason(StrEnum):
    """Why a join is refused."""

    CLOCKS = "clocks"
    """No single offset and drift of each clock makes the captures agree."""
    DIRECTION = "direction"
    """Nothing shows which way packets go, or which is which."""
    UNEXPLAINED = "unexplained"
    """Packets left that no capture saw come in, or that are there twice."""
    UNDECIDED = "undecided"
    """Packets came in whose fate no capture shows."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a join cannot be believed: the reason, and one line with its numbers."""

    reason: Reason
    sentence: str


@dataclass(frozen=True, slots=True)
class PortCounts:
    """The packets of a port's captures, of a join that is refused.

    Attributes:
        unseen: packets that left there and were never seen to come in.
        first_ns, last_ns: the earliest and the latest stamp.
        apart_share: the share of the packets that takes no part.
    """

    port: str
    came: int
    left: int
    unseen: int
    first_ns: int
    last_ns: int
    apart_share: float


class RefusedJoin(UntrustedError):
    """Captures were joined, but the join cannot be believed.

    Attributes:
        reason: one of four.
        ports: the numbers of each port.
    """

    reason: Reason
    ports: tuple[PortCounts, ...]

    @classmethod
    def of(cls, refusal: Refusal, ports: tuple[PortCounts, ...]) -> RefusedJoin:
        """The error of a refusal."""
        error = cls(refusal.sentence)
        error.reason, error.ports = refusal.reason, ports
        return error

    @property
    def table(self) -> list[str]:
        """The numbers of each port as lines of text; stamps in seconds since the first."""
        first_ns = min(port.first_ns for port in self.ports)
        rows: list[tuple[str, ...]] = []
        rows += [("port", "came in", "left", "never came in", "first (s)", "last (s)", "no part")]
        for port in self.ports:
            counts = (f"{count:,}" for count in (port.came, port.left, port.unseen))
            times = (f"{(ns - first_ns) / 1e9:.3f}" for ns in (port.first_ns, port.last_ns))
            rows.append((port.port, *counts, *times, f"{port.apart_share:.1%}"))
        width = max(len(row[0]) for row in rows)
        return [f"{row[0]:{width}}" + "".join(f"{cell:>15}" for cell in row[1:]) for row in rows]
