"""Requests that change a port's qdiscs while they hold packets, and that read them back.

A qdisc that is changed keeps its packets; one that is replaced loses them. So no request here may
create or replace anything. Where the kernel's `change` functions (net/sched) do more than was
requested, this module makes up for it:

* tbf gives a fifo below it its own limit (fifo_set_limit), so it gets that fifo's limit;
* tbf fills its bucket, so at each change of the rate one frame may leave early;
* netem sends a packet whose delay is shorter before one whose delay was longer, so it is also given
  the rate that keeps packets in order (`outcast.emulation.queues.netem`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from outcast import netlink
from outcast.emulation.kernel import rtnetlink
from outcast.emulation.queues import netem
from outcast.emulation.queues.qdiscs import (
    LINKLAYER_ETHERNET,
    RATESPEC,
    UNLIMITED,
    below_the_shaper,
    tbf_options,
)
from outcast.errors import ReadBackError
from outcast.experiment import MTU_FRAME_BYTES
from outcast.experiment.links import Policer
from outcast.experiment.queues.base import TICK_NS
from outcast.plan.ports import PortQueue
from outcast.records.queue_statistics import DELAY_HANDLE, QUEUE_HANDLE, SHAPER_HANDLE

_CHANGE = netlink.REQUEST | netlink.ACK
_ASK = netlink.REQUEST | netlink.ECHO
_TCA_HTB_PARMS = 1
_TCA_ACT_TAB, _TCA_ACT_INDEX = 1, 3
_TCA_POLICE_TBF, _TCA_POLICE_RATE, _TCA_POLICE_RESULT = 1, 2, 5
_SHOT, _PIPE = 2, 3
"""TC_ACT_SHOT for what finds no tokens, and TC_ACT_PIPE for the rest (linux/pkt_cls.h)."""
_LARGEST_BYTES = 65_535
_ACTION_BYTES = 20
"""struct nlmsghdr and struct tcamsg."""
_NO_RATE = bytes(RATESPEC.size)
_MESSAGE_BYTES = 36
"""struct nlmsghdr and struct tcmsg."""


def requests(interface: int, before: PortQueue, after: PortQueue) -> list[bytes]:
    """The netlink requests that turn a port's settings into others.

    Both have the same kinds of qdiscs.
    """
    messages = []
    if before.rate_bps != after.rate_bps:
        messages.append(rate_request(interface, after))
    if (before.delay_ns, before.jitter_ns) != (after.delay_ns, after.jitter_ns):
        options = netem.options(delay_ns=after.delay_ns, jitter_ns=after.jitter_ns, in_order=True)
        messages.append(_qdisc(interface, "netem", DELAY_HANDLE, options))
    if before.queue != after.queue:
        *_, last = after.queue.tc()
        options = after.queue.limit_options() or b""
        handle = QUEUE_HANDLE + len(after.queue.tc()) - 1
        messages.append(_qdisc(interface, last.kind, handle, options))
    return messages


def rate_request(interface: int, port: PortQueue, *, echo: bool = False) -> bytes:
    """The request that gives a port's shaper its rate and burst.

    With `echo`, which htb alone has here, the kernel answers with the class as it then is.
    """
    framing = port.framing
    if port.queue.shaper_kind == "tbf":
        limit, limit_below = port.queue.wire_limit, UNLIMITED
        if port.queue.tc()[0].kind in ("pfifo", "bfifo"):
            limit_below = limit.packets or limit.size_bytes or UNLIMITED
        options = tbf_options(port, limit_below)
        return _qdisc(interface, "tbf", SHAPER_HANDLE, options)
    rate = RATESPEC.pack(
        0, LINKLAYER_ETHERNET, framing.added_bytes, 0, framing.least_bytes, port.rate_bps // 8
    )
    burst_ticks = port.bucket_bytes * 8 * 10**9 // port.rate_bps // TICK_NS
    parameters = rate + rate + struct.pack("=5I", burst_ticks, burst_ticks, MTU_FRAME_BYTES, 0, 0)
    body = netlink.traffic_control(
        interface, SHAPER_HANDLE, 1, parent=netlink.handle(SHAPER_HANDLE)
    )
    body += netlink.encode_text(netlink.TCA_KIND, "htb")
    body += netlink.nest(netlink.TCA_OPTIONS, netlink.encode(_TCA_HTB_PARMS, parameters))
    return netlink.message(netlink.RTM_NEWTCLASS, _ASK if echo else _CHANGE, 1, body)


def shown_rate_bps(answer: bytes) -> int:
    """The rate of an htb class in the kernel's answer to `rate_request` with `echo`."""
    parameters = netlink.attribute(shown_options(answer), _TCA_HTB_PARMS) or _NO_RATE
    return int(RATESPEC.unpack_from(parameters)[-1]) * 8


def loss_requests(interface: int, loss: netem.Loss) -> tuple[bytes, bytes]:
    """The request that gives a lossy link another loss, and the one that reads it back.

    `interface` is the index of the link's inner end that sends (network/lossy_links.py).
    """
    question = rtnetlink.queue_request(1, interface, DELAY_HANDLE)
    return _qdisc(interface, "netem", DELAY_HANDLE, netem.options(loss=loss)), question


def shown_options(answer: bytes) -> bytes:
    """The TCA_OPTIONS in the kernel's answer to a question of this module."""
    return netlink.attribute(answer[_MESSAGE_BYTES:], netlink.TCA_OPTIONS) or b""


def policer_requests(index: int, policer: Policer) -> tuple[bytes, bytes]:
    """The request that gives a policer another bucket, and the one that reads it back.

    The new bucket is full (tcf_police_init in net/sched/act_police.c).
    """
    burst_ticks = policer.burst_bytes * 8 * 10**9 // policer.rate_bps // TICK_NS
    rate = RATESPEC.pack(1, LINKLAYER_ETHERNET, 0, 0, 0, policer.rate_bps // 8)
    numbers = struct.pack("=IiIII", index, _SHOT, 0, burst_ticks, _LARGEST_BYTES)
    bucket = numbers + rate + _NO_RATE + bytes(12)
    options = netlink.encode(_TCA_POLICE_TBF, bucket)
    # The kernel wants a table of times, though it computes with the rate itself.
    options += netlink.encode(_TCA_POLICE_RATE, bytes(1024))
    options += netlink.encode_number(_TCA_POLICE_RESULT, _PIPE)
    change = _CHANGE | netlink.REPLACE
    which = netlink.encode_number(_TCA_ACT_INDEX, index)
    return (
        _action(netlink.RTM_NEWACTION, change, netlink.nest(netlink.TCA_OPTIONS, options)),
        _action(netlink.RTM_GETACTION, netlink.REQUEST, which),
    )


def checked_policer(where: str, policer: Policer, answer: bytes) -> tuple[int, int]:
    """The rate in bit/s and the burst in bytes in the answer to `policer_requests`' question.

    Raises ReadBackError: they are not what was requested.
    """
    inner = answer[_ACTION_BYTES:]
    for kind in (_TCA_ACT_TAB, 1, netlink.TCA_OPTIONS):
        inner = netlink.attribute(inner, kind) or b""
    bucket = netlink.attribute(inner, _TCA_POLICE_TBF) or bytes(60)
    burst_ticks = struct.unpack_from("=3I", bucket, 4)[2]
    rate_bps = RATESPEC.unpack_from(bucket, 20)[-1] * 8
    burst_bytes = round(burst_ticks * TICK_NS * rate_bps / 8e9)
    # tc(8) keeps a burst as whole microseconds at the rate, and the kernel as ticks of 64 ns.
    lost_bytes = policer.rate_bps / 8e6 + 1
    if rate_bps != policer.rate_bps or abs(burst_bytes - policer.burst_bytes) > lost_bytes:
        shown = (rate_bps, burst_bytes)
        raise ReadBackError(where, "policer", (policer.rate_bps, policer.burst_bytes), shown)
    return rate_bps, burst_bytes


def _action(kind: int, flags: int, more: bytes) -> bytes:
    """A message on one action: struct tcamsg, and a table that has only this action."""
    action = netlink.nest(1, netlink.encode_text(netlink.TCA_KIND, "police"), more)
    return netlink.message(kind, flags, 1, bytes(4) + netlink.nest(_TCA_ACT_TAB, action))


def _qdisc(interface: int, kind: str, major: int, options: bytes) -> bytes:
    # Without a parent the handle alone decides, and a qdisc that is not there is refused.
    body = netlink.traffic_control(interface, major)
    body += netlink.encode_text(netlink.TCA_KIND, kind)
    body += netlink.nest(netlink.TCA_OPTIONS, options)
    return netlink.message(netlink.RTM_NEWQDISC, _CHANGE, 1, body)


def questions(interface: int, port: PortQueue) -> list[bytes]:
    """The requests for each of a port's qdiscs, and for its class where it has one."""
    above = (DELAY_HANDLE, SHAPER_HANDLE) if port.has_netem else (SHAPER_HANDLE,)
    messages = [
        rtnetlink.queue_request(1, interface, major)
        for major in (*above, *(major for major, _, _ in below_the_shaper(port.queue)))
    ]
    if port.queue.shaper_kind == "htb":
        body = netlink.traffic_control(interface, SHAPER_HANDLE, 1)
        messages.append(netlink.message(netlink.RTM_GETTCLASS, _ASK, 1, body))
    return messages


def decoded(answers: Sequence[bytes]) -> list[Any]:
    """The kernel's answers to `questions`, in the form that `port_checks.read_back` takes."""
    return [rtnetlink.decoded(answer) for answer in answers]
