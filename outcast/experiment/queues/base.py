"""What a queue kind says of itself, and what several kinds have in common.

A kind is one class in a file of its own, with all that is particular to it: its keys in the
configuration, what the kernel is told, what the kernel shows, when it drops, what it counts.
All else is made from these (`outcast.emulation.queues`, `outcast.records.queue_statistics`,
`outcast.engines.doctor`). Nothing here asks a kernel.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, get_origin

from pydantic import Field, model_validator

from outcast import units
from outcast.experiment.parts import (
    MTU_FRAME_BYTES,
    Limit,
    PacketLimit,
    Part,
    SizeBytes,
)

Drops = Literal["at_limit", "on_arrival", "later"]
"""When a queue drops: arrivals that find it full, other arrivals too, or what it had taken."""

Options = str | bytes
"""What a qdisc is told: words for tc(8), or TCA_OPTIONS where tc(8) cannot say it."""

Probe = Mapping[str, Options]
"""Qdiscs by their kernel's name, each with options that any kernel that has it accepts."""

Counters = Mapping[str, Callable[[bytes], dict[str, int]]]
"""By the qdisc's name in the kernel: its own statistics (TCA_STATS_APP) as numbers by name.

`marked` and `marked_at_threshold` are packets given the CE codepoint (RFC 3168), each once.
"""

LONGEST_NS = 1000 * 10**9
"""The kernel keeps these times in 32 bits of microseconds or less."""
TICK_NS = 64
"""The kernel counts times for tc(8) in ticks of 64 ns (PSCHED_SHIFT in net/pkt_sched.h)."""


class Qdisc(NamedTuple):
    """A qdisc as the kernel is told of it: its name there, and its options."""

    kind: str
    options: Options


class Setting(NamedTuple):
    """A setting, as it was requested and as the kernel shows it; these are to be equal."""

    name: str
    requested: object
    shown: object


class QueueKind(Part):
    """A kind of queue. A class with a `kind` that leaves anything of this out is refused.

    Attributes:
        drops: when it drops, by the kernel's source. A wrong one gives a wrong analysis.
        probe: what a kernel needs for it besides the shaper, and how to try that.
        counters: what its qdisc counts besides what all qdiscs count.
        since: the first Linux that has it, as `6.17`, where that is newer than 6.1, the oldest one
            that the guest's kernel is built from.
    """

    drops: ClassVar[Drops]
    probe: ClassVar[Probe]
    counters: ClassVar[Counters]
    since: ClassVar[str] = "6.1"

    where: Literal["every_port", "bottleneck"] = Field(
        default="every_port", description="which switch ports get this queue"
    )
    burst_bytes: SizeBytes = Field(
        default=1600, alias="burst", description="of the shaper; at least a frame"
    )

    @property
    @abstractmethod
    def shaper_kind(self) -> Literal["tbf", "htb"]:
        """The qdisc above it, which has the link's rate."""

    @property
    @abstractmethod
    def wire_limit(self) -> Limit:
        """Its limit where that counts what packets have on the wire; else an empty one."""

    @abstractmethod
    def tc(self) -> tuple[Qdisc, ...]:
        """Its qdiscs, the first below the shaper, each other one below the one before.

        Below one that tc(8) cannot set up, it is asked for no more.
        """

    @abstractmethod
    def check(self, *shown: bytes) -> Iterator[Setting]:
        """What the kernel shows of each setting; `shown` is TCA_OPTIONS of each of `tc`."""

    @classmethod
    def __pydantic_init_subclass__(cls, **more: Any) -> None:
        """Raises TypeError where a kind is incomplete."""
        super().__pydantic_init_subclass__(**more)
        field = cls.model_fields.get("kind")
        if field is None or get_origin(field.annotation) is not Literal:
            return
        said = ("drops", "probe", "counters")
        lacking = [*(name for name in said if not hasattr(cls, name)), *cls.__abstractmethods__]
        if lacking:
            raise TypeError(f"queue kind {cls.__name__}: no {', '.join(sorted(lacking))}")

    @model_validator(mode="after")
    def _burst_holds_a_frame(self) -> QueueKind:
        if self.burst_bytes < MTU_FRAME_BYTES:
            raise ValueError(
                f"burst {self.burst_bytes} B is below the frame size and would drop every full "
                f"frame; allowed is {MTU_FRAME_BYTES} B and more"
            )
        return self

    def check_burst(self, rate_bps: int) -> None:
        """Raises ValueError where at this rate the burst that the kernel keeps holds no frame.

        It keeps a time, in whole ticks of 64 ns and in 32 bits (PSCHED_SHIFT in net/pkt_sched.h).
        """
        ticks = (self.burst_bytes * 8 * 10**9 - 1) // (TICK_NS * rate_bps)
        if ticks >= 1 << 32:
            raise ValueError(
                f"{units.format_size(self.burst_bytes)} is longer than the kernel counts at "
                f"{units.format_rate(rate_bps)}; allowed is less"
            )
        kept = ticks * TICK_NS * rate_bps // (8 * 10**9)
        if kept < MTU_FRAME_BYTES:
            raise ValueError(
                f"at {units.format_rate(rate_bps)} the kernel keeps {kept} B of "
                f"{units.format_size(self.burst_bytes)}, less than a full frame; allowed is more"
            )


class Shaped(QueueKind):
    """A queue that a shaper of either kind can stand above."""

    shaper: Literal["tbf", "htb"] = Field(
        default="tbf", description="what limits the rate; the queue is its child"
    )

    @property
    def shaper_kind(self) -> Literal["tbf", "htb"]:
        return self.shaper


class CountsPackets(Shaped):
    """A queue whose limit is a number of packets."""

    kind: str
    limit: PacketLimit

    @property
    def wire_limit(self) -> Limit:
        return self.limit

    @model_validator(mode="after")
    def _counts_packets(self) -> CountsPackets:
        if self.limit.packets is None:
            raise ValueError(f"{self.kind} counts packets; allowed is a limit as '11 packets'")
        return self


class ControlsDelay(Shaped):
    """What drops by the time that packets were queued; the kernel takes whole microseconds."""

    @model_validator(mode="after")
    def _whole_microseconds(self) -> ControlsDelay:
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name.endswith("_ns") and (not 1000 <= value <= LONGEST_NS or value % 1000):
                raise ValueError(f"{field.alias} is to be in whole microseconds, 1us to 1000s")
        return self


def fields(**places: tuple[str, int]) -> Callable[[bytes], dict[str, int]]:
    """Reads counters from a struct: by name, each one's format (see `struct`) and its offset."""

    def read(raw: bytes) -> dict[str, int]:
        return {
            name: int(struct.unpack_from(form, raw, at)[0]) for name, (form, at) in places.items()
        }

    return read


def ecn_word(asked: bool) -> str:
    """As tc(8) wants it."""
    return "ecn" if asked else "noecn"
