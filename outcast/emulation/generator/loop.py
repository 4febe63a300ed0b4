"""Waits for sockets and times in one thread, and sets sockets up, for the generator of traffic."""

from __future__ import annotations

import contextlib
import ctypes
import heapq
import os
import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

CHUNK_BYTES = 256 * 1024
ZEROS = memoryview(bytes(CHUNK_BYTES))
SINK = bytearray(CHUNK_BYTES)
"""The payload of all flows, and a buffer for payloads that are only counted."""
_TCP_INFO_BYTES = 280
_TFD_NONBLOCK, _TFD_ABSTIME = 0o4000, 1
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
        try:
            return int(struct.unpack("@Q", os.read(self.descriptor, 8))[0])
        except BlockingIOError:
            return 0

    def close(self) -> None:
        os.close(self.descriptor)


class Loop:
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
    if (effective := sock.getsockopt(*where)) != tos:
        raise RuntimeError(f"TOS byte: requested {tos}, the kernel shows {effective}")


def open_socket(kind: int, peer_ip: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in peer_ip else socket.AF_INET
    return socket.socket(family, kind | socket.SOCK_NONBLOCK)


def abort(sock: socket.socket) -> None:
    """Closes a socket with a reset, so that nothing more is sent."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def tcp_facts(sock: socket.socket) -> Row:
    """A sending socket's counts and congestion control (tcp(7), TCP_INFO; linux/tcp.h)."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    control = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    (retransmits,) = struct.unpack_from("=I", info, 100)
    timeouts = struct.unpack_from("=H", info, 240)[0] if len(info) >= 248 else None
    return {
        "congestion_control": control.split(b"\0")[0].decode(),
        "retransmits": retransmits,
        "timeouts": timeouts,
    }


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
        """Sends some of the remaining bytes on a connected socket."""
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
