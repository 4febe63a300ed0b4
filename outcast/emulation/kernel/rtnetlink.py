"""Requests by rtnetlink(7): interfaces, addresses, routes, qdiscs, and their counters.

pyroute2 runs an event loop for each request, and reads all of the kernel's answer. In a large
network that was most of the set-up, so what every run needs of each host or port is read here.
pyroute2 still decodes the qdiscs, whose options and statistics have many forms.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyroute2.netlink.rtnl.tcmsg import tcmsg

from outcast import netlink
from outcast.errors import DeadlineError, FeatureMissingError, ReadBackError, RunError
from outcast.records.queue_statistics import Shown, read_message


def replace_qdisc(
    interface: str, kind: str, *, parent: int = netlink.ROOT, major: int, options: bytes
) -> None:
    """As `outcast.netlink.replace_qdisc`, which describes the arguments.

    Raises:
        FeatureMissingError: the kernel has no such qdisc.
        RunError: the kernel refused; the text has its reason.
    """
    try:
        netlink.replace_qdisc(interface, kind, parent=parent, major=major, options=options)
    except OSError as error:
        # The kernel answers so for a kind that it does not know (qdisc_create in sch_api.c).
        if error.errno == errno.ENOENT:
            raise FeatureMissingError(f"this kernel has no qdisc {kind}") from None
        raise RunError(f"{interface}: qdisc {major}: {kind}: {error.strerror}") from None


COUNTERS = (
    *("rx_packets", "tx_packets", "rx_bytes", "tx_bytes"),
    *("rx_errors", "tx_errors", "rx_dropped", "tx_dropped"),
)
"""The first members of struct rtnl_link_stats64 (linux/if_link.h)."""
_IFLA_STATS_LINK_64 = 1
_STATS_MESSAGE = struct.Struct("=BxxxII")
"""struct if_stats_msg: family, interface, and a mask of the statistics that are requested."""
_RECEIVE_BYTES = 1 << 16
_REQUESTS_AT_ONCE = 64
"""Their answers fit into a socket's usual buffer."""
ANSWER_DEADLINE_S = 10.0
_MOST_DUMPS = 5

LINK_MESSAGE = struct.Struct("=BxHiII")
"""struct ifinfomsg: family, type, interface, flags, and which flags to change."""
IFLA_IFNAME, IFLA_MTU, _IFLA_GSO_MAX_SEGS = 3, 4, 40
_IFLA_OPERSTATE, _UNKNOWN, _OPERATIONAL = 16, b"\0", b"\6"
"""What lo is, and what another interface that is ready is (linux/if.h)."""

ROUTE_MESSAGE = struct.Struct("=8BI")
"""struct rtmsg: family, lengths of the prefixes (to, from), TOS, table, protocol, scope, type and
flags."""
_RTM_GETRULE = 34
RULE = struct.Struct("=3B4xBI")
"""struct fib_rule_hdr: family, lengths of the prefixes (to, from), action, flags."""
FRA_SRC, FRA_TABLE = 2, 15
"""Attributes of a rule (linux/fib_rules.h)."""
RTA_DST, RTA_GATEWAY, RTA_METRICS = 1, 5, 8
TABLE_MAIN = 254
METRICS = {"lock": 1, "initcwnd": 11, "rto_min": 13, "quickack": 15}
"""The numbers of a route's metrics by ip-route(8)'s names (RTAX_ in linux/rtnetlink.h)."""

NEIGHBOUR_MESSAGE = struct.Struct("=BxxxiHBB")
"""struct ndmsg: family, interface, state, flags, type."""
NDA_DST, NDA_LLADDR = 1, 2


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the kernel; `flags` are those besides REQUEST and ACK."""

    what: str
    kind: int
    flags: int
    body: bytes


def family_of(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def packed(address: str) -> bytes:
    return socket.inet_pton(family_of(address), address)


class Kernel:
    """A netlink(7) socket in the network namespace of the thread that opened it."""

    def __init__(self, protocol: int = socket.NETLINK_ROUTE) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        self._socket.settimeout(ANSWER_DEADLINE_S)
        self._sequence = 0

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def do(self, requests: Sequence[Request]) -> None:
        """Makes requests in their order, many by one message.

        Where one is refused, those before it are done, and some that come after may be.

        Raises DeadlineError or RunError: the kernel gives no answer, or refuses.
        """
        for first in range(0, len(requests), _REQUESTS_AT_ONCE):
            together = requests[first : first + _REQUESTS_AT_ONCE]
            numbers = self._numbers(len(together))
            flags = netlink.REQUEST | netlink.ACK
            sent = (
                netlink.message(request.kind, flags | request.flags, number, request.body)
                for number, request in zip(numbers, together, strict=True)
            )
            self._send(together[0].what, b"".join(sent))
            refused: dict[int, int] = {}
            answered = 0
            while answered < len(together):
                for answer in self._receive(together[answered].what, numbers):
                    if answer.kind == netlink.ERROR:
                        answered += 1
                        if number := _error_number(answer):
                            refused[answer.sequence] = number
            if refused:
                number = min(refused)
                request = together[number - numbers.start]
                raise RunError(f"{request.what}: {os.strerror(refused[number])}")

    def _numbers(self, count: int) -> range:
        numbers = range(self._sequence + 1, self._sequence + 1 + count)
        self._sequence += count
        return numbers

    def dump(self, what: str, kind: int, body: bytes) -> list[netlink.Answer]:
        """The messages of a dump: all that the kernel has of a kind.

        It is read again where it changed meanwhile. Raises as `do`.
        """
        for _ in range(_MOST_DUMPS):
            numbers = self._numbers(1)
            flags = netlink.REQUEST | netlink.DUMP
            self._send(what, netlink.message(kind, flags, numbers.start, body))
            answers, is_interrupted = self._dumped(what, numbers)
            if not is_interrupted:
                return answers
        raise RunError(f"{what}: they changed each time while the kernel told them")

    def _dumped(self, what: str, numbers: range) -> tuple[list[netlink.Answer], bool]:
        """Reads one dump, and whether something may be missing."""
        answers: list[netlink.Answer] = []
        is_interrupted = False
        while True:
            for answer in self._receive(what, numbers):
                is_interrupted |= bool(answer.flags & netlink.INTERRUPTED)
                if answer.kind == netlink.ERROR or (
                    answer.kind == netlink.DONE and _error_number(answer)
                ):
                    raise RunError(f"{what}: {os.strerror(_error_number(answer))}")
                if answer.kind == netlink.DONE:
                    return answers, is_interrupted
                answers.append(answer)

    def _send(self, what: str, message: bytes) -> None:
        try:
            self._socket.send(message)
        except TimeoutError:
            raise DeadlineError(f"the kernel to take {what}", ANSWER_DEADLINE_S) from None
        except OSError as error:
            raise RunError(f"{what}: {error.strerror}") from None

    def _receive(self, what: str, numbers: range) -> list[netlink.Answer]:
        """The next answers, without those to other requests, which an error cut short."""
        # The kernel sends at most 32 KiB at once (netlink_recvmsg in af_netlink.c).
        try:
            received = self._socket.recv(_RECEIVE_BYTES)
        except TimeoutError:
            raise DeadlineError(f"the kernel's answer on {what}", ANSWER_DEADLINE_S) from None
        except OSError as error:
            raise RunError(f"{what}: {error.strerror}") from None
        return [answer for answer in netlink.messages(received) if answer.sequence in numbers]

    def _listed(
        self, what: str, kind: int, header: struct.Struct, *values: int
    ) -> Iterator[tuple[tuple[int, ...], dict[int, bytes]]]:
        """The header and the attributes of each message of a dump."""
        for answer in self.dump(what, kind, header.pack(*values)):
            parts = dict(netlink.attributes(answer.body[header.size :]))
            yield header.unpack_from(answer.body), parts

    def _interfaces(self) -> Iterator[tuple[tuple[int, ...], dict[int, bytes]]]:
        return self._listed("interfaces", netlink.RTM_GETLINK, LINK_MESSAGE, *[0] * 5)

    def mtus(self) -> dict[str, int]:
        mtus = {}
        for _, parts in self._interfaces():
            name = parts[IFLA_IFNAME].rstrip(b"\0").decode()
            (mtus[name],) = struct.unpack("=I", parts[IFLA_MTU])
        return mtus

    def keep_segments_apart(self, interface: int) -> None:
        """Makes an interface's host hand over each segment alone, in no unit of several."""
        body = LINK_MESSAGE.pack(0, 0, interface, 0, 0)
        body += netlink.encode_number(_IFLA_GSO_MAX_SEGS, 1)
        self.do([Request(f"interface {interface}: gso_max_segs", netlink.RTM_NEWLINK, 0, body)])
        parts = next(parts for header, parts in self._interfaces() if header[2] == interface)
        (limit,) = struct.unpack("=I", parts[_IFLA_GSO_MAX_SEGS])
        if limit != 1:
            raise ReadBackError(parts[IFLA_IFNAME].rstrip(b"\0").decode(), "gso_max_segs", 1, limit)

    def are_up(self) -> bool:
        """Whether every interface is up and ready (RFC 2863), lo aside."""
        ready = (_OPERATIONAL, _UNKNOWN)
        return all(parts.get(_IFLA_OPERSTATE) in ready for _, parts in self._interfaces())

    def rules(self) -> dict[str, int]:
        """The table of routes for each IPv4 address that has a rule."""
        tables = {}
        for _, parts in self._listed("rules", _RTM_GETRULE, RULE, socket.AF_INET, 0, 0, 0, 0):
            if FRA_SRC in parts:
                address = socket.inet_ntop(socket.AF_INET, parts[FRA_SRC])
                tables[address] = int.from_bytes(parts[FRA_TABLE], "little")
        return tables

    def _routes(
        self, family: socket.AddressFamily, table: int = 0
    ) -> Iterator[tuple[int, int, dict[int, bytes]]]:
        """The bits of the network, the table and the attributes of each route."""
        fields = (family, 0, 0, 0, table, 0, 0, 0, 0)
        for header, parts in self._listed("routes", netlink.RTM_GETROUTE, ROUTE_MESSAGE, *fields):
            yield header[1], header[4], parts

    def gateways(self, family: socket.AddressFamily) -> dict[tuple[str, int, int], str]:
        """The gateway of each route that has one, by network, bits and table."""
        gateways = {}
        for length, table, parts in self._routes(family):
            if RTA_GATEWAY in parts and RTA_DST in parts:
                network = socket.inet_ntop(family, parts[RTA_DST])
                gateways[network, length, table] = socket.inet_ntop(family, parts[RTA_GATEWAY])
        return gateways

    def route_metrics(
        self, network: str, prefix_length: int, table: int = TABLE_MAIN
    ) -> list[dict[str, int]]:
        metrics = []
        for length, shown_in, parts in self._routes(family_of(network), table):
            there = (length, shown_in, parts.get(RTA_DST))
            if there == (prefix_length, table, packed(network)):
                values = netlink.numbers(parts.get(RTA_METRICS, b""))
                metrics.append({n: values[kind] for n, kind in METRICS.items() if kind in values})
        return metrics

    def neighbours(
        self, interface: int, family: socket.AddressFamily = socket.AF_INET
    ) -> dict[str, str]:
        request = (netlink.RTM_GETNEIGH, NEIGHBOUR_MESSAGE, family, interface, 0, 0, 0)
        macs = {}
        for (_, index, *_), parts in self._listed("ARP entries", *request):
            if index == interface and NDA_LLADDR in parts:
                macs[socket.inet_ntop(family, parts[NDA_DST])] = parts[NDA_LLADDR].hex(":")
        return macs

    def counters(self) -> dict[int, dict[str, int]]:
        """COUNTERS of interfaces by their index, as ip-link(8) shows them."""
        what, mask = "counters of interfaces", 1 << (_IFLA_STATS_LINK_64 - 1)
        counted = {}
        listed = self._listed(what, netlink.RTM_GETSTATS, _STATS_MESSAGE, 0, 0, mask)
        for (_, index, _), parts in listed:
            stats = parts.get(_IFLA_STATS_LINK_64)
            if stats is None:
                raise RunError(f"{what}: the kernel counts nothing for interface {index}")
            values = struct.unpack_from(f"={len(COUNTERS)}Q", stats)
            counted[index] = dict(zip(COUNTERS, values, strict=True))
        return counted

    def queues(self, interfaces: Collection[int]) -> dict[int, list[Any]]:
        """pyroute2's messages of the qdiscs, and of the classes of htb, by interface.

        The kernel sends the qdiscs of all interfaces; to decode a message takes longer.
        """
        dumps: dict[int, list[Any]] = {}
        for answer in self._qdiscs(interfaces):
            message = decoded(answer.whole)
            dumps.setdefault(message["index"], []).append(message)
        for index, messages in dumps.items():
            if any(message.get_attr("TCA_KIND") == "htb" for message in messages):
                messages += self.classes(index)
        return dumps

    def statistics(self, interfaces: Collection[int]) -> dict[int, list[Shown]]:
        """What the qdiscs of these interfaces have counted, in a tenth of the time of `queues`."""
        counts: dict[int, list[Shown]] = {}
        for answer in self._qdiscs(interfaces):
            counts.setdefault(_interface(answer), []).append(read_message(answer.whole))
        return counts

    def options(self, interface: int, kind: str) -> list[bytes]:
        """The TCA_OPTIONS of each qdisc of a kind that stands at an interface."""
        return [
            parts[netlink.TCA_OPTIONS]
            for answer in self._qdiscs({interface})
            if (parts := _tc_parts(answer))[netlink.TCA_KIND].rstrip(b"\0").decode() == kind
        ]

    def filters(self, interface: int, parent: int) -> list[tuple[int, bytes]]:
        """Each filter of a qdisc: its priority and protocol (tcm_info), and its TCA_OPTIONS."""
        body = netlink.traffic_control(interface, 0, parent=parent)
        answers = self.dump("filters", netlink.RTM_GETTFILTER, body)
        return [
            (_TC_INFO.unpack_from(answer.body)[0], _tc_parts(answer).get(netlink.TCA_OPTIONS, b""))
            for answer in answers
        ]

    def classes(self, interface: int) -> list[Any]:
        """pyroute2's messages of the classes of an interface."""
        body = netlink.traffic_control(interface, 0)
        answers = self.dump("classes", netlink.RTM_GETTCLASS, body)
        return [decoded(answer.whole) for answer in answers]

    def _qdiscs(self, interfaces: Collection[int]) -> list[netlink.Answer]:
        qdiscs = self.dump("qdiscs", netlink.RTM_GETQDISC, netlink.traffic_control(0, 0))
        return [answer for answer in qdiscs if _interface(answer) in interfaces]


def _error_number(answer: netlink.Answer) -> int:
    return -int(struct.unpack_from("=i", answer.body)[0])


_TC_INFO = struct.Struct("=16xI")


def _tc_parts(answer: netlink.Answer) -> dict[int, bytes]:
    return dict(netlink.attributes(answer.body[_TC_INFO.size :]))


def _interface(answer: netlink.Answer) -> int:
    """The interface's index in struct tcmsg."""
    return int(struct.unpack_from("=4xi", answer.body)[0])


def decoded(answer: bytes) -> Any:
    """pyroute2's message of a qdisc or class."""
    message = tcmsg(answer)
    message.decode()
    is_class = message["header"]["type"] == netlink.RTM_NEWTCLASS
    message["event"] = "RTM_NEWTCLASS" if is_class else "RTM_NEWQDISC"
    return message


def queue_request(sequence: int, interface: int, handle: int) -> bytes:
    """The request for one qdisc of an interface.

    The kernel multicasts the answer. The sender gets it only if it requests an echo
    (qdisc_get_notify in net/sched/sch_api.c).
    """
    body = netlink.traffic_control(interface, handle)
    return netlink.message(netlink.RTM_GETQDISC, netlink.REQUEST | netlink.ECHO, sequence, body)


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
    """An end of a veth pair, in the namespace `netns`. The kernel decides what is None."""

    name: str
    mtu_bytes: int | None = None
    address: str | None = None
    netns: int | None = None


def add_veth_pair(near: End, far: End) -> Request:
    """A pair of interfaces; what is sent by one is received by the other (veth(4))."""
    kind = netlink.encode_text(_IFLA_INFO_KIND, "veth")
    data = netlink.nest(_IFLA_INFO_DATA, netlink.nest(_VETH_INFO_PEER, _end(far)))
    body = _end(near) + netlink.nest(_IFLA_LINKINFO, kind, data)
    return Request(f"{near.name}: veth pair with {far.name}", netlink.RTM_NEWLINK, _NEW, body)


def _end(end: End) -> bytes:
    body = LINK_MESSAGE.pack(0, 0, 0, 0, 0)
    body += netlink.encode_text(IFLA_IFNAME, end.name)
    if end.mtu_bytes is not None:
        body += netlink.encode_number(IFLA_MTU, end.mtu_bytes)
    if end.address is not None:
        body += netlink.encode(_IFLA_ADDRESS, _mac(end.address))
    if end.netns is not None:
        body += netlink.encode_number(_IFLA_NET_NS_FD, end.netns)
    return body


def add_link(name: str, kind: str) -> Request:
    body = _end(End(name)) + netlink.nest(
        _IFLA_LINKINFO, netlink.encode_text(_IFLA_INFO_KIND, kind)
    )
    return Request(f"{name}: {kind}", netlink.RTM_NEWLINK, _NEW, body)


def add_ingress(interface: int, actions: Sequence[bytes]) -> list[Request]:
    """An ingress qdisc with actions on every packet that arrives."""
    body = netlink.traffic_control(interface, netlink.INGRESS >> 16, parent=netlink.INGRESS_PARENT)
    body += netlink.encode_text(netlink.TCA_KIND, "ingress")
    what = f"interface {interface}: ingress"
    return [
        Request(what, netlink.RTM_NEWQDISC, _NEW, body),
        Request(what, netlink.RTM_NEWTFILTER, _NEW, netlink.matchall(interface, actions)),
    ]


def set_up(interface: int) -> Request:
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

    `gateway` is the router towards another network than the interface's.
    """
    made_by = (_PROTOCOL_KERNEL, _SCOPE_LINK) if gateway is None else (_PROTOCOL_STATIC, 0)
    body = ROUTE_MESSAGE.pack(
        family_of(network), prefix_length, 0, 0, *(table, *made_by, _UNICAST, 0)
    )
    if gateway is not None:
        body += netlink.encode(RTA_GATEWAY, packed(gateway))
    body += netlink.encode(RTA_DST, packed(network))
    body += netlink.encode_number(_RTA_OIF, interface)
    body += netlink.encode(_RTA_PREFSRC, packed(source))
    if family_of(network) == socket.AF_INET6:
        body += netlink.encode_number(_RTA_PRIORITY, _IP6_RT_PRIO_ADDRCONF)
    listed = (netlink.encode_number(METRICS[name], value) for name, value in metrics.items())
    body += netlink.nest(RTA_METRICS, *listed)
    return Request(f"route to {network}/{prefix_length}", netlink.RTM_NEWROUTE, _REPLACE, body)


def add_rule(address: str, table: int) -> Request:
    """Packets from an IPv4 address go by a table of routes of their own (ip-rule(8))."""
    body = RULE.pack(socket.AF_INET, 0, 32, _TO_TABLE, 0)
    body += netlink.encode(FRA_SRC, packed(address))
    body += netlink.encode_number(_FRA_PRIORITY, _RULE_PRIORITY)
    body += netlink.encode_number(FRA_TABLE, table)
    return Request(f"rule from {address}", _RTM_NEWRULE, _NEW, body)


def replace_neighbour(interface: int, address: str, mac: str) -> Request:
    """A permanent neighbour, as an ARP entry: the MAC address of an address."""
    body = NEIGHBOUR_MESSAGE.pack(family_of(address), interface, _PERMANENT, 0, 0)
    body += netlink.encode(NDA_DST, packed(address))
    body += netlink.encode(NDA_LLADDR, _mac(mac))
    return Request(f"ARP entry of {address}", netlink.RTM_NEWNEIGH, _REPLACE, body)


def _mac(address: str) -> bytes:
    return bytes.fromhex(address.replace(":", ""))
