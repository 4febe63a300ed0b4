"""Reads what the kernel counted at a port's queue.

The shaper's counters are those of the whole port, because the kernel reports every drop below the
shaper to it once (qdisc_tree_reduce_backlog in net/sched/sch_api.c). That covers a packet that the
queue refused, one dropped while queued, and one dropped when its turn came.

The handles of a port's qdiscs are the same at every port:

```
8:  cable, only at hosts: the shaper is its class 1, and what follows the card its class 2
1:  netem, only where a link has a delay
9:  netem with slots, only at hosts whose sender takes its time (`noise.sender`)
2:  the shaper: tbf or htb; its drop counter counts all drops below it
3:  the queue
4:  a qdisc below the queue, if its kind needs one: it holds the packets of a marking queue
11: and so on: the queue of class 3:1 and so on, in a queue with classes (hexadecimal)
```
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from outcast import netlink
from outcast.errors import ReadBackError
from outcast.experiment.queues import KINDS
from outcast.experiment.queues.classes import MOST_CLASSES
from outcast.records.counters import Cause

CABLE_HANDLE = 8
DELAY_HANDLE = 1
SENDER_HANDLE = 9
SHAPER_HANDLE = 2
QUEUE_HANDLE = 3
CLASS_HANDLE = 16


_OWN_COUNTERS = {qdisc: read for kind in KINDS for qdisc, read in kind.counters.items()}
_MARKS = ("marked", "marked_at_threshold")


_MESSAGE = struct.Struct("=I12x B3xiI8x")
"""struct nlmsghdr, of which its length is read, and struct tcmsg (rtnetlink(7)) to the handle."""
_TCA_KIND, _TCA_STATS2 = 1, 7
_COUNTERS = {
    "TCA_STATS_BASIC": (1, struct.Struct("=QI"), ("bytes", "packets")),
    "TCA_STATS_QUEUE": (
        3,
        struct.Struct("=5I"),
        ("qlen", "backlog", "drops", "requeues", "overlimits"),
    ),
}
"""Attributes of TCA_STATS2 with their types, layouts and fields (uapi/linux/gen_stats.h)."""
_TCA_STATS_APP = 4


class Shown(dict[str, Any]):
    """A qdisc's message with the statistics that are read, in the form of pyroute2's.

    pyroute2 itself would take a tenth of an analysis of a small run, most of it to be imported, and
    ten times as long for a message.
    """

    def get_attr(self, name: str) -> Any:
        """An attribute by its name; None where it is missing."""
        return self.get(name)


def read_message(message: bytes) -> Shown:
    """Reads what a message of RTM_NEWQDISC says.

    Raises:
        struct.error: it is cut off.
        ValueError: it lacks its kind or a counter.
    """
    length, _, _, handle = _MESSAGE.unpack_from(message)
    if length > len(message):
        raise struct.error
    of_qdisc = message[_MESSAGE.size :]
    kind = _required(of_qdisc, _TCA_KIND, "TCA_KIND").rstrip(b"\0").decode("ascii", "replace")
    counted = _of_statistics(_required(of_qdisc, _TCA_STATS2, "TCA_STATS2"))
    return Shown(event="RTM_NEWQDISC", handle=handle, TCA_KIND=kind, TCA_STATS2=counted)


def _of_statistics(raw: bytes) -> Shown:
    """The attributes of TCA_STATS2. Raises what `read_message` does."""
    decoded = Shown()
    for name, (kind, form, fields) in _COUNTERS.items():
        values = form.unpack_from(_required(raw, kind, name))
        decoded[name] = dict(zip(fields, values, strict=True))
    if (own := netlink.attribute(raw, _TCA_STATS_APP)) is not None:
        decoded["TCA_STATS_APP"] = own.hex(":")
    return decoded


def _required(raw: bytes, kind: int, name: str) -> bytes:
    value = netlink.attribute(raw, kind)
    if value is None:
        raise ValueError(f"a message of the kernel lacks {name}")
    return value


def counters(messages: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Returns bytes, packets, drops, overlimits, backlog and qlen of a port's shaper.

    Raises ReadBackError: the port lacks the shaper that outcast set up.
    """
    stats = _qdisc(messages, SHAPER_HANDLE).get_attr("TCA_STATS2")
    counted = {**stats.get_attr("TCA_STATS_BASIC"), **stats.get_attr("TCA_STATS_QUEUE")}
    names = ("bytes", "packets", "drops", "overlimits", "backlog", "qlen")
    return {name: counted[name] for name in names}


def lost(messages: Sequence[Mapping[str, Any]]) -> dict[Cause, int]:
    """Returns the packets that a port's qdiscs have dropped so far, by cause.

    Above a shaper, netem's counter also counts what the shaper refused (netem_dequeue in
    net/sched/sch_netem.c). What is left is its own: packets that came while it held as many
    as it can.

    Raises ReadBackError: the port lacks the shaper or queue that outcast set up.
    """
    at_shaper = counters(messages)["drops"]
    of_port: dict[Cause, int] = {"queue": statistics(messages)["drops"]}
    is_behind = any(message["handle"] >> 16 == CABLE_HANDLE for message in messages)
    for message in messages:
        if message["event"] == "RTM_NEWQDISC" and message["handle"] >> 16 == DELAY_HANDLE:
            dropped = message.get_attr("TCA_STATS2").get_attr("TCA_STATS_QUEUE")["drops"]  # type: ignore[attr-defined]
            of_port["delay"] = dropped if is_behind else max(0, dropped - at_shaper)
    return of_port


def statistics(messages: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Returns what a port's queue holds, and what it has counted since its qdiscs were made.

    Returns:
        - `backlog_bytes`, `backlog_packets`: what is queued now below the shaper.
        - `drops`: packets refused or dropped. Each counts once.
        - `marks`: packets that got the CE codepoint (RFC 3168). They are not dropped.
        - `sent_packets`, `sent_bytes`: what was dequeued towards the wire.
        - `overlimits`: the shaper's count of packets that had to wait.

    Raises ReadBackError: the port lacks the shaper or queue that outcast set up.
    """
    shaper = counters(messages)
    leaf = _qdisc(messages, QUEUE_HANDLE)
    stats = leaf.get_attr("TCA_STATS2")
    own = decode(leaf.get_attr("TCA_KIND"), stats.get_attr("TCA_STATS_APP"))
    return {
        "backlog_bytes": shaper["backlog"],
        "backlog_packets": shaper["qlen"],
        # CoDel reports a drop to the shaper only with the next packet that it dequeues. Until then
        # the queue's own count is ahead.
        "drops": max(shaper["drops"], stats.get_attr("TCA_STATS_QUEUE")["drops"]),
        "marks": sum(own.get(name, 0) for name in _MARKS),
        "sent_packets": shaper["packets"],
        "sent_bytes": shaper["bytes"],
        "overlimits": shaper["overlimits"],
    }


def own_counters(messages: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Returns the counters that only this kind of queue has; empty if the kind has none.

    Of classes of service these are `class_1_packets`, what class 3:1 has sent, and `class_1_drops`.

    Raises ReadBackError: the port lacks the queue that outcast set up.
    """
    leaf = _qdisc(messages, QUEUE_HANDLE)
    own = decode(leaf.get_attr("TCA_KIND"), leaf.get_attr("TCA_STATS2").get_attr("TCA_STATS_APP"))
    for message in messages:
        number = (message["handle"] >> 16) - CLASS_HANDLE
        if message["event"] == "RTM_NEWQDISC" and 0 < number <= MOST_CLASSES:
            counted = message.get_attr("TCA_STATS2")  # type: ignore[attr-defined]
            own[f"class_{number}_packets"] = counted.get_attr("TCA_STATS_BASIC")["packets"]
            own[f"class_{number}_drops"] = counted.get_attr("TCA_STATS_QUEUE")["drops"]
    return own


def decode(kind: str, own: Any) -> dict[str, int]:
    """Decodes a qdisc's own statistics. Returns its counters by our names."""
    if own is None or kind not in _OWN_COUNTERS:
        return {}
    return _OWN_COUNTERS[kind](netlink.raw_bytes(own))


def _qdisc(messages: Sequence[Mapping[str, Any]], handle: int) -> Any:
    for message in messages:
        if message["event"] == "RTM_NEWQDISC" and message["handle"] >> 16 == handle:
            return message
    raise ReadBackError("a captured port", "qdisc", f"{handle}:", "none")
