"""Requests that set up interfaces, addresses, routes and neighbours by rtnetlink(7).

`rtnetlink.Kernel.do` makes many of them by one message.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from outcast import netlink
from outcast.emulation.rtnetlink import (
    FRA_SRC,
    FRA_TABLE,
    IFLA_IFNAME,
    IFLA_MTU,
    LINK_MESSAGE,
    METRICS,
    NDA_DST,
    NDA_LLADDR,
    NEIGHBOUR_MESSAGE,
    ROUTE_MESSAGE,
    RTA_DST,
    RTA_GATEWAY,
    RTA_METRICS,
    RULE,
    TABLE_MAIN,
    Request,
    family_of,
    packed,
)

_IFLA_ADDRESS, _IFLA_LINKINFO, _IFLA_NET_NS_FD = 1, 18, 28
_IFLA_INFO_KIND, _IFLA_INFO_DATA, _VETH_INFO_PEER = 1, 2, 1
_IFF_UP = 1
_ADDRESS_MESSAGE = struct.Struct("=BBBBI")
"""struct ifaddrmsg: family, length of the prefix, flags, scope, interface."""
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_NO_DUPLICATES = 0x02
"""IFA_F_NODAD: no search for another owner of the address (linux/if_addr.h)."""

_RTM_NEWRULE, _TO_TABLE, _FRA_PRIORITY = 32, 1, 6
"""FR_ACT_TO_TBL, and an attribute of a rule (linux/fib_rules.h)."""
_RULE_PRIORITY = 100
_RTA_OIF, _RTA_PRIORITY, _RTA_PREFSRC = 4, 6, 7
_IP6_RT_PRIO_ADDRCONF = 256
"""The metric of the route that the kernel makes for an IPv6 address's network (net/ip6_route.h)."""
_PROTOCOL_KERNEL, _PROTOCOL_STATIC, _SCOPE_LINK, _UNICAST = 2, 4, 253, 1
_PERMANENT = 0x80
"""NUD_PERMANENT: an ARP entry for which no request is sent (ip-neighbour(8))."""
_NEW = netlink.CREATE | netlink.EXCLUSIVE
_REPLACE = netlink.CREATE | netlink.REPLACE


@dataclass(frozen=True, slots=True)
class End:
    """An end of a veth pair; what is None is left to the kernel.

    `netns` is the descriptor of the network namespace that it is in.
    """

    name: str
    mtu_bytes: int | None = None
    address: str | None = None
    netns: int | None = None


def add_veth_pair(near: End, far: End) -> Request:
    """A pair of interfaces; what is sent by one is received by the other (veth(4))."""
    peer = netlink.encode(_VETH_INFO_PEER | netlink.NESTED, _end(far))
    kind = netlink.encode(_IFLA_INFO_KIND, b"veth\0")
    data = netlink.encode(_IFLA_INFO_DATA | netlink.NESTED, peer)
    body = _end(near) + netlink.encode(_IFLA_LINKINFO | netlink.NESTED, kind + data)
    return Request(f"{near.name}: veth pair with {far.name}", netlink.RTM_NEWLINK, _NEW, body)


def _end(end: End) -> bytes:
    body = LINK_MESSAGE.pack(0, 0, 0, 0, 0)
    body += netlink.encode(IFLA_IFNAME, end.name.encode() + b"\0")
    if end.mtu_bytes is not None:
        body += netlink.encode(IFLA_MTU, struct.pack("=I", end.mtu_bytes))
    if end.address is not None:
        body += netlink.encode(_IFLA_ADDRESS, _mac(end.address))
    if end.netns is not None:
        body += netlink.encode(_IFLA_NET_NS_FD, struct.pack("=I", end.netns))
    return body


def set_up(interface: int) -> Request:
    """An interface, by its index, that is to be up."""
    body = LINK_MESSAGE.pack(0, 0, interface, _IFF_UP, _IFF_UP)
    return Request(f"interface {interface}: up", netlink.RTM_NEWLINK, 0, body)


def add_address(interface: int, address: str, prefix_length: int) -> Request:
    """An address that an interface gets. An IPv6 address can be used at once (RFC 4862, 5.4)."""
    raw, family = packed(address), family_of(address)
    flags = _NO_DUPLICATES if family == socket.AF_INET6 else 0
    body = _ADDRESS_MESSAGE.pack(family, prefix_length, flags, 0, interface)
    body += netlink.encode(_IFA_LOCAL, raw) + netlink.encode(_IFA_ADDRESS, raw)
    return Request(f"address {address}/{prefix_length}", netlink.RTM_NEWADDR, _NEW, body)


def replace_route(
    interface: int,
    network: str,
    prefix_length: int,
    source: str,
    metrics: Mapping[str, int],
    table: int = TABLE_MAIN,
    gateway: str | None = None,
) -> Request:
    """The route to the network of an interface, in place of the one that the kernel made.

    `gateway` is the router that packets go to, if the network is another one than the interface's.
    """
    made_by = (_PROTOCOL_KERNEL, _SCOPE_LINK) if gateway is None else (_PROTOCOL_STATIC, 0)
    body = ROUTE_MESSAGE.pack(
        family_of(network), prefix_length, 0, 0, *(table, *made_by, _UNICAST, 0)
    )
    if gateway is not None:
        body += netlink.encode(RTA_GATEWAY, packed(gateway))
    body += netlink.encode(RTA_DST, packed(network))
    body += netlink.encode(_RTA_OIF, struct.pack("=I", interface))
    body += netlink.encode(_RTA_PREFSRC, packed(source))
    if family_of(network) == socket.AF_INET6:
        body += netlink.encode(_RTA_PRIORITY, struct.pack("=I", _IP6_RT_PRIO_ADDRCONF))
    listed = [
        netlink.encode(METRICS[name], struct.pack("=I", value)) for name, value in metrics.items()
    ]
    body += netlink.encode(RTA_METRICS | netlink.NESTED, b"".join(listed))
    return Request(f"route to {network}/{prefix_length}", netlink.RTM_NEWROUTE, _REPLACE, body)


def add_rule(address: str, table: int) -> Request:
    """What an IPv4 address sends goes by a table of routes of its own (ip-rule(8))."""
    body = RULE.pack(socket.AF_INET, 0, 32, _TO_TABLE, 0)
    body += netlink.encode(FRA_SRC, packed(address))
    body += netlink.encode(_FRA_PRIORITY, struct.pack("=I", _RULE_PRIORITY))
    body += netlink.encode(FRA_TABLE, struct.pack("=I", table))
    return Request(f"rule from {address}", _RTM_NEWRULE, _NEW, body)


def replace_neighbour(interface: int, address: str, mac: str) -> Request:
    """A permanent neighbour, as an ARP entry: the MAC address of an address."""
    body = NEIGHBOUR_MESSAGE.pack(family_of(address), interface, _PERMANENT, 0, 0)
    body += netlink.encode(NDA_DST, packed(address))
    body += netlink.encode(NDA_LLADDR, _mac(mac))
    return Request(f"ARP entry of {address}", netlink.RTM_NEWNEIGH, _REPLACE, body)


def _mac(address: str) -> bytes:
    return bytes.fromhex(address.replace(":", ""))
