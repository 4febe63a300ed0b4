"""Qdiscs: what tc(8) and rtnetlink get for each port, and what the kernel then shows."""

from outcast.emulation.queues.classes import read_classes
from outcast.emulation.queues.qdiscs import (
    commands,
    kinds,
    read_back,
    record,
    require_kinds,
    set_by_netlink,
    set_delay,
    set_shaper,
)
from outcast.records.queue_statistics import counters, lost, own_counters, statistics

__all__ = [
    "commands",
    "counters",
    "kinds",
    "lost",
    "own_counters",
    "read_back",
    "read_classes",
    "record",
    "require_kinds",
    "set_by_netlink",
    "set_delay",
    "set_shaper",
    "statistics",
]
