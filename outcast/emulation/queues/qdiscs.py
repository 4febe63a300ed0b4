"""The qdiscs of a port: a shaper at its link's rate, with the experiment's queue as its child.

A link's delay is spent before the queue of the sending port, because Linux cannot put a qdisc
behind a shaper. The delay of a whole path is the same. A packet that is being delayed is not yet in
the queue.

At a host that would part packets from their sockets before they are queued (skb_orphan_partial in
netem_enqueue). TCP small queues count what a socket has in the host's own queue, and would find it
empty, so that queue would overflow. The guest's kernel has a qdisc for it: behind `cable`, netem
gets what has left the shaper. A real host's delay lies behind its card too.

The `limit` that tc gives tbf belongs to a bfifo that tbf makes. That bfifo is replaced, so that
every queue has the same handle and its own limit counts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from outcast import netlink
from outcast.emulation.kernel import rtnetlink
from outcast.emulation.queues import netem
from outcast.errors import FeatureMissingError
from outcast.experiment import MTU_FRAME_BYTES, Queue
from outcast.experiment.limit import Limit
from outcast.experiment.links import FRAMINGS
from outcast.experiment.queues import WITH_CLASSES
from outcast.experiment.queues.base import OVERHEAD, PORT, RATE, Qdisc
from outcast.plan.ports import PortQueue
from outcast.records.flows import QueueRecord
from outcast.records.queue_statistics import (
    CABLE_HANDLE,
    CLASS_HANDLE,
    DELAY_HANDLE,
    QUEUE_HANDLE,
    SENDER_HANDLE,
    SHAPER_HANDLE,
)

RATESPEC = struct.Struct("=BBHhHI")
"""struct tc_ratespec: cell_log, linklayer, overhead, cell_align, mpu, rate in bytes a second."""
_TBF_REST = struct.Struct("=III")
"""The rest of struct tc_tbf_qopt: limit, buffer, mtu. TCA_TBF_BURST has the buffer in bytes."""
_TBF_PARMS, _TBF_RATE64, _TBF_PRATE64, _TBF_BURST, _TBF_PBURST = 1, 4, 5, 6, 7
_NO_PEAK_BYTES = 1 << 60
"""A second at this rate, at which a frame takes no time: the kernel's own unit is a nanosecond."""
LINKLAYER_ETHERNET = 1
"""The kernel computes with the rate itself and needs no table of times (linux/pkt_sched.h)."""
UNLIMITED = 1 << 30
_MOST = 0xFFFFFFFF


FRAME_TIME = Path("/sys/module/veth/parameters/frame_time")
TIMELESS = (
    "a lone frame takes no time of its own on a link, because this kernel delivers it with its "
    "first bit; so round trips on slow links are too short (docs/links.md)"
)


def frame_time_warnings(parameter: Path = FRAME_TIME) -> list[str]:
    """Reads back whether veth pairs deliver a frame with its last bit (patch 0018)."""
    delivers = parameter.exists() and parameter.read_text(encoding="ascii").strip() == "Y"
    return [] if delivers else [TIMELESS]


def set_delay(port_queue: PortQueue) -> None:
    """Gives the port its link's delay and its sender's time, if it has them.

    A sender's time comes after the delay. The delay is constant at a host, so packets leave as they
    would in the other order.
    """
    port, place = port_queue.port, netlink.ROOT
    if port_queue.has_cable:
        rtnetlink.replace_qdisc(port, "cable", major=CABLE_HANDLE, options=b"")
        place = netlink.handle(CABLE_HANDLE, 2)
    if port_queue.has_netem:
        options = netem.options(
            delay_ns=port_queue.delay_ns,
            jitter_ns=port_queue.jitter_ns,
            in_order=port_queue.jitter_ns > 0,
            seed=port_queue.jitter_seed,
        )
        rtnetlink.replace_qdisc(port, "netem", parent=place, major=DELAY_HANDLE, options=options)
        place = netlink.handle(DELAY_HANDLE, 1)
    if port_queue.sender is not None:
        # With a rate, netem also takes a packet from the sender's account where there is no cable.
        # Otherwise TCP would keep back what it can send (TCP small queues).
        options = netem.options(in_order=True, slot=port_queue.sender)
        rtnetlink.replace_qdisc(port, "netem", parent=place, major=SENDER_HANDLE, options=options)


def set_shaper(port_queue: PortQueue) -> None:
    """Gives the port its tbf, below the delay of `set_delay`.

    tc(8) can set it up too, but a program for each host is most of the set-up in the guest.
    """
    if port_queue.queue.shaper_kind == "tbf":
        above = _above_the_shaper(port_queue)
        rtnetlink.replace_qdisc(
            port_queue.port,
            "tbf",
            parent=netlink.ROOT if above is None else netlink.handle(above, 1),
            major=SHAPER_HANDLE,
            options=tbf_options(port_queue),
        )


def _above_the_shaper(port_queue: PortQueue) -> int | None:
    """The major number of the shaper's parent; None where the shaper is the root."""
    if port_queue.has_cable:
        return CABLE_HANDLE
    if port_queue.sender is not None:
        return SENDER_HANDLE
    return DELAY_HANDLE if port_queue.has_netem else None


def tbf_options(port_queue: PortQueue, limit: int = UNLIMITED) -> bytes:
    """A tbf's TCA_OPTIONS (struct tc_tbf_qopt in linux/pkt_sched.h, tbf_change in sch_tbf.c).

    tbf cuts a unit of several segments only if it is more than the bursts of rate and peak rate.
    The rate's has to hold more than a frame, because the kernel rounds it to ticks. So there is a
    peak rate, whose burst is a frame and which is too high to hold anything back.

    The limit is that of the fifo below it; where that is the one that tbf makes, it is replaced.
    """
    rate_bytes, framing = port_queue.rate_bps // 8, port_queue.framing
    cuts = not port_queue.lets_units_through
    least_bytes, shown_bytes = framing.least_bytes, min(rate_bytes, _MOST)
    rate = RATESPEC.pack(0, LINKLAYER_ETHERNET, framing.added_bytes, -1, least_bytes, shown_bytes)
    peak = RATESPEC.pack(0, LINKLAYER_ETHERNET, 0, -1, 0, _MOST if cuts else 0)
    options = netlink.encode(_TBF_PARMS, rate + peak + _TBF_REST.pack(limit, 0, 0))
    if rate_bytes > _MOST:
        options += netlink.encode_number(_TBF_RATE64, rate_bytes, "Q")
    options += netlink.encode_number(_TBF_BURST, port_queue.bucket_bytes)
    if cuts:
        options += netlink.encode_number(_TBF_PRATE64, _NO_PEAK_BYTES, "Q")
        options += netlink.encode_number(_TBF_PBURST, port_queue.frame_bytes)
    return options


def commands(port_queue: PortQueue) -> list[str]:
    """The lines of a tc batch that set up what stands below `set_delay` and `set_shaper`."""
    lines: list[str] = []
    port, queue, framing = port_queue.port, port_queue.queue, port_queue.framing
    rate, burst = f"{port_queue.rate_bps}bit", port_queue.bucket_bytes
    overhead = ""
    if framing != FRAMINGS["none"]:
        overhead = f" overhead {framing.added_bytes} mpu {framing.least_bytes}"
    if queue.shaper_kind == "htb":
        above = _above_the_shaper(port_queue)
        parent = "root" if above is None else f"parent {above}:1"
        lines += [
            f"qdisc replace dev {port} {parent} handle {SHAPER_HANDLE}: htb default 1",
            f"class replace dev {port} parent {SHAPER_HANDLE}: classid {SHAPER_HANDLE}:1 "
            f"htb rate {rate} ceil {rate} burst {burst} cburst {burst} quantum {MTU_FRAME_BYTES}"
            f"{overhead}",
        ]
    lines += [
        f"qdisc replace dev {port} parent {major - 1}:1 handle {major}: "
        f"{qdisc.kind} {qdisc.options.replace(RATE, rate)}"
        for major, _, qdisc in below_the_shaper(queue)
        if isinstance(qdisc.options, str)
    ]
    return lines + [
        words.replace(PORT, port).replace(OVERHEAD, overhead) for words in queue.class_words()
    ]


def set_by_netlink(port_queue: PortQueue) -> None:
    """Sets up the qdiscs that tc(8) cannot, below those of `commands`."""
    for major, parent, qdisc in below_the_shaper(port_queue.queue):
        if isinstance(qdisc.options, bytes):
            rtnetlink.replace_qdisc(
                port_queue.port, qdisc.kind, parent=parent, major=major, options=qdisc.options
            )


def below_the_shaper(queue: Queue) -> Iterator[tuple[int, int, Qdisc]]:
    """The major number of each qdisc's handle, the class that it stands in, and the qdisc."""
    for major, qdisc in enumerate(queue.tc(), QUEUE_HANDLE):
        if qdisc.minor is None:
            yield major, netlink.handle(major - 1, 1), qdisc
        else:
            parent = netlink.handle(QUEUE_HANDLE, qdisc.minor)
            yield CLASS_HANDLE + qdisc.minor, parent, qdisc


def kinds(port_queue: PortQueue) -> set[str]:
    """The qdiscs of the kernel that the port needs."""
    delay = {"netem"} if port_queue.has_netem or port_queue.sender else set()
    own = {qdisc.kind for qdisc in port_queue.queue.tc()}
    return delay | own | {port_queue.queue.shaper_kind}


def require_kinds(
    needed: set[str], available: Mapping[str, bool], why: Callable[[str], str] = lambda kind: ""
) -> None:
    """Raises FeatureMissingError, which names the qdiscs that this kernel lacks.

    `why` returns the clause of the error that says why a kind's module was not loaded.
    """
    lacking = sorted(kind for kind in needed if not available.get(kind, False))
    if lacking:
        raise FeatureMissingError(
            f"this kernel has no qdisc {', '.join(lacking)}{why(lacking[0])}; "
            "the virtual engine's kernel has (--engine virtual)"
        )


def record(port_queue: PortQueue) -> QueueRecord:
    """The queue as the manifest records it."""
    # A limit of each class is no limit of the queue.
    of_each = port_queue.queue.kind in WITH_CLASSES
    limit = Limit() if of_each else port_queue.queue.wire_limit
    return QueueRecord(
        kind=port_queue.queue.kind,
        rate_bps=port_queue.rate_bps,
        limit_bytes=limit.size_bytes,
        limit_packets=limit.packets,
        delay_ns=port_queue.delay_ns,
        jitter_ns=port_queue.jitter_ns,
        drops=port_queue.queue.drops,
        frame_bytes=port_queue.frame_bytes,
        overhead_bytes=port_queue.framing.added_bytes,
        least_bytes=port_queue.framing.least_bytes,
    )
