"""TCP's flows in the generator of traffic: alone, in turns, or in the rounds of an incast.

A flow ends when its last byte arrives at the receiver, which knows from its task how many come.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from outcast.emulation.generator.loop import (
    CHUNK_BYTES,
    SINK,
    ZEROS,
    RandomPayloads,
    Row,
    abort,
    mark,
    open_socket,
    tcp_facts,
)

if TYPE_CHECKING:
    from outcast.emulation.generator.generator import Program

_EVENTS_ALWAYS = select.EPOLLERR | select.EPOLLHUP


def receipt(flow: int, t_end_ns: int | None, received: int, error: str | None = None) -> Row:
    """The receiver's row."""
    return {"side": "receive", "flow": flow, "t_end": t_end_ns, "bytes": received, "error": error}


class Receiving:
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
            got = self.sock.recv_into(SINK, CHUNK_BYTES, socket.MSG_TRUNC)
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
        """Writes as much as the socket takes. Returns why it failed, if it did."""
        assert self.sock is not None
        while self.left:
            try:
                if self.payloads is not None:
                    sent = self.payloads.send(self.sock.fileno(), self.left)
                else:
                    sent = self.sock.send(ZEROS[: min(self.left, CHUNK_BYTES)])
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
            {"side": "answer", "workload": self.workload, "error": error, **self.connection.facts()}
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
    """An incast's receiver. It requests a block of each sender, and again when all have come."""

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
            got = sock.recv_into(SINK, CHUNK_BYTES, socket.MSG_TRUNC)
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
