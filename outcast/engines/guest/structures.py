"""Walks the structures of the guest's kernel: namespaces, TCP's sockets, qdiscs and their packets.

gdb's own Python imports it, so it imports nothing of outcast. It is written against Linux 7.3:
network namespaces (include/net/net_namespace.h), the table of TCP's sockets
(include/net/inet_hashtables.h), qdiscs and what they hold (include/net/sch_generic.h,
net/sched/sch_netem.c), virtual time (arch/um/kernel/time.c).
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator
from typing import Any

import gdb

SWITCHES = "switches"
"""The name of the namespace in which all switches are."""

_MOST = 1_000_000
"""A longer list is damaged, or the kernel is another one than ours."""

_STATES = {
    **{1: "ESTABLISHED", 2: "SYN_SENT", 3: "SYN_RECV", 4: "FIN_WAIT1", 5: "FIN_WAIT2"},
    **{6: "TIME_WAIT", 7: "CLOSE", 8: "CLOSE_WAIT", 9: "LAST_ACK", 10: "LISTEN", 11: "CLOSING"},
    12: "NEW_SYN_RECV",
}
"""A TCP socket's states (include/net/tcp_states.h)."""
_ARRAY_SHIFT, _PLACES_OF_A_LEVEL = 22, 64
"""Sizes of the timer wheel (TIMER_ARRAYSHIFT, LVL_SIZE; linux/timer.h, kernel/time/timer.c)."""
_STOPS = re.compile("(__)?kill$|os_stop_self|(__)?time_travel_(stopped|set_time|update_time)")
"""The functions by which the guest stops itself (patch 0008)."""


def _offset(kind: str, member: str) -> int:
    return int(gdb.parse_and_eval(f"(long)&(({kind} *)0)->{member}"))


def structure_at(address: int, kind: str) -> Any:
    """The structure of this kind at an address."""
    return gdb.Value(address).cast(gdb.lookup_type(kind).pointer()).dereference()


def memory(address: int, size: int) -> bytes:
    """The bytes at an address."""
    return bytes(gdb.selected_inferior().read_memory(address, size))


def entries(head: Any, kind: str, member: str) -> Iterator[Any]:
    """The structures of a kernel list (include/linux/list.h), given its head."""
    offset, end = _offset(kind, member), int(head.address)
    node = head["next"]
    for _ in range(_MOST):
        if int(node) == end:
            return
        yield structure_at(int(node) - offset, kind)
        node = node["next"]
    raise gdb.GdbError(f"the list of {kind} does not end")


def tree(node: Any) -> Iterator[int]:
    """The addresses of a red-black tree's nodes in order (include/linux/rbtree.h)."""
    above: list[Any] = []
    while int(node) or above:
        while int(node):
            above.append(node)
            node = node["rb_left"]
        node = above.pop()
        yield int(node)
        node = node["rb_right"]


def packets_from(first: Any) -> Iterator[Any]:
    """The packets of a list that a null pointer ends, each a `struct sk_buff`."""
    for _ in range(_MOST):
        if not int(first):
            return
        yield first.dereference()
        first = first["next"]


def address_text(address: Any) -> str:
    """An IPv4 address in the network's byte order."""
    return socket.inet_ntoa(struct.pack("=I", int(address)))


def now_ns() -> int:
    """The guest's clock: nanoseconds since its boot."""
    return int(gdb.parse_and_eval("time_travel_time"))


def namespaces() -> Iterator[Any]:
    """Every network namespace, a `struct net`."""
    return entries(gdb.parse_and_eval("net_namespace_list"), "struct net", "list")


def devices(net: Any) -> Iterator[Any]:
    """The devices of a network namespace, each a `struct net_device`."""
    return entries(net["dev_base_head"], "struct net_device", "dev_list")


def host_of(net: Any) -> str:
    """The host that a namespace is: what stands before `-eth` in the names of its devices."""
    if int(net.address) == int(gdb.parse_and_eval("&init_net")):
        return SWITCHES
    names = (device["name"].string() for device in devices(net))
    return next((name.rpartition("-eth")[0] for name in names if "-eth" in name), "?")


def sockets(net: Any) -> Iterator[Any]:
    """The connected TCP sockets of a namespace, each a `struct sock`.

    What is in the state TIME_WAIT or NEW_SYN_RECV is smaller, and has only `__sk_common`.
    """
    table = net["ipv4"]["tcp_death_row"]["hashinfo"].dereference()
    offset = _offset("struct sock", "__sk_common.skc_nulls_node")
    kind = "struct inet_ehash_bucket"
    size = int(gdb.lookup_type(kind).sizeof)
    content = memory(int(table["ehash"]), (int(table["ehash_mask"]) + 1) * size)
    for at in range(_offset(kind, "chain"), len(content), size):
        (node,) = struct.unpack_from("=Q", content, at)
        for _ in range(_MOST):
            if node & 1:  # so a list of `nulls` ends (include/linux/list_nulls.h)
                break
            sock = structure_at(node - offset, "struct sock")
            if int(sock["__sk_common"]["skc_net"]["net"]) == int(net.address):
                yield sock
            node = int(sock["__sk_common"]["skc_nulls_node"]["next"])


def ports(sock: Any) -> tuple[int, int]:
    """The local and the remote port of a socket."""
    common = sock["__sk_common"]
    return int(common["skc_num"]), socket.ntohs(int(common["skc_dport"]))


def state_text(sock: Any) -> str:
    """The state of a TCP socket."""
    return _STATES.get(int(sock["__sk_common"]["skc_state"]), "?")


def ends_text(sock: Any) -> str:
    """Both ends of a socket."""
    common, (near, far) = sock["__sk_common"], ports(sock)
    return (
        f"{address_text(common['skc_rcv_saddr'])}:{near} > "
        f"{address_text(common['skc_daddr'])}:{far}"
    )


def tcp_of(sock: Any) -> Any:
    """The `struct tcp_sock` that a socket is the beginning of."""
    return structure_at(int(sock.address), "struct tcp_sock")


def in_flight(tcp: Any) -> int:
    """Segments in the network, as the kernel counts them (tcp_packets_in_flight)."""
    gone = int(tcp["sacked_out"]) + int(tcp["lost_out"])
    return int(tcp["packets_out"]) - gone + int(tcp["retrans_out"])


def fires_at_tick(expires: int, flags: int) -> int:
    """The tick at which a timer fires: never before `expires`, at its place in the timer wheel.

    The flags tell the place, and so the level; each level is eight times as coarse as the one
    below it (kernel/time/timer.c, calc_index).
    """
    coarse = 3 * ((flags >> _ARRAY_SHIFT) // _PLACES_OF_A_LEVEL)
    return (expires + (1 << coarse)) >> coarse << coarse


def fires_ns(timer: Any) -> int:
    """When a `struct timer_list` fires, by the guest's clock; a tick takes a millisecond."""
    ticks = int(gdb.parse_and_eval("jiffies_64"))
    updated_ns = int(gdb.parse_and_eval("'tick-sched.c'::last_jiffies_update"))
    return updated_ns + (fires_at_tick(int(timer["expires"]), int(timer["flags"])) - ticks) * 10**6


def qdiscs(device: Any) -> list[Any]:
    """The qdiscs of an interface, each a `struct Qdisc`; the root first."""
    root = device["qdisc"]
    found = [root.dereference()] if int(root) else []
    table, offset = device["qdisc_hash"], _offset("struct Qdisc", "hash")
    first, last = table.type.range()
    for number in range(first, last + 1):
        node = table[number]["first"]
        for _ in range(_MOST):
            if not int(node):
                break
            found.append(structure_at(int(node) - offset, "struct Qdisc"))
            node = node["next"]
    return found[:1] + sorted(found[1:], key=lambda qdisc: int(qdisc["handle"]))


def queued(qdisc: Any) -> Iterator[tuple[Any, int | None]]:
    """The packets that a qdisc itself holds, and for netem when each may leave."""
    if qdisc["ops"]["id"].string() == "netem":
        private = structure_at(int(qdisc["privdata"].address), "struct netem_sched_data")
        at = _offset("struct sk_buff", "cb") + _offset("struct qdisc_skb_cb", "data")
        for packet in packets_from(private["t_head"]):
            yield packet, _leaves_ns(packet, at)
        for node in tree(private["t_root"]["rb_node"]):
            packet = structure_at(node, "struct sk_buff")
            yield packet, _leaves_ns(packet, at)
    for packet in packets_from(qdisc["q"]["head"]):
        yield packet, None


def _leaves_ns(packet: Any, at: int) -> int:
    return int(structure_at(int(packet.address) + at, "struct netem_skb_cb")["time_to_send"])


def packet_text(frame: bytes) -> str:
    """An Ethernet frame's headers in words: addresses, ports, sequence number, payload."""
    if len(frame) < 14:
        return "cut off"
    if frame[12:14] != b"\x08\x00":
        return f"ethertype 0x{frame[12:14].hex()}"
    packet = frame[14:]
    header = (packet[0] & 15) * 4 if packet else 0
    if len(packet) < 20 or header < 20:
        return "cut off"
    total, ident = struct.unpack_from("!HH", packet, 2)
    source, target = (socket.inet_ntoa(packet[at : at + 4]) for at in (12, 16))
    if packet[9] != socket.IPPROTO_TCP or len(packet) < header + 20:
        return f"{source} > {target} id {ident} protocol {packet[9]}"
    sport, dport, seq, ack, length = struct.unpack_from("!HHIIB", packet, header)
    payload = total - header - (length >> 4) * 4
    return f"{source}:{sport} > {target}:{dport} id {ident} seq {seq} ack {ack} payload {payload}"


def handle_text(handle: Any) -> str:
    """A qdisc's handle as tc(8) writes it."""
    return (
        f"{int(handle) >> 16:x}:{int(handle) & 0xFFFF or '':{'x' if int(handle) & 0xFFFF else ''}}"
    )


def _variable(frame: Any, name: str) -> Any:
    """A pointer among a function's variables; None if it has none of this name, or it is null."""
    try:
        value = frame.read_var(name)
        return value if not value.is_optimized_out and int(value) else None
    except (ValueError, gdb.error):
        return None


def owner(frame: Any) -> tuple[int, Any]:
    """The namespace that a function works for, and its socket, by its variables' usual names.

    Returns the address of a `struct net`, 0 where nothing says it; and a `struct sock`, or None.
    """
    sk = _variable(frame, "sk") or _variable(frame, "tp") or _variable(frame, "ssk")
    skb, device = _variable(frame, "skb"), _variable(frame, "dev")
    if sk is None and skb is not None and int(skb["sk"]):
        sk = skb["sk"]
    if sk is not None:
        sock = structure_at(int(sk), "struct sock")
        return int(sock["__sk_common"]["skc_net"]["net"]), sock
    qdisc = _variable(frame, "sch")
    if device is None and qdisc is not None:
        device = qdisc["dev_queue"]["dev"]
    if device is None and skb is not None and int(skb["dev"]):
        device = skb["dev"]
    return (int(device["nd_net"]["net"]) if device is not None else 0), None


def known(frame: Any, more: str) -> str:
    """Says what an expression can name at the beginning of a function."""
    names = [symbol.name for symbol in frame.block() if symbol.is_argument]
    return f"{frame.name()} has {', '.join(names) or 'no arguments'}; {more}"


def show_frame() -> None:
    """Selects the frame that let the clock move; what is above it only stops the guest."""
    frame = gdb.newest_frame()
    while frame is not None and (frame.name() is None or _STOPS.match(frame.name())):
        frame = frame.older()
    if frame is not None:
        frame.select()
