"""The run's side of the controller: starts it, waits until it is ready, and checks its work."""

from __future__ import annotations

import contextlib
import errno
import json
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

from controllers import entries, graph
from controllers.hashing import FiveTuple
from outcast.emulation.commands import SystemCommands, python_module, wait_until
from outcast.emulation.network import Network
from outcast.emulation.part import Context, Part
from outcast.emulation.probes import Probes
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
    """The Ryu (or os-ken) application as a program beside the run.

    `target` is the address that switches connect to, in the form of ovs-vsctl(8).
    """

    target = f"tcp:{ADDRESS}:{PORT}"

    def __init__(self, run: Context) -> None:
        super().__init__()
        self._run = run

    def prepare(self) -> None:
        """Starts it."""
        plan, folder = self._run.plan, self._run.scratch
        graph_file = folder / "graph.json"
        graph_file.write_text(graph.dumps(plan.graph))
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
        """Ends it."""
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
        wait_until(
            self._is_ready,
            "barrier replies from all switches",
            READY_DEADLINE_S,
            pause_s=0.05,
            detail=self._missing,
        )
        listening = next(event for event in self._events() if event["event"] == "listening")
        return str(listening["framework"])

    def _missing(self) -> str:
        connected = {event.get("switch") for event in self._events() if "switch" in event}
        missing = [switch for switch in self._run.plan.switches if switch not in connected]
        return f"never connected: {', '.join(missing)}" if missing else "all had connected"


def verify_tables(
    plan: Plan, dump_flows: Callable[[Sequence[str]], Iterable[str]], commands: SystemCommands
) -> dict[str, frozenset[entries.Entry]]:
    """Checks that every switch holds the planned entries and groups, and no others.

    `dump_flows` gives each switch's entries, as `ovs-appctl bridge/dump-flows` prints them. Returns
    the entries of each switch.

    Raises ReadBackError: a switch holds others; the error names the first one.
    """
    tables = {}
    groups = entries.planned_groups(plan.graph, plan.routes)
    ofctl = ["ovs-ofctl", "-O", plan.openflow]
    planned = entries.planned(plan.graph, plan.routes)
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


def _require_refused(probes: Probes, packet: FiveTuple, size_bytes: int) -> None:
    """Raises ReadBackError where a sender lets a packet out that its link does not take."""
    try:
        probes.send(packet, size_bytes)
    except OSError as error:
        if error.errno == errno.EMSGSIZE:
            return
        raise
    raise ReadBackError(packet.src, f"a packet of {size_bytes} B", "refused (mtu)", "sent")


def verify_paths(network: Network) -> None:
    """Sends a probe with each flow's own addresses and ports along its whole path, and one back.

    Where paths depend on nothing but the hosts, each pair of hosts has one. Every probe must
    arrive. The switch ports' counters are read before and after: a port on a planned path must
    have sent exactly the probes that cross it, and every other port none. Where switches draw a
    port for each packet, so many probes go that every port of every way is taken, and all ports
    together must have sent each probe once a hop.

    Where links have an MTU of their own, a probe is as large as its path takes, and the sender must
    refuse a larger one.

    Raises:
        DeadlineError: a probe does not arrive.
        ReadBackError: a port sent another number of packets; the error names the first one.
    """
    if network.plan.per_packet:
        _verify_drawn_paths(network)
        return
    plan = network.plan
    usual = all(link.mtu_bytes == STANDARD_MTU_BYTES for link in plan.links.values())
    hosts = plan.host_of
    expected: Counter[str] = Counter()
    before = network.transmitted()
    with Probes(network.netns, hosts.__getitem__, PROBE_DEADLINE_S) as probes:
        for packet in plan.path_probes():
            src, dst = hosts[packet.src], hosts[packet.dst]
            path = plan.path(src, dst, packet)
            try:
                if usual:
                    arrived = probes.send(packet)
                else:
                    mtu_bytes = plan.smallest_mtu_bytes(path)
                    arrived = probes.send(packet, mtu_bytes)
                    if plan.links[path[0], path[1]].mtu_bytes == mtu_bytes:
                        _require_refused(probes, packet, mtu_bytes + 1)
            except TimeoutError:
                raise DeadlineError(f"a probe from {src} to {dst}", PROBE_DEADLINE_S) from None
            if arrived != packet:
                raise ReadBackError(dst, "probe", packet, arrived)
            expected.update(plan.ports_on(path))
    after = network.transmitted()
    for port, count in after.items():
        if count - before[port] != expected[port]:
            raise ReadBackError(port, "probes sent", expected[port], count - before[port])


def _verify_drawn_paths(network: Network) -> None:
    """Sends probes as `verify_paths` does, where switches draw a port for each packet."""
    plan, hosts = network.plan, network.plan.host_of
    usual = all(link.mtu_bytes == STANDARD_MTU_BYTES for link in plan.links.values())
    packets = plan.path_probes()
    ways = {packet: plan.ways(hosts[packet.src], hosts[packet.dst], packet) for packet in packets}
    # Those that share an edge switch try its ports, or the ports towards it, together.
    from_edge = Counter(of_packet[0][1] for of_packet in ways.values())
    to_edge = Counter(of_packet[0][-2] for of_packet in ways.values())
    hops, taken = 0, set[str]()
    before = network.transmitted()
    with Probes(network.netns, hosts.__getitem__, PROBE_DEADLINE_S) as probes:
        for packet, of_packet in ways.items():
            taken.update(port for way in of_packet for port in plan.ports_on(way))
            mtu_bytes = None if usual else min(map(plan.smallest_mtu_bytes, of_packet))
            together = min(from_edge[of_packet[0][1]], to_edge[of_packet[0][-2]])
            for _ in range(-(-PROBES_A_WAY * len(of_packet) // together)):
                try:
                    arrived = probes.send(packet, mtu_bytes)
                except TimeoutError:
                    text = f"a probe from {packet.src} to {packet.dst}"
                    raise DeadlineError(text, PROBE_DEADLINE_S) from None
                if arrived != packet:
                    raise ReadBackError(hosts[packet.dst], "probe", packet, arrived)
                hops += len(of_packet[0]) - 2
    sent = {port: count - before[port] for port, count in network.transmitted().items()}
    for port, count in sent.items():
        if (count > 0) != (port in taken):
            planned = "some, drawn for each packet" if port in taken else 0
            raise ReadBackError(port, "probes sent", planned, count)
    if sum(sent.values()) != hops:
        raise ReadBackError("switches", "probes sent", hops, sum(sent.values()))
