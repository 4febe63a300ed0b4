"""Runs in gdb on the guest's kernel: it attaches, does what was asked for, and has our commands.

gdb's own Python runs it, so it imports nothing of outcast. The descriptor whose number is in the
environment has a JSON object, see `outcast.engines.guest.debugger`. What came of it replaces it.

It is written against Linux 7.3: network namespaces (include/net/net_namespace.h), the table of
TCP's sockets (include/net/inet_hashtables.h), qdiscs and what they hold (include/net/sch_generic.h,
net/sched/sch_netem.c), virtual time (arch/um/kernel/time.c).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import gdb

SETTINGS = "OUTCAST_DEBUG"
"""The environment variable with the descriptor's number."""

SOCKET = "tcp"
"""gdb's variable with the `struct tcp_sock *` that a breakpoint was hit for."""

SWITCHES = "switches"
"""The name of the namespace in which all switches are."""

_SIGNALS = "SIGSEGV SIGUSR1 SIGUSR2 SIGALRM SIGVTALRM SIGIO SIGWINCH SIGCHLD SIGSYS"
"""Signals that the guest's kernel uses for interrupts and processes (arch/um/os-Linux/signal.c)."""

_MOST = 1_000_000
"""A longer list is damaged, or the kernel is another one than ours."""

_STATES = {
    **{1: "ESTABLISHED", 2: "SYN_SENT", 3: "SYN_RECV", 4: "FIN_WAIT1", 5: "FIN_WAIT2"},
    **{6: "TIME_WAIT", 7: "CLOSE", 8: "CLOSE_WAIT", 9: "LAST_ACK", 10: "LISTEN", 11: "CLOSING"},
    12: "NEW_SYN_RECV",
}
"""A TCP socket's states (include/net/tcp_states.h)."""
_SMALLER_THAN_A_SOCKET = ("TIME_WAIT", "NEW_SYN_RECV")
_CONGESTION_STATES = ("Open", "Disorder", "CWR", "Recovery", "Loss")
_TIMERS = {
    **{0: "none", 1: "retransmission", 3: "probe of a zero window", 5: "tail loss probe"},
    6: "reordering",
}
"""The timers of `icsk_pending` (include/net/inet_connection_sock.h)."""
_STOPS = re.compile("(__)?kill$|os_stop_self|(__)?time_travel_(stopped|set_time|update_time)")
"""The functions by which the guest stops itself (patch 0008)."""
_HEADERS_BYTES = 100
_ARRAY_SHIFT, _PLACES_OF_A_LEVEL = 22, 64
"""Sizes of the timer wheel (TIMER_ARRAYSHIFT, LVL_SIZE; linux/timer.h, kernel/time/timer.c)."""


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


def packet_text(frame: bytes) -> str:
    """An Ethernet frame's headers in words: addresses, ports, sequence number, payload."""
    if len(frame) < 14:
        return "cut off"
    if frame[12:14] != b"\x08\x00":
        return f"ethertype 0x{frame[12:14].hex()}"
    packet = frame[14:]
    header = (packet[0] & 15) * 4 if packet else 0
    if len(packet) < 20 or header < 20:
        return "cut off"
    total, ident = struct.unpack_from("!HH", packet, 2)
    source, target = (socket.inet_ntoa(packet[at : at + 4]) for at in (12, 16))
    if packet[9] != socket.IPPROTO_TCP or len(packet) < header + 20:
        return f"{source} > {target} id {ident} protocol {packet[9]}"
    sport, dport, seq, ack, length = struct.unpack_from("!HHIIB", packet, header)
    payload = total - header - (length >> 4) * 4
    return f"{source}:{sport} > {target}:{dport} id {ident} seq {seq} ack {ack} payload {payload}"


def _offset(kind: str, member: str) -> int:
    return int(gdb.parse_and_eval(f"(long)&(({kind} *)0)->{member}"))


def _at(address: int, kind: str) -> Any:
    return gdb.Value(address).cast(gdb.lookup_type(kind).pointer()).dereference()


def _memory(address: int, size: int) -> bytes:
    return bytes(gdb.selected_inferior().read_memory(address, size))


def entries(head: Any, kind: str, member: str) -> Iterator[Any]:
    """The structures of a kernel list (include/linux/list.h), given its head."""
    offset, end = _offset(kind, member), int(head.address)
    node = head["next"]
    for _ in range(_MOST):
        if int(node) == end:
            return
        yield _at(int(node) - offset, kind)
        node = node["next"]
    raise gdb.GdbError(f"the list of {kind} does not end")


def tree(node: Any) -> Iterator[int]:
    """The addresses of a red-black tree's nodes in order (include/linux/rbtree.h)."""
    above: list[Any] = []
    while int(node) or above:
        while int(node):
            above.append(node)
            node = node["rb_left"]
        node = above.pop()
        yield int(node)
        node = node["rb_right"]


def packets_from(first: Any) -> Iterator[Any]:
    """The packets of a list that a null pointer ends, each a `struct sk_buff`."""
    for _ in range(_MOST):
        if not int(first):
            return
        yield first.dereference()
        first = first["next"]


def address_text(address: Any) -> str:
    """An IPv4 address in the network's byte order."""
    return socket.inet_ntoa(struct.pack("=I", int(address)))


def now_ns() -> int:
    """The guest's clock: nanoseconds since its boot."""
    return int(gdb.parse_and_eval("time_travel_time"))


def namespaces() -> Iterator[Any]:
    """Every network namespace, a `struct net`."""
    return entries(gdb.parse_and_eval("net_namespace_list"), "struct net", "list")


def devices(net: Any) -> Iterator[Any]:
    """The devices of a network namespace, each a `struct net_device`."""
    return entries(net["dev_base_head"], "struct net_device", "dev_list")


def host_of(net: Any) -> str:
    """The host that a namespace is: what stands before `-eth` in the names of its devices."""
    if int(net.address) == int(gdb.parse_and_eval("&init_net")):
        return SWITCHES
    names = (device["name"].string() for device in devices(net))
    return next((name.rpartition("-eth")[0] for name in names if "-eth" in name), "?")


class Session:
    """The request, and what the commands share."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.host: str | None = settings["host"]
        self._begin_ns = int(settings["begin_ns"])
        self._flows = {(row["sport"], row["dport"]): str(row["flow"]) for row in settings["flows"]}
        self._names: dict[int, str] = {}

    def time_text(self, time_ns: int | None = None) -> str:
        """A time of the guest's clock since the traffic's start; the present one if left out."""
        return millisecond_text((now_ns() if time_ns is None else time_ns) - self._begin_ns)

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
            self._names = {int(space.address): host_of(space) for space in namespaces()}
        return self._names.get(net, "?")

    def take_namespace(self, words: list[str]) -> tuple[str, Any]:
        """The host that the first word names, or else that of --host, and its namespace."""
        host = words.pop(0) if words else self.host
        spaces = {host_of(net): net for net in namespaces()}
        if host not in spaces:
            there = ", ".join(sorted(spaces))
            raise gdb.GdbError(f"{host or 'which host'}? there are {there}")
        return host, spaces[host]

    def device(self, name: str) -> Any:
        """The interface of this name. Raises gdb.GdbError."""
        for net in namespaces():
            for device in devices(net):
                if device["name"].string() == name:
                    return device
        raise gdb.GdbError(f"there is no interface {name}")


def sockets(net: Any) -> Iterator[Any]:
    """The connected TCP sockets of a namespace, each a `struct sock`.

    What is in the state TIME_WAIT or NEW_SYN_RECV is smaller, and has only `__sk_common`.
    """
    table = net["ipv4"]["tcp_death_row"]["hashinfo"].dereference()
    offset = _offset("struct sock", "__sk_common.skc_nulls_node")
    kind = "struct inet_ehash_bucket"
    size = int(gdb.lookup_type(kind).sizeof)
    content = _memory(int(table["ehash"]), (int(table["ehash_mask"]) + 1) * size)
    for at in range(_offset(kind, "chain"), len(content), size):
        (node,) = struct.unpack_from("=Q", content, at)
        for _ in range(_MOST):
            if node & 1:  # so a list of `nulls` ends (include/linux/list_nulls.h)
                break
            sock = _at(node - offset, "struct sock")
            if int(sock["__sk_common"]["skc_net"]["net"]) == int(net.address):
                yield sock
            node = int(sock["__sk_common"]["skc_nulls_node"]["next"])


def ports(sock: Any) -> tuple[int, int]:
    """The local and the remote port of a socket."""
    common = sock["__sk_common"]
    return int(common["skc_num"]), socket.ntohs(int(common["skc_dport"]))


def state_text(sock: Any) -> str:
    """The state of a TCP socket."""
    return _STATES.get(int(sock["__sk_common"]["skc_state"]), "?")


def ends_text(sock: Any) -> str:
    """Both ends of a socket."""
    common, (near, far) = sock["__sk_common"], ports(sock)
    return (
        f"{address_text(common['skc_rcv_saddr'])}:{near} > "
        f"{address_text(common['skc_daddr'])}:{far}"
    )


def tcp_of(sock: Any) -> Any:
    """The `struct tcp_sock` that a socket is the beginning of."""
    return _at(int(sock.address), "struct tcp_sock")


def in_flight(tcp: Any) -> int:
    """Segments in the network, as the kernel counts them (tcp_packets_in_flight)."""
    gone = int(tcp["sacked_out"]) + int(tcp["lost_out"])
    return int(tcp["packets_out"]) - gone + int(tcp["retrans_out"])


def fires_at_tick(expires: int, flags: int) -> int:
    """The tick at which a timer fires: never before `expires`, at its place in the timer wheel.

    The flags tell the place, and so the level; each level is eight times as coarse as the one
    below it (kernel/time/timer.c, calc_index).
    """
    coarse = 3 * ((flags >> _ARRAY_SHIFT) // _PLACES_OF_A_LEVEL)
    return (expires + (1 << coarse)) >> coarse << coarse


def fires_ns(timer: Any) -> int:
    """When a `struct timer_list` fires, by the guest's clock; a tick takes a millisecond."""
    ticks = int(gdb.parse_and_eval("jiffies_64"))
    updated_ns = int(gdb.parse_and_eval("'tick-sched.c'::last_jiffies_update"))
    return updated_ns + (fires_at_tick(int(timer["expires"]), int(timer["flags"])) - ticks) * 10**6


def socket_lines(session: Session, host: str, sock: Any) -> list[str]:
    """Reads what TCP knows of a connection."""
    tcp = tcp_of(sock)
    connection = tcp["inet_conn"]

    def fields(*names: str) -> str:
        return "  ".join(f"{name} {int(tcp[name])}" for name in names)

    pending = int(connection["icsk_pending"])
    timer = _TIMERS.get(pending, str(pending))
    if pending:
        timer += f", fires at {session.time_text(fires_ns(sock['tcp_retransmit_timer']))}"
    state = _CONGESTION_STATES[int(connection["icsk_ca_state"])]
    unsent = (int(tcp["write_seq"]) - int(tcp["snd_nxt"])) % (1 << 32)
    return [
        f"{host}  {ends_text(sock)}  flow {session.flow_text(*ports(sock))}  {state_text(sock)}",
        f"  congestion  {connection['icsk_ca_ops']['name'].string()}  state {state}  "
        + fields("snd_cwnd", "snd_ssthresh", "prior_cwnd", "snd_cwnd_cnt", "reordering"),
        f"  in flight   {in_flight(tcp)} segments  "
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


def handle_text(handle: Any) -> str:
    """A qdisc's handle as tc(8) writes it."""
    return (
        f"{int(handle) >> 16:x}:{int(handle) & 0xFFFF or '':{'x' if int(handle) & 0xFFFF else ''}}"
    )


def qdiscs(device: Any) -> list[Any]:
    """The qdiscs of an interface, each a `struct Qdisc`; the root first."""
    root = device["qdisc"]
    found = [root.dereference()] if int(root) else []
    table, offset = device["qdisc_hash"], _offset("struct Qdisc", "hash")
    first, last = table.type.range()
    for number in range(first, last + 1):
        node = table[number]["first"]
        for _ in range(_MOST):
            if not int(node):
                break
            found.append(_at(int(node) - offset, "struct Qdisc"))
            node = node["next"]
    return found[:1] + sorted(found[1:], key=lambda qdisc: int(qdisc["handle"]))


def queued(qdisc: Any) -> Iterator[tuple[Any, int | None]]:
    """The packets that a qdisc itself holds, and for netem when each may leave."""
    if qdisc["ops"]["id"].string() == "netem":
        private = _at(int(qdisc["privdata"].address), "struct netem_sched_data")
        at = _offset("struct sk_buff", "cb") + _offset("struct qdisc_skb_cb", "data")
        for packet in packets_from(private["t_head"]):
            yield packet, _leaves_ns(packet, at)
        for node in tree(private["t_root"]["rb_node"]):
            packet = _at(node, "struct sk_buff")
            yield packet, _leaves_ns(packet, at)
    for packet in packets_from(qdisc["q"]["head"]):
        yield packet, None


def _leaves_ns(packet: Any, at: int) -> int:
    return int(_at(int(packet.address) + at, "struct netem_skb_cb")["time_to_send"])


def queue_lines(session: Session, device: Any) -> list[str]:
    """The qdiscs of an interface, with every packet in them."""
    lines = []
    found = qdiscs(device)
    parents = {int(qdisc["parent"]) >> 16 for qdisc in found}
    for qdisc in found:
        kind, length = qdisc["ops"]["id"].string(), int(qdisc["q"]["qlen"])
        lines.append(
            f"{device['name'].string()}  {kind} {handle_text(qdisc['handle'])}  qlen {length}  "
            f"backlog {int(qdisc['qstats']['backlog'])} bytes  limit {int(qdisc['limit'])}  "
            f"drops {int(qdisc['qstats']['drops'])}"
        )
        held = list(queued(qdisc))
        for packet, leaves_ns in held:
            size = int(packet["len"])
            linear = size - int(packet["data_len"])
            headers = _memory(int(packet["data"]), min(linear, _HEADERS_BYTES))
            leaves = "" if leaves_ns is None else f"  leaves at {session.time_text(leaves_ns)}"
            lines.append(f"  {size} bytes  {packet_text(headers)}{leaves}")
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
            entries(gdb.parse_and_eval("time_travel_events"), "struct time_travel_event", "list"),
            None,
        )
        due = "nothing is due"
        if event is not None and int(event["fn"]):
            function = str(event["fn"]).partition("<")[2].rstrip(">")
            due = f"next: {function} at {self.session.time_text(int(event['time']))}"
        return (
            f"{self.session.time_text()} after the traffic's start, {now_ns()} ns after boot; {due}"
        )


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
        for sock in sockets(net):
            if port in ports(sock) and state_text(sock) not in _SMALLER_THAN_A_SOCKET:
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
        if stop_ns < now_ns():
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


def variable(frame: Any, name: str) -> Any:
    """A pointer among a function's variables; None if it has none of this name, or it is null."""
    try:
        value = frame.read_var(name)
        return value if not value.is_optimized_out and int(value) else None
    except (ValueError, gdb.error):
        return None


def owner(frame: Any) -> tuple[int, Any]:
    """The namespace that a function works for, and its socket, by its variables' usual names.

    Returns the address of a `struct net`, 0 where nothing says it; and a `struct sock`, or None.
    """
    sk = variable(frame, "sk") or variable(frame, "tp") or variable(frame, "ssk")
    skb, device = variable(frame, "skb"), variable(frame, "dev")
    if sk is None and skb is not None and int(skb["sk"]):
        sk = skb["sk"]
    if sk is not None:
        sock = _at(int(sk), "struct sock")
        return int(sock["__sk_common"]["skc_net"]["net"]), sock
    qdisc = variable(frame, "sch")
    if device is None and qdisc is not None:
        device = qdisc["dev_queue"]["dev"]
    if device is None and skb is not None and int(skb["dev"]):
        device = skb["dev"]
    return (int(device["nd_net"]["net"]) if device is not None else 0), None


def known(frame: Any) -> str:
    """Says what an expression can name at the beginning of a function."""
    names = [symbol.name for symbol in frame.block() if symbol.is_argument]
    return f"{frame.name()} has {', '.join(names) or 'no arguments'}; ${SOCKET} is its tcp_sock"


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
            net, sock = owner(gdb.newest_frame())
            host = self._session.name(net) if net else "-"
            if self._session.host not in (None, host):
                return False
            expression = self._condition
            if expression and not gdb.parse_and_eval(expression):
                return False
            flow = self._session.flow_text(*ports(sock)) if sock is not None else "-"
            if sock is not None:
                gdb.set_convenience_variable(SOCKET, tcp_of(sock).address)
            words = [f"{self._session.time_text()}  {host}  flow {flow}"]
            for expression in self._expressions:
                words.append(f"{expression} = {gdb.parse_and_eval(expression).format_string()}")
            lines = ["  ".join(words)]
            for expression in self._commands:
                lines.append(gdb.execute(expression, to_string=True).rstrip("\n"))
        except (gdb.error, gdb.GdbError) as error:
            self.failure = f"{expression}: {error}; {known(gdb.newest_frame())}"
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


def show_frame() -> None:
    """Selects the frame that let the clock move; what is above it only stops the guest."""
    frame = gdb.newest_frame()
    while frame is not None and (frame.name() is None or _STOPS.match(frame.name())):
        frame = frame.older()
    if frame is not None:
        frame.select()


def attach(settings: dict[str, Any]) -> Session:
    """Attaches to the guest's kernel, which has stopped itself."""
    # The symbols know no frames, which are in the program itself.
    gdb.execute(f"add-symbol-file {shlex.quote(settings['program'])} -o 0", to_string=True)
    gdb.execute(f"attach {settings['pid']}", to_string=True)
    show_frame()
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
