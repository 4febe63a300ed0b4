"""The program at each host that sends and receives generated flows.

`python generator.py TASK START RESULT` is one process for all flows of a host, in its network
namespace. It uses only the standard library, because in virtual time its start costs most.

It reads its task from TASK (JSON, see outcast/emulation/generator/programs.py) and says `ready`
when it listens. It waits for the file START, which has the traffic's start on the common clock.
When all is done or the end has come, it writes a JSON line for each flow and side to RESULT. It
makes its standing connections when the file START.connect appears, and then says `connected`.
Without that file it makes them when the start is given.

A flow ends when its last byte arrives at the receiver. The receiver knows from its task how many
bytes come from which address and port, so no byte of ours is added. At the end the sender resets
flows that have not ended, so that nothing of them goes on.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import heapq
import json
import os
import select
import socket
import struct
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

CONNECT_SUFFIX = ".connect"
START_POLL_S = 0.01
START_DEADLINE_S = 900.0
DATAGRAM_POLL_NS = 10_000_000
"""Datagrams are taken from the socket in batches, because they are only counted."""
DRAIN_NS = 20_000_000
"""How long after the end the program waits for what is under way."""
DATAGRAM_BUFFER_BYTES = 32 * 1024 * 1024
_CHUNK_BYTES = 256 * 1024
_TCP_INFO_BYTES = 280
_SO_RCVBUFFORCE = 33
_TFD_NONBLOCK, _TFD_ABSTIME = 0o4000, 1
_EVENTS_ALWAYS = select.EPOLLERR | select.EPOLLHUP

_ZEROS = memoryview(bytes(_CHUNK_BYTES))
_SINK = bytearray(_CHUNK_BYTES)
_libc = ctypes.CDLL(None, use_errno=True)

Row = dict[str, Any]


class Timer:
    """A timerfd(2) on the common clock, because epoll(7) alone counts in milliseconds."""

    def __init__(self) -> None:
        self.descriptor = int(_libc.timerfd_create(time.CLOCK_REALTIME, _TFD_NONBLOCK))
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def set(self, at_ns: int, every_ns: int = 0) -> None:
        """Goes off at a time, and then every `every_ns` if that is given."""
        parts = (every_ns // 10**9, every_ns % 10**9, at_ns // 10**9, at_ns % 10**9)
        if _libc.timerfd_settime(self.descriptor, _TFD_ABSTIME, struct.pack("@qqqq", *parts), None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def expirations(self) -> int:
        """How often it went off since the last call."""
        try:
            return int(struct.unpack("@Q", os.read(self.descriptor, 8))[0])
        except BlockingIOError:
            return 0

    def close(self) -> None:
        os.close(self.descriptor)


class Loop:
    """Waits for sockets and times; all work of a host runs in one thread."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._timer = Timer()
        self._armed_ns = 0
        self.watch(self._timer.descriptor, select.EPOLLIN, lambda _events: self._run_due())

    def watch(self, descriptor: int, events: int, handler: Callable[[int], None]) -> None:
        self._handlers[descriptor] = handler
        self._epoll.register(descriptor, events)

    def change(self, descriptor: int, events: int) -> None:
        self._epoll.modify(descriptor, events)

    def forget(self, descriptor: int) -> None:
        if self._handlers.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def at(self, t_ns: int, call: Callable[[], None]) -> None:
        """Calls back at a time, or at once if it has passed."""
        self._count += 1
        heapq.heappush(self._due, (t_ns, self._count, call))
        self._arm()

    def _arm(self) -> None:
        if self._due and self._due[0][0] != self._armed_ns:
            self._armed_ns = self._due[0][0]
            self._timer.set(max(self._armed_ns, 1))

    def _run_due(self) -> None:
        self._timer.expirations()
        now_ns = time.time_ns()
        while self._due and self._due[0][0] <= now_ns:
            heapq.heappop(self._due)[2]()
        self._armed_ns = 0
        self._arm()

    def run(self, until: Callable[[], bool]) -> None:
        while not until():
            for descriptor, events in self._epoll.poll():
                handler = self._handlers.get(descriptor)
                if handler is not None:
                    handler(events)


def mark(sock: socket.socket, tos: int) -> None:
    """Gives a socket's packets their TOS byte or traffic class. Raises OSError or RuntimeError."""
    if not tos:
        return
    where = (socket.IPPROTO_IP, socket.IP_TOS)
    if sock.family == socket.AF_INET6:
        where = (socket.IPPROTO_IPV6, socket.IPV6_TCLASS)
    sock.setsockopt(*where, tos)
    if (shown := sock.getsockopt(*where)) != tos:
        raise RuntimeError(f"TOS byte: requested {tos}, the kernel shows {shown}")


def open_socket(kind: int, peer_ip: str) -> socket.socket:
    """A socket for an address, which is IPv6 if it has a colon."""
    family = socket.AF_INET6 if ":" in peer_ip else socket.AF_INET
    return socket.socket(family, kind | socket.SOCK_NONBLOCK)


def abort(sock: socket.socket) -> None:
    """Closes a socket with a reset, so that nothing more is sent."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def tcp_facts(sock: socket.socket) -> Row:
    """Reads what the kernel shows of a sending socket (tcp(7), TCP_INFO; linux/tcp.h)."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    control = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    (retransmits,) = struct.unpack_from("=I", info, 100)
    timeouts = struct.unpack_from("=H", info, 240)[0] if len(info) >= 248 else None
    return {
        "congestion_control": control.split(b"\0")[0].decode(),
        "retransmits": retransmits,
        "timeouts": timeouts,
    }


class Program:
    """All of a host's flows.

    Attributes:
        rows: what became of each flow; it is written at the end.
        open: how many of this host's tasks have not ended.
        over: whether what was under way at the end has been given up.
        at_end, at_last: calls to make at these two times.
    """

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        self.loop = Loop()
        self.rows: list[Row] = []
        self._library: ctypes.CDLL | None = None
        self.open = 0
        self.t_start_ns = 0
        self.ended = self.over = False
        self.at_end: list[Callable[[], None]] = []
        self.at_last: list[Callable[[], None]] = []
        self.expected: dict[tuple[str, int], tuple[int, int]] = {
            (ip, sport): (flow, size) for flow, ip, sport, size in task["receive"]
        }
        self.open += len(self.expected)
        self.rounds = [Rounds(self, each) for each in task["ask"]]
        self.askers = {(ip, sport): rounds for rounds in self.rounds for ip, sport in rounds.peers}
        self.answering: list[Answering] = []
        self.datagrams = Datagrams(self) if task["datagrams_from"] else None
        if self.expected or self.askers:
            for ip in task["ips"]:
                self._listen(ip)

    def own_ip(self, peer_ip: str) -> str:
        """The address of this host that is of the same family as another one."""
        return str(next(ip for ip in self.task["ips"] if (":" in ip) == (":" in peer_ip)))

    def tos(self, sport: int) -> int:
        """The TOS byte of what is sent from a port; the task has those that are not 0."""
        return int(self.task.get("tos", {}).get(str(sport), 0))

    def random_payloads(self, sport: int) -> RandomPayloads | None:
        """TCPRand's payloads for the connection from a port, if the task has them."""
        tcprand = self.task.get("tcprand")
        if tcprand is None:
            return None
        if self._library is None:
            self._library = ctypes.CDLL(tcprand["library"])
        seed = tcprand["seeds"][str(sport)]
        return RandomPayloads(self._library, seed, tcprand["least"], tcprand["adaptive"])

    def _listen(self, ip: str) -> None:
        listening = open_socket(socket.SOCK_STREAM, ip)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((ip, self.task["tcp_port"]))
        listening.listen(4096)
        self.loop.watch(listening.fileno(), select.EPOLLIN, lambda _events: self._accept(listening))

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                sock, address = listening.accept()
            except BlockingIOError:
                return
            peer = (address[0], address[1])
            sock.setblocking(False)
            if peer in self.askers:
                self.askers[peer].connected(sock, peer)
                continue
            if peer not in self.expected:
                raise RuntimeError(f"a connection from {peer[0]}:{peer[1]}, which has no flow")
            Receiving(self, sock, *self.expected.pop(peer))

    def connect(self) -> None:
        """Begins the standing connections, if that was not done yet."""
        if not self.answering:
            self.answering = [
                Answering(self, (ip, sport), block, workload)
                for ip, sport, block, workload in self.task["answer"]
            ]

    def connect_now(self) -> None:
        """Makes the standing connections. Raises RuntimeError where one fails."""
        self.connect()
        self.loop.run(lambda: all(peer.connected or peer.error for peer in self.answering))
        for answering in self.answering:
            if answering.error:
                raise RuntimeError(
                    f"connecting to {answering.connection.peer[0]}: {answering.error}"
                )

    def start(self, t_start_ns: int) -> None:
        """Schedules everything, from the traffic's start on."""
        self.t_start_ns = t_start_ns
        self.loop.at(t_start_ns + self.task["end_ns"], self._end)
        self.loop.at(t_start_ns + self.task["end_ns"] + DRAIN_NS, self._last)
        for flow, start_ns, ip, sport, size in self.task["send"]:
            sending = Sending(self, flow, t_start_ns + start_ns, (ip, sport), size)
            self.loop.at(t_start_ns + start_ns, sending.begin)
        for turns in self.task["turns"]:
            Turns(self, turns)
        self.connect()
        for rounds in self.rounds:
            self.loop.at(t_start_ns + rounds.start_ns, rounds.begin)
        for stream in self.task["streams"]:
            Stream(self, *stream)
        if self.datagrams:
            self.datagrams.start()

    def _end(self) -> None:
        self.ended = True
        for call in self.at_end:
            call()

    def _last(self) -> None:
        self.over = True
        for call in self.at_last:
            call()

    def is_past_end(self) -> bool:
        """Whether connections may be cut off, because some other program may have ended."""
        return self.ended or time.time_ns() >= self.t_start_ns + self.task["end_ns"]

    def done(self) -> bool:
        waits = self.datagrams is not None and not self.datagrams.done
        return self.open == 0 or (self.over and not waits)


def receipt(flow: int, t_end_ns: int | None, received: int, error: str | None = None) -> Row:
    """The receiver's row."""
    return {"side": "receive", "flow": flow, "t_end": t_end_ns, "bytes": received, "error": error}


class Receiving:
    """An incoming flow, whose bytes are counted and thrown away."""

    def __init__(self, program: Program, sock: socket.socket, flow: int, size: int) -> None:
        self.program, self.sock, self.flow = program, sock, flow
        self.left, self.size = size, size
        self.open = True
        program.loop.watch(sock.fileno(), select.EPOLLIN, self._on_event)
        program.at_last.append(self._cut_off)

    def _on_event(self, _events: int) -> None:
        error = None
        try:
            # MSG_TRUNC: tcp(7) says that the bytes are discarded, not copied.
            got = self.sock.recv_into(_SINK, _CHUNK_BYTES, socket.MSG_TRUNC)
        except BlockingIOError:
            return
        except OSError as failed:
            got, error = 0, os.strerror(failed.errno or 0)
        self.left -= got
        if self.left <= 0:
            self._close(time.time_ns(), None if self.left == 0 else "more bytes than planned")
        elif got == 0:
            early = None if self.program.is_past_end() else error or "the sender closed early"
            self._close(None, early)

    def _close(self, t_end_ns: int | None, error: str | None) -> None:
        self.open = False
        self.program.rows.append(receipt(self.flow, t_end_ns, self.size - self.left, error))
        self.program.loop.forget(self.sock.fileno())
        self.sock.close()
        self.program.open -= 1

    def _cut_off(self) -> None:
        if self.open:
            self.program.rows.append(receipt(self.flow, None, self.size - self.left))
            self.program.loop.forget(self.sock.fileno())
            abort(self.sock)
            self.open = False


class RandomPayloads:
    """TCPRand's payloads for one connection, by outcast/emulation/senders/tcprand.h."""

    def __init__(self, library: ctypes.CDLL, seed: int, least: int, adaptive: str | None) -> None:
        self._library = library
        library.tcprand_new.restype = ctypes.c_void_p
        library.tcprand_send.restype = ctypes.c_int64
        self._state = ctypes.c_void_p(
            library.tcprand_new(
                ctypes.c_uint64(seed), least, adaptive.encode() if adaptive else None
            )
        )
        if not self._state:
            raise RuntimeError(f"TCPRand's parameters are not five numbers: {adaptive}")
        self._is_open = False

    def send(self, descriptor: int, remaining: int) -> int:
        """Sends some of the bytes left on a connected socket. Raises OSError, as `send` does."""
        if not self._is_open:
            self._check(self._library.tcprand_open(self._state, descriptor))
            self._is_open = True
        return self._check(
            self._library.tcprand_send(self._state, descriptor, ctypes.c_int64(remaining))
        )

    @staticmethod
    def _check(result: int) -> int:
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        return result

    def used(self) -> tuple[int, int] | None:
        """The smallest and the largest rMin so far; None before the first payload."""
        least, most, writes = ctypes.c_int(), ctypes.c_int(), ctypes.c_int64()
        self._library.tcprand_used(
            self._state, ctypes.byref(least), ctypes.byref(most), ctypes.byref(writes)
        )
        return (least.value, most.value) if writes.value else None

    def close(self) -> None:
        self._library.tcprand_free(self._state)


class Connection:
    """A socket that connects from a port of its own and writes zeros."""

    def __init__(self, program: Program, peer: tuple[str, int]) -> None:
        self.program, self.peer = program, peer
        self.left = self.sent = 0
        self.sock: socket.socket | None = None
        self.payloads: RandomPayloads | None = None

    def connect(self, on_event: Callable[[int], None]) -> None:
        ip, sport = self.peer
        sock = open_socket(socket.SOCK_STREAM, ip)
        self.sock = sock
        self.payloads = self.program.random_payloads(sport)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        mark(sock, self.program.tos(sport))
        sock.bind((self.program.own_ip(ip), sport))
        status = sock.connect_ex((ip, self.program.task["tcp_port"]))
        if status not in (0, errno.EINPROGRESS):
            raise OSError(status, f"connecting to {ip}: {os.strerror(status)}")
        self.program.loop.watch(sock.fileno(), select.EPOLLOUT, on_event)

    def write(self) -> str | None:
        """Writes as much of what is left as the socket takes. Returns why it failed, if it did."""
        assert self.sock is not None
        while self.left:
            try:
                if self.payloads is not None:
                    sent = self.payloads.send(self.sock.fileno(), self.left)
                else:
                    sent = self.sock.send(_ZEROS[: min(self.left, _CHUNK_BYTES)])
                self.left -= sent
                self.sent += sent
            except BlockingIOError:
                return None
            except ConnectionError as error:
                return os.strerror(error.errno or 0)
        self.program.loop.change(self.sock.fileno(), select.EPOLLIN)
        return None

    def failure(self, events: int) -> str | None:
        """Why the connection failed; None if it did not."""
        assert self.sock is not None
        if events & _EVENTS_ALWAYS:
            number = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            return os.strerror(number) if number else None
        return None

    def facts(self) -> Row:
        """The connection's part of a row; empty if there is no connection."""
        if self.sock is None:
            return {}
        used = self.payloads.used() if self.payloads is not None else None
        facts = {**tcp_facts(self.sock), "sent_bytes": self.sent}
        return {**facts, "smallest_payload": used} if used else facts

    def close(self, *, reset: bool = False) -> None:
        assert self.sock is not None
        if self.payloads is not None:
            self.payloads.close()
            self.payloads = None
        self.program.loop.forget(self.sock.fileno())
        if reset:
            abort(self.sock)
        else:
            self.sock.close()
        self.sock = None


class Sending:
    """An outgoing flow. It has ended when the receiver has all bytes and has closed."""

    def __init__(
        self,
        program: Program,
        flow: int,
        planned_ns: int | None,
        peer: tuple[str, int],
        size: int,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self.program, self.flow, self.planned_ns, self.size = program, flow, planned_ns, size
        self.connection = Connection(program, peer)
        self.connection.left = size
        self.on_end = on_end
        self.begun_ns: int | None = None
        program.open += 1
        program.at_end.append(self._cut_off)

    def begin(self) -> None:
        if self.program.ended:
            return
        self.begun_ns = time.time_ns()
        self.connection.connect(self._on_event)

    def _on_event(self, events: int) -> None:
        if error := self.connection.failure(events):
            self._close(error)
        elif self.connection.left:
            if error := self.connection.write():
                self._close(error)
        elif events & (select.EPOLLIN | select.EPOLLHUP):
            self._close(None)

    def _close(self, error: str | None) -> None:
        self._record(None if self.program.is_past_end() else error)
        self.connection.close()
        self.program.open -= 1
        if self.on_end:
            self.on_end()

    def _record(self, error: str | None) -> None:
        self.program.rows.append(
            {
                "side": "send",
                "flow": self.flow,
                "t_planned": self.planned_ns,
                "t_begun": self.begun_ns,
                "error": error,
                **self.connection.facts(),
            }
        )
        self.begun_ns = None

    def _cut_off(self) -> None:
        if self.begun_ns is not None:
            self._record(None)
            self.connection.close(reset=True)


class Turns:
    """A shuffle's flows of one host: a fixed number at a time, the next when one has ended."""

    def __init__(self, program: Program, task: dict[str, Any]) -> None:
        self.program = program
        self.waiting = deque(task["transfers"])
        program.open += 1
        for _ in range(min(task["concurrent"], len(self.waiting))):
            program.loop.at(program.t_start_ns + task["start_ns"], self._next)
        self.running = len(self.waiting)

    def _next(self) -> None:
        flow, ip, sport, size = self.waiting.popleft()
        Sending(self.program, flow, None, (ip, sport), size, self._ended).begin()

    def _ended(self) -> None:
        self.running -= 1
        if self.waiting and not self.program.ended:
            self._next()
        if self.running == 0:
            self.program.open -= 1


class Answering:
    """An incast's sender: a standing connection that answers each byte with a block."""

    def __init__(self, program: Program, peer: tuple[str, int], block: int, workload: int) -> None:
        self.program, self.block, self.workload = program, block, workload
        self.connection = Connection(program, peer)
        self.connected = False
        self.error: str | None = None
        program.open += 1
        program.at_last.append(self._cut_off)
        self.connection.connect(self._on_event)

    def _on_event(self, events: int) -> None:
        sock = self.connection.sock
        assert sock is not None
        if error := self.connection.failure(events):
            self.error = error
            self._close(error)
            return
        if not self.connected:
            self.connected = True
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.program.loop.change(sock.fileno(), select.EPOLLIN)
        elif self.connection.left:
            if error := self.connection.write():
                self._close(error)
        elif events & select.EPOLLIN:
            if not sock.recv(1):
                self._close(None)
                return
            self.connection.left = self.block
            self.program.loop.change(sock.fileno(), select.EPOLLOUT)

    def _record(self, error: str | None) -> None:
        self.program.rows.append(
            {
                "side": "answer",
                "workload": self.workload,
                "error": error,
                **self.connection.facts(),
            }
        )

    def _close(self, error: str | None) -> None:
        self._record(None if self.program.ended else error)
        self.connection.close()
        self.program.open -= 1

    def _cut_off(self) -> None:
        if self.connection.sock is not None:
            self._record(None)
            self.connection.close(reset=True)


class Rounds:
    """An incast's receiver. It asks all senders at once, and again when all blocks have come."""

    def __init__(self, program: Program, task: dict[str, Any]) -> None:
        self.program = program
        self.start_ns: int = task["start_ns"]
        self.block: int = task["block"]
        self.rounds: list[list[int]] = task["rounds"]
        self.peers = [(ip, sport) for ip, sport in task["senders"]]
        self.sockets: dict[tuple[str, int], socket.socket] = {}
        self.left: dict[tuple[str, int], int] = {}
        self.round = -1
        self.asked_ns = 0
        program.open += 1
        program.at_end.append(self._cut_off)

    def connected(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        self.sockets[peer] = sock
        self.program.loop.watch(sock.fileno(), select.EPOLLIN, lambda _events: self._on_event(peer))

    def begin(self) -> None:
        missing = [peer for peer in self.peers if peer not in self.sockets]
        if missing:
            raise RuntimeError(f"{missing[0][0]} had not connected when the first round began")
        self._ask()

    def _ask(self) -> None:
        self.round += 1
        self.asked_ns = time.time_ns()
        for peer in self.peers:
            self.left[peer] = self.block
        for peer in self.peers:
            self.sockets[peer].send(b"?")

    def _flow(self, peer: tuple[str, int]) -> int:
        return self.rounds[self.round][self.peers.index(peer)]

    def _on_event(self, peer: tuple[str, int]) -> None:
        sock = self.sockets[peer]
        try:
            got = sock.recv_into(_SINK, _CHUNK_BYTES, socket.MSG_TRUNC)
        except BlockingIOError:
            return
        if got == 0:
            raise RuntimeError(f"{peer[0]} closed its connection during the rounds")
        self.left[peer] -= got
        if self.left[peer] > 0:
            return
        self._record(self._flow(peer), time.time_ns(), self.block)
        if any(self.left.values()):
            return
        if self.round + 1 < len(self.rounds):
            self._ask()
        else:
            for connection in self.sockets.values():
                self.program.loop.forget(connection.fileno())
                connection.close()
            self.sockets.clear()
            self.program.open -= 1

    def _record(self, flow: int, t_end_ns: int | None, received: int) -> None:
        row = receipt(flow, t_end_ns, received)
        self.program.rows.append({**row, "t_asked": self.asked_ns})

    def _cut_off(self) -> None:
        for peer in self.peers if self.sockets and self.round >= 0 else []:
            if self.left[peer]:
                self._record(self._flow(peer), None, self.block - self.left[peer])
        for connection in self.sockets.values():
            self.program.loop.forget(connection.fileno())
            abort(connection)


class Stream:
    """Sends datagrams at a constant rate, by the kernel's periodic timer."""

    def __init__(
        self,
        program: Program,
        flow: int,
        start_ns: int,
        end_ns: int,
        ip: str,
        sport: int,
        datagram: int,
        gap_ns: int,
    ) -> None:
        self.program, self.flow = program, flow
        self.payload = _ZEROS[:datagram]
        self.left = -(-(end_ns - start_ns) // gap_ns)
        self.sent = self.refused = 0
        self.begun_ns: int | None = None
        self.planned_ns = program.t_start_ns + start_ns
        self.sock = open_socket(socket.SOCK_DGRAM, ip)
        mark(self.sock, program.tos(sport))
        self.sock.bind((program.own_ip(ip), sport))
        self.sock.connect((ip, program.task["udp_port"]))
        self.timer = Timer()
        self.timer.set(self.planned_ns, gap_ns)
        self.open = True
        program.open += 1
        program.loop.watch(self.timer.descriptor, select.EPOLLIN, self._on_event)
        program.at_end.append(self._close)

    def _on_event(self, _events: int) -> None:
        count = min(self.timer.expirations(), self.left)
        if self.begun_ns is None:
            self.begun_ns = time.time_ns()
        for _ in range(count):
            try:
                self.sock.send(self.payload)
                self.sent += 1
            except (BlockingIOError, ConnectionRefusedError):
                self.refused += 1
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self.refused += 1
        self.left -= count
        if self.left == 0:
            self._close()

    def _close(self) -> None:
        if not self.open:
            return
        self.open = False
        self.program.loop.forget(self.timer.descriptor)
        self.timer.close()
        self.sock.close()
        self.program.open -= 1
        self.program.rows.append(
            {
                "side": "send",
                "flow": self.flow,
                "t_planned": self.planned_ns,
                "t_begun": self.begun_ns,
                "datagrams": self.sent,
                "refused": self.refused,
                "error": None,
            }
        )


class Datagrams:
    """Counts the datagrams of each stream until the last of them can have come."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.counts: dict[tuple[str, int], int] = defaultdict(int)
        self.done = False
        self.sockets = [open_socket(socket.SOCK_DGRAM, ip) for ip in program.task["ips"]]
        for sock, ip in zip(self.sockets, program.task["ips"], strict=True):
            sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, DATAGRAM_BUFFER_BYTES)
            sock.bind((ip, program.task["udp_port"]))
        program.open += 1

    def start(self) -> None:
        self.end_ns = self.program.t_start_ns + self.program.task["datagrams_until_ns"]
        self._later(self.program.t_start_ns)

    def _later(self, now_ns: int) -> None:
        self.program.loop.at(min(now_ns + DATAGRAM_POLL_NS, self.end_ns), self._take)

    def _take(self) -> None:
        for sock in self.sockets:
            with contextlib.suppress(BlockingIOError):
                while peer := sock.recvfrom_into(_SINK, 1)[1]:
                    self.counts[peer[0], peer[1]] += 1
        now_ns = time.time_ns()
        if now_ns < self.end_ns:
            self._later(now_ns)
            return
        for flow, ip, sport in self.program.task["datagrams_from"]:
            self.program.rows.append(
                {"side": "receive", "flow": flow, "datagrams": self.counts[ip, sport]}
            )
        self.done = True
        self.program.open -= 1


def await_start(file: str, connect: Callable[[], None]) -> int:
    """Waits for the file with the traffic's start, which appears when all programs are ready.

    If the file that asks for it appears before, `connect` is called once.
    """
    end = time.monotonic() + START_DEADLINE_S
    connected = False
    while not os.path.exists(file):
        if not connected and os.path.exists(file + CONNECT_SUFFIX):
            connected = True
            connect()
            say("connected")
        if time.monotonic() > end:
            raise RuntimeError(f"no start was given within {START_DEADLINE_S:g} s")
        time.sleep(START_POLL_S)
    with open(file, encoding="ascii") as stream:
        return int(stream.read())


def say(word: str) -> None:
    """Writes a line to standard output and flushes it."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main(argv: list[str]) -> int:
    """Runs with the arguments `TASK START RESULT`; see the module."""
    task_file, start_file, result_file = argv
    try:
        with open(task_file, encoding="utf-8") as stream:
            program = Program(json.load(stream))
        say("ready")
        program.start(await_start(start_file, program.connect_now))
        program.loop.run(program.done)
    except (OSError, RuntimeError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    temporary = f"{result_file}.tmp"
    with open(temporary, "w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in program.rows)
    os.replace(temporary, result_file)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
