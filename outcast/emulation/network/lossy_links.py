"""Links that lose packets, and the switch of the synthetic blackout.

A cable loses packets behind the sender's queue and before the receiver's port. No qdisc of either
port is there: one at the sender loses packets before they are queued, and captures at the receiver
see a packet before any qdisc does. So a link that loses packets is two veth pairs. What arrives at
the inner end of one leaves by the inner end of the other (tc-mirred(8)), whose root qdisc is netem.

So a lost packet has left by the sender's port: it was queued, took its time on the link, and stands
in that port's outgoing capture. It stands in no capture of the receiver. The queue's counters know
nothing of it, and netem's counter has exactly the lost packets.

Connections are made before packets are lost, because a lost SYN waits a second for its next copy.

netem's generator is seeded from the run's seed. Before Linux 6.6 it had no seed. There the kernel's
own generator decides, which is seeded in the virtual engine too, but not in real time.

`LostPackets` are single packets that a user wants lost (docs/whatif.md). A filter of the receiving
port's ingress qdisc drops such a packet (tc-u32(8)), because inner ends would change the order of
events at the sending host. That port's capture leaves the packet out, as if a cable had lost it.

The blackout's switch (blackout_switch.c) stands between a switch port's link and the switch. The
port keeps its name, its queue and its captures. The switch itself has the inner end of a veth pair
in the port's place.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import signal
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from outcast import netlink
from outcast.emulation import c_programs
from outcast.emulation.commands import SystemCommands
from outcast.emulation.kernel import rtnetlink
from outcast.emulation.kernel.sampling import NetlinkSocket
from outcast.emulation.part import Context, Part, Record
from outcast.emulation.queues import netem
from outcast.errors import CommandError, FeatureMissingError, ReadBackError, RunError
from outcast.experiment import Experiment
from outcast.experiment.links import Policer
from outcast.files import write_text
from outcast.plan.links import Direction
from outcast.plan.model import BLACKOUT_ENDS, Plan
from outcast.records.effective import loss_settings
from outcast.records.interventions import Lost, LostPacket
from outcast.records.run_directory import BlackoutRecord

LOSS_HANDLE = 1


def names(plan: Plan) -> list[str]:
    """The inner ends of all links that lose packets."""
    return [name for wire in plan.wires.values() for name in wire.interfaces]


def policer_index(wire: str) -> int:
    """The number of the policer at an inner end of a link, as wire3-1: 31."""
    return int("".join(filter(str.isdigit, wire)))


def connect(plan: Plan, commands: SystemCommands) -> None:
    """Makes each inner end send what arrives at the other one."""
    lines = []
    for wire in plan.wires.values():
        for node, neighbour in (wire.nodes, wire.nodes[::-1]):
            name, policer = wire.facing(node), plan.links[node, neighbour].policer
            passes = f"action mirred egress redirect dev {wire.facing(neighbour)}"
            if policer is not None:
                bucket = f"rate {policer.rate_bps}bit burst {policer.burst_bytes}b mtu 65535"
                number = f"index {policer_index(name)}"
                passes = f"action police {number} {bucket} conform-exceed drop/pipe {passes}"
            lines += [
                f"qdisc add dev {name} ingress",
                f"filter add dev {name} ingress matchall {passes}",
            ]
    if not lines:
        return
    try:
        commands.run(["tc", "-batch", "-"], stdin="\n".join(lines) + "\n")
    except CommandError as error:
        raise FeatureMissingError(
            "links.loss: this kernel cannot redirect a link's packets (it needs sch_ingress, "
            f"cls_matchall and act_mirred): {' '.join(error.stderr.split())}; use a kernel that "
            "has them, or --engine virtual"
        ) from None


def _read_policer(plan: Plan, direction: Direction, policer: Policer) -> dict[str, int]:
    # Imported here, because runs without policers do not need it.
    from outcast.emulation.queues import reconfigure

    name = plan.wires[frozenset(direction)].facing(direction[0])
    _, question = reconfigure.policer_requests(policer_index(name), policer)
    with contextlib.closing(NetlinkSocket(socket.NETLINK_ROUTE, None)) as kernel:
        (answer,) = kernel.ask(question, 1)
    rate_bps, burst_bytes = reconfigure.checked_policer(" to ".join(direction), policer, answer)
    return {"rate": rate_bps, "burst": burst_bytes}


def start_losing(experiment: Experiment, plan: Plan) -> dict[str, Any]:
    """Makes every link lose its share of packets from now on; returns what is in effect."""
    settings: dict[str, Any] = {}
    for direction, loss in losses(experiment, plan).items():
        name = plan.wires[frozenset(direction)].facing(direction[1])
        options = netem.options(loss=loss)
        rtnetlink.replace_qdisc(name, "netem", major=LOSS_HANDLE, options=options)
        # Imported here, because runs without losses do not need it.
        from pyroute2.iproute import IPRoute

        with IPRoute() as kernel:
            (index,) = kernel.link_lookup(ifname=name)
            messages = [m for m in kernel.get_qdiscs(index=index) if m["index"] == index]
        policer = plan.links[direction].policer
        policed = _read_policer(plan, direction, policer) if policer else None
        settings |= _read_back(direction, loss, messages, policed)
    return settings


def losses(experiment: Experiment, plan: Plan) -> dict[Direction, netem.Loss]:
    """The loss of each direction that has some, seeded from the run's seed and its two nodes."""
    return {
        (node, neighbour): netem.Loss.of(
            link, random.Random(f"{experiment.seed} loss {node} {neighbour}").getrandbits(63)
        )
        for (node, neighbour), link in plan.links.items()
        if link.has_faults
    }


def _read_back(
    direction: Direction,
    loss: netem.Loss,
    messages: Sequence[Any],
    policed: Mapping[str, int] | None,
) -> dict[str, Any]:
    where = f"{direction[0]} to {direction[1]}"
    message = _qdisc("netem", messages)
    if message is None:
        raise ReadBackError(where, "loss", loss.share, "no netem")
    raw = netlink.raw_bytes(message.get_attr("TCA_OPTIONS"))
    share, seed = netem.check_loss(where, loss, raw)
    if seed not in (None, loss.seed):
        raise ReadBackError(where, "seed of the loss", loss.seed, seed)
    # The kernel does not show the table of a random delay's distribution.
    return loss_settings(
        direction,
        round(share, 9),
        seed,
        burst_loss=loss.bursts and loss.bursts.model_dump(),
        late=loss.late and loss.late.model_dump(mode="json", by_alias=True),
        duplicate=loss.duplicate,
        policer=policed,
        random_delay=loss.delay and loss.delay.model_dump(mode="json", by_alias=True),
    )


def lost(plan: Plan, messages: Mapping[str, Sequence[Any]]) -> dict[Direction, int]:
    """The packets lost so far, in both directions of every link that loses packets."""
    counted = {}
    for wire in plan.wires.values():
        for node, neighbour in (wire.nodes, wire.nodes[::-1]):
            counted[node, neighbour] = _drops("netem", messages.get(wire.facing(neighbour), ()))
            if plan.links[node, neighbour].policer:
                counted[node, neighbour] += _drops("ingress", messages.get(wire.facing(node), ()))
    return counted


def _drops(kind: str, messages: Sequence[Any]) -> int:
    message = _qdisc(kind, messages)
    if message is None:
        return 0
    return int(message.get_attr("TCA_STATS2").get_attr("TCA_STATS_QUEUE")["drops"])


def _qdisc(kind: str, messages: Sequence[Any]) -> Any:
    return next((m for m in messages if m.get_attr("TCA_KIND") == kind), None)


_DROPPED = re.compile(r"\(dropped (\d+),")


class LostPackets:
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
        for place, packet in enumerate(self.packets if self._netns else ()):
            port = self._port(packet)
            words = f"-s filter show dev {port} parent ffff: pref {place + 1}"
            found = _DROPPED.findall(self._tc(port, *words.split()))
            self._counts[place] = max(self._counts[place], sum(map(int, found)))

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


BLACKOUT_START_S = 15.0
BLACKOUT_STOP_S = 10.0


class BlackoutSwitch(Part):
    def __init__(self, run: Context) -> None:
        super().__init__(run)
        self._result = run.scratch / "blackout.json"
        self.record: BlackoutRecord | None = None

    def prepare(self) -> None:
        run, blackout = self._run, self._run.experiment.blackout
        if blackout is None:
            return
        program = c_programs.provide(c_programs.BLACKOUT, run.scratch, run.commands)
        seed = random.Random(f"{run.experiment.seed} blackout").getrandbits(64)
        process = run.commands.spawn(
            "the blackout's switch",
            [
                *(str(program), blackout.at, BLACKOUT_ENDS[0], str(blackout.drops)),
                *(
                    str(blackout_on_ns(run.experiment, run.plan)),
                    str(blackout.off_mean_ns),
                    str(seed),
                ),
                str(self._result),
            ],
            stdout=run.scratch / "blackout.out",
            stderr=run.scratch / "blackout.err",
        )
        self.lasting.append(process)
        process.await_word("ready", f"{process.name} to start", BLACKOUT_START_S)

    def finish(self) -> Record:
        """Makes it drop no more packets from now on."""
        self.require_alive()
        for process in self.lasting:
            process.popen.send_signal(signal.SIGUSR1)
        return Record()

    def end(self) -> None:
        """Writes every ON period into blackout.json. Raises RunError where it lost frames."""
        blackout = self._run.experiment.blackout
        if blackout is None:
            return
        (process,) = self.lasting
        if process.end(signal.SIGTERM, BLACKOUT_STOP_S):
            raise process.failure()
        text = self._result.read_text(encoding="ascii")
        result = json.loads(text)
        if result["lost"]:
            raise RunError(f"{process.name}: lost {result['lost']} frames on the way")
        write_text(self._run.directory.blackout, text)
        self.record = BlackoutRecord(
            port=blackout.at,
            packets=result["packets"],
            dropped=result["dropped"],
            periods=len(result["periods"]),
        )


def blackout_on_ns(experiment: Experiment, plan: Plan) -> int:
    """The length of an ON period: the time of `drops` full frames on the link to the port.

    It is 0 where the period counts packets instead.
    """
    blackout = experiment.blackout
    if blackout is None or blackout.by == "packets":
        return 0
    port, before = plan.ends[blackout.at]
    link = plan.links[before, port]
    wire_bytes = link.framing.wire_bytes(link.frame_bytes)
    return blackout.drops * wire_bytes * 8 * 10**9 // link.rate_bps
