"""Interrupt moderation: a host gets its arrivals in batches, as by a network card's interrupts.

Linux has nothing of the kind for a veth pair. So what arrives at a host is redirected to a device
whose root qdisc is netem with slots (tc-mirred(8), tc-netem(8)). netem draws a slot's length when
the first packet after the last slot arrives, and at the slot's end lets all go that have arrived
(get_slot_next in net/sched/sch_netem.c). This is how `rx-usecs` of ethtool(8) is defined. For
`hold_back` the device is an ifb, which hands the packets to the host's IP at one instant.

Captures inside the host, and its counters, see a packet when it arrives, as before. Nothing outside
the host changes but by the time at which it answers. The devices go with the host's namespace.

Cards as Intel's e1000, e1000e and igb count from their last interrupt (`install_card`).
Such a card interrupts at once when a packet comes and its last interrupt is an interval ago. Else
it interrupts when the interval is over, and the host gets all that has come by then. Linux has no
device of that kind. NAPI's own pacing (`gro_flush_timeout` with `napi_defer_hard_irqs`) needs GRO
at a veth. It keeps segments back until the next tick of 1 ms then, and neither can be turned off
without BPF (napi_complete_done in net/core/dev.c, veth_xmit in drivers/net/veth.c). But actions of
tc(8) and a slot of netem can be put together so that they do it exactly:

* A police action that lets one packet pass in an interval (act_police.c, packets per second) is the
  card's memory of its last interrupt. What it lets pass at the host's interface reaches the host at
  once, and what it does not waits in a netem.
* netem's slot has to begin at the interrupt, but begins at the first packet that waits. So each
  packet that the police action lets pass is also mirrored into the netem, where it begins the slot.
  The slot takes as long as the interval. At its end all that wait leave, the copy first.
* Behind the netem a police action of its own drops the copy, because it lets one packet pass in
  half an interval, and what passes is dropped. Then comes the card's police action once more. The
  first packet that waited passes it, and begins the next interval and slot. If none waited, the
  card is quiet.

The netem is at one end of a veth pair in the host's namespace, and the host gets what waited from
the other end.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

from outcast import netlink
from outcast.emulation.kernel import rtnetlink
from outcast.emulation.network import transport
from outcast.emulation.queues import netem
from outcast.errors import FeatureMissingError, ReadBackError, RunError
from outcast.plan.noise import BURST_UNIT_NS, CARD_ENDS, IFB_OF_HOST, Span, interval_ns

_SLOT_HANDLE = 1
_AFTER_NS = 1
"""netem begins a slot only for a packet that came after the last one's end (get_slot_next). A
packet that comes at that very instant has to, so all wait for a nanosecond."""
_CARD, _COPIES = 1, 2
"""The numbers of the two police actions in the host's namespace."""
_OK, _DROP, _NEXT, _STOLEN, _JUMP = 0, 2, 3, 4, 1 << 28
"""TC_ACT_OK, TC_ACT_SHOT, TC_ACT_PIPE, TC_ACT_STOLEN, TC_ACT_JUMP (linux/pkt_cls.h). A jump goes to
an action by its place in the list."""
_REDIRECT, _MIRROR = 1, 2
"""TCA_EGRESS_REDIR and TCA_EGRESS_MIRROR (linux/tc_act/tc_mirred.h)."""
_LAST = 3
"""The place of the last action in both lists. The card's police action jumps there with what comes
within an interval, and it is one and the same in both."""

_POLICE_TBF, _POLICE_RESULT, _POLICE_RATE, _POLICE_BURST = 1, 5, 10, 11
_MIRRED_PARAMETERS = _GACT_PARAMETERS = 2
# struct tc_police: index, action, limit, burst, mtu, two rates, refcnt, bindcnt, capab
_POLICE = struct.Struct("=Ii3I24x2iI")
# tc_gen: index, capab, action, refcnt, bindcnt; then for mirred: eaction, ifindex
_GENERAL = struct.Struct("=IIiii")
_MIRRED = struct.Struct("=IIiiiiI")


@dataclass(frozen=True, slots=True)
class Police:
    """One packet passes in an interval.

    Attributes:
        index: two filters with the same number share the action.
        burst: what it saves up at most, in the kernel's units of time.
    """

    index: int
    per_second: int
    passes: int
    exceeds: int
    burst: int

    def encoded(self) -> bytes:
        bucket = _POLICE.pack(self.index, self.exceeds, 0, 0, 0, 0, 0, 0)
        return _action(
            "police",
            netlink.encode(_POLICE_TBF, bucket),
            netlink.encode_number(_POLICE_RESULT, self.passes),
            netlink.encode_number(_POLICE_RATE, self.per_second, "Q"),
            netlink.encode_number(_POLICE_BURST, self.burst, "Q"),
        )


def _police(index: int, per_second: int, *, passes: int, exceeds: int) -> Police:
    """An action that saves up no more than the one packet."""
    return Police(index, per_second, passes, exceeds, interval_ns(per_second) // BURST_UNIT_NS)


@dataclass(frozen=True, slots=True)
class Mirred:
    """A packet, or a copy of it, goes to another interface."""

    how: int
    to: int
    then: int

    def encoded(self) -> bytes:
        parameters = _MIRRED.pack(0, 0, self.then, 0, 0, self.how, self.to)
        return _action("mirred", netlink.encode(_MIRRED_PARAMETERS, parameters))


@dataclass(frozen=True, slots=True)
class Always:
    """The same becomes of each packet."""

    then: int

    def encoded(self) -> bytes:
        parameters = _GENERAL.pack(0, 0, self.then, 0, 0)
        return _action("gact", netlink.encode(_GACT_PARAMETERS, parameters))


Action = Police | Mirred | Always


def _action(kind: str, *options: bytes) -> bytes:
    return netlink.encode_text(netlink.TCA_KIND, kind) + netlink.nest(netlink.TCA_OPTIONS, *options)


ONLY_VIRTUAL = (
    "noise.interrupts.per_second: no real machine's timers are exact enough for it, so packets "
    "would overtake one another; use --engine virtual, or noise.interrupts={most: 0us}, because a "
    "real machine has interrupts of its own"
)
"""Why real time has no such cards: timers are late there."""


def missing(what: str) -> FeatureMissingError:
    return FeatureMissingError(
        f"noise.interrupts: this kernel lacks {what}, so no host's arrivals can be held back; use "
        "a kernel that has it, --engine virtual, or noise.interrupts={most: 0us}"
    )


def hold_back(
    kernel: rtnetlink.Kernel, interface: str, interrupts: Span, name: str = IFB_OF_HOST
) -> None:
    """Makes what arrives at an interface of the present namespace come in batches.

    Raises FeatureMissingError: the kernel lacks a part of it.
    """
    index = socket.if_nametoindex(interface)
    try:
        kernel.do([rtnetlink.add_link(name, "ifb")])
        ifb = socket.if_nametoindex(name)
        redirect = Mirred(_REDIRECT, ifb, then=_STOLEN)
        kernel.do([rtnetlink.set_up(ifb), *rtnetlink.add_ingress(index, [redirect.encoded()])])
    except RunError as error:
        raise missing(f"ifb, sch_ingress, cls_matchall or act_mirred ({error})") from None
    _set_slots(name, interrupts, delay_ns=0)
    _check_slots(kernel, name, ifb, interrupts)
    _check_actions(kernel, interface, index, [redirect])


def install_card(
    kernel: rtnetlink.Kernel, interface: str, per_second: int, *, address: str, mtu_bytes: int
) -> None:
    """Makes what arrives come as from a card that counts from its last interrupt."""
    waiting, behind = CARD_ENDS
    # IP takes only what is addressed to the interface that it came from.
    far = rtnetlink.End(behind, mtu_bytes, address)
    kernel.do([rtnetlink.add_veth_pair(rtnetlink.End(waiting, mtu_bytes), far)])
    for name in ("all", behind):
        # Else a host can refuse what comes from an interface to which none of its routes leads.
        transport.write_sysctl(f"ipv4/conf/{name}/rp_filter", "0", interface)
    index = {name: socket.if_nametoindex(name) for name in (interface, *CARD_ENDS)}
    kernel.do([rtnetlink.set_up(index[end]) for end in CARD_ENDS])
    slot_ns = interval_ns(per_second)
    slot = Span(slot_ns, slot_ns)
    _set_slots(waiting, slot, _AFTER_NS)
    card = _police(_CARD, per_second, passes=_NEXT, exceeds=_JUMP | _LAST)
    begin = Mirred(_MIRROR, index[waiting], then=_OK)
    redirect = Mirred(_REDIRECT, index[waiting], then=_STOLEN)
    copies = _police(_COPIES, 2 * per_second, passes=_DROP, exceeds=_NEXT)
    actions: dict[str, Sequence[Action]] = {
        interface: [Always(_NEXT), card, begin, redirect],
        behind: [copies, card, begin, Always(_OK)],
    }
    for name, listed in actions.items():
        encoded = [action.encoded() for action in listed]
        try:
            kernel.do(rtnetlink.add_ingress(index[name], encoded))
        except RunError as error:
            parts = "sch_ingress, cls_matchall, act_police, act_mirred or act_gact"
            raise missing(f"{parts} ({error})") from None
    _check_slots(kernel, waiting, index[waiting], slot)
    for name, listed in actions.items():
        _check_actions(kernel, name, index[name], listed)


def wait_until_ready(per_second: int) -> None:
    """Waits until all cards would interrupt at once.

    A police action begins without anything saved up. So it would take the first packet for one that
    came within an interval, although the interval's slot has not begun.
    """
    time.sleep(2 * interval_ns(per_second) / 10**9)


def _set_slots(name: str, slot: Span, delay_ns: int) -> None:
    options = netem.options(delay_ns=delay_ns, slot=slot)
    rtnetlink.replace_qdisc(name, "netem", major=_SLOT_HANDLE, options=options)


def _check_slots(kernel: rtnetlink.Kernel, name: str, index: int, slot: Span) -> None:
    slots = [netem.Shown(options).slot for options in kernel.options(index, "netem")]
    if slots != [slot]:
        raise ReadBackError(name, "interrupts", slot, slots)


def _check_actions(
    kernel: rtnetlink.Kernel, name: str, index: int, actions: Sequence[Action]
) -> None:
    # The kernel dumps a filter's head without options too.
    filters = kernel.filters(index, netlink.INGRESS)
    effective = [decoded for _, options in filters if (decoded := _actions_of(options))]
    if effective != [list(actions)]:
        raise ReadBackError(name, "actions on arrivals", list(actions), effective)


def _actions_of(options: bytes) -> list[Action | str]:
    """A filter's actions as the kernel shows them; of another kind, its name."""
    listed = netlink.attribute(options, netlink.TCA_MATCHALL_ACT) or b""
    return [_decoded(action) for _, action in netlink.attributes(listed)]


def _decoded(raw: bytes) -> Action | str:
    parts = dict(netlink.attributes(raw))
    kind = parts[netlink.TCA_KIND].rstrip(b"\0").decode()
    options = dict(netlink.attributes(parts[netlink.TCA_OPTIONS]))
    if kind == "police":
        index, exceeds, *_ = _POLICE.unpack(options[_POLICE_TBF])
        numbers = netlink.numbers(parts[netlink.TCA_OPTIONS])
        # The kernel does not show a result of 0, nor rates that it does not know.
        rate, burst = numbers.get(_POLICE_RATE, 0), numbers.get(_POLICE_BURST, 0)
        return Police(index, rate, numbers.get(_POLICE_RESULT, _OK), exceeds, burst)
    if kind == "mirred":
        _, _, then, _, _, how, to = _MIRRED.unpack(options[_MIRRED_PARAMETERS])
        return Mirred(how, to, then)
    if kind == "gact":
        return Always(_GENERAL.unpack(options[_GACT_PARAMETERS])[2])
    return kind
