"""Queueing disciplines: what tc(8) is told for each port, and what the kernel then shows.

Every switch port gets a shaper at its link's rate with the experiment's queue as its child;
every host port a shaper with a queue long enough never to drop. Handles are fixed, so that a
counter is always found in the same place:

```
1:  netem, only where a link has a delay
2:  the shaper: tbf or htb; its drop counter counts all drops below it
3:  the queue: bfifo, pfifo, red or sfq
```

A link's delay is spent before the queue of the port that sends on it, since a qdisc cannot be
put behind a shaper on the same port; sums over a path are the same. A delayed packet is not yet
in the queue.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from outcast import netem
from outcast.errors import ConfigError, FeatureMissingError, ReadBackError
from outcast.experiment import (
    MTU_FRAME_BYTES,
    Bfifo,
    Htb,
    Pfifo,
    Queue,
    Red,
    Sfq,
    Tbf,
)
from outcast.ports import PortQueue
from outcast.queues.attributes import attribute, raw_bytes
from outcast.queues.handles import DELAY_HANDLE, QUEUE_HANDLE, SHAPER_HANDLE
from outcast.run import QueueRecord

TICK_NS = 64
"""The kernel keeps bursts as times in units of 64 ns (PSCHED_SHIFT in net/pkt_sched.h)."""
_TC_BURST_ROUNDING_NS = 1000 + TICK_NS
"""tc(8) works bursts out in whole microseconds, and then in ticks."""
DELAY_LIMIT_PACKETS = 100_000
_TCA_RED_PARMS = 1
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
    if shaper_kind(queue) == "tbf":
        # TBF's own limit is that of the bfifo it makes; it is replaced below all the same, so
        # that the queue stands under the same handle whatever it is.
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
    lines.append(
        f"qdisc replace dev {wanted.port} parent {SHAPER_HANDLE}:1 handle {QUEUE_HANDLE}: "
        + _leaf(queue)
    )
    return lines


def shaper_kind(queue: Queue) -> str:
    """`tbf` or `htb`."""
    return queue.kind if isinstance(queue, (Tbf, Htb)) else queue.shaper


def _leaf(queue: Queue) -> str:
    match queue:
        case Red():
            average = MTU_FRAME_BYTES
            burst = red_burst(queue.min_packets, queue.weight_exponent)
            ecn = " ecn" if queue.ecn else ""
            return (
                f"red limit {queue.limit.size_bytes} min {queue.min_packets * average} "
                f"max {queue.max_packets * average} avpkt {average} burst {burst} "
                f"probability {queue.probability}{ecn}"
            )
        case Sfq():
            return (
                f"sfq limit {queue.limit.packets} divisor {queue.buckets} "
                f"perturb {queue.perturb_ns // 10**9}"
            )
        case Tbf() | Htb() | Pfifo() | Bfifo():
            if queue.limit.packets is not None:
                return f"pfifo limit {queue.limit.packets}"
            return f"bfifo limit {queue.limit.size_bytes}"


def red_burst(min_packets: int, weight_exponent: int) -> int:
    """The `burst` from which tc works out this weight of the average; it takes no weight itself.

    See tc_red_eval_ewma in iproute2's tc/tc_red.c, which is repeated here.

    Raises:
        ConfigError: where no burst gives this weight.
    """

    def exponent_of(burst: int) -> int | None:
        gap = burst + 1 - min_packets
        if gap < 1:
            return None
        weights = ((n, 0.5**n) for n in range(1, 32))
        return next((n for n, w in weights if gap <= (1 - (1 - w) ** burst) / w), None)

    for burst in range(1, 10_000):
        if exponent_of(burst) == weight_exponent:
            return burst
    raise ConfigError(f"queue.weight: no burst of tc-red(8) gives the weight 2^-{weight_exponent}")


def kinds(wanted: PortQueue) -> set[str]:
    """The kernel's qdiscs that the port needs."""
    delay = {"netem"} if wanted.delay_ns else set()
    return delay | {shaper_kind(wanted.queue), _leaf(wanted.queue).split()[0]}


def require_kinds(needed: set[str], available: Mapping[str, bool]) -> None:
    """Raises FeatureMissingError naming the qdiscs that this kernel lacks."""
    lacking = sorted(kind for kind in needed if not available.get(kind, False))
    if lacking:
        raise FeatureMissingError(
            f"this kernel has no qdisc {', '.join(lacking)}; "
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
        check("delay_ns", wanted.delay_ns, _netem_time_ns(shown_netem, netem.LATENCY64))
        check("jitter_ns", wanted.jitter_ns, _netem_time_ns(shown_netem, netem.JITTER64))
    if shaper_kind(queue) == "tbf":
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
    if shaper_kind(queue) == "tbf" and burst_bytes < MTU_FRAME_BYTES:
        raise ReadBackError(
            wanted.port, "burst", f"{queue.burst_bytes} B", f"{burst_bytes} B, below a full frame"
        )
    kind = _leaf(queue).split()[0]
    leaf = options(QUEUE_HANDLE, kind)
    match queue:
        case Red():
            limit, minimum, maximum, weight_exponent, _, _, flags = _red_parameters(leaf)
            check("limit_bytes", queue.limit.size_bytes, limit)
            check("min_bytes", queue.min_packets * MTU_FRAME_BYTES, minimum)
            check("max_bytes", queue.max_packets * MTU_FRAME_BYTES, maximum)
            check("weight_exponent", queue.weight_exponent, weight_exponent)
            check("ecn", queue.ecn, bool(flags & 1))
        case Sfq():
            check("limit_packets", queue.limit.packets, leaf["limit"])
            check("buckets", queue.buckets, leaf["divisor"])
            check("perturb_s", queue.perturb_ns // 10**9, leaf["perturb_period"])
        case _ if queue.limit.packets is not None:
            check("limit_packets", queue.limit.packets, leaf["limit"])
        case _:
            limit = int.from_bytes(raw_bytes(leaf), "little")
            check("limit_bytes", queue.limit.size_bytes, limit)
    return effective


def _red_parameters(options: Any) -> tuple[int, ...]:
    """Struct tc_red_qopt (linux/pkt_sched.h): limit, qth_min, qth_max, Wlog, Plog, Scell, flags."""
    return struct.unpack("=IIIBBBB", attribute(raw_bytes(options), _TCA_RED_PARMS) or bytes(16))


def _netem_time_ns(options: Any, wanted: int) -> int:
    """TCA_NETEM_LATENCY64 or JITTER64, which follow struct tc_netem_qopt; 0 where there is none."""
    value = attribute(raw_bytes(options)[_NETEM_STRUCT_BYTES:], wanted)
    return int.from_bytes(value or b"", "little", signed=True)


def record(wanted: PortQueue) -> QueueRecord:
    """The queue for the manifest."""
    return QueueRecord(
        kind=wanted.queue.kind,
        rate_bps=wanted.rate_bps,
        limit_bytes=wanted.queue.limit.size_bytes,
        limit_packets=wanted.queue.limit.packets,
        delay_ns=wanted.delay_ns,
    )
