"""The queue below the shaper: what tc(8) is told of it, and what the kernel shows of it.

ECN threshold marking apart, which tc cannot ask for: see `outcast.emulation.queues.marking`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Literal

from outcast.experiment import (
    MTU_FRAME_BYTES,
    Cake,
    Codel,
    EcnThreshold,
    Fq,
    FqCodel,
    Htb,
    Pie,
    Queue,
    Red,
    Sfq,
    Tbf,
)
from outcast.records.netlink_attributes import attribute, attributes, raw_bytes

Check = Callable[[str, object, object], None]
"""Notes a setting as requested and as found; raises ReadBackError where these differ."""

_TCA_RED_PARMS, _TCA_RED_MAX_P = 1, 3
_TCA_FQ_LIMIT, _TCA_FQ_FLOW_LIMIT, _TCA_FQ_QUANTUM, _TCA_FQ_RATE_ENABLE = 1, 2, 3, 5
_TCA_CODEL_TARGET, _TCA_CODEL_LIMIT, _TCA_CODEL_INTERVAL, _TCA_CODEL_ECN = 1, 2, 3, 4
_TCA_FQ_CODEL_FLOWS, _TCA_FQ_CODEL_QUANTUM = 5, 6
_TCA_PIE_TARGET, _TCA_PIE_LIMIT, _TCA_PIE_UPDATE = 1, 2, 3
_TCA_PIE_ALPHA, _TCA_PIE_BETA, _TCA_PIE_ECN = 4, 5, 6
_TCA_CAKE_RATE, _TCA_CAKE_FLOW_MODE, _TCA_CAKE_RTT, _TCA_CAKE_TARGET = 2, 5, 7, 8
_TCA_CAKE_MEMORY = 10
_CAKE_FLOW_MODES = ("flowblind", "srchost", "dsthost", "hosts", "flows")
_CAKE_TRIPLE_ISOLATE = 7
_CAKE_RTT_PER_TARGET = 20
_SCALED_PROBABILITY = 1 << 32
_TICK_NS = 64
_CODEL_UNIT_NS = 1024
# struct tc_sfq_qopt, and the first of what tc_sfq_qopt_v1 adds: the depth
_SFQ_PARAMETERS = struct.Struct("=IiIIII")


def qdisc(queue: Queue) -> str:
    """The kernel's name of what holds the packets."""
    match queue:
        case Tbf() | Htb():
            return "bfifo" if queue.limit.packets is None else "pfifo"
        case EcnThreshold():
            return "red"
        case _:
            return queue.kind


def drops(queue: Queue) -> Literal["at_limit", "on_arrival", "later"]:
    """When a queue drops: arrivals that find it full, other arrivals too, or what it had taken.

    From the kernel's net/sched: sfq drops the last of its longest flow, cake and fq_codel the
    first, and all that control delay by CoDel what has waited too long when its turn comes.
    """
    match queue:
        case Sfq() | Codel() | FqCodel() | Cake():
            return "later"
        case Red() | Pie() | Fq():
            return "on_arrival"
        case _:
            return "at_limit"


def words(queue: Queue) -> str | None:
    """What tc(8) is told after the handle; None where it cannot say it."""
    match queue:
        case EcnThreshold():
            return None
        case Red():
            average = MTU_FRAME_BYTES
            return (
                f"red limit {queue.limit.size_bytes} min {queue.min_packets * average} "
                f"max {queue.max_packets * average} avpkt {average} burst {queue.burst_packets} "
                f"probability {queue.probability}{' ecn' if queue.ecn else ''}"
            )
        case Sfq():
            return (
                f"sfq limit {queue.limit.packets} divisor {queue.buckets} "
                f"perturb {queue.perturb_ns // 10**9}"
            )
        case Fq():
            return (
                f"fq limit {queue.limit.packets} flow_limit {queue.flow_limit} "
                f"quantum {queue.quantum_bytes} {'pacing' if queue.paces else 'nopacing'}"
            )
        case Codel():
            return (
                f"codel limit {queue.limit.packets} target {queue.target_ns // 1000}us "
                f"interval {queue.interval_ns // 1000}us {_ecn(queue.ecn)}"
            )
        case FqCodel():
            return (
                f"fq_codel limit {queue.limit.packets} flows {queue.flows} "
                f"quantum {queue.quantum_bytes} target {queue.target_ns // 1000}us "
                f"interval {queue.interval_ns // 1000}us {_ecn(queue.ecn)}"
            )
        case Pie():
            return (
                f"pie limit {queue.limit.packets} target {queue.target_ns // 1000}us "
                f"tupdate {queue.update_ns // 1000}us alpha {queue.alpha} beta {queue.beta} "
                f"{_ecn(queue.ecn)}"
            )
        case Cake():
            return (
                f"cake unlimited besteffort {queue.isolation} raw rtt {queue.rtt_ns // 1000}us "
                f"memlimit {queue.limit.size_bytes}"
            )
        case _:
            counted = queue.limit.packets or queue.limit.size_bytes
            return f"{qdisc(queue)} limit {counted}"


def read_back(queue: Queue, options: Any, check: Check) -> None:
    """Compares what the kernel shows of a queue with what was asked for.

    Args:
        queue: what was asked for.
        options: TCA_OPTIONS of the qdisc as pyroute2 gives it.
        check: is called with each setting.
    """
    raw = raw_bytes(options)
    match queue:
        case Red():
            limit, minimum, maximum, weight_exponent, flags = red_parameters(raw)
            check("limit_bytes", queue.limit.size_bytes, limit)
            check("min_bytes", queue.min_packets * MTU_FRAME_BYTES, minimum)
            check("max_bytes", queue.max_packets * MTU_FRAME_BYTES, maximum)
            check("weight_exponent", queue.weight_exponent, weight_exponent)
            probability = _numbers(raw).get(_TCA_RED_MAX_P, 0) / _SCALED_PROBABILITY
            check("probability", round(queue.probability, 6), round(probability, 6))
            check("ecn", queue.ecn, bool(flags & 1))
        case Sfq():
            quantum, perturb, limit, buckets, flows, depth = _SFQ_PARAMETERS.unpack_from(raw)
            check("limit_packets", queue.limit.packets, limit)
            check("buckets", queue.buckets, buckets)
            check("perturb_s", queue.perturb_ns // 10**9, perturb)
            check("quantum_bytes", MTU_FRAME_BYTES, quantum)
            # What tc was not told, for the record: flows at a time, and packets of one.
            check("flows", flows, flows)
            check("depth_packets", depth, depth)
        case Fq():
            shown = _numbers(raw)
            check("limit_packets", queue.limit.packets, shown.get(_TCA_FQ_LIMIT))
            check("flow_limit_packets", queue.flow_limit, shown.get(_TCA_FQ_FLOW_LIMIT))
            check("quantum_bytes", queue.quantum_bytes, shown.get(_TCA_FQ_QUANTUM))
            check("pacing", queue.paces, bool(shown.get(_TCA_FQ_RATE_ENABLE)))
        case Codel() | FqCodel():
            shown = _numbers(raw)
            check("limit_packets", queue.limit.packets, shown.get(_TCA_CODEL_LIMIT))
            check("target_us", _codel_us(queue.target_ns), shown.get(_TCA_CODEL_TARGET))
            check("interval_us", _codel_us(queue.interval_ns), shown.get(_TCA_CODEL_INTERVAL))
            check("ecn", queue.ecn, bool(shown.get(_TCA_CODEL_ECN)))
            if isinstance(queue, FqCodel):
                check("flows", queue.flows, shown.get(_TCA_FQ_CODEL_FLOWS))
                check("quantum_bytes", queue.quantum_bytes, shown.get(_TCA_FQ_CODEL_QUANTUM))
        case Pie():
            shown = _numbers(raw)
            target_us = queue.target_ns // _TICK_NS * _TICK_NS // 1000
            check("limit_packets", queue.limit.packets, shown.get(_TCA_PIE_LIMIT))
            check("target_us", target_us, shown.get(_TCA_PIE_TARGET))
            check("update_us", queue.update_ns // 1000, shown.get(_TCA_PIE_UPDATE))
            check("alpha", queue.alpha, shown.get(_TCA_PIE_ALPHA))
            check("beta", queue.beta, shown.get(_TCA_PIE_BETA))
            check("ecn", queue.ecn, bool(shown.get(_TCA_PIE_ECN)))
        case Cake():
            shown = _numbers(raw)
            check("memory_bytes", queue.limit.size_bytes, shown.get(_TCA_CAKE_MEMORY))
            check("rtt_us", queue.rtt_ns // 1000, shown.get(_TCA_CAKE_RTT))
            target_us = max(1, queue.rtt_ns // 1000 // _CAKE_RTT_PER_TARGET)
            check("target_us", target_us, shown.get(_TCA_CAKE_TARGET))
            check("isolation", queue.isolation, _cake_isolation(shown.get(_TCA_CAKE_FLOW_MODE)))
            check("cake_rate_bps", 0, shown.get(_TCA_CAKE_RATE))
        case EcnThreshold():
            raise TypeError(
                "ECN threshold marking is read back by outcast.emulation.queues.marking"
            )
        case _:
            limit = int.from_bytes(raw[:4], "little")
            unit = "bytes" if queue.limit.packets is None else "packets"
            check(f"limit_{unit}", queue.limit.packets or queue.limit.size_bytes, limit)


def red_parameters(raw: bytes) -> tuple[int, int, int, int, int]:
    """Of struct tc_red_qopt: limit, qth_min, qth_max in bytes, Wlog and flags."""
    parameters = attribute(raw, _TCA_RED_PARMS) or bytes(16)
    limit, minimum, maximum, weight_exponent, _, _, flags = struct.unpack("=IIIBBBB", parameters)
    return limit, minimum, maximum, weight_exponent, flags


def _ecn(wanted: bool) -> str:
    return "ecn" if wanted else "noecn"


def _numbers(raw: bytes) -> dict[int, int]:
    """Attributes of one number each, by their types."""
    return {kind: int.from_bytes(value, "little") for kind, value in attributes(raw)}


def _codel_us(time_ns: int) -> int:
    """What the kernel shows of a time that it keeps in units of 1024 ns (net/codel.h)."""
    return time_ns // _CODEL_UNIT_NS * _CODEL_UNIT_NS // 1000


def _cake_isolation(flow_mode: int | None) -> str:
    if flow_mode == _CAKE_TRIPLE_ISOLATE:
        return "triple-isolate"
    if flow_mode is not None and flow_mode < len(_CAKE_FLOW_MODES):
        return _CAKE_FLOW_MODES[flow_mode]
    return f"mode {flow_mode}"
