"""What the kernel shows of a port's classes of service, and of their filters."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

from outcast import netlink
from outcast.errors import ReadBackError
from outcast.experiment.queues.classes import HasClasses
from outcast.plan.ports import PortQueue
from outcast.records.effective import OTHER_CODE_POINTS
from outcast.records.queue_statistics import QUEUE_HANDLE

_TCA_CLASSID, _TCA_U32_SEL = 1, 5
"""Of u32 and of matchall alike (linux/pkt_cls.h)."""
_SELECTOR = struct.Struct("=3xB12x")
"""Struct tc_u32_sel to its keys, of which the number is read."""
_KEY = struct.Struct("!IIii")
"""Struct tc_u32_key: mask and value in network order, and two offsets."""
_TOS_SHIFT = {0x0800: 16, 0x86DD: 20}
"""Where the TOS and the traffic class begin in the first word of IPv4's and IPv6's headers."""

_EVERY = 3
"""ETH_P_ALL."""

Filter = tuple[int, int | None]
"""The packets that it takes, as EtherType and DSCP; None stands for every one."""


def read_classes(port_queue: PortQueue) -> dict[str, Any]:
    """The settings in effect of a port's classes by name; empty where its queue has none.

    Raises ReadBackError: the kernel shows something else than was requested.
    """
    queue, port = port_queue.queue, port_queue.port
    effective: dict[str, Any] = {}
    if not isinstance(queue, HasClasses):
        return effective
    # Imported here, because runs without classes do not need it.
    from pyroute2.iproute import IPRoute

    index, parent = socket.if_nametoindex(port), netlink.handle(QUEUE_HANDLE)
    with IPRoute() as kernel:
        classes = kernel.get_classes(index=index)
        told = dict(_filters(kernel.get_filters(index=index, parent=parent)))
    seen = set()
    for message in classes:
        major, minor = divmod(message["handle"], 1 << 16)
        if major != QUEUE_HANDLE:
            continue
        seen.add(minor)
        options = netlink.raw_bytes(message.get_attr("TCA_OPTIONS") or "")
        for setting in queue.check_class(minor, options):
            name = f"{queue.classes[minor - 1].name} {setting.name}"
            effective[name] = setting.shown
            if setting.shown != setting.requested:
                raise ReadBackError(port, name, setting.requested, setting.shown)
    if missing := set(range(1, len(queue.classes) + 1)) - seen:
        raise ReadBackError(port, "classes", len(queue.classes), f"none with number {missing}")
    wanted: dict[Filter, int] = {(_EVERY, None): queue.rest}
    for point, minor in queue.told_by.items():
        wanted |= {(family, point): minor for family in _TOS_SHIFT}
    if told != wanted:
        raise ReadBackError(port, "filters", sorted(map(str, wanted)), sorted(map(str, told)))
    for minor, each in enumerate(queue.classes, 1):
        points = sorted(
            {point for (_, point), to in told.items() if to == minor and point is not None}
        )
        effective[f"{each.name} dscp"] = " ".join(map(str, points)) or OTHER_CODE_POINTS
    return effective


def _filters(messages: Any) -> Iterator[tuple[Filter, int]]:
    """Each filter of u32 and matchall, and the minor number of the class that it leads to."""
    for message in messages:
        raw = netlink.raw_bytes(message.get_attr("TCA_OPTIONS") or "")
        options = dict(netlink.attributes(raw))
        if _TCA_CLASSID not in options:
            continue
        family = socket.ntohs(message["info"] & 0xFFFF)
        minor = int.from_bytes(options[_TCA_CLASSID], "little") & 0xFFFF
        yield (family, _point(family, options.get(_TCA_U32_SEL, b""))), minor


def _point(family: int, selector: bytes) -> int | None:
    """The DSCP that a selector asks for; None where it asks for anything else, or for nothing."""
    if family not in _TOS_SHIFT or len(selector) != _SELECTOR.size + _KEY.size:
        return None
    mask, value, offset, _ = _KEY.unpack_from(selector, _SELECTOR.size)
    shift = _TOS_SHIFT[family]
    return value >> shift + 2 if mask == 0xFC << shift and offset == 0 else None
