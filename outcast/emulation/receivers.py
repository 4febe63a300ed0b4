"""Makes receivers read at once, without a program that wakes for every segment.

iperf's server wakes for every segment, reads it and asks for the time twice. At 1 Gbps that is a
quarter of a million system calls per second, and most of the wall time of a run in virtual time.
The guest's kernel reads such a socket itself (TCP_SINK, patch 0017), as soon as data is there. So
TCP sees a program that always reads at once, with nothing that waits in its buffer.

A low-water mark (SO_RCVLOWAT) also saves wake-ups, but it spoils the receive window: the kernel
tunes it by what a program reads within a round trip (tcp_rcv_space_adjust in net/ipv4/tcp_input.c).

iperf's server looks for a header among the first bytes. So a socket that has not received any yet
is left to the program.

The sockets are reached from outside through pidfd_getfd(2), so iperf stays as it is. Other kernels
do not know the option, and there the program reads.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import socket
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from outcast.errors import ReadBackError

TCP_SINK = 20291
_INFO_BYTES, _RECEIVED_AT = 248, 128

_PIDFD_GETFD = 438
_SOCKET = re.compile(r"socket:\[[0-9]+\]")
_libc = ctypes.CDLL(None, use_errno=True)


def read_at_once(pids: Iterable[int]) -> int:
    """Makes the kernel read the connected TCP sockets of these processes, if it can.

    Returns how many sockets these are; 0 where the kernel has no such option.

    Raises:
        ReadBackError: the kernel shows that it does not read a socket.
        OSError: the processes' sockets cannot be reached; see pidfd_getfd(2).
    """
    count = 0
    for pid in pids:
        for connection in _connections(pid):
            if not _bytes_received(connection):
                continue
            try:
                connection.setsockopt(socket.IPPROTO_TCP, TCP_SINK, 1)
            except OSError as error:
                if error.errno == errno.ENOPROTOOPT:
                    return 0
                raise
            if not connection.getsockopt(socket.IPPROTO_TCP, TCP_SINK):
                raise ReadBackError(f"process {pid}", "TCP_SINK", "on", "off")
            count += 1
    return count


def _bytes_received(connection: socket.socket) -> int:
    """The bytes that have come so far (tcpi_bytes_received of struct tcp_info in linux/tcp.h)."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    return int.from_bytes(info[_RECEIVED_AT : _RECEIVED_AT + 8], sys.byteorder)


def _connections(pid: int) -> Iterator[socket.socket]:
    """Our own descriptors of a process's connected TCP sockets; each is closed after its turn."""
    pidfd = os.pidfd_open(pid)
    try:
        for path in sorted(Path(f"/proc/{pid}/fd").iterdir(), key=lambda path: int(path.name)):
            if not _SOCKET.fullmatch(os.readlink(path)):
                continue
            descriptor = _libc.syscall(_PIDFD_GETFD, pidfd, int(path.name), 0)
            if descriptor < 0:
                number = ctypes.get_errno()
                raise OSError(number, f"descriptor {path.name} of {pid}: {os.strerror(number)}")
            with socket.socket(fileno=descriptor) as ours:
                is_tcp = (ours.type, ours.proto) == (socket.SOCK_STREAM, socket.IPPROTO_TCP)
                if is_tcp and ours.family in (socket.AF_INET, socket.AF_INET6):
                    try:
                        ours.getpeername()
                    except OSError:  # the listening one
                        continue
                    yield ours
    finally:
        os.close(pidfd)
