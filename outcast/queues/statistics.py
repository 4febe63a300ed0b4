"""What the kernel counted at a port's queue.

The shaper's counters are those of the whole port: every drop below it is reported to it once,
whether the queue refused a packet, dropped it while queued or dropped it when its turn came
(qdisc_tree_reduce_backlog in the kernel's net/sched/sch_api.c).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from outcast.errors import ReadBackError
from outcast.queues.attributes import attribute, attributes, raw_bytes
from outcast.queues.handles import QUEUE_HANDLE, SHAPER_HANDLE

_CAKE_STATS_TINS = 10
_CAKE_TIN_MARKED_PACKETS = 8

_MARK_COUNTERS: Mapping[str, Sequence[tuple[str, int]]] = {
    "red": (("=I", 12),),
    "codel": (("=I", 24), ("=I", 32)),
    "fq_codel": (("=I", 12), ("=I", 28)),
    "pie": (("=I", 36),),
    "fq": (("=Q", 80),),
}
"""Where a qdisc's own statistics count packets it marked, as struct tc_red_xstats,
tc_codel_xstats (marked instead of dropped, and above ce_threshold), tc_fq_codel_xstats (the
same), tc_pie_xstats and tc_fq_qd_stats of linux/pkt_sched.h have it."""


def counters(shown: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """bytes, packets, drops, overlimits, backlog and qlen of a port's shaper.

    Args:
        shown: pyroute2's messages of RTM_GETQDISC of this port.

    Raises:
        ReadBackError: where the port has no shaper of ours.
    """
    stats = _qdisc(shown, SHAPER_HANDLE).get_attr("TCA_STATS2")
    basic = stats.get_attr("TCA_STATS_BASIC")
    queue = stats.get_attr("TCA_STATS_QUEUE")
    return {
        "bytes": basic["bytes"],
        "packets": basic["packets"],
        "drops": queue["drops"],
        "overlimits": queue["overlimits"],
        "backlog": queue["backlog"],
        "qlen": queue["qlen"],
    }


def statistics(shown: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """A port's queue in numbers, since the qdiscs were made.

    Args:
        shown: pyroute2's messages of RTM_GETQDISC of this port.

    Returns:
        `backlog_bytes` and `backlog_packets`: what is queued now, below the shaper;
        `drops`: packets refused or dropped, each once; `marks`: packets given the CE codepoint
        (RFC 3168), which are not dropped; `sent_packets` and `sent_bytes`: dequeued towards the
        wire; `overlimits`: the shaper's count of packets that had to wait.

    Raises:
        ReadBackError: where the port has no shaper or no queue of ours.
    """
    shaper = counters(shown)
    leaf = _qdisc(shown, QUEUE_HANDLE)
    stats = leaf.get_attr("TCA_STATS2")
    return {
        "backlog_bytes": shaper["backlog"],
        "backlog_packets": shaper["qlen"],
        # CoDel tells its parents of drops with the next packet it hands over.
        "drops": max(shaper["drops"], stats.get_attr("TCA_STATS_QUEUE")["drops"]),
        "marks": marks(leaf.get_attr("TCA_KIND"), stats.get_attr("TCA_STATS_APP")),
        "sent_packets": shaper["packets"],
        "sent_bytes": shaper["bytes"],
        "overlimits": shaper["overlimits"],
    }


def marks(kind: str, own: Any) -> int:
    """Packets that a qdisc marked, by its own statistics; 0 for kinds that never mark.

    Args:
        kind: the qdisc's name.
        own: TCA_STATS_APP as pyroute2 gives it; None where the qdisc has none.
    """
    if own is None:
        return 0
    raw = raw_bytes(own)
    if kind == "cake":
        tins = attributes(attribute(raw, _CAKE_STATS_TINS) or b"")
        counts = (attribute(tin, _CAKE_TIN_MARKED_PACKETS) or b"" for _, tin in tins)
        return sum(int.from_bytes(count, "little") for count in counts)
    places = _MARK_COUNTERS.get(kind, ())
    return sum(int(struct.unpack_from(form, raw, at)[0]) for form, at in places)


def _qdisc(shown: Sequence[Mapping[str, Any]], handle: int) -> Any:
    for message in shown:
        if message["event"] == "RTM_NEWQDISC" and message["handle"] >> 16 == handle:
            return message
    raise ReadBackError("a captured port", "qdisc", f"{handle}:", "none")
