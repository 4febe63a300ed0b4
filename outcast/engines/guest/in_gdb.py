"""Runs in gdb on the guest's kernel: it attaches, does what was asked for, and has our commands.

gdb's own Python runs it, so it imports nothing of outcast but the file beside it. The environment
names a descriptor with a JSON object, see `outcast.engines.guest.debugger`. What came of it
replaces it.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from typing import Any

import gdb

# At the end, because other modules there have names of Python's own.
sys.path.append(os.path.dirname(os.path.abspath(__file__)))
import structures

SETTINGS = "OUTCAST_DEBUG"
"""The environment variable with the descriptor's number."""

SOCKET = "tcp"
"""gdb's variable with the `struct tcp_sock *` that a breakpoint was hit for."""

_SIGNALS = "SIGSEGV SIGUSR1 SIGUSR2 SIGALRM SIGVTALRM SIGIO SIGWINCH SIGCHLD SIGSYS"
"""Signals that the guest's kernel uses for interrupts and processes (arch/um/os-Linux/signal.c)."""

_SMALLER_THAN_A_SOCKET = ("TIME_WAIT", "NEW_SYN_RECV")
_CONGESTION_STATES = ("Open", "Disorder", "CWR", "Recovery", "Loss")
_TIMERS = {
    **{0: "none", 1: "retransmission", 3: "probe of a zero window", 5: "tail loss probe"},
    6: "reordering",
}
"""The timers of `icsk_pending` (include/net/inet_connection_sock.h)."""
_HEADERS_BYTES = 100


def millisecond_text(time_ns: int) -> str:
    """A time in milliseconds with six decimals, which is exact."""
    whole, rest = divmod(abs(time_ns), 10**6)
    return f"{'-' if time_ns < 0 else ''}{whole}.{rest:06d} ms"


def time_of(text: str) -> int:
    """Nanoseconds of a time as `0.7ms`. Raises ValueError."""
    number = text.rstrip("nums")
    digits = {"ns": 0, "us": 3, "ms": 6, "s": 9}.get(text[len(number) :])
    whole, _, rest = number.strip().partition(".")
    rest = rest.rstrip("0")
    if digits is None or len(rest) > digits or not f"{whole}{rest}".isdecimal():
        raise ValueError(f"{text!r}: allowed is a time as 0.7ms, in whole nanoseconds")
    scale: int = 10**digits
    return int(whole or "0") * scale + int(rest.ljust(digits, "0") or "0")


class Session:
    """The request, and what the commands share."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.host: str | None = settings["host"]
        self._begin_ns = int(settings["begin_ns"])
        self._flows = {(row["sport"], row["dport"]): str(row["flow"]) for row in settings["flows"]}
        self._names: dict[int, str] = {}

    def time_text(self, time_ns: int | None = None) -> str:
        """A time of the guest's clock since the traffic's start; the present one if left out."""
        return millisecond_text(
            (structures.now_ns() if time_ns is None else time_ns) - self._begin_ns
        )

    def guest_ns(self, text: str) -> int:
        """The time of the guest's clock that people write as `0.7ms`. Raises gdb.GdbError."""
        try:
            return time_of(text) + self._begin_ns
        except ValueError as error:
            raise gdb.GdbError(str(error)) from None

    def flow_text(self, sport: int, dport: int) -> str:
        """The flow that has these ports, in either direction; `-` if none has."""
        return self._flows.get((sport, dport)) or self._flows.get((dport, sport)) or "-"

    def name(self, net: int) -> str:
        """The host whose namespace is at this address. It does not change while flows run."""
        if net not in self._names:
            self._names = {
                int(space.address): structures.host_of(space) for space in structures.namespaces()
            }
        return self._names.get(net, "?")

    def take_namespace(self, words: list[str]) -> tuple[str, Any]:
        """The host that the first word names, or else that of --host, and its namespace."""
        host = words.pop(0) if words else self.host
        spaces: dict[str, Any] = {structures.host_of(n): n for n in structures.namespaces()}
        if host not in spaces:
            there = ", ".join(sorted(spaces))
            raise gdb.GdbError(f"{host or 'which host'}? there are {there}")
        return host, spaces[host]

    def device(self, name: str) -> Any:
        """The interface of this name. Raises gdb.GdbError."""
        for net in structures.namespaces():
            for device in structures.devices(net):
                if device["name"].string() == name:
                    return device
        raise gdb.GdbError(f"there is no interface {name}")


def socket_lines(session: Session, host: str, sock: Any) -> list[str]:
    """Reads what TCP knows of a connection."""
    tcp = structures.tcp_of(sock)
    connection = tcp["inet_conn"]

    def fields(*names: str) -> str:
        return "  ".join(f"{name} {int(tcp[name])}" for name in names)

    pending = int(connection["icsk_pending"])
    timer = _TIMERS.get(pending, str(pending))
    if pending:
        timer += (
            f", fires at {session.time_text(structures.fires_ns(sock['tcp_retransmit_timer']))}"
        )
    state = _CONGESTION_STATES[int(connection["icsk_ca_state"])]
    unsent = (int(tcp["write_seq"]) - int(tcp["snd_nxt"])) % (1 << 32)
    return [
        f"{host}  {structures.ends_text(sock)}  "
        f"flow {session.flow_text(*structures.ports(sock))}  {structures.state_text(sock)}",
        f"  congestion  {connection['icsk_ca_ops']['name'].string()}  state {state}  "
        + fields("snd_cwnd", "snd_ssthresh", "prior_cwnd", "snd_cwnd_cnt", "reordering"),
        f"  in flight   {structures.in_flight(tcp)} segments  "
        + fields("packets_out", "sacked_out", "lost_out", "retrans_out"),
        "  sequence    "
        + fields("snd_una", "snd_nxt", "write_seq", "rcv_nxt", "high_seq", "undo_marker")
        + f"  not yet sent {unsent} bytes",
        "  windows     " + fields("snd_wnd", "rcv_wnd", "mss_cache"),
        f"  time        srtt {int(tcp['srtt_us']) / 8:.3f} us  "
        + fields("mdev_us", "rttvar_us")
        + f"  rto {int(connection['icsk_rto'])} ms  backoff {int(connection['icsk_backoff'])}",
        f"  timer       {timer}",
        "  counted     "
        + fields("segs_out", "segs_in", "total_retrans", "total_rto", "bytes_sent", "bytes_acked"),
        f"  p *(struct tcp_sock *) {int(sock.address):#x}",
    ]


def queue_lines(session: Session, device: Any) -> list[str]:
    """The qdiscs of an interface, with every packet in them."""
    lines = []
    found = structures.qdiscs(device)
    parents = {int(qdisc["parent"]) >> 16 for qdisc in found}
    for qdisc in found:
        kind, length = qdisc["ops"]["id"].string(), int(qdisc["q"]["qlen"])
        lines.append(
            f"{device['name'].string()}  {kind} {structures.handle_text(qdisc['handle'])}  "
            f"qlen {length}  backlog {int(qdisc['qstats']['backlog'])} bytes  "
            f"limit {int(qdisc['limit'])}  drops {int(qdisc['qstats']['drops'])}"
        )
        held = list(structures.queued(qdisc))
        for packet, leaves_ns in held:
            size = int(packet["len"])
            linear = size - int(packet["data_len"])
            headers = structures.memory(int(packet["data"]), min(linear, _HEADERS_BYTES))
            leaves = "" if leaves_ns is None else f"  leaves at {session.time_text(leaves_ns)}"
            lines.append(f"  {size} bytes  {structures.packet_text(headers)}{leaves}")
        if len(held) < length and int(qdisc["handle"]) >> 16 not in parents:
            lines.append(f"  {length - len(held)} more, which {kind} keeps in a way of its own")
    return lines


class _Command(gdb.Command):
    """A command of ours; its docstring is gdb's help."""

    name = ""

    def __init__(self, session: Session) -> None:
        super().__init__(self.name, gdb.COMMAND_USER)
        self.session = session

    def invoke(self, argument: str, _from_terminal: bool) -> None:
        print(self.text(gdb.string_to_argv(argument)))

    def text(self, words: list[str]) -> str:
        """The text that the command prints."""
        raise NotImplementedError


class Now(_Command):
    """Virtual time, and what is due next. now"""

    name = "now"

    def text(self, words: list[str]) -> str:
        event = next(
            structures.entries(
                gdb.parse_and_eval("time_travel_events"), "struct time_travel_event", "list"
            ),
            None,
        )
        due = "nothing is due"
        if event is not None and int(event["fn"]):
            function = str(event["fn"]).partition("<")[2].rstrip(">")
            due = f"next: {function} at {self.session.time_text(int(event['time']))}"
        since_boot = f"{structures.now_ns()} ns after boot"
        return f"{self.session.time_text()} after the traffic's start, {since_boot}; {due}"


class TcpSock(_Command):
    """Reads what TCP knows of a host's connections with this port, at either end.
    tcp-sock HOST PORT
    """

    name = "tcp-sock"

    def text(self, words: list[str]) -> str:
        if not words or not words[-1].isdecimal():
            raise gdb.GdbError("allowed is: tcp-sock HOST PORT")
        port = int(words.pop())
        host, net = self.session.take_namespace(words)
        lines: list[str] = []
        for sock in structures.sockets(net):
            if (
                port in structures.ports(sock)
                and structures.state_text(sock) not in _SMALLER_THAN_A_SOCKET
            ):
                lines += socket_lines(self.session, host, sock)
        if not lines:
            raise gdb.GdbError(f"{host} has no connection with port {port}")
        return "\n".join(lines)


class Queue(_Command):
    """The qdiscs of an interface, and every packet in them. queue INTERFACE"""

    name = "queue"

    def text(self, words: list[str]) -> str:
        if len(words) != 1:
            raise gdb.GdbError("allowed is: queue INTERFACE")
        return "\n".join(queue_lines(self.session, self.session.device(words[0])))


class RunTo(_Command):
    """Lets the guest go on to a later time after the traffic's start, as 0.7ms, and stop there.
    run-to TIME
    """

    name = "run-to"

    def text(self, words: list[str]) -> str:
        if len(words) != 1:
            raise gdb.GdbError("allowed is: run-to TIME, as run-to 0.7ms")
        stop_ns = self.session.guest_ns(words[0])
        if stop_ns < structures.now_ns():
            raise gdb.GdbError(f"{words[0]} is past: it is {self.session.time_text()}")
        gdb.execute(f"set variable time_travel_stop = {stop_ns}")
        reached = gdb.Breakpoint("time_travel_stopped", internal=True)
        reached.silent = True
        try:
            gdb.execute("continue", to_string=True)
        finally:
            if reached.is_valid():
                reached.delete()
        if not gdb.selected_inferior().pid:
            return "the run has ended"
        return f"{self.session.time_text()}"


COMMANDS = (Now, TcpSock, Queue, RunTo)


class Printing(gdb.Breakpoint):
    """Prints at every hit, and lets the guest go on.

    `failure` is why it gave up; empty while it works.
    """

    def __init__(self, session: Session, settings: dict[str, Any], out: Callable[[str], object]):
        place, _, self._condition = settings["breakpoint"].partition(" if ")
        super().__init__(place.strip())
        self.silent = True
        self.failure = ""
        self.hits = 0
        self._session, self._out = session, out
        self._expressions: list[str] = settings["expressions"]
        self._commands: list[str] = settings["commands"]
        self._most: int | None = settings["count"]

    def stop(self) -> bool:
        """Whether the guest stops here, which it does only at the last hit."""
        expression = ""
        try:
            net, sock = structures.owner(gdb.newest_frame())
            host = self._session.name(net) if net else "-"
            if self._session.host not in (None, host):
                return False
            expression = self._condition
            if expression and not gdb.parse_and_eval(expression):
                return False
            flow = self._session.flow_text(*structures.ports(sock)) if sock is not None else "-"
            if sock is not None:
                gdb.set_convenience_variable(SOCKET, structures.tcp_of(sock).address)
            words = [f"{self._session.time_text()}  {host}  flow {flow}"]
            for expression in self._expressions:
                words.append(f"{expression} = {gdb.parse_and_eval(expression).format_string()}")
            lines = ["  ".join(words)]
            for expression in self._commands:
                lines.append(gdb.execute(expression, to_string=True).rstrip("\n"))
        except (gdb.error, gdb.GdbError) as error:
            known = structures.known(gdb.newest_frame(), f"${SOCKET} is its tcp_sock")
            self.failure = f"{expression}: {error}; {known}"
            return True
        self._out("\n".join(lines) + "\n")
        self.hits += 1
        return self._most is not None and self.hits >= self._most


def prepare(settings: dict[str, Any]) -> None:
    """Makes gdb quiet about what is ordinary in the guest's kernel."""
    for command in (
        "set confirm off",
        "set print thread-events off",
        "set print inferior-events off",
        "set print pretty on",
        f"handle {_SIGNALS} nostop noprint pass",
        # By this signal the kernel has stopped itself, and gdb holds it from here on.
        "handle SIGSTOP nostop noprint nopass",
        f"set substitute-path {' '.join(map(shlex.quote, settings['sources']))}",
    ):
        gdb.execute(command, to_string=True)


def attach(settings: dict[str, Any]) -> Session:
    """Attaches to the guest's kernel, which has stopped itself."""
    # The symbols know no frames, which are in the program itself.
    gdb.execute(f"add-symbol-file {shlex.quote(settings['program'])} -o 0", to_string=True)
    gdb.execute(f"attach {settings['pid']}", to_string=True)
    structures.show_frame()
    session = Session(settings)
    for command in COMMANDS:
        command(session)
    return session


def work(settings: dict[str, Any], out: Callable[[str], object]) -> dict[str, Any]:
    """Does what was asked for; what came of it."""
    if settings["pid"] is None:
        if settings["breakpoint"]:
            gdb.decode_line(settings["breakpoint"].partition(" if ")[0].strip())
        return {"hits": 0}
    session = attach(settings)
    if settings["breakpoint"]:
        printing = Printing(session, settings, out)
        gdb.execute("continue", to_string=True)
        if printing.failure:
            return {"failure": printing.failure, "hits": printing.hits}
        return {"hits": printing.hits}
    if settings["interactive"]:
        out(
            f"The guest stands at {session.time_text()} after the traffic's start.\n"
            f"Ours are {', '.join(command.name for command in COMMANDS)} (help NAME says more). "
            "With quit the run goes on to its end.\n"
        )
    for command in settings["commands"]:
        try:
            out(gdb.execute(command, to_string=True))
        except (gdb.error, gdb.GdbError) as error:
            return {"failure": f"{command}: {error}", "hits": 0}
    return {"hits": 0}


def main() -> None:
    """Takes the settings from the descriptor, and leaves there what came of them."""
    descriptor = int(os.environ[SETTINGS])
    settings = json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
    stream = os.fdopen(os.dup(1), "w")
    if not settings["interactive"]:
        # What gdb prints by itself is of no use to who asked for something else.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def out(text: str) -> None:
        stream.write(text)
        stream.flush()

    try:
        prepare(settings)
        outcome = work(settings, out)
    except (gdb.error, gdb.GdbError) as error:
        outcome = {"failure": str(error), "hits": 0}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(outcome).encode(), 0)
    if not settings["interactive"] or "failure" in outcome:
        # gdb lets go of the guest when it ends.
        gdb.execute("quit")


if __name__ == "__main__":
    main()
