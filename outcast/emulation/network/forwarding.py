"""Forwards by Linux bridges where the kernel has no Open vSwitch module.

Open vSwitch then has only its userspace datapath, which moves every frame through ovs-vswitchd's
main loop. That takes some fifty microseconds for each frame and switch, and a fat-tree at 100 Mbps
needs more than two cores. Frames wait for the program's turn to run rather than in the studied
queue. They reach that queue in batches, so its drops fall on other ports than at a switch.

So frames are forwarded as in a hardware OpenFlow switch. Open vSwitch talks to the controller and
holds the flow table. Its entries are put into a forwarding chip, here a Linux bridge for each
switch. The bridge learns nothing and floods nothing. It has a static address for each IP entry
(bridge(8), fdb). That is equivalent, because each host has one address of each kind and ARP is
static. Broadcasts stay with Open vSwitch; see broadcasts_only.c.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from typing import Any

from controllers.entries import Entry
from outcast.emulation.commands import SystemCommands
from outcast.emulation.network import transport
from outcast.emulation.network.openvswitch import port_numbers
from outcast.errors import CommandError, FeatureMissingError, ReadBackError
from outcast.experiment.topology import RoutingKind
from outcast.plan.model import Plan

_THROUGH_IPTABLES = "bridge/bridge-nf-call-iptables"
"""The setting by which bridged frames pass iptables' rules; not every kernel has it."""
_PORT_SETTINGS = {"learning": False, "flood": False, "mcast_flood": False, "bcast_flood": False}


def bridge_name(switch: str) -> str:
    return f"{switch}-chip"


def require(routing: RoutingKind, why: str = "") -> None:
    """Raises FeatureMissingError where bridges cannot forward by that kind of routing.

    `why` is the clause in the error that says why Open vSwitch's module was not loaded.
    """
    if not routing.by_address_alone:
        raise FeatureMissingError(
            f"routing {routing.kind}: the bridges that forward in place of Open vSwitch's module "
            "know only addresses, neither ports nor where a frame came in; this kernel has no "
            f"Open vSwitch module{why}; use a kernel that has it, or --engine virtual"
        )


def create_bridges(plan: Plan, commands: SystemCommands) -> None:
    """Makes a bridge for each switch, with the switch's ports; it forwards nothing yet."""
    lines = []
    for switch in plan.switches:
        bridge = bridge_name(switch)
        lines.append(f"link add name {bridge} type bridge stp_state 0 mcast_snooping 0")
        lines += [f"link set {port} master {bridge}" for port in port_numbers(plan, switch)]
        lines.append(f"link set {bridge} up")
    try:
        commands.run(["ip", "-batch", "-"], stdin="\n".join(lines) + "\n")
    except CommandError as error:
        if "Unknown device type" not in error.stderr and "not supported" not in error.stderr:
            raise
        raise FeatureMissingError(
            "this kernel has neither an Open vSwitch module nor a bridge to forward in its place; "
            "load one of the modules openvswitch and bridge, or use --engine virtual"
        ) from None
    settings = " ".join(f"{name} {'on' if on else 'off'}" for name, on in _PORT_SETTINGS.items())
    ports = [port for switch in plan.switches for port in port_numbers(plan, switch)]
    lines = [f"link set dev {port} {settings}" for port in ports]
    commands.run(["bridge", "-batch", "-"], stdin="\n".join(lines) + "\n")
    if transport.read_sysctl(_THROUGH_IPTABLES) not in ("", "0"):
        transport.write_sysctl(_THROUGH_IPTABLES, "0", "the switches' namespace")


def install(plan: Plan, tables: Mapping[str, Set[Entry]], commands: SystemCommands) -> None:
    """Puts the entries of the switches' flow tables into their bridges, and reads them back."""
    macs_by_port: dict[str, set[str]] = {
        port: set() for switch in plan.switches for port in port_numbers(plan, switch)
    }
    for switch, entries in tables.items():
        ports = {number: port for port, number in port_numbers(plan, switch).items()}
        for entry in entries:
            if entry.protocol in ("ip", "ipv6") and entry.destination is not None:
                assert entry.output is not None
                macs_by_port[ports[entry.output]].add(_next_mac(plan, switch, entry.destination))
    _require_one_port(plan, macs_by_port)
    lines = [
        f"fdb replace {mac} dev {port} master static"  # It may have been learnt before.
        for port, macs in macs_by_port.items()
        for mac in sorted(macs)
    ]
    commands.run(["bridge", "-batch", "-"], stdin="\n".join(lines) + "\n")
    _check(macs_by_port, commands)


def _require_one_port(plan: Plan, macs_by_port: Mapping[str, Set[str]]) -> None:
    seen: dict[tuple[str, str], str] = {}
    for switch in plan.switches:
        for port in port_numbers(plan, switch):
            for mac in macs_by_port[port]:
                if (other := seen.setdefault((switch, mac), port)) != port:
                    raise FeatureMissingError(
                        f"{switch} sends to one router by {other} and {port}, and the bridges that "
                        "forward in place of Open vSwitch's module know one port for an address; "
                        "use a kernel that has the module, or --engine virtual"
                    )


def _next_mac(plan: Plan, switch: str, address: str) -> str:
    """The MAC address to which a switch's packets for an address go."""
    host = plan.host_of[address]
    if not plan.routers:
        return plan.mac(host)
    following, before = plan.subnets.next_hop(switch, host)
    return plan.mac(host) if following == host else plan.subnets.mac(following, before)


def _check(macs_by_port: Mapping[str, set[str]], commands: SystemCommands) -> None:
    fdb: dict[str, set[str]] = {port: set() for port in macs_by_port}
    for record in _show(commands, "fdb", "show"):
        if record["ifname"] in fdb and record.get("state") == "static" and "master" in record:
            fdb[record["ifname"]].add(record["mac"])
    settings = {record["ifname"]: record for record in _show(commands, "-d", "link", "show")}
    for port, macs in macs_by_port.items():
        if fdb[port] != macs:
            raise ReadBackError(port, "bridge addresses", sorted(macs), sorted(fdb[port]))
        effective = settings.get(port, {})
        for name, on in _PORT_SETTINGS.items():
            if effective.get(name) is not on:
                raise ReadBackError(port, f"bridge port's {name}", on, effective.get(name))
        if effective.get("state") != "forwarding":
            raise ReadBackError(port, "bridge port's state", "forwarding", effective.get("state"))


def _show(commands: SystemCommands, *arguments: str) -> list[dict[str, Any]]:
    return list(json.loads(commands.run(["bridge", "-json", *arguments])))
