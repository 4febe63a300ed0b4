"""The qdiscs of one port: a shaper at its link's rate with the experiment's queue as its child.

A host's port gets a queue long enough never to drop. A link's delay is spent before the queue of
the port that sends on it, since a qdisc cannot be put behind a shaper on the same port; sums over
a path are the same. A delayed packet is not yet in the queue.

tc's own `limit` of tbf is that of a bfifo it makes; it is replaced, so that every queue stands
under the same handle and its own limit is what counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from outcast import netlink
from outcast.emulation import netem, rtnetlink
from outcast.errors import FeatureMissingError, ReadBackError
from outcast.experiment import MTU_FRAME_BYTES, Queue
from outcast.experiment.queues.base import TICK_NS, Qdisc
from outcast.plan.ports import PortQueue
from outcast.records.qdisc_handles import DELAY_HANDLE, QUEUE_HANDLE, SHAPER_HANDLE
from outcast.records.run_directory import QueueRecord

_TC_BURST_ROUNDING_NS = 1000 + TICK_NS
"""tc(8) works bursts out in whole microseconds, and then in ticks."""
DELAY_LIMIT_PACKETS = 100_000
_NETEM_STRUCT_BYTES = 24


def set_delay(wanted: PortQueue) -> None:
    """Gives the port its link's delay; nothing where there is none. Raises RunError."""
    if wanted.delay_ns:
        netem.replace_root(
            wanted.port,
            DELAY_HANDLE,
            delay_ns=wanted.delay_ns,
            jitter_ns=wanted.jitter_ns,
            limit_packets=DELAY_LIMIT_PACKETS,
        )


def commands(wanted: PortQueue) -> list[str]:
    """The lines of a tc batch that give the port its qdiscs, below `set_delay`'s."""
    lines: list[str] = []
    queue = wanted.queue
    parent = f"parent {DELAY_HANDLE}:1" if wanted.delay_ns else "root"
    if queue.shaper_kind == "tbf":
        lines.append(
            f"qdisc replace dev {wanted.port} {parent} handle {SHAPER_HANDLE}: "
            f"tbf rate {wanted.rate_bps}bit burst {queue.burst_bytes} limit {1 << 30}"
        )
    else:
        lines += [
            f"qdisc replace dev {wanted.port} {parent} handle {SHAPER_HANDLE}: htb default 1",
            f"class replace dev {wanted.port} parent {SHAPER_HANDLE}: "
            f"classid {SHAPER_HANDLE}:1 htb rate {wanted.rate_bps}bit ceil {wanted.rate_bps}bit "
            f"burst {queue.burst_bytes} cburst {queue.burst_bytes} quantum {MTU_FRAME_BYTES}",
        ]
    lines += [
        f"qdisc replace dev {wanted.port} parent {major - 1}:1 handle {major}: "
        f"{qdisc.kind} {qdisc.options}"
        for major, qdisc in _below_the_shaper(queue)
        if isinstance(qdisc.options, str)
    ]
    return lines


def set_by_netlink(wanted: PortQueue) -> None:
    """Gives the port what tc(8) cannot say, below the shaper of `commands`. Raises RunError."""
    for major, qdisc in _below_the_shaper(wanted.queue):
        if isinstance(qdisc.options, bytes):
            rtnetlink.replace_qdisc(
                wanted.port,
                qdisc.kind,
                parent=netlink.handle(major - 1, 1),
                major=major,
                options=qdisc.options,
            )


def _below_the_shaper(queue: Queue) -> Iterator[tuple[int, Qdisc]]:
    """The queue's qdiscs by the major number of their handles; each is a child of the last."""
    return enumerate(queue.tc(), QUEUE_HANDLE)


def kinds(wanted: PortQueue) -> set[str]:
    """The kernel's qdiscs that the port needs."""
    delay = {"netem"} if wanted.delay_ns else set()
    own = {qdisc.kind for qdisc in wanted.queue.tc()}
    return delay | own | {wanted.queue.shaper_kind}


def require_kinds(
    needed: set[str], available: Mapping[str, bool], why: Callable[[str], str] = lambda kind: ""
) -> None:
    """Raises FeatureMissingError naming the qdiscs that this kernel lacks.

    `why` gives the clause of the error that says why a kind's module was not loaded.
    """
    lacking = sorted(kind for kind in needed if not available.get(kind, False))
    if lacking:
        raise FeatureMissingError(
            f"this kernel has no qdisc {', '.join(lacking)}{why(lacking[0])}; "
            "the virtual engine's kernel has (--engine virtual)"
        )


def read_back(wanted: PortQueue, shown: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The settings in effect, from a netlink dump of one port's qdiscs and classes.

    Args:
        wanted: what was asked for.
        shown: pyroute2's messages of RTM_GETQDISC, and of RTM_GETTCLASS for htb, of this port.

    Raises:
        ReadBackError: where the kernel shows something else than what was asked for.
    """
    by_handle = {
        message["handle"] >> 16: message for message in shown if message["event"] == "RTM_NEWQDISC"
    }
    effective: dict[str, Any] = {}

    def check(setting: str, requested: object, found: object) -> None:
        effective[setting] = found
        if found != requested:
            raise ReadBackError(wanted.port, setting, requested, found)

    def options(handle: int, kind: str) -> Any:
        message = by_handle.get(handle)
        found = message.get_attr("TCA_KIND") if message is not None else None  # type: ignore[attr-defined]
        check(f"qdisc {handle}:", kind, found)
        assert message is not None
        return message.get_attr("TCA_OPTIONS")  # type: ignore[attr-defined]

    queue = wanted.queue
    if wanted.delay_ns:
        shown_netem = options(DELAY_HANDLE, "netem")
        check("delay_ns", wanted.delay_ns, _netem_number(shown_netem, netem.LATENCY64))
        check("jitter_ns", wanted.jitter_ns, _netem_number(shown_netem, netem.JITTER64))
        if wanted.jitter_ns:
            rate = _netem_number(shown_netem, netem.RATE64)
            check("packets keep their order", True, rate == netem.IN_ORDER_RATE)
    if queue.shaper_kind == "tbf":
        parameters = options(SHAPER_HANDLE, "tbf").get_attr("TCA_TBF_PARMS")
        burst_ticks = parameters["buffer"]
    else:
        options(SHAPER_HANDLE, "htb")
        classes = [
            message
            for message in shown
            if message["event"] == "RTM_NEWTCLASS" and message["handle"] >> 16 == SHAPER_HANDLE
        ]
        check("htb classes", 1, len(classes))
        parameters = classes[0].get_attr("TCA_OPTIONS").get_attr("TCA_HTB_PARMS")  # type: ignore[attr-defined]
        check("ceil_bps", wanted.rate_bps, parameters["ceil"] * 8)
        burst_ticks = parameters["buffer"]
    check("rate_bps", wanted.rate_bps, parameters["rate"] * 8)
    burst_bytes = burst_ticks * TICK_NS * wanted.rate_bps // (8 * 10**9)
    effective["burst_bytes"] = burst_bytes
    rounding_bytes = -(-_TC_BURST_ROUNDING_NS * wanted.rate_bps // (8 * 10**9))
    if abs(burst_bytes - queue.burst_bytes) > rounding_bytes:
        raise ReadBackError(wanted.port, "burst_bytes", queue.burst_bytes, burst_bytes)
    # TBF drops what is larger than its burst; HTB lets its tokens go below zero.
    if queue.shaper_kind == "tbf" and burst_bytes < MTU_FRAME_BYTES:
        raise ReadBackError(
            wanted.port, "burst", f"{queue.burst_bytes} B", f"{burst_bytes} B, below a full frame"
        )
    raw = [
        netlink.raw_bytes(options(major, qdisc.kind)) for major, qdisc in _below_the_shaper(queue)
    ]
    for setting in queue.check(*raw):
        check(setting.name, setting.requested, setting.shown)
    return effective


def _netem_number(options: Any, wanted: int) -> int:
    """A number among the attributes that follow struct tc_netem_qopt; 0 where there is none."""
    value = netlink.attribute(netlink.raw_bytes(options)[_NETEM_STRUCT_BYTES:], wanted)
    return int.from_bytes(value or b"", "little", signed=True)


def record(wanted: PortQueue) -> QueueRecord:
    """The queue for the manifest."""
    limit = wanted.queue.wire_limit
    return QueueRecord(
        kind=wanted.queue.kind,
        rate_bps=wanted.rate_bps,
        limit_bytes=limit.size_bytes,
        limit_packets=limit.packets,
        delay_ns=wanted.delay_ns,
        drops=wanted.queue.drops,
    )
