"""A private Open vSwitch for one run, with its own database and daemon in its own folder.

The tools never talk to the machine's Open vSwitch, because they all follow OVS_RUNDIR
(ovs-vswitchd(8)).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
from codecs import getincrementaldecoder
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from outcast import netlink
from outcast.emulation import c_programs
from outcast.emulation.commands import SystemCommands, wait_until
from outcast.emulation.part import Part
from outcast.errors import ReadBackError, RunError
from outcast.plan.model import Plan

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
VSCTL = ("ovs-vsctl", "--retry", "--timeout=20")
"""The socket exists a moment before ovsdb-server listens at it, so a refusal is no answer yet."""
START_DEADLINE_S = 20.0
STOP_DEADLINE_S = 10.0
ANSWER_DEADLINE_S = 30.0
_ANSWER_BYTES = 1 << 20
_REQUESTS_AT_ONCE = 256
"""Far fewer than fit into a socket's buffer: where it is full, neither side would read."""
_STATISTICS = "other_config:stats-update-interval"
_NEVER_MS = (1 << 31) - 1
"""An interval in which ovs-vswitchd writes every port's counters into its database. Nobody reads
them there, and to write them takes longer with each port (ovs-vswitchd.conf.db(5))."""

Datapath = Literal["netdev", "system"]


class OpenVSwitch(Part):
    """ovsdb-server and ovs-vswitchd, which run while the block lasts.

    Attributes:
        datapath: `system`, the kernel's, if it has the module; else `netdev` in user space. With
            `netdev` the kernel's bridges forward; see forwarding.py.
    """

    def __init__(self, commands: SystemCommands, folder: Path) -> None:
        super().__init__()
        self._commands, self._folder = commands, folder
        self.datapath: Datapath = "system" if has_kernel_module() else "netdev"
        for variable in ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"):
            commands.environment[variable] = str(folder)

    def prepare(self) -> None:
        database = self._folder / "conf.db"
        socket = self._folder / "db.sock"
        self._commands.run(["ovsdb-tool", "create", str(database), str(SCHEMA)])
        self._spawn("ovsdb-server", [str(database), f"--remote=punix:{socket}"])
        wait_until(socket.exists, "ovsdb-server's socket", START_DEADLINE_S, detail=self._errors)
        vsctl = [*VSCTL, "--no-wait"]
        record = ("Open_vSwitch", ".")
        self._commands.run([*vsctl, "init", "--", "set", *record, f"{_STATISTICS}={_NEVER_MS}"])
        answer = self._commands.run([*vsctl, "get", *record, _STATISTICS]).strip().strip('"')
        if answer != str(_NEVER_MS):
            raise ReadBackError("Open vSwitch", _STATISTICS, _NEVER_MS, answer)
        environment = {}
        if self.datapath == "netdev":
            shim = c_programs.provide(c_programs.BROADCASTS_ONLY, self._folder, self._commands)
            environment["LD_PRELOAD"] = str(shim)
        self._spawn("ovs-vswitchd", [f"unix:{socket}"], environment)
        wait_until(
            lambda: any(self._folder.glob("ovs-vswitchd.*.ctl")),
            "ovs-vswitchd's control socket",
            START_DEADLINE_S,
            detail=self._errors,
        )

    def end(self) -> None:
        for process in reversed(self.lasting):
            process.end(signal.SIGTERM, STOP_DEADLINE_S)

    def _spawn(
        self, program: str, arguments: list[str], environment: Mapping[str, str] | None = None
    ) -> None:
        log = self._folder / f"{program}.log"
        process = self._commands.spawn(
            program,
            [
                *(program, *arguments, f"--pidfile={self._folder / program}.pid"),
                *(f"--log-file={log}", "--verbose=console:off", "--verbose=syslog:off"),
            ],
            stdout=self._folder / f"{program}.out",
            stderr=self._folder / f"{program}.err",
            environment=environment,
        )
        self.lasting.append(process)

    def _errors(self) -> str:
        return " ".join(process.errors().strip() for process in self.lasting).strip()

    @property
    def pid(self) -> int:
        return self.lasting[-1].popen.pid

    @contextmanager
    def held(self) -> Iterator[None]:
        """Stops ovs-vswitchd for the block, because it looks at all ports whenever one changes."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def ask(self, method: str, arguments: Sequence[str]) -> Iterator[str]:
        """What `ovs-appctl METHOD ARGUMENT` prints for each argument; no program starts.

        These are requests in JSON-RPC at ovs-vswitchd's control socket (ovs-appctl(8)). All go by
        one connection, because for each connection ovs-vswitchd looks at every bridge and port.
        """
        path = next(self._folder.glob("ovs-vswitchd.*.ctl"), None)
        if path is None:
            raise RunError(
                f"ovs-vswitchd, asked for {method}: its control socket is gone from {self._folder}"
            )
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(ANSWER_DEADLINE_S)
            try:
                _connect(control, path)
                answers = _answers(control)
                for first in range(0, len(arguments), _REQUESTS_AT_ONCE):
                    numbers = range(len(arguments))[first : first + _REQUESTS_AT_ONCE]
                    requests = [
                        {"id": number, "method": method, "params": [arguments[number]]}
                        for number in numbers
                    ]
                    control.sendall("".join(map(json.dumps, requests)).encode())
                    for number in numbers:
                        yield _result(next(answers), number, f"{method} {arguments[number]}")
            except OSError as error:
                raise RunError(f"ovs-vswitchd, asked for {method}: {error}") from None


def create_switches(plan: Plan, datapath: str, controller: str, commands: SystemCommands) -> None:
    """Makes all bridges with ports and controllers in one transaction, and reads the ports back."""
    argv = list(VSCTL)
    for switch in plan.switches:
        argv += ["--", "add-br", switch]
        argv += ["--", "set", "Bridge", switch, f"datapath_type={datapath}"]
        argv += ["fail_mode=secure", f"protocols={plan.openflow}", "mcast_snooping_enable=false"]
        argv += [f"other-config:datapath-id={plan.graph.nodes[switch]['dpid']:016x}"]
        argv += ["other-config:disable-in-band=true"]
        argv += ["--", "set-controller", switch, controller]
        for port, number in port_numbers(plan, switch).items():
            argv += ["--", "add-port", switch, port]
            argv += ["--", "set", "Interface", port, f"ofport_request={number}"]
    commands.run(argv)
    _check_ports(plan, commands)


def port_numbers(plan: Plan, switch: str) -> dict[str, int]:
    """The OpenFlow number of each interface that is a port of a switch."""
    return {
        plan.attached(plan.port(switch, neighbour)): data["ports"][switch]
        for neighbour, data in plan.graph.adj[switch].items()
    }


def _check_ports(plan: Plan, commands: SystemCommands) -> None:
    table = ("--format=csv", "--no-headings", "--columns=name,ofport,error", "list", "Interface")
    interfaces = {}
    for line in commands.run([*VSCTL, *table]).splitlines():
        name, effective, error = line.split(",", 2)
        interfaces[name] = (effective, error.strip('"[]'))
    for switch in plan.switches:
        for port, number in port_numbers(plan, switch).items():
            effective, error = interfaces.get(port, ("none", ""))
            if effective != str(number):
                shown = f"{effective} {error}".strip()
                raise ReadBackError(port, "OpenFlow port", str(number), shown)


def _connect(control: socket.socket, path: Path) -> None:
    """Connects to a socket whose path may be longer than the 107 bytes of an address (unix(7))."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        control.connect(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def _result(answer: Any, number: int, method: str) -> str:
    if answer["id"] != number:
        raise RunError(f"ovs-vswitchd, asked for {method}: its answer is to another request")
    if answer["error"] is not None:
        raise RunError(f"ovs-vswitchd refused {method}: {answer['error']}")
    return str(answer["result"])


def _answers(control: socket.socket) -> Iterator[Any]:
    """The values of JSON that come by a connection. Raises OSError where none comes any more."""
    decoder, utf8, text = json.JSONDecoder(), getincrementaldecoder("utf-8")("replace"), ""
    while True:
        try:
            answer, end = decoder.raw_decode(text)
        except ValueError:
            received = control.recv(_ANSWER_BYTES)
            if not received:
                raise OSError("it gave no answer") from None
            text += utf8.decode(received)
        else:
            yield answer
            text = text[end:].lstrip()


def has_kernel_module() -> bool:
    """Whether the kernel has its own datapath, as a module or built in.

    The request for the datapath's generic netlink family also makes the kernel load the module
    (CTRL_CMD_GETFAMILY, include/uapi/linux/genetlink.h).
    """
    generic, control, get_family, family_name = 16, 16, 3, 2
    body = struct.pack("BBH", get_family, 1, 0) + netlink.encode_text(family_name, "ovs_datapath")
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, generic) as connection:
        connection.send(netlink.message(control, netlink.REQUEST, 1, body))
        return netlink.refusal(connection.recv(65536)) is None
