"""What the kernel counted at a port's queue.

The shaper's counters are those of the whole port: every drop below it is reported to it once,
whether the queue refused a packet, dropped it while queued or dropped it when its turn came
(qdisc_tree_reduce_backlog in the kernel's net/sched/sch_api.c).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from outcast import netlink
from outcast.errors import ReadBackError
from outcast.experiment.queues import KINDS
from outcast.records.qdisc_handles import QUEUE_HANDLE, SHAPER_HANDLE

_OWN_COUNTERS = {qdisc: read for kind in KINDS for qdisc, read in kind.counters.items()}
_MARKS = ("marked", "marked_at_threshold")


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
    own = decode(leaf.get_attr("TCA_KIND"), stats.get_attr("TCA_STATS_APP"))
    return {
        "backlog_bytes": shaper["backlog"],
        "backlog_packets": shaper["qlen"],
        # CoDel tells its parents of drops with the next packet it hands over.
        "drops": max(shaper["drops"], stats.get_attr("TCA_STATS_QUEUE")["drops"]),
        "marks": sum(own.get(name, 0) for name in _MARKS),
        "sent_packets": shaper["packets"],
        "sent_bytes": shaper["bytes"],
        "overlimits": shaper["overlimits"],
    }


def own_counters(shown: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """What a port's queue counts besides what all qdiscs count; empty for kinds without.

    Args:
        shown: pyroute2's messages of RTM_GETQDISC of this port.

    Raises:
        ReadBackError: where the port has no queue of ours.
    """
    leaf = _qdisc(shown, QUEUE_HANDLE)
    return decode(leaf.get_attr("TCA_KIND"), leaf.get_attr("TCA_STATS2").get_attr("TCA_STATS_APP"))


def decode(kind: str, own: Any) -> dict[str, int]:
    """The counters of a qdisc's own statistics, by our names for them.

    Args:
        kind: the qdisc's name.
        own: TCA_STATS_APP as pyroute2 gives it; None where the qdisc has none.
    """
    if own is None or kind not in _OWN_COUNTERS:
        return {}
    return _OWN_COUNTERS[kind](netlink.raw_bytes(own))


def _qdisc(shown: Sequence[Mapping[str, Any]], handle: int) -> Any:
    for message in shown:
        if message["event"] == "RTM_NEWQDISC" and message["handle"] >> 16 == handle:
            return message
    raise ReadBackError("a captured port", "qdisc", f"{handle}:", "none")
