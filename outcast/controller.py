"""The run's side of the controller: starting it, awaiting readiness, verifying what it did."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from controllers import entries, graph
from outcast.commands import Commands, Process, entered, wait_until
from outcast.errors import DeadlineError, ReadBackError, RunError
from outcast.network import Network
from outcast.plan import Plan

ADDRESS = "127.0.0.1"
PORT = 6653
"""OpenFlow's assigned port; the run's namespace is its own, so it is free there."""
READY_DEADLINE_S = 30.0
PROBE_PORT = 9
"""The discard service's port (RFC 863): one that no flow uses."""
PROBE_DEADLINE_S = 10.0


class Controller:
    """The Ryu (or os-ken) application as a program beside the run."""

    def __init__(self, plan: Plan, routing: str, commands: Commands, folder: Path) -> None:
        self._plan = plan
        graph_file = folder / "graph.json"
        graph_file.write_text(graph.dumps(plan.graph))
        self._process: Process = commands.spawn(
            "the controller",
            [
                *(sys.executable, "-m", "controllers", "--graph", str(graph_file)),
                *("--routing", routing, "--listen", ADDRESS, "--port", str(PORT)),
            ],
            stdout=folder / "controller.out",
            stderr=folder / "controller.err",
        )

    @property
    def target(self) -> str:
        """What switches connect to, as ovs-vsctl(8) writes it."""
        return f"tcp:{ADDRESS}:{PORT}"

    def _events(self) -> list[dict[str, Any]]:
        lines = self._process.output().splitlines()
        events = []
        for line in lines:
            try:
                events.append(json.loads(line))
            except json.JSONDecodeError:
                continue  # a line that is still being written
        return events

    def _is_ready(self) -> bool:
        self._process.require_alive()
        events = self._events()
        for event in events:
            if event.get("event") == "error":
                raise RunError(f"the controller: {event.get('message', event)}")
        return any(event.get("event") == "ready" for event in events)

    def await_ready(self) -> str:
        """Waits until every switch has confirmed its entries; the framework's name."""
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
        missing = [switch for switch in self._plan.switches if switch not in connected]
        return f"never connected: {', '.join(missing)}" if missing else "all had connected"

    def require_alive(self) -> None:
        """Raises CommandError where the controller has died."""
        self._process.require_alive()

    def stop(self) -> None:
        """Ends it."""
        self._process.end(signal.SIGTERM, 10.0)


def verify_tables(plan: Plan, commands: Commands) -> dict[str, frozenset[entries.Entry]]:
    """Every switch holds the planned entries and no others; what each was found to hold.

    Raises:
        ReadBackError: naming the first switch that does not.
    """
    tables = {}
    for switch, wanted in entries.planned(plan.graph, plan.routes).items():
        shown = entries.parse_dump(
            commands.run(
                ["ovs-ofctl", "-O", "OpenFlow13", "dump-flows", "--no-stats", "--no-names", switch]
            )
        )
        if shown != wanted:
            lacking = sorted(map(str, wanted - shown))[:1]
            surplus = sorted(map(str, shown - wanted))[:1]
            raise ReadBackError(switch, "flow table", lacking or "no more", surplus or "less")
        tables[switch] = shown
    return tables


def verify_paths(network: Network) -> None:
    """One probe in each direction of every pair of hosts that will talk, along its whole path.

    Every probe has to arrive, and the switch ports' own counters are read before and after: each
    port on a planned path must have sent exactly the probes that cross it, every other port none.

    Raises:
        DeadlineError: where a probe does not arrive.
        ReadBackError: naming the first port that sent another number of packets.
    """
    plan = network.plan
    pairs = plan.pairs
    pairs |= {(dst, src) for src, dst in pairs}
    expected: Counter[str] = Counter()
    before = network.transmitted()
    with contextlib.ExitStack() as stack:
        sockets = {
            host: stack.enter_context(_probe_socket(network, host))
            for host in sorted({host for pair in pairs for host in pair})
        }
        for src, dst in sorted(pairs):
            sockets[src].sendto(src.encode(), (plan.ip(dst), PROBE_PORT))
            try:
                came = sockets[dst].recv(64).decode()
            except TimeoutError:
                raise DeadlineError(f"a probe from {src} to {dst}", PROBE_DEADLINE_S) from None
            if came != src:
                raise ReadBackError(dst, "probe", src, came)
            expected.update(
                plan.port(switch, following)
                for switch, following in pairwise(plan.path(src, dst)[1:])
            )
    after = network.transmitted()
    for port, count in after.items():
        if count - before[port] != expected[port]:
            raise ReadBackError(port, "probes sent", expected[port], count - before[port])


def _probe_socket(network: Network, host: str) -> socket.socket:
    with entered(network.netns(host)):
        probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    probe.settimeout(PROBE_DEADLINE_S)
    probe.bind((network.plan.ip(host), PROBE_PORT))
    return probe
