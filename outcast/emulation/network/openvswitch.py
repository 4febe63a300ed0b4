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
from outcast.emulation.commands import Process, SystemCommands, wait_until
from outcast.emulation.part import Part
from outcast.errors import ReadBackError, RunError
from outcast.plan.model import Plan

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
DATABASE, CONTROL = "db.sock", "ovs-vswitchd.*.ctl"
"""The sockets of ovsdb-server and of ovs-vswitchd, in the run's folder."""
START_DEADLINE_S = 20.0
STOP_DEADLINE_S = 10.0
ANSWER_DEADLINE_S = 30.0
_ANSWER_BYTES = 1 << 20
_REQUESTS_AT_ONCE = 256
"""Far fewer than fit into a socket's buffer: where it is full, neither side would read."""
_ROOT = "Open_vSwitch"
_SHOWN = ("name", "ofport", "error")
_STATISTICS = "stats-update-interval"
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
        self._commands.run(["ovsdb-tool", "create", str(database), str(SCHEMA)])
        listening = f"--remote=punix:{self._folder / DATABASE}"
        server = self._spawn("ovsdb-server", [str(database), listening])
        # A backlog of connections exists a moment after the socket.
        wait_until(self._listens, "ovsdb-server's socket", START_DEADLINE_S, detail=server.errors)
        settings = {"other_config": _map({_STATISTICS: str(_NEVER_MS)})}
        self._transact({"op": "insert", "table": _ROOT, "row": settings})
        (answer,) = self._select(_ROOT, ("other_config",))
        if answer != settings:
            raise ReadBackError("Open vSwitch", _STATISTICS, settings, answer)
        environment = {}
        if self.datapath == "netdev":
            shim = c_programs.provide(c_programs.BROADCASTS_ONLY, self._folder, self._commands)
            environment["LD_PRELOAD"] = str(shim)
        socket = f"unix:{self._folder / DATABASE}"
        daemon = self._spawn("ovs-vswitchd", [socket], environment)
        wait_until(
            lambda: any(self._folder.glob(CONTROL)),
            "ovs-vswitchd's control socket",
            START_DEADLINE_S,
            detail=daemon.errors,
        )

    def end(self) -> None:
        for process in reversed(self.lasting):
            process.end(signal.SIGTERM, STOP_DEADLINE_S)

    def _spawn(
        self, program: str, arguments: list[str], environment: Mapping[str, str] | None = None
    ) -> Process:
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
        return process

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as database:
            try:
                _connect(database, self._folder / DATABASE)
            except (FileNotFoundError, ConnectionRefusedError):
                return False
        return True

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
        """What `ovs-appctl METHOD ARGUMENT` prints for each argument; no program starts."""
        path = next(self._folder.glob(CONTROL), self._folder / CONTROL)
        yield from _answered(path, method, [[argument] for argument in arguments])

    def create_switches(self, plan: Plan, controller: str) -> None:
        """Makes all bridges with ports and controllers, and reads the ports back.

        It is one transaction of the database (RFC 7047), as of ovs-vsctl(8), which takes a time
        that grows with the square of the ports.
        """
        rows: list[dict[str, Any]] = []
        bridges = []
        for number, switch in enumerate(plan.switches):
            rows += _rows(plan, switch, number, self.datapath, controller)
            bridges.append(["named-uuid", f"bridge{number}"])
        root = {"table": _ROOT, "where": []}
        added = [["bridges", "insert", ["set", bridges]], ["next_cfg", "+=", 1]]
        self._transact(*rows, {"op": "mutate", **root, "mutations": added})
        (wanted,) = self._select(_ROOT, ("next_cfg",))
        done = {"columns": ["cur_cfg"], "until": "==", "rows": [{"cur_cfg": wanted["next_cfg"]}]}
        self._transact({"op": "wait", **root, **done, "timeout": int(ANSWER_DEADLINE_S * 1000)})
        interfaces = {row["name"]: row for row in self._select("Interface", _SHOWN)}
        for switch in plan.switches:
            for port, number in port_numbers(plan, switch).items():
                shown = interfaces.get(port, {"ofport": "none", "error": ""})
                if shown["ofport"] != number:
                    raise ReadBackError(port, "OpenFlow port", number, shown)

    def _select(self, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        selection = {"op": "select", "table": table, "where": [], "columns": list(columns)}
        (answer,) = self._transact(selection)
        return list(answer["rows"])

    def _transact(self, *operations: Mapping[str, Any]) -> list[Any]:
        """Does one transaction of the database; returns what each operation gives."""
        requests = [["Open_vSwitch", *operations]]
        (results,) = _answered(self._folder / DATABASE, "transact", requests)
        for result in results:
            if result and "error" in result:
                raise RunError(f"Open vSwitch's database: {result}")
        return list(results)


def _rows(
    plan: Plan, switch: str, number: int, datapath: Datapath, controller: str
) -> Iterator[dict[str, Any]]:
    """Inserts a bridge with its ports and its controller (ovs-vswitchd.conf.db(5))."""
    ports = []
    for place, (port, at) in enumerate({switch: None, **port_numbers(plan, switch)}.items()):
        row = {"name": port, **({"ofport_request": at} if at else {"type": "internal"})}
        name = f"{number}x{place}"
        interface, ports_of = f"interface{name}", ["named-uuid", f"port{name}"]
        yield {"op": "insert", "table": "Interface", "row": row, "uuid-name": interface}
        row = {"name": port, "interfaces": ["named-uuid", interface]}
        yield {"op": "insert", "table": "Port", "row": row, "uuid-name": ports_of[1]}
        ports.append(ports_of)
    name = f"controller{number}"
    yield {"op": "insert", "table": "Controller", "row": {"target": controller}, "uuid-name": name}
    other = {
        "datapath-id": f"{plan.graph.nodes[switch]['dpid']:016x}",
        "disable-in-band": "true",
    }
    bridge = {
        "name": switch,
        "datapath_type": datapath,
        "fail_mode": "secure",
        "protocols": plan.openflow,
        "mcast_snooping_enable": False,
        "other_config": _map(other),
        "controller": ["named-uuid", name],
        "ports": ["set", ports],
    }
    yield {"op": "insert", "table": "Bridge", "row": bridge, "uuid-name": f"bridge{number}"}


def _map(values: Mapping[str, str]) -> list[Any]:
    return ["map", [list(pair) for pair in values.items()]]


def port_numbers(plan: Plan, switch: str) -> dict[str, int]:
    """The OpenFlow number of each interface that is a port of a switch."""
    return {
        plan.attached(plan.port(switch, neighbour)): data["ports"][switch]
        for neighbour, data in plan.graph.adj[switch].items()
    }


def _answered(path: Path, method: str, requests: Sequence[Sequence[Any]]) -> Iterator[Any]:
    """The result of each request in JSON-RPC at a socket of Open vSwitch.

    All go by one connection, because for each connection ovs-vswitchd looks at every bridge and
    port. Raises RunError: a request is refused, or has no answer in time.
    """
    program = "ovsdb-server" if path.name == DATABASE else "ovs-vswitchd"
    with socket.socket(socket.AF_UNIX) as control:
        control.settimeout(ANSWER_DEADLINE_S)
        try:
            _connect(control, path)
            answers = _answers(control)
            for first in range(0, len(requests), _REQUESTS_AT_ONCE):
                numbers = range(len(requests))[first : first + _REQUESTS_AT_ONCE]
                texts = [
                    json.dumps({"id": number, "method": method, "params": requests[number]})
                    for number in numbers
                ]
                control.sendall("".join(texts).encode())
                for number in numbers:
                    request = f"{program}, asked for {method} {requests[number][0]}"
                    yield _result(next(answers), number, request)
        except OSError as error:
            raise RunError(f"{program}, asked for {method}: {error}") from None


def _connect(control: socket.socket, path: Path) -> None:
    """Connects to a socket whose path may be longer than the 107 bytes of an address (unix(7))."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        control.connect(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def _result(answer: Any, number: int, request: str) -> Any:
    if answer["id"] != number:
        raise RunError(f"{request}: its answer is to another request")
    if answer["error"] is not None:
        raise RunError(f"{request}: refused: {answer['error']}")
    return answer["result"]


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
