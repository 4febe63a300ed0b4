"""Interrupt moderation: a host gets its arrivals in batches, as a network card's interrupts do.

Linux has nothing of the kind for a veth pair. So what arrives at a host is redirected to an ifb
device in the host's namespace (tc-mirred(8), drivers/net/ifb.c). Its root qdisc is netem with slots
(tc-netem(8)). netem draws a slot's length when the first packet after the last slot arrives, and at
the slot's end lets all go that have arrived (get_slot_next in net/sched/sch_netem.c). This is how
`rx-usecs` of ethtool(8) is defined. The ifb device then hands the packets to the host's IP at one
instant.

Captures inside the host, and its counters, see a packet when it arrives, as before. Nothing outside
the host changes but by the time at which it answers. The ifb device goes with the namespace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyroute2.netlink.exceptions import NetlinkError

from outcast import netlink
from outcast.emulation import netem, rtnetlink
from outcast.errors import FeatureMissingError, ReadBackError
from outcast.plan.noise import IFB_OF_HOST, Span

if TYPE_CHECKING:
    from pyroute2.iproute import IPRoute

SLOT_HANDLE = 1
LIMIT_PACKETS = 100_000
_INGRESS = 0xFFFF0000
"""The handle of an ingress qdisc; filters of it have it as their parent."""
_ETH_P_ALL = 3
_EGRESS_REDIRECT = 1
"""TCA_EGRESS_REDIR (linux/tc_act/tc_mirred.h)."""


def missing(what: str) -> FeatureMissingError:
    """The error where a kernel cannot hold arrivals back; `what` it lacks."""
    return FeatureMissingError(
        f"noise.interrupts: this kernel lacks {what}, so no host's arrivals can be held back; use "
        "a kernel that has it, --engine virtual, or noise.interrupts={most: 0us}"
    )


def hold_back(kernel: IPRoute, interface: str, interrupts: Span, name: str = IFB_OF_HOST) -> None:
    """Makes what arrives at an interface of the present namespace come in batches.

    Raises:
        FeatureMissingError: the kernel lacks a part of it.
        ReadBackError: the kernel shows something else than was asked for.
        RunError: the kernel refused.
    """
    (index,) = kernel.link_lookup(ifname=interface)
    try:
        kernel.link("add", ifname=name, kind="ifb")
        (ifb,) = kernel.link_lookup(ifname=name)
        kernel.link("set", index=ifb, state="up")
        kernel.tc("add", "ingress", index=index)
        kernel.tc(
            *("add-filter", "matchall"),
            index=index,
            parent=_INGRESS,
            protocol=_ETH_P_ALL,
            action={"kind": "mirred", "direction": "egress", "action": "redirect", "ifindex": ifb},
        )
    except NetlinkError as error:
        parts = "ifb, sch_ingress, cls_matchall, act_mirred or sch_netem"
        raise missing(f"{parts} ({error})") from None
    rtnetlink.replace_qdisc(
        *(name, "netem"),
        parent=netlink.ROOT,
        major=SLOT_HANDLE,
        options=netem.options(
            delay_ns=0, jitter_ns=0, limit_packets=LIMIT_PACKETS, in_order=False, slot=interrupts
        ),
    )
    _read_back(kernel, interface, index, ifb, interrupts)


def _read_back(kernel: IPRoute, interface: str, index: int, ifb: int, interrupts: Span) -> None:
    """Raises ReadBackError where the ingress qdisc, its filter or the slots are others."""
    qdiscs = list(kernel.get_qdiscs())
    at_ingress = [
        message.get_attr("TCA_KIND")
        for message in qdiscs
        if message["index"] == index and message["parent"] == 0xFFFFFFF1
    ]
    if at_ingress != ["ingress"]:
        raise ReadBackError(interface, "qdisc of arrivals", "ingress", at_ingress)
    targets = [
        target
        for message in kernel.get_filters(index=index, parent=_INGRESS)
        for target in _redirected_to(message)
    ]
    if targets != [(_EGRESS_REDIRECT, ifb)]:
        raise ReadBackError(interface, "redirection", [(_EGRESS_REDIRECT, ifb)], targets)
    read_back = [
        message.get_attr("TCA_OPTIONS")
        for message in qdiscs
        if message["index"] == ifb and message.get_attr("TCA_KIND") == "netem"
    ]
    slots = [netem.shown_slot(netlink.raw_bytes(options)) for options in read_back]
    if slots != [interrupts]:
        raise ReadBackError(interface, "interrupts", interrupts, slots)


def _redirected_to(message: Any) -> list[tuple[int, int]]:
    """Reads what a filter's actions do, and the interfaces that they send to.

    The kernel dumps a filter's head without options too.
    """
    options = message.get_attr("TCA_OPTIONS")
    actions = options.get_attr("TCA_MATCHALL_ACT") if options is not None else None
    if actions is None:
        return []
    targets = []
    for _, action in actions["attrs"]:
        parameters = action.get_attr("TCA_ACT_OPTIONS").get_attr("TCA_MIRRED_PARMS")
        targets.append((parameters["eaction"], parameters["ifindex"]))
    return targets
