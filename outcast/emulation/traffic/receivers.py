"""The servers that receive flows: who reads their sockets, and their goodput meanwhile."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from outcast.emulation.kernel import sockets
from outcast.emulation.network import multipath
from outcast.errors import ReadBackError
from outcast.experiment import GroupKind
from outcast.plan import grouping
from outcast.plan.flows import families_of
from outcast.plan.model import Plan

TCP_SINK = 20291
_INFO_BYTES, _RECEIVED_AT = 248, 128

_PIDFD_GETFD = 438
_SOCKET = re.compile(r"socket:\[[0-9]+\]")
_libc = ctypes.CDLL(None, use_errno=True)


def read_at_once(pids: Iterable[int]) -> int:
    """Makes the guest's kernel read the connected TCP sockets of these processes (TCP_SINK).

    Returns how many sockets these are; 0 where the kernel has no such option.

    Raises ReadBackError: the kernel shows that it does not read a socket.
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
    """Duplicates a process's connected TCP sockets (pidfd_getfd(2)), one open at a time."""
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


class Goodput:
    """Reports each class's mean goodput since its last report, and each group's by `group_by`."""

    def __init__(self, plan: Plan, group_by: GroupKind | None, netns: Callable[[str], int]) -> None:
        self._plan, self._netns = plan, netns
        self._kind = grouping.chosen(group_by, plan.groups)
        self._received: dict[int, tuple[float, int]] = {}

    def event(self, t_s: float, subflows: multipath.Subflows) -> dict[str, Any]:
        """The event `goodput` of `outcast.emulation.__main__`; rates in bit/s."""
        by_port = {
            sample.peer_port: sample.bytes_received
            for host in sorted({flow.dst for flow in self._plan.flows})
            for sample in sockets.sample_sockets(self._netns(host), families_of(self._plan.flows))
        }
        rates_bps: dict[int, float] = {}
        for flow in self._plan.flows:
            last_t_s, last_bytes = self._received.get(flow.sport, (0.0, 0))
            now_bytes = by_port.get(flow.sport, last_bytes) + sum(
                by_port.get(sport, 0) for sport, *_ in subflows.get(flow.flow, ())
            )
            if t_s > last_t_s:
                rates_bps[flow.flow] = (now_bytes - last_bytes) * 8 / (t_s - last_t_s)
            self._received[flow.sport] = (t_s, now_bytes)
        classes = self._means("hops", rates_bps)
        event = {"event": "goodput", "t_s": round(t_s, 3), "classes": classes}
        if self._kind != "hops":
            event["groups"] = self._means(self._kind, rates_bps)
        return event

    def _means(self, kind: GroupKind, rates_bps: Mapping[int, float]) -> dict[str, int]:
        means = {}
        for label, flows in self._plan.groups[kind].items():
            mine = [rates_bps[flow.flow] for flow in flows if flow.flow in rates_bps]
            if mine:
                key = label.removesuffix("-hop") if kind == "hops" else label
                means[key] = round(sum(mine) / len(mine))
        return means
