"""Queues with classes of service: a drop-tail queue for each, chosen by a packet's DSCP (RFC 2474).

The classes stand in one qdisc below the shaper. Class number n is `3:n`, from 1, and its packets
stand in a pfifo or bfifo. Filters of cls_u32 look at IPv4 and IPv6; the class without code points
takes all other packets.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from outcast import netlink, units
from outcast.experiment.parts import (
    MTU_FRAME_BYTES,
    Dscp,
    GroupName,
    KernelRateBps,
    Part,
    SizeBytes,
    described,
    optional,
)
from outcast.experiment.queues import base
from outcast.experiment.queues.drop_tail import check_limit, fifo, fifo_options

MOST_CLASSES = 8
_DSCP_MASK = 0xFC
"""The upper six bits of IPv4's TOS and IPv6's traffic class; the others are ECN's."""
_ROOT = "fff"
"""Minor number of the class of HTB that the others borrow from. The shaper above limits the rate,
so it has a rate beyond any link's."""
_ROOT_BPS = 10**11
_TCA_DRR_QUANTUM = _TCA_HTB_PARMS = 1
_HTB = struct.Struct("=BBHhHI BBHhHI 5I")
"""struct tc_htb_opt: rate and ceil as struct tc_ratespec, buffer, cbuffer, quantum, level, prio."""

_Quantum = Annotated[SizeBytes, Field(ge=256, le=1 << 20)]


def _listed(value: object) -> object:
    if value in ([], ()):
        raise ValueError("the list is empty; allowed are code points, or to leave dscp out")
    return value if value is None or isinstance(value, (list, tuple)) else [value]


class TrafficClass(Part):
    """A class of service."""

    name: GroupName = described(
        "what tables and summary.json call it; in counters.json classes are numbered in the order "
        "of the list, as class_1"
    )
    dscp: Annotated[tuple[Dscp, ...] | None, BeforeValidator(_listed)] = optional(
        "its code points, as `ef` or 46; if left out, all other packets"
    )


class DrrClass(TrafficClass):
    """A class of DRR."""

    quantum_bytes: _Quantum = described("what it may send in its turn", default=MTU_FRAME_BYTES)


class HtbClass(TrafficClass):
    """A class of HTB."""

    rate_bps: KernelRateBps = described("what it always gets")
    ceil_bps: KernelRateBps | None = optional("the most that it gets; if left out, the link's")
    priority: int = described("who borrows first: 0", default=0, ge=0, le=7)
    quantum_bytes: _Quantum = described(
        "what it borrows in its turn, among those of one priority", default=MTU_FRAME_BYTES
    )

    def _require(self) -> None:
        if self.ceil_bps is not None and self.ceil_bps < self.rate_bps:
            raise ValueError(
                f"ceil: {units.format_rate(self.ceil_bps)} is below the rate; allowed is "
                f"{units.format_rate(self.rate_bps)} and more"
            )


class HasClasses(base.Counted):
    """A queue with classes; `limit` is that of each."""

    # A class is drop-tail, but it is full while the others are not.
    drops = "on_arrival"
    counters = {}

    classes: tuple[TrafficClass, ...]

    def _require(self) -> None:
        super()._require()
        points = [str(point) for each in self.classes for point in each.dscp or ()]
        names = [each.name for each in self.classes]
        rest = [each.name for each in self.classes if each.dscp is None]
        for what, found in (("name", names), ("DSCP", points)):
            if twice := [text for text in found if found.count(text) > 1]:
                raise ValueError(f"classes: {what} {twice[0]} is given twice; allowed is once")
        if len(rest) != 1 or not 2 <= len(names) <= MOST_CLASSES:
            raise ValueError(
                f"classes: {len(names)} are given, and {len(rest)} of them have no dscp; allowed "
                f"are 2 to {MOST_CLASSES}, and one without dscp, which takes all other packets"
            )

    @property
    def told_by(self) -> Mapping[int, int]:
        """The number of the class of each DSCP that some class names."""
        return {
            point: minor for minor, each in enumerate(self.classes, 1) for point in each.dscp or ()
        }

    @property
    def rest(self) -> int:
        """The number of the class that takes all other packets."""
        return 1 + [each.dscp for each in self.classes].index(None)

    def _leaves(self) -> tuple[base.Qdisc, ...]:
        options = fifo_options(self.limit)
        minors = range(1, len(self.classes) + 1)
        return tuple(base.Qdisc(fifo(self.limit), options, minor) for minor in minors)

    def class_words(self) -> tuple[str, ...]:
        told = f"filter add dev {base.PORT} parent 3: protocol"
        fields = ("ip pref 1 u32 match ip dsfield", "ipv6 pref 2 u32 match ip6 priority")
        return (
            *(
                f"{told} {field} {point << 2:#04x} {_DSCP_MASK:#04x} flowid 3:{minor}"
                for point, minor in self.told_by.items()
                for field in fields
            ),
            f"{told} all pref 3 matchall flowid 3:{self.rest}",
        )

    def check(self, *all_options: bytes) -> Iterator[base.Setting]:
        for each, options in zip(self.classes, all_options[1:], strict=True):
            limit = check_limit(self.limit, options)
            yield limit._replace(name=f"{each.name} {limit.name}")


class Prio(HasClasses):
    """tc-prio(8): strict priority. A class sends only while those before it have nothing."""

    probe = {"prio": ""}

    kind: Literal["prio"]
    classes: tuple[TrafficClass, ...] = described("the most urgent one first")

    def tc(self) -> tuple[base.Qdisc, ...]:
        words = f"bands {len(self.classes)} priomap" + f" {self.rest - 1}" * 16
        return (base.Qdisc("prio", words), *self._leaves())

    def check(self, *options: bytes) -> Iterator[base.Setting]:
        (bands,) = struct.unpack_from("=i", options[0])
        yield base.Setting("bands", len(self.classes), bands)
        yield from super().check(*options)


class Drr(HasClasses):
    """tc-drr(8): classes send in turn, each its quantum (Shreedhar and Varghese 1995)."""

    probe = {"drr": ""}

    kind: Literal["drr"]
    classes: tuple[DrrClass, ...] = described("they share the link as their quanta do")

    def tc(self) -> tuple[base.Qdisc, ...]:
        return (base.Qdisc("drr", ""), *self._leaves())

    def class_words(self) -> tuple[str, ...]:
        classes = (
            f"class add dev {base.PORT} parent 3: classid 3:{minor} drr "
            f"quantum {each.quantum_bytes}"
            for minor, each in enumerate(self.classes, 1)
        )
        return (*classes, *super().class_words())

    def check_class(self, minor: int, options: bytes) -> Iterator[base.Setting]:
        quantum = netlink.numbers(options).get(_TCA_DRR_QUANTUM)
        yield base.Setting("quantum_bytes", self.classes[minor - 1].quantum_bytes, quantum)


class HtbClasses(HasClasses):
    """tc-htb(8): each class has a rate of its own, and borrows up to its ceil what others leave."""

    probe = {"htb": "default 1"}

    kind: Literal["htb_classes"]
    classes: tuple[HtbClass, ...] = described("their rates add up to the link's at most")

    def tc(self) -> tuple[base.Qdisc, ...]:
        return (base.Qdisc("htb", f"default {self.rest}"), *self._leaves())

    def class_words(self) -> tuple[str, ...]:
        told = f"class add dev {base.PORT} parent 3:"
        bursts = f"burst {self.burst_bytes} cburst {self.burst_bytes}{base.OVERHEAD}"
        classes = (
            f"{told}{_ROOT} classid 3:{minor} htb rate {each.rate_bps}bit "
            f"ceil {each.ceil_bps or _ROOT_BPS}bit prio {each.priority} "
            f"quantum {each.quantum_bytes} {bursts}"
            for minor, each in enumerate(self.classes, 1)
        )
        root = f"{told} classid 3:{_ROOT} htb rate {_ROOT_BPS}bit quantum 1514"
        return (root, *classes, *super().class_words())

    def check_class(self, minor: int, options: bytes) -> Iterator[base.Setting]:
        if minor == int(_ROOT, 16):
            return
        each = self.classes[minor - 1]
        values = _HTB.unpack(netlink.attribute(options, _TCA_HTB_PARMS) or bytes(_HTB.size))
        rate, ceil, quantum, priority = values[5], values[11], values[14], values[16]
        yield base.Setting("rate_bps", each.rate_bps, rate * 8)
        if each.ceil_bps is not None:
            yield base.Setting("ceil_bps", each.ceil_bps, ceil * 8)
        yield base.Setting("quantum_bytes", each.quantum_bytes, quantum)
        yield base.Setting("priority", each.priority, priority)

    @property
    def rates_bps(self) -> int:
        return sum(each.rate_bps for each in self.classes)

    def check_rate(self, rate_bps: int) -> None:
        if self.rates_bps > rate_bps:
            raise ValueError(
                f"the rates of its classes add up to {units.format_rate(self.rates_bps)}; allowed "
                f"is the link's {units.format_rate(rate_bps)} at most"
            )
        # The kernel takes such a ceil, and the class then gets the link's rate at most.
        for each in self.classes:
            if each.ceil_bps is not None and each.ceil_bps > rate_bps:
                raise ValueError(
                    f"class {each.name} has ceil: {units.format_rate(each.ceil_bps)}; allowed is "
                    f"the link's {units.format_rate(rate_bps)} at most"
                )
