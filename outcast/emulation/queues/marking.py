"""ECN threshold marking, DCTCP's: the kernel's red, set up as tc(8) cannot.

With a weight of 1 (Wlog 0) the average that red compares is what is queued when a packet
arrives; with both thresholds at the same length it marks from there on, always, and never below
(red_calc_qavg and red_action in the kernel's include/net/red.h). TC_RED_NODROP leaves what cannot
carry the mark to the queue's limit. The packets stand in a fifo under red, which has the limit.

Red counts what is queued before the arriving packet. A table of idle times of all 31 makes it take
an empty queue for empty, however short that lasted.
"""

from __future__ import annotations

import struct
from typing import Any

from outcast.emulation import rtnetlink
from outcast.emulation.queues.leaf import Check, red_parameters
from outcast.experiment import EcnThreshold
from outcast.records.netlink_attributes import attribute, raw_bytes
from outcast.records.qdisc_handles import FIFO_HANDLE, QUEUE_HANDLE, SHAPER_HANDLE

_TCA_RED_PARMS, _TCA_RED_STAB, _TCA_RED_MAX_P, _TCA_RED_FLAGS = 1, 2, 3, 4
_ECN, _NODROP = 1, 8
_HARD_DROP, _ADAPTIVE = 2, 4
_ALWAYS = 0xFFFFFFFF
_FORGETS = bytes([31]) * 256


def set_marking(port: str, queue: EcnThreshold) -> None:
    """Puts the marking queue under a port's shaper, in the present network namespace.

    Raises:
        RunError: the kernel refused; with its reason.
    """
    threshold = queue.threshold_bytes
    options = rtnetlink.attribute(
        _TCA_RED_PARMS, struct.pack("=IIIBBBB", 0, threshold, threshold, 0, 0, 0, 0)
    )
    options += rtnetlink.attribute(_TCA_RED_STAB, _FORGETS)
    options += rtnetlink.attribute(_TCA_RED_MAX_P, struct.pack("=I", _ALWAYS))
    # Struct nla_bitfield32: the values of the flags, and which of them are meant.
    known = _ECN | _HARD_DROP | _ADAPTIVE | _NODROP
    options += rtnetlink.attribute(_TCA_RED_FLAGS, struct.pack("=II", _ECN | _NODROP, known))
    rtnetlink.replace_qdisc(
        port,
        "red",
        parent=rtnetlink.handle(SHAPER_HANDLE, 1),
        major=QUEUE_HANDLE,
        options=options,
    )
    rtnetlink.replace_qdisc(
        port,
        fifo(queue),
        parent=rtnetlink.handle(QUEUE_HANDLE, 1),
        major=FIFO_HANDLE,
        options=struct.pack("=I", queue.limit.packets or queue.limit.size_bytes or 0),
    )


def fifo(queue: EcnThreshold) -> str:
    """The kernel's name of what holds the packets."""
    return "bfifo" if queue.limit.packets is None else "pfifo"


def read_back(queue: EcnThreshold, red: Any, held: Any, check: Check) -> None:
    """Compares what the kernel shows with what was asked for.

    Args:
        queue: what was asked for.
        red: TCA_OPTIONS of red as pyroute2 gives it.
        held: TCA_OPTIONS of the fifo below.
        check: is called with each setting.
    """
    raw = raw_bytes(red)
    _, minimum, maximum, weight_exponent, _ = red_parameters(raw)
    check("threshold_bytes", queue.threshold_bytes, minimum)
    check("threshold_bytes of certain marking", queue.threshold_bytes, maximum)
    check("weight_exponent", 0, weight_exponent)
    flags, _ = struct.unpack("=II", attribute(raw, _TCA_RED_FLAGS) or bytes(8))
    check("ecn", True, bool(flags & _ECN))
    check("drops what cannot be marked", False, not flags & _NODROP)
    unit = "bytes" if queue.limit.packets is None else "packets"
    limit = int.from_bytes(raw_bytes(held)[:4], "little")
    check(f"limit_{unit}", queue.limit.packets or queue.limit.size_bytes, limit)
