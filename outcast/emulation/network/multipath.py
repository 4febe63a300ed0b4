"""Multipath TCP (RFC 8684): how the kernel's path manager makes the requested subflows.

A receiver announces its own address with further ports (ADD_ADDR). Every sender's connection joins
each of them, with a source port that its kernel picks. So the subflows of a flow differ in both
ports: hashed routing can part them, and routing by destination sends them all one way. See
ip-mptcp(8) and Documentation/networking/mptcp.rst.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from outcast.emulation.commands import SystemCommands
from outcast.emulation.kernel.sockets import SocketSample
from outcast.errors import FeatureMissingError, ReadBackError, RunError
from outcast.plan.flows import Flow

ENABLED = Path("/proc/sys/net/mptcp/enabled")
FIRST_JOIN_PORT = 6101
"""The ports that receivers announce, one for each subflow after the first."""
_POLL_S = 0.02

Subflows = Mapping[int, tuple[tuple[int, int, str], ...]]
"""By flow number: source and destination port, and source address, of each further subflow."""


def require() -> None:
    """Raises FeatureMissingError where this kernel has no Multipath TCP, or it is off."""
    if not ENABLED.exists() or ENABLED.read_text().strip() != "1":
        raise FeatureMissingError(
            "this kernel's Multipath TCP is absent or off (net.mptcp.enabled); "
            "the virtual engine's kernel has it (--engine virtual)"
        )


def configure(
    flows: Iterable[Flow],
    netns: Callable[[str], int],
    commands: SystemCommands,
    interfaces: Callable[[str], Mapping[str, str]] = lambda host: {},
) -> dict[str, int]:
    """Sets limits and announced ports of every host that takes part, and reads them back.

    `interfaces` has the address of each of a host's further interfaces, by the interface's name.
    Returns how many subflows a connection of each host can have.
    """
    further: dict[str, int] = {}
    receivers: dict[str, tuple[str, int]] = {}
    senders: dict[str, Mapping[str, str]] = {}
    for flow in flows:
        if flow.transport.mptcp is None:
            continue
        count = flow.transport.mptcp.subflows - 1
        further[flow.src] = max(count, further.get(flow.src, 0))
        further[flow.dst] = max(count, further.get(flow.dst, 0))
        if flow.transport.mptcp.over == "interfaces":
            senders[flow.src] = interfaces(flow.src)
            continue
        receivers[flow.dst] = (flow.dst_ip, max(count, receivers.get(flow.dst, ("", 0))[1]))
    for host, count in further.items():
        inside = netns(host)
        limits = f"add_addr_accepted {count} subflows {count}"
        commands.run(["ip", "mptcp", "limits", "set", *limits.split()], netns=inside)
        read_back = " ".join(commands.run(["ip", "mptcp", "limits"], netns=inside).split())
        if read_back != limits:
            raise ReadBackError(host, "mptcp limits", limits, read_back)
    for host, (address, count) in receivers.items():
        ports = range(FIRST_JOIN_PORT, FIRST_JOIN_PORT + count)
        endpoints = [[address, "port", str(port), "signal"] for port in ports]
        text = _add_endpoints(commands, netns(host), endpoints)
        shown_ports = [int(port) for port in re.findall(r" port ([0-9]+) .*signal", text)]
        if shown_ports != list(ports):
            raise ReadBackError(host, "mptcp endpoints", list(ports), shown_ports)
    for host, addresses in senders.items():
        endpoints = [[ip, "dev", interface, "subflow"] for interface, ip in addresses.items()]
        text = _add_endpoints(commands, netns(host), endpoints)
        found = {name: ip for ip, name in re.findall(r"^(\S+) .*subflow.* dev (\S+)", text, re.M)}
        if found != addresses:
            raise ReadBackError(host, "mptcp endpoints", addresses, found)
    return {host: count + 1 for host, count in further.items()}


def _add_endpoints(commands: SystemCommands, netns: int, added: Iterable[Sequence[str]]) -> str:
    """Adds endpoints of the path manager; what it then shows."""
    for words in added:
        commands.run(["ip", "mptcp", "endpoint", "add", *words], netns=netns)
    return commands.run(["ip", "mptcp", "endpoint"], netns=netns)


def await_subflows(
    flows: Sequence[Flow], sample: Callable[[str], Sequence[SocketSample]], deadline_ns: int
) -> Subflows:
    """Waits until every flow has as many subflows as were requested. Raises RunError."""
    multipath = [flow for flow in flows if flow.transport.mptcp is not None]
    while True:
        samples = {host: sample(host) for host in sorted({flow.src for flow in multipath})}
        joined = {flow.flow: _joined(flow, samples[flow.src]) for flow in multipath}
        wrong = [flow for flow in multipath if len(joined[flow.flow]) + 1 != _count(flow)]
        if not wrong:
            return joined
        if time.time_ns() >= deadline_ns:
            flow = wrong[0]
            raise RunError(
                f"flow {flow.flow} ({flow.src} to {flow.dst}) has {len(joined[flow.flow]) + 1} of "
                f"{_count(flow)} subflows when it was to start"
            )
        time.sleep(_POLL_S)


def _count(flow: Flow) -> int:
    return 0 if flow.transport.mptcp is None else flow.transport.mptcp.subflows


def _joined(flow: Flow, samples: Sequence[SocketSample]) -> tuple[tuple[int, int, str], ...]:
    """Ports and source address of the subflows with the token of the flow's own socket."""
    established = [sample for sample in samples if sample.is_established]
    tokens = {
        sample.mptcp_token
        for sample in established
        if (sample.local_port, sample.peer_port) == (flow.sport, flow.dport)
    } - {None}
    return tuple(
        sorted(
            (sample.local_port, sample.peer_port, sample.local_address)
            for sample in established
            if sample.mptcp_token in tokens and sample.local_port != flow.sport
        )
    )
