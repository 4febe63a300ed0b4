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
from pathlib import Path
from typing import Any, Literal

from outcast.emulation import in_c
from outcast.emulation.commands import Process, SystemCommands, wait_until
from outcast.emulation.part import Part
from outcast.errors import ReadBackError, RunError

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
START_DEADLINE_S = 20.0
STOP_DEADLINE_S = 10.0
ANSWER_DEADLINE_S = 30.0
_ANSWER_BYTES = 1 << 20
_REQUESTS_AT_ONCE = 256
"""Far fewer than fit into a socket's buffer, because ovs-vswitchd may answer the first before the
last is sent, and then neither side would read."""
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
        self._commands = commands
        self._folder = folder
        self._processes: list[Process] = []
        self.datapath: Datapath = "system" if has_kernel_module() else "netdev"
        for variable in ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"):
            commands.environment[variable] = str(folder)

    def __enter__(self) -> OpenVSwitch:
        """Starts both daemons. Raises DeadlineError where one does not answer in time."""
        database = self._folder / "conf.db"
        socket = self._folder / "db.sock"
        self._commands.run(["ovsdb-tool", "create", str(database), str(SCHEMA)])
        self._spawn("ovsdb-server", [str(database), f"--remote=punix:{socket}"])
        self._wait_for(socket, "ovsdb-server's socket")
        self._commands.run(
            [
                *("ovs-vsctl", "--timeout=20", "--no-wait", "init", "--"),
                *("set", "Open_vSwitch", ".", f"{_STATISTICS}={_NEVER_MS}"),
            ]
        )
        question = [
            "ovs-vsctl",
            "--timeout=20",
            "--no-wait",
            "get",
            "Open_vSwitch",
            ".",
            _STATISTICS,
        ]
        answer = self._commands.run(question).strip().strip('"')
        if answer != str(_NEVER_MS):
            raise ReadBackError("Open vSwitch", _STATISTICS, _NEVER_MS, answer)
        environment = {}
        if self.datapath == "netdev":
            shim = in_c.provide(in_c.BROADCASTS_ONLY, self._folder, self._commands)
            environment["LD_PRELOAD"] = str(shim)
        self._spawn("ovs-vswitchd", [f"unix:{socket}"], environment)
        wait_until(
            lambda: any(self._folder.glob("ovs-vswitchd.*.ctl")),
            "ovs-vswitchd's control socket",
            START_DEADLINE_S,
            detail=self._errors,
        )
        return self

    def __exit__(self, failed: type[BaseException] | None, *_error: object) -> None:
        if failed is None:
            for process in reversed(self._processes):
                process.end(signal.SIGTERM, STOP_DEADLINE_S)

    def _spawn(
        self, program: str, arguments: list[str], environment: Mapping[str, str] | None = None
    ) -> None:
        log = self._folder / f"{program}.log"
        process = self._commands.spawn(
            program,
            [
                program,
                *arguments,
                f"--pidfile={self._folder / program}.pid",
                f"--log-file={log}",
                "--verbose=console:off",
                "--verbose=syslog:off",
            ],
            stdout=self._folder / f"{program}.out",
            stderr=self._folder / f"{program}.err",
            environment=environment,
        )
        self._processes.append(process)

    def _wait_for(self, path: Path, what: str) -> None:
        wait_until(path.exists, what, START_DEADLINE_S, detail=self._errors)

    def _errors(self) -> str:
        return " ".join(process.errors().strip() for process in self._processes).strip()

    @property
    def pid(self) -> int:
        """The process number of ovs-vswitchd, once it is started."""
        return self._processes[-1].popen.pid

    def ask(self, method: str, arguments: Sequence[str]) -> Iterator[str]:
        """Asks for what `ovs-appctl METHOD ARGUMENT` prints for each argument; no program starts.

        These are requests in JSON-RPC at ovs-vswitchd's control socket (ovs-appctl(8)). All go by
        one connection, because for each connection ovs-vswitchd looks at every bridge and port.

        Raises RunError: ovs-vswitchd refused, or gave no answer in time.
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

    def require_alive(self) -> None:
        """Raises CommandError where a daemon has died."""
        for process in self._processes:
            process.require_alive()


def _connect(control: socket.socket, path: Path) -> None:
    """Connects to a socket whose path may be longer than the 107 bytes of an address (unix(7))."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        control.connect(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def _result(answer: Any, number: int, method: str) -> str:
    """The text in the answer to a request. Raises RunError for a refusal or another answer."""
    if not isinstance(answer, dict) or answer.get("id") != number:
        raise RunError(f"ovs-vswitchd, asked for {method}: its answer is to another request")
    if answer.get("error") is not None:
        raise RunError(f"ovs-vswitchd refused {method}: {answer['error']}")
    if not isinstance(answer.get("result"), str):
        raise RunError(f"ovs-vswitchd, asked for {method}: its answer is no text")
    return str(answer["result"])


def _answers(control: socket.socket) -> Iterator[Any]:
    """The values of JSON that come by a connection. Raises OSError where none comes any more."""
    decoder, utf8, text = json.JSONDecoder(), getincrementaldecoder("utf-8")("replace"), ""
    while True:
        try:
            answer, end = decoder.raw_decode(text)
        except RecursionError:
            raise OSError("its answer is nested too deeply") from None
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

    It asks for the generic netlink family by which ovs-vswitchd talks to it. That also makes the
    kernel load the module (CTRL_CMD_GETFAMILY, include/uapi/linux/genetlink.h).
    """
    generic, control, get_family, family_name, request, error = 16, 16, 3, 2, 1, 2
    name = b"ovs_datapath\0"
    attribute = struct.pack("HH", 4 + len(name), family_name) + name + bytes(-len(name) % 4)
    header = struct.pack("IHHII", 20 + len(attribute), control, request, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, generic) as netlink:
        netlink.send(header + struct.pack("BBH", get_family, 1, 0) + attribute)
        (kind,) = struct.unpack_from("H", netlink.recv(65536), 4)
    return bool(kind != error)
