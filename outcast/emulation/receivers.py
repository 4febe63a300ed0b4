"""Makes receivers read many segments at once.

iperf's server wakes for every segment, reads it and asks for the time twice. At 1 Gbps that is a
quarter of a million system calls per second, and most of the wall time of a run in virtual time.
With SO_RCVLOWAT (socket(7)) on its sockets it wakes when a batch or the end has come.

The sockets are reached from outside through pidfd_getfd(2), so iperf stays as it is. The sender's
TCP does not change: the receiver's kernel acknowledges every second segment as before (RFC 5681,
section 4.2), and its window is smaller by at most a waiting batch.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

from outcast.errors import ReadBackError

BATCH_BYTES = 16 * 1448
"""Sixteen full segments: few enough that a batch is a small part of the window."""

_PIDFD_GETFD = 438
_SOCKET = re.compile(r"socket:\[[0-9]+\]")
_libc = ctypes.CDLL(None, use_errno=True)


def read_in_batches(pids: Iterable[int]) -> int:
    """Makes the connected TCP sockets of these processes wait for a batch.

    Returns:
        How many sockets these are.

    Raises:
        ReadBackError: the kernel shows another low-water mark than was set.
        OSError: the processes' sockets cannot be reached; see pidfd_getfd(2).
    """
    count = 0
    for pid in pids:
        for connection in _connections(pid):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, BATCH_BYTES)
            shown = connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)
            if shown != BATCH_BYTES:
                raise ReadBackError(f"process {pid}", "SO_RCVLOWAT", BATCH_BYTES, shown)
            count += 1
    return count


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
                kind = (ours.family, ours.type, ours.proto)
                if kind == (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP):
                    try:
                        ours.getpeername()
                    except OSError:  # the listening one
                        continue
                    yield ours
    finally:
        os.close(pidfd)
