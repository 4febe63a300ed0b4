"""The Open vSwitch switches of a network, all made in one ovs-vsctl(8) transaction."""

from __future__ import annotations

from outcast.emulation.commands import Commands
from outcast.errors import ReadBackError
from outcast.plan.model import Plan
from outcast.plan.paths import port_name

_VSCTL = ("ovs-vsctl", "--timeout=20")


def start(plan: Plan, datapath: str, controller: str, commands: Commands) -> None:
    """Makes all bridges with ports and controllers, and reads the ports back.

    Raises ReadBackError: a port has another number than was asked for.
    """
    argv = list(_VSCTL)
    for switch in plan.switches:
        argv += ["--", "add-br", switch]
        argv += ["--", "set", "Bridge", switch, f"datapath_type={datapath}"]
        argv += ["fail_mode=secure", f"protocols={plan.openflow}", "mcast_snooping_enable=false"]
        argv += [f"other-config:datapath-id={plan.graph.nodes[switch]['dpid']:016x}"]
        argv += ["other-config:disable-in-band=true"]
        argv += ["--", "set-controller", switch, controller]
        for port, number in _numbers(plan, switch).items():
            argv += ["--", "add-port", switch, port]
            argv += ["--", "set", "Interface", port, f"ofport_request={number}"]
    commands.run(argv)
    _check(plan, commands)


def _numbers(plan: Plan, switch: str) -> dict[str, int]:
    """The OpenFlow number of each port by the name of its interface."""
    return {
        plan.attached(port_name(plan.graph, switch, neighbour)): plan.graph.edges[
            switch, neighbour
        ]["ports"][switch]
        for neighbour in plan.graph.neighbors(switch)
    }


def _check(plan: Plan, commands: Commands) -> None:
    table = ("--format=csv", "--no-headings", "--columns=name,ofport,error", "list", "Interface")
    shown = {}
    for line in commands.run([*_VSCTL, *table]).splitlines():
        name, effective, error = line.split(",", 2)
        shown[name] = (effective, error.strip('"[]'))
    for switch in plan.switches:
        for port, number in _numbers(plan, switch).items():
            effective, error = shown.get(port, ("none", ""))
            if effective != str(number):
                told = f"{effective} {error}".strip()
                raise ReadBackError(port, "OpenFlow port", str(number), told)
