"""Reads a port's qdiscs, classes and filters back, and compares them with what was requested."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from outcast import netlink
from outcast.emulation.kernel import rtnetlink
from outcast.emulation.queues import netem
from outcast.emulation.queues.qdiscs import below_the_shaper
from outcast.errors import ReadBackError
from outcast.experiment.queues.base import BURST_ROUNDING_NS, TICK_NS
from outcast.experiment.queues.classes import HasClasses
from outcast.plan.ports import PortQueue
from outcast.records.effective import OTHER_CODE_POINTS
from outcast.records.queue_statistics import (
    CABLE_HANDLE,
    DELAY_HANDLE,
    QUEUE_HANDLE,
    SENDER_HANDLE,
    SHAPER_HANDLE,
)

_TCA_CLASSID, _TCA_U32_SEL = 1, 5
"""Of u32 and of matchall alike (linux/pkt_cls.h)."""
_SELECTOR = struct.Struct("=3xB12x")
"""Struct tc_u32_sel to its keys, of which the number is read."""
_KEY = struct.Struct("!IIii")
"""Struct tc_u32_key: mask and value in network order, and two offsets."""
_TOS_SHIFT = {0x0800: 16, 0x86DD: 20}
"""Where the TOS and the traffic class begin in the first word of IPv4's and IPv6's headers."""

Filter = tuple[int, int | None]
"""The packets that a filter takes: EtherType, and DSCP or None for every packet."""


def read_back(port_queue: PortQueue, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The settings in effect by name.

    The messages are pyroute2's of RTM_GETQDISC for this port, and of RTM_GETTCLASS for htb.

    Raises ReadBackError: the kernel shows something else than was requested.
    """
    dump = _PortDump(port_queue.port, messages)
    if port_queue.has_cable:
        dump.options(CABLE_HANDLE, "cable")
        behind = DELAY_HANDLE if port_queue.has_netem else SENDER_HANDLE
        for place, handle in ((1, SHAPER_HANDLE), (2, behind)):
            parent = dump.qdiscs.get(handle, {}).get("parent")
            dump.check(f"parent of {handle}:", netlink.handle(CABLE_HANDLE, place), parent)
    if port_queue.has_netem:
        _check_delay(dump, port_queue)
    if port_queue.sender is not None:
        slot = dump.netem_at(SENDER_HANDLE).slot
        dump.check("sender_least_ns", port_queue.sender.least_ns, slot and slot.least_ns)
        dump.check("sender_most_ns", port_queue.sender.most_ns, slot and slot.most_ns)
    _check_shaper(dump, port_queue)
    queue = port_queue.queue
    raw = [
        netlink.raw_bytes(dump.options(major, qdisc.kind))
        for major, _, qdisc in below_the_shaper(queue)
    ]
    for setting in queue.check(*raw):
        dump.check(setting.name, setting.requested, setting.shown)
    return dump.effective


class _PortDump:
    """What the kernel shows of a port.

    Attributes:
        qdiscs: messages by the major number of the handle.
        effective: the settings that were compared, by name.
    """

    def __init__(self, port: str, messages: Sequence[Mapping[str, Any]]) -> None:
        self.port = port
        self.effective: dict[str, Any] = {}
        self._messages = messages
        self.qdiscs: dict[int, Any] = {
            message["handle"] >> 16: message
            for message in messages
            if message["event"] == "RTM_NEWQDISC"
        }

    def check(self, setting: str, requested: object, actual: object) -> None:
        self.effective[setting] = actual
        if actual != requested:
            raise ReadBackError(self.port, setting, requested, actual)

    def options(self, handle: int, kind: str) -> Any:
        message = self.qdiscs.get(handle)
        self.check(f"qdisc {handle}:", kind, message and message.get_attr("TCA_KIND"))
        assert message is not None
        # A qdisc without settings shows none.
        return message.get_attr("TCA_OPTIONS") or ""

    def netem_at(self, handle: int) -> netem.Shown:
        return netem.Shown(netlink.raw_bytes(self.options(handle, "netem")))

    def classes(self) -> list[Any]:
        """The TCA_OPTIONS of the shaper's classes."""
        return [
            message.get_attr("TCA_OPTIONS")  # type: ignore[attr-defined]
            for message in self._messages
            if message["event"] == "RTM_NEWTCLASS" and message["handle"] >> 16 == SHAPER_HANDLE
        ]


def _check_delay(dump: _PortDump, port_queue: PortQueue) -> None:
    shown = dump.netem_at(DELAY_HANDLE)
    dump.check("delay_ns", port_queue.delay_ns, shown.delay_ns)
    dump.check("jitter_ns", port_queue.jitter_ns, shown.jitter_ns)
    if port_queue.jitter_ns:
        dump.check("packets keep their order", True, shown.keeps_order)
    if port_queue.jitter_seed is not None:
        dump.check("jitter is seeded", True, shown.seed in (None, port_queue.jitter_seed))


def _check_shaper(dump: _PortDump, port_queue: PortQueue) -> None:
    framing, rate_bps = port_queue.framing, port_queue.rate_bps
    kind = port_queue.queue.shaper_kind
    options = dump.options(SHAPER_HANDLE, kind)
    if kind == "tbf":
        parameters = options.get_attr("TCA_TBF_PARMS")
        dump.check("units_cut", not port_queue.lets_units_through, parameters["peak"] > 0)
    else:
        classes = dump.classes()
        dump.check("htb classes", 1, len(classes))
        parameters = classes[0].get_attr("TCA_HTB_PARMS")
        dump.check("ceil_bps", rate_bps, parameters["ceil"] * 8)
        dump.check("ceil_overhead_bytes", framing.added_bytes, parameters["ceil_overhead"])
        dump.check("ceil_least_bytes", framing.least_bytes, parameters["ceil_mpu"])
    dump.check("rate_bps", rate_bps, parameters["rate"] * 8)
    dump.check("overhead_bytes", framing.added_bytes, parameters["rate_overhead"])
    dump.check("least_bytes", framing.least_bytes, parameters["rate_mpu"])
    burst_bytes = parameters["buffer"] * TICK_NS * rate_bps // (8 * 10**9)
    requested_bytes = port_queue.bucket_bytes
    if kind == "tbf":
        # TBF keeps the time that a frame as long as the burst takes (tbf_change).
        burst_bytes -= framing.added_bytes
    dump.effective["burst_bytes"] = burst_bytes
    if abs(burst_bytes - requested_bytes) > -(-BURST_ROUNDING_NS * rate_bps // (8 * 10**9)):
        raise ReadBackError(port_queue.port, "burst_bytes", requested_bytes, burst_bytes)
    # TBF drops a packet that is larger than its burst. HTB lets its tokens go below zero instead.
    if kind == "tbf" and burst_bytes < port_queue.frame_bytes:
        small = f"{burst_bytes} B, below a full frame"
        raise ReadBackError(port_queue.port, "burst", f"{requested_bytes} B", small)


def read_classes(port_queue: PortQueue) -> dict[str, Any]:
    """The settings in effect of a port's classes by name; empty where its queue has none."""
    queue, port = port_queue.queue, port_queue.port
    effective: dict[str, Any] = {}
    if not isinstance(queue, HasClasses):
        return effective
    index, parent = socket.if_nametoindex(port), netlink.handle(QUEUE_HANDLE)
    with rtnetlink.Kernel() as kernel:
        classes = kernel.classes(index)
        filters = dict(_filters(kernel.filters(index, parent)))
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
    wanted: dict[Filter, int] = {(netlink.ETH_P_ALL, None): queue.rest}
    for point, minor in queue.told_by.items():
        wanted |= {(family, point): minor for family in _TOS_SHIFT}
    if filters != wanted:
        raise ReadBackError(port, "filters", sorted(map(str, wanted)), sorted(map(str, filters)))
    for minor, each in enumerate(queue.classes, 1):
        points = sorted(
            {point for (_, point), to in filters.items() if to == minor and point is not None}
        )
        effective[f"{each.name} dscp"] = " ".join(map(str, points)) or OTHER_CODE_POINTS
    return effective


def _filters(shown: Sequence[tuple[int, bytes]]) -> Iterator[tuple[Filter, int]]:
    """Each filter of u32 and matchall, and the minor number of the class that it leads to."""
    for info, raw in shown:
        options = dict(netlink.attributes(raw))
        if _TCA_CLASSID not in options:
            continue
        family = socket.ntohs(info & 0xFFFF)
        minor = int.from_bytes(options[_TCA_CLASSID], "little") & 0xFFFF
        yield (family, _point(family, options.get(_TCA_U32_SEL, b""))), minor


def _point(family: int, selector: bytes) -> int | None:
    """The DSCP that a selector matches; None where it matches anything else."""
    if family not in _TOS_SHIFT or len(selector) != _SELECTOR.size + _KEY.size:
        return None
    mask, value, offset, _ = _KEY.unpack_from(selector, _SELECTOR.size)
    shift = _TOS_SHIFT[family]
    return value >> shift + 2 if mask == 0xFC << shift and offset == 0 else None
