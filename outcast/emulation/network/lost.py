"""Single packets that a link loses, because somebody asks what would be then (docs/whatif.md).

A cable loses a packet behind the sender's queue and before the receiver's port. Here it is lost as
it arrives: a filter of the port's ingress qdisc drops it (tc-u32(8)). Captures see a packet before
any qdisc does, so the one of that port leaves it out. An interface of its own on the link would be
a cable's way (outcast/emulation/network/lossy_links.py), but changes the order of events of the
sending host.

The filter knows the packet by addresses, ports, IP identification and sequence number. It has to
drop one packet, which is read at the end.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Sequence

from outcast.emulation.commands import SystemCommands
from outcast.errors import CommandError
from outcast.plan.model import Plan
from outcast.records.interventions import Lost, LostPacket

_DROPPED = re.compile(r"\(dropped (\d+),")


class LostPackets:
    """The packets that links lose in a run."""

    def __init__(self, packets: Sequence[LostPacket], plan: Plan, commands: SystemCommands) -> None:
        self.packets = packets
        self._plan, self._commands = plan, commands
        self._netns: dict[str, int | None] = {}
        self._counts = [0] * len(packets)

    def capture_filter(self, port: str, direction: str, usual: str) -> str:
        """A capture's filter (pcap-filter(7)): the usual packets without those lost before it."""
        lost = [
            packet for packet in self.packets if direction == "in" and self._port(packet) == port
        ]
        if not lost:
            return usual
        return " and ".join([f"({usual})", *(f"not ({_words(packet)})" for packet in lost)])

    def start(self, place: Callable[[str], int | None]) -> None:
        """Drops the packets from now on; `place` gives a node's namespace. Raises CommandError."""
        for number, packet in enumerate(self.packets, 1):
            port = self._port(packet)
            if port not in self._netns:
                self._netns[port] = place(packet.neighbour)
                # A host's card has one already.
                with contextlib.suppress(CommandError):
                    self._tc(port, "qdisc", "add", "dev", port, "ingress")
            self._tc(port, *_filter(port, number, packet))

    def record(self) -> Lost:
        """The packets, and how many of each have been lost so far."""
        self._count()
        return Lost(packets=tuple(self.packets), counts=tuple(self._counts))

    def by_sender(self) -> Counter[str]:
        """How many packets the link behind each port has lost so far."""
        self._count()
        counted: Counter[str] = Counter()
        for packet, count in zip(self.packets, self._counts, strict=True):
            counted[self._plan.port(packet.node, packet.neighbour)] += count
        return counted

    def _count(self) -> None:
        # Open vSwitch takes the filters away when the captures end.
        for place in range(len(self.packets) if self._netns else 0):
            found = _DROPPED.findall(self._filter_statistics(place))
            self._counts[place] = max(self._counts[place], sum(map(int, found)))

    def _filter_statistics(self, place: int) -> str:
        port = self._port(self.packets[place])
        words = f"-s filter show dev {port} parent ffff: pref {place + 1}"
        return self._tc(port, *words.split())

    def _port(self, packet: LostPacket) -> str:
        return self._plan.port(packet.neighbour, packet.node)

    def _tc(self, port: str, *words: str) -> str:
        return self._commands.run(["tc", *words], netns=self._netns[port])


def _filter(port: str, number: int, packet: LostPacket) -> tuple[str, ...]:
    """The words of tc that drop a packet; Linux's headers of IPv4 have no options."""
    matches = (
        f"ip src {packet.src}/32",
        f"ip dst {packet.dst}/32",
        f"ip sport {packet.sport} 0xffff",
        f"ip dport {packet.dport} 0xffff",
        f"u16 {packet.ip_id:#06x} 0xffff at 4",
        f"u32 {packet.seq:#010x} 0xffffffff at 24",
    )
    words = f"filter add dev {port} parent ffff: protocol ip pref {number} u32"
    return (*words.split(), *(f"match {' match '.join(matches)}".split()), "action", "drop")


def _words(packet: LostPacket) -> str:
    return (
        f"src host {packet.src} and dst host {packet.dst} and src port {packet.sport} and "
        f"dst port {packet.dport} and ip[4:2] = {packet.ip_id} and tcp[4:4] = {packet.seq}"
    )
