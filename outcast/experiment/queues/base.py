"""The base class of queue kinds, and what several kinds have in common.

A kind is one class, in a file with related kinds. The class has all that is particular to the
kind: its keys in the configuration, what the kernel gets, what the kernel shows, when the queue
drops, and what it counts. `outcast.emulation.queues`, `outcast.records.queue_statistics` and
`outcast.engines.doctor` derive everything else from the class. Nothing here asks a kernel.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, get_origin

from outcast import netlink, units
from outcast.experiment.limit import Limit, QueueLimit, Unit
from outcast.experiment.parts import MTU_FRAME_BYTES, Part, SizeBytes, described, key_of

Drops = Literal["at_limit", "on_arrival", "later"]
"""When a queue drops.

- `at_limit`: only arrivals that find it full (drop-tail).
- `on_arrival`: other arrivals too, but never a packet that it has taken.
- `later`: also packets that it had taken.
"""

Options = str | bytes
"""A qdisc's options: words for tc(8), or the bytes of TCA_OPTIONS where tc(8) has no words."""

Probe = Mapping[str, Options]
"""From a qdisc's name to options that every kernel with this qdisc accepts."""

Counters = Mapping[str, Callable[[bytes], dict[str, int]]]
"""From a qdisc's name to the function that reads its own statistics (TCA_STATS_APP).

The function returns numbers by name. `marked` and `marked_at_threshold` count packets that got the
CE codepoint (RFC 3168), each packet once.
"""

LONGEST_NS = 1000 * 10**9
"""The kernel keeps these times in microseconds or finer, in 32 bits at most."""
TICK_NS = 64
"""The kernel counts times for tc(8) in ticks of 64 ns (PSCHED_SHIFT in net/pkt_sched.h)."""
BURST_ROUNDING_NS = 1000 + TICK_NS
"""tc(8) rounds a burst's time to whole microseconds, and then to ticks."""
DEFAULT_BURST_BYTES = 1600
"""A little more than a full frame. In real time a port adds to it (outcast/plan/ports.py)."""


RATE, PORT, OVERHEAD = "{rate}", "{port}", "{overhead}"
"""Placeholders in the words for tc(8): the port's rate, its name, and how it counts frames."""


class Qdisc(NamedTuple):
    """A qdisc as the kernel gets it.

    Attributes:
        kind: its name in the kernel.
        options: see `Options`.
        minor: its parent's class, a class of the first qdisc; None: the qdisc before is its parent.
    """

    kind: str
    options: Options
    minor: int | None = None


class Setting(NamedTuple):
    """A setting as it was requested and as the kernel shows it. The two have to be equal."""

    name: str
    requested: object
    shown: object


class QueueKind(Part):
    """A kind of queue. A class with a `kind` that leaves out a part is refused when it is defined.

    Attributes:
        drops: when it drops. Take it from the kernel's source, because the analysis relies on it.
        probe: the qdiscs that a kernel needs for it, with options to try each.
        counters: what its qdisc counts besides what all qdiscs count.
        counts: what its limits can count in the kernel.
        always_marks: whether its marking cannot be switched off by a key `ecn`.
        since: the first Linux that has it, as `6.17`. The default is the oldest Linux that the
            guest's kernel is built from.
    """

    drops: ClassVar[Drops]
    probe: ClassVar[Probe]
    counters: ClassVar[Counters]
    counts: ClassVar[tuple[Unit, ...]] = ("size_bytes", "packets")
    since: ClassVar[str] = "6.1"
    always_marks: ClassVar[bool] = False

    where: Literal["every_port", "bottleneck"] = described(
        "which switch ports get this queue", default="every_port"
    )
    burst_bytes: SizeBytes = described(
        "of the shaper; a full frame or more; in real time 1600B has room for late timers too",
        default=DEFAULT_BURST_BYTES,
    )

    @property
    @abstractmethod
    def shaper_kind(self) -> Literal["tbf", "htb"]:
        """The qdisc above the queue, which limits the rate to the link's."""

    @property
    @abstractmethod
    def wire_limit(self) -> Limit:
        """The limit, if it counts packets or bytes as captures do; else an empty Limit."""

    @abstractmethod
    def tc(self) -> tuple[Qdisc, ...]:
        """The queue's qdiscs from the top: the first is below the shaper, each next below the last.

        Below a qdisc that is set up by rtnetlink, tc(8) cannot set up another, because its batch
        runs first.
        """

    @abstractmethod
    def check(self, *options: bytes) -> Iterator[Setting]:
        """Each setting as requested and as shown; `options` has each TCA_OPTIONS of `tc`."""

    def class_words(self) -> tuple[str, ...]:
        """The lines of a tc batch that give the first qdisc of `tc` its classes and filters."""
        return ()

    def check_class(self, minor: int, options: bytes) -> Iterator[Setting]:
        """Each setting of the class `3:minor`, as `check` says; `options` is its TCA_OPTIONS."""
        yield from ()

    def check_rate(self, rate_bps: int) -> None:
        """Raises ValueError if its classes want more than a port of this rate sends."""

    def limit_options(self) -> bytes | None:
        """TCA_OPTIONS that give the last qdisc of `tc` this limit and let it keep its packets.

        None if the kernel cannot: red starts with an empty queue again, and sfq, fq, codel,
        fq_codel, pie and dualpi2 discard packets above a lower limit without counting drops
        (their `change` functions in net/sched).
        """
        return None

    @property
    def marks(self) -> bool:
        """Whether it ever marks a packet (ECN's codepoint CE) in place of a drop."""
        return self.always_marks or bool(getattr(self, "ecn", False))

    @property
    def limits(self) -> dict[str, Limit]:
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: value for name, value in values.items() if isinstance(value, Limit)}

    @property
    def is_counted(self) -> bool:
        """Whether each limit has a unit that the kernel counts, so that no port converts it."""
        return all(
            any(getattr(limit, unit) is not None for unit in self.counts)
            for limit in self.limits.values()
        )

    @classmethod
    def __pydantic_init_subclass__(cls, **more: Any) -> None:
        super().__pydantic_init_subclass__(**more)
        field = cls.model_fields.get("kind")
        if field is None or get_origin(field.annotation) is not Literal:
            return
        required = ("drops", "probe", "counters")
        lacking = [name for name in required if not hasattr(cls, name)]
        lacking += cls.__abstractmethods__
        if lacking:
            raise TypeError(f"queue kind {cls.__name__}: no {', '.join(sorted(lacking))}")

    def _require(self) -> None:
        if self.burst_bytes < MTU_FRAME_BYTES:
            raise ValueError(
                f"burst {self.burst_bytes} B is below the frame size and would drop every full "
                f"frame; allowed is {MTU_FRAME_BYTES} B and more"
            )

    def check_burst(self, rate_bps: int, frame_bytes: int = MTU_FRAME_BYTES) -> None:
        """Raises ValueError if at this rate the kernel's burst does not hold a full frame.

        The kernel keeps a burst as a time, in whole ticks of 64 ns and in 32 bits (PSCHED_SHIFT in
        net/pkt_sched.h).
        """
        ticks = (self.burst_bytes * 8 * 10**9 - 1) // (TICK_NS * rate_bps)
        if ticks >= 1 << 32:
            raise ValueError(
                f"{units.format_size(self.burst_bytes)} is longer than the kernel counts at "
                f"{units.format_rate(rate_bps)}; allowed is less"
            )
        kept = ticks * TICK_NS * rate_bps // (8 * 10**9)
        if kept < frame_bytes:
            raise ValueError(
                f"at {units.format_rate(rate_bps)} the kernel keeps {kept} B of "
                f"{units.format_size(self.burst_bytes)}, less than a full frame; allowed is more"
            )


class Shaped(QueueKind):
    """A queue that can have a shaper of either kind above it."""

    shaper: Literal["tbf", "htb"] = described(
        "what limits the rate; the queue is its child", default="tbf"
    )

    @property
    def shaper_kind(self) -> Literal["tbf", "htb"]:
        return self.shaper


class Counted(Shaped):
    """A queue whose limit counts bytes or packets as captures do."""

    kind: str
    limit: QueueLimit

    @property
    def wire_limit(self) -> Limit:
        return self.limit


class CountsPackets(Counted):
    """A queue whose limit the kernel counts in packets."""

    counts: ClassVar[tuple[Unit, ...]] = ("packets",)


class CountsBytes(Counted):
    """A queue whose limit the kernel counts in bytes."""

    counts: ClassVar[tuple[Unit, ...]] = ("size_bytes",)


class ControlsDelay(Shaped):
    """A queue that drops by sojourn time. The kernel takes its times in whole microseconds."""

    def _require(self) -> None:
        super()._require()
        for name in type(self).model_fields:
            value = getattr(self, name)
            if name.endswith("_ns") and (not 1000 <= value <= LONGEST_NS or value % 1000):
                raise ValueError(
                    f"{key_of(name)}: allowed are whole microseconds from 1us to 1000s"
                )


def fields(**places: tuple[str, int]) -> Callable[[bytes], dict[str, int]]:
    """A reader of a struct's counters; `places` has each one's format (see `struct`) and offset."""

    def decode(raw: bytes) -> dict[str, int]:
        return {
            name: int(struct.unpack_from(form, raw, at)[0]) for name, (form, at) in places.items()
        }

    return decode


def numbered(options: bytes, **wanted: tuple[object, int]) -> Iterator[Setting]:
    """Each setting whose value is a number in TCA_OPTIONS.

    `wanted` has what was requested, and the number of its attribute in linux/pkt_sched.h.
    """
    numbers = netlink.numbers(options)
    for name, (requested, attribute) in wanted.items():
        number = numbers.get(attribute)
        yield Setting(name, requested, bool(number) if isinstance(requested, bool) else number)


def ecn_word(marks: bool) -> str:
    return "ecn" if marks else "noecn"
