"""The queues of every port of a network, hosts' ports too: set up, and read back."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from outcast.emulation.commands import SystemCommands, entered
from outcast.emulation.kernel import rtnetlink
from outcast.emulation.network import interrupt_moderation
from outcast.emulation.network.network import Network
from outcast.emulation.queues import port_checks, qdiscs
from outcast.errors import FeatureMissingError, ReadBackError
from outcast.experiment import Queue
from outcast.plan import ports
from outcast.plan.noise import IFB_OF_HOST
from outcast.records.effective import queue_settings

RED_IDLE = Path("/sys/module/sch_red/parameters/stock_idle")
UNSEEN = (
    "red does not notice behind a shaper that its queue ran empty, as in every Linux, so it may "
    "drop nearly all on an idle link (docs/queues.md); the virtual engine's kernel notices it"
)
UNBOUNDED = (
    "the delays of hosts' links come before the hosts' own queues, because this kernel cannot put "
    "them behind; so TCP small queues hold no sender back, and a host's queue may lose packets "
    "(docs/engines.md); the virtual engine's kernel can"
)


def configure(network: Network) -> dict[str, Any]:
    """Sets up every port's qdiscs, and reads them back.

    Call it after `create_switches`: Open vSwitch clears the qdiscs of the ports that it adds.
    """
    experiment, plan = network.experiment, network.plan
    requested = [ports.switch_queue(experiment, plan, port) for port in plan.switch_ports()]
    of_hosts = [ports.host_queue(experiment, plan, host) for host in plan.hosts]
    network.warnings += set_red_idle([request.queue for request in (*requested, *of_hosts)])
    for place in network.places:
        with entered(place.netns):
            here = [request for request in requested if request.port in place.ports]
            _set_up(here, network.commands)
    messages = network.shown_queues()
    effective = {}
    for request in requested:
        with entered(network.place(plan.ends[request.port][0])):
            effective[request.port] = _read_back(request, messages.get(request.port, []))
    per_second: dict[int, list[str]] = {}
    for host, request in zip(plan.hosts, of_hosts, strict=True):
        with entered(network.netns(host)):
            request = _set_up_host(request, network)
            with rtnetlink.Kernel() as kernel:
                if rate := _hold_back_arrivals(kernel, network, host, request.port):
                    per_second.setdefault(rate, []).append(host)
                index = socket.if_nametoindex(request.port)
                if request.lets_units_through:
                    kernel.keep_segments_apart(index)
                host_messages = kernel.queues({index}).get(index, [])
            effective[request.port] = _read_back(request, host_messages)
    if per_second:
        interrupt_moderation.wait_until_ready(min(per_second))
    alike: dict[tuple[tuple[str, Any], ...], list[str]] = {}
    for port, settings in effective.items():
        alike.setdefault(tuple(settings.items()), []).append(port)
    shared = ((names, dict(settings)) for settings, names in alike.items())
    settings = queue_settings(effective.get(plan.bottleneck.egress, {}), shared)
    if (interrupts := plan.host_noise.interrupts) is not None:
        settings["noise.interrupts_ns"] = [interrupts.least_ns, interrupts.most_ns]
    for rate, hosts in per_second.items():
        settings[f"noise.interrupts_per_second.{rate}"] = " ".join(hosts)
    return settings


def _read_back(request: ports.PortQueue, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return port_checks.read_back(request, messages) | port_checks.read_classes(request)


def _set_up(requested: Sequence[ports.PortQueue], commands: SystemCommands) -> None:
    for request in requested:
        qdiscs.set_delay(request)
    # In a loop of its own, because the order in which qdiscs are made decides a run's bytes.
    for request in requested:
        qdiscs.set_shaper(request)
    lines = [line for request in requested for line in qdiscs.commands(request)]
    if lines:
        commands.run(["tc", "-batch", "-"], stdin="\n".join(lines) + "\n")
    for request in requested:
        qdiscs.set_by_netlink(request)


def _set_up_host(request: ports.PortQueue, network: Network) -> ports.PortQueue:
    """Sets up a host's port, its delay behind its queue if the kernel can do that."""
    if (request.has_netem or request.sender) and UNBOUNDED not in network.warnings:
        wanted = replace(request, has_cable=True)
        try:
            _set_up([wanted], network.commands)
        except FeatureMissingError:
            # The cable comes first, so nothing has been set up yet.
            network.warnings.append(UNBOUNDED)
        else:
            return wanted
    _set_up([request], network.commands)
    return request


def _hold_back_arrivals(
    kernel: rtnetlink.Kernel, network: Network, host: str, port: str
) -> int | None:
    """Sets up the interrupts of a host's card, in the host's namespace.

    Returns the most interrupts in a second of a card that counts from its last one, else None.
    """
    plan = network.plan
    interrupts, throttle = plan.host_noise.interrupts, plan.host_noise.throttle
    if interrupts is None and throttle is None:
        return None
    if interrupts is not None:
        place = plan.interfaces(host).index(host)
        waiting = f"{IFB_OF_HOST}{place}" if place else IFB_OF_HOST
        interrupt_moderation.hold_back(kernel, port, interrupts, waiting)
    if throttle is None:
        return None
    (switch,) = plan.graph.adj[host]
    link = plan.links[host, switch]
    rate = throttle.at(link.rate_bps)
    interrupt_moderation.install_card(
        kernel, port, rate, address=plan.mac(host), mtu_bytes=link.mtu_bytes
    )
    return rate


def set_red_idle(run_queues: Sequence[Queue], parameter: Path = RED_IDLE) -> list[str]:
    """Sets whether RED notices behind a shaper that its queue ran empty; warns where it cannot.

    RED's average falls while the queue is empty (RFC 2309; Floyd and Jacobson 1993, section 4).
    Linux's red notes the time only when a dequeue finds no packet, and a shaper above it never
    dequeues then. So behind tbf and htb the average falls by arrivals alone, and RED may drop
    nearly all on an idle link. The guest's kernel notes the time when the last packet leaves (patch
    0016), unless it is set to do as Linux does.
    """
    wanted = {ports.red_idle(queue) for queue in run_queues} - {None}
    if not wanted:
        return []
    stock_idle = "Y" if wanted == {"stock"} else "N"
    if not parameter.exists():
        return [] if stock_idle == "Y" else [UNSEEN]
    parameter.write_text(stock_idle, encoding="ascii")
    read_back = parameter.read_text(encoding="ascii").strip()
    if read_back != stock_idle:
        raise ReadBackError("red", "stock_idle", stock_idle, read_back)
    return []
