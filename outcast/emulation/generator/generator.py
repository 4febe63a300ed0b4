"""The program at each host that sends and receives generated flows.

`main` with TASK START RESULT is one process for all flows of a host, in its network namespace. It
uses only the standard library, because in virtual time its start costs most (see `standalone`).

It reads its task from TASK (JSON, see outcast/emulation/generator/tasks.py) and says `ready`
when it listens. It waits for the file START, which has the traffic's start on the common clock.
When all is done or the end has come, it writes a JSON line for each flow and side to RESULT. It
makes its standing connections when the file START.connect appears, and then says `connected`.
Without that file it makes them when the start is given.

A receiver knows from its task how many bytes come from which address and port, so flows carry no
header. At the end the sender resets flows that have not ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from outcast.emulation.generator.loop import (
    SINK,
    ZEROS,
    Loop,
    RandomPayloads,
    Row,
    Timer,
    mark,
    open_socket,
)
from outcast.emulation.generator.transfers import Answering, Receiving, Rounds, Sending, Turns
from outcast.emulation.standalone import await_start, say

CONNECT_SUFFIX = ".connect"
START_POLL_S = 0.01
DATAGRAM_POLL_NS = 10_000_000
"""Datagrams are taken from the socket in batches, because they are only counted."""
DRAIN_NS = 20_000_000
"""How long after the end the program waits for packets that are under way."""
DATAGRAM_BUFFER_BYTES = 32 * 1024 * 1024
_SO_RCVBUFFORCE = 33


class Program:
    """All of a host's flows.

    Attributes:
        rows: the result of each flow and side.
        open: how many of this host's tasks have not ended.
        over: whether flows that were under way at the end have been given up.
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
        self.has_connected = False
        self.datagrams = Datagrams(self) if task["datagrams_from"] else None
        if self.expected or self.askers:
            for ip in task["ips"]:
                self._listen(ip)

    def own_ip(self, peer_ip: str) -> str:
        """The address of this host that has the same family."""
        return str(next(ip for ip in self.task["ips"] if (":" in ip) == (":" in peer_ip)))

    def tos(self, sport: int) -> int:
        """The TOS byte of what is sent from a port; the task has those that are not 0."""
        return int(self.task.get("tos", {}).get(str(sport), 0))

    def random_payloads(self, sport: int) -> RandomPayloads | None:
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
        """Begins the standing connections, unless that was done before."""
        if not self.answering:
            self.answering = [
                Answering(self, (ip, sport), block, workload)
                for ip, sport, block, workload in self.task["answer"]
            ]

    def connect_now(self) -> None:
        """Makes the standing connections. Raises RuntimeError where one fails."""
        self.has_connected = True
        self.connect()
        self.loop.run(lambda: all(peer.connected or peer.error for peer in self.answering))
        for answering in self.answering:
            if answering.error:
                raise RuntimeError(
                    f"connecting to {answering.connection.peer[0]}: {answering.error}"
                )

    def start(self, t_start_ns: int) -> None:
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
            Stream(self, stream)
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
        """Whether connections may be cut off, because another host's program may have ended."""
        return self.ended or time.time_ns() >= self.t_start_ns + self.task["end_ns"]

    def done(self) -> bool:
        waits = self.datagrams is not None and not self.datagrams.done
        return self.open == 0 or (self.over and not waits)


class Stream:
    """Sends datagrams at a constant rate, by the kernel's periodic timer."""

    def __init__(self, program: Program, planned: list[Any]) -> None:
        flow, start_ns, end_ns, ip, sport, datagram, gap_ns = planned
        self.program, self.flow = program, flow
        self.payload = ZEROS[:datagram]
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
                while peer := sock.recvfrom_into(SINK, 1)[1]:
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


def main(argv: list[str]) -> int:
    task_file, start_file, result_file = argv
    try:
        with open(task_file, encoding="utf-8") as stream:
            program = Program(json.load(stream))
        say("ready")

        def connect_once() -> None:
            if not program.has_connected and os.path.exists(start_file + CONNECT_SUFFIX):
                program.connect_now()
                say("connected")

        program.start(await_start(start_file, START_POLL_S, connect_once))
        program.loop.run(program.done)
    except (OSError, RuntimeError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    temporary = f"{result_file}.tmp"
    with open(temporary, "w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in program.rows)
    os.replace(temporary, result_file)
    return 0
