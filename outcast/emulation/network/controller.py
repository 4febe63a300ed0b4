"""The controller of a run, and probes of paths that it has to carry before the flows start."""

from __future__ import annotations

import contextlib
import errno
import json
import signal
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Any

from controllers import entries, graph
from controllers.hashing import TCP, UDP, FiveTuple
from outcast.emulation.commands import SystemCommands, entered, python_module, wait_until
from outcast.emulation.kernel import rtnetlink
from outcast.emulation.network.network import Network
from outcast.emulation.part import Part
from outcast.errors import DeadlineError, ReadBackError, RunError
from outcast.experiment.links import STANDARD_MTU_BYTES
from outcast.plan.model import Plan

ADDRESS = "127.0.0.1"
PORT = 6653
"""OpenFlow's assigned port. It is free, because the run has its own network namespace."""
READY_DEADLINE_S = 30.0
STOP_DEADLINE_S = 10.0
PROBE_DEADLINE_S = 10.0
PROBES_A_WAY = 20
"""Where each packet draws its way: one in a hundred million runs then leaves some way out."""


class Controller(Part):
    """The Ryu (or os-ken) application; switches connect to `target`, as in ovs-vsctl(8)."""

    target = f"tcp:{ADDRESS}:{PORT}"

    def prepare(self) -> None:
        plan, folder = self._run.plan, self._run.scratch
        graph_file = folder / "graph.json"
        graph_file.write_text(graph.dumps(plan.carrying))
        self._process = self._run.commands.spawn(
            "the controller",
            [
                *python_module("controllers"),
                *("--graph", str(graph_file)),
                *("--routing", plan.routing, "--hash-seed", str(plan.hash_seed)),
                *("--listen", ADDRESS, "--port", str(PORT)),
            ],
            stdout=folder / "controller.out",
            stderr=folder / "controller.err",
        )
        self.lasting.append(self._process)

    def end(self) -> None:
        self._process.end(signal.SIGTERM, STOP_DEADLINE_S)

    def _events(self) -> list[dict[str, Any]]:
        events = []
        for line in self._process.output().splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # the line is still being written
                events.append(json.loads(line))
        return events

    def _is_ready(self) -> bool:
        self._process.require_alive()
        events = self._events()
        for event in events:
            if event.get("event") == "error":
                raise RunError(f"the controller: {event.get('message', event)}")
        return any(event.get("event") == "ready" for event in events)

    def await_ready(self) -> str:
        """Waits until every switch has confirmed its entries. Returns the framework's name."""
        what = "barrier replies from all switches"
        wait_until(self._is_ready, what, READY_DEADLINE_S, pause_s=0.05, detail=self._missing)
        listening = next(event for event in self._events() if event["event"] == "listening")
        return str(listening["framework"])

    def _missing(self) -> str:
        connected = {event.get("switch") for event in self._events() if "switch" in event}
        missing = [switch for switch in self._run.plan.switches if switch not in connected]
        return f"never connected: {', '.join(missing)}" if missing else "all had connected"


def verify_tables(
    plan: Plan, dump_flows: Callable[[Sequence[str]], Iterable[str]], commands: SystemCommands
) -> dict[str, frozenset[entries.Entry]]:
    """The entries of each switch, after a check that they and the groups are the planned ones.

    `dump_flows` gives each switch's entries, as `ovs-appctl bridge/dump-flows` prints them.
    """
    tables = {}
    groups = entries.planned_groups(plan.carrying, plan.routes)
    ofctl = ["ovs-ofctl", "-O", plan.openflow]
    planned = entries.planned(plan.carrying, plan.routes)
    for switch, dump in zip(planned, dump_flows(list(planned)), strict=True):
        tables[switch] = entries.parse_dump(dump)
        _compare(switch, "flow table", planned[switch], tables[switch])
        if plan.routes.choices:
            dumped = commands.run([*ofctl, "dump-groups", switch])
            _compare(switch, "group table", groups[switch], entries.parse_groups(dumped))
    return tables


def _compare(switch: str, what: str, planned: Set[object], read_back: Set[object]) -> None:
    if read_back != planned:
        lacking = sorted(map(str, planned - read_back))[:1]
        surplus = sorted(map(str, read_back - planned))[:1]
        raise ReadBackError(switch, what, lacking or "no more", surplus or "less")


def verify_paths(network: Network) -> None:
    """Sends a probe with each flow's own addresses and ports along its whole path, and one back.

    Where paths depend on nothing but the hosts, each pair of hosts has one. Every probe must
    arrive. The switch ports' counters are read before and after: a port on a planned path must
    have sent exactly the probes that cross it, and every other port none.

    Where links have an MTU of their own, a probe is as large as its path takes, and the sender must
    refuse a larger one.

    Raises:
        DeadlineError: a probe does not arrive.
        ReadBackError: a port sent another number of packets; the error names the first one.
    """
    plan, hosts = network.plan, network.plan.host_of
    if plan.per_packet:
        _verify_drawn_paths(network)
        return
    expected: Counter[str] = Counter()
    before = network.transmitted()
    with Probes(network.netns, plan) as probes:
        for packet in plan.path_probes():
            path = plan.path(hosts[packet.src], hosts[packet.dst], packet)
            mtu_bytes = probes.verify(packet, path)
            if mtu_bytes is not None and plan.links[path[0], path[1]].mtu_bytes == mtu_bytes:
                probes.require_refused(packet, mtu_bytes + 1)
            expected.update(plan.ports_on(path))
    after = network.transmitted()
    for port, count in after.items():
        if count - before[port] != expected[port]:
            raise ReadBackError(port, "probes sent", expected[port], count - before[port])


def _verify_drawn_paths(network: Network) -> None:
    """As `verify_paths`, where switches draw a port for each packet.

    Enough probes go that every port of every way is taken. All ports together must have sent each
    probe once a hop.
    """
    plan, hosts = network.plan, network.plan.host_of
    packets = plan.path_probes()
    ways = {packet: plan.ways(hosts[packet.src], hosts[packet.dst], packet) for packet in packets}
    # Those that share an edge switch try its ports, or the ports towards it, together.
    from_edge = Counter(of_packet[0][1] for of_packet in ways.values())
    to_edge = Counter(of_packet[0][-2] for of_packet in ways.values())
    hops, taken = 0, set[str]()
    before = network.transmitted()
    with Probes(network.netns, plan) as probes:
        for packet, of_packet in ways.items():
            taken.update(port for way in of_packet for port in plan.ports_on(way))
            together = min(from_edge[of_packet[0][1]], to_edge[of_packet[0][-2]])
            for _ in range(-(-PROBES_A_WAY * len(of_packet) // together)):
                probes.verify(packet, *of_packet)
                hops += len(of_packet[0]) - 2
    sent = {port: count - before[port] for port, count in network.transmitted().items()}
    for port, count in sent.items():
        if (count > 0) != (port in taken):
            planned = "some, drawn for each packet" if port in taken else 0
            raise ReadBackError(port, "probes sent", planned, count)
    if sum(sent.values()) != hops:
        raise ReadBackError("switches", "probes sent", hops, sum(sent.values()))


_TCP_HEADER = struct.Struct("!HHIIBBHHH")
_HEADER_WORDS = 5
_IP_HEADER_BYTES, _IPV6_HEADER_BYTES, _UDP_HEADER_BYTES = 20, 40, 8
_MOST_BYTES = 1 << 16
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE = 10, 23, 3
"""From linux/in.h and linux/in6.h: never cut a packet, whatever the kernel knows of the path."""
_RESET = 0x04
"""A reset to a port that nobody listens at is ignored (RFC 9293, section 3.5.2)."""


class Probes:
    """Sends probes between hosts; `netns` gives the descriptor of a host's namespace."""

    def __init__(self, netns: Callable[[str], int], plan: Plan) -> None:
        self._netns, self._plan = netns, plan
        self._has_usual_mtus = all(
            link.mtu_bytes == STANDARD_MTU_BYTES for link in plan.links.values()
        )
        self._raw: dict[str, socket.socket] = {}
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Probes:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def verify(self, packet: FiveTuple, *ways: Sequence[str]) -> int | None:
        """Sends a probe, as large as all its ways take; returns its size unless MTUs are usual."""
        src, dst = self._plan.host_of[packet.src], self._plan.host_of[packet.dst]
        size_bytes = None if self._has_usual_mtus else min(map(self._plan.smallest_mtu_bytes, ways))
        try:
            arrived = self._send(packet, size_bytes)
        except TimeoutError:
            raise DeadlineError(f"a probe from {src} to {dst}", PROBE_DEADLINE_S) from None
        if arrived != packet:
            raise ReadBackError(dst, "probe", packet, arrived)
        return size_bytes

    def require_refused(self, packet: FiveTuple, size_bytes: int) -> None:
        """Raises ReadBackError where a sender lets a packet out that its link does not take."""
        try:
            self._send(packet, size_bytes)
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                return
            raise
        raise ReadBackError(packet.src, f"a packet of {size_bytes} B", "refused (mtu)", "sent")

    def _send(self, packet: FiveTuple, size_bytes: int | None = None) -> FiveTuple:
        """Sends a probe. Returns the packet that arrived.

        A probe with a size, which is that of the IP packet, must not be cut on the way (RFC 791's
        DF). A probe larger than the sender's interface takes raises OSError with errno EMSGSIZE.
        """
        if packet.protocol == UDP:
            return self._send_udp(packet, size_bytes)
        receiver, sender = self._raw_socket(packet.dst), self._raw_socket(packet.src)
        payload = b""
        if size_bytes is not None:
            _forbid_cutting(sender)
            payload = bytes(size_bytes - _header_bytes(packet) - _TCP_HEADER.size)
        sender.sendto(tcp_reset(packet, payload), (packet.dst, 0))
        arrived, source = receiver.recvfrom(_MOST_BYTES)
        # A raw socket of IPv6 hands over what follows the header (RFC 3542, section 3).
        size = len(arrived) + (_IPV6_HEADER_BYTES if ":" in packet.dst else 0)
        if size_bytes is not None and size != size_bytes:
            raise ReadBackError(packet.dst, "size of a probe", size_bytes, size)
        if ":" in packet.dst:
            sport, dport = struct.unpack_from("!HH", arrived)
            return FiveTuple(source[0], sport, packet.dst, dport)
        return parse_tcp(arrived)

    def _raw_socket(self, address: str) -> socket.socket:
        if address not in self._raw:
            self._raw[address] = self._open.enter_context(
                self._socket(address, socket.SOCK_RAW, socket.IPPROTO_TCP)
            )
            self._raw[address].bind((address, 0))
        return self._raw[address]

    def _send_udp(self, packet: FiveTuple, size_bytes: int | None) -> FiveTuple:
        with (
            self._socket(packet.dst, socket.SOCK_DGRAM, 0) as receiver,
            self._socket(packet.src, socket.SOCK_DGRAM, 0) as sender,
        ):
            receiver.bind((packet.dst, packet.dport))
            sender.bind((packet.src, packet.sport))
            payload = b"probe"
            if size_bytes is not None:
                _forbid_cutting(sender)
                payload = bytes(size_bytes - _header_bytes(packet) - _UDP_HEADER_BYTES)
            sender.sendto(payload, (packet.dst, packet.dport))
            arrived, (address, port, *_) = receiver.recvfrom(_MOST_BYTES)
            if len(arrived) != len(payload):
                raise ReadBackError(packet.dst, "size of a probe", len(payload), len(arrived))
            return FiveTuple(address, port, packet.dst, packet.dport, UDP)

    @contextmanager
    def _socket(self, address: str, kind: int, protocol: int) -> Iterator[socket.socket]:
        with entered(self._netns(self._plan.host_of[address])):
            inside = socket.socket(rtnetlink.family_of(address), kind, protocol)
        with inside:
            inside.settimeout(PROBE_DEADLINE_S)
            yield inside


def _header_bytes(packet: FiveTuple) -> int:
    return _IPV6_HEADER_BYTES if ":" in packet.dst else _IP_HEADER_BYTES


def _forbid_cutting(sender: socket.socket) -> None:
    if sender.family == socket.AF_INET6:
        sender.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE)
    else:
        sender.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_PROBE)


def tcp_reset(packet: FiveTuple, zeros: bytes = b"") -> bytes:
    """A reset, with a payload of zeros, which do not change the checksum."""
    fields = (packet.sport, packet.dport, 0, 0, _HEADER_WORDS << 4, _RESET, 0)
    # The checksum is the same over the pseudo-headers of both versions (RFC 8200, section 8.1).
    family = rtnetlink.family_of(packet.src)
    ends = socket.inet_pton(family, packet.src) + socket.inet_pton(family, packet.dst)
    pseudo = ends + struct.pack("!xBH", TCP, _TCP_HEADER.size + len(zeros))
    checksum = internet_checksum(pseudo + _TCP_HEADER.pack(*fields, 0, 0))
    return _TCP_HEADER.pack(*fields, checksum, 0) + zeros


def internet_checksum(data: bytes) -> int:
    """The checksum of RFC 1071, over an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def parse_tcp(datagram: bytes) -> FiveTuple:
    header = 4 * (datagram[0] & 0x0F)
    sport, dport = struct.unpack_from("!HH", datagram, header)
    src, dst = socket.inet_ntoa(datagram[12:16]), socket.inet_ntoa(datagram[16:20])
    return FiveTuple(src, sport, dst, dport, datagram[9])
