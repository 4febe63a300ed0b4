"""Samples every flow's sending socket and every captured output queue while flows run.

Each socket and qdisc has a netlink request of its own (sock_diag(7), rtnetlink(7)). The answers are
stored as they come, and `outcast.analysis` decodes them. A thread takes a sample when it is due and
notes when it began. The manifest says how long the longest took, and how many came too late.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from outcast import netlink
from outcast.emulation.commands import entered
from outcast.emulation.kernel import rtnetlink
from outcast.emulation.kernel.sockets import (
    INET_DIAG_INFO,
    INET_DIAG_VEGASINFO,
    NETLINK_SOCK_DIAG,
    SOCK_DIAG_BY_FAMILY,
    inet_diag_request,
)
from outcast.emulation.part import Context, Record, ThreadPart
from outcast.plan.flows import Flow
from outcast.records.effective import Sampling
from outcast.records.queue_statistics import QUEUE_HANDLE, SHAPER_HANDLE
from outcast.records.samples import PORTS_FILE, SOCKETS_FILE, Sample, SamplesWriter

_EXTENSIONS = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_VEGASINFO - 1)
"""struct tcp_info, and the congestion control's own state where it shows that (DCTCP, BBR)."""
_ALL_STATES = 0xFFFFFFFF
_ANSWER_BYTES = 16 * 1024
ANSWERS_AT_ONCE = 64
"""Requests that are sent before an answer is read; see `_questions`."""


def socket_request(sequence: int, flow: Flow) -> bytes:
    """The request for a flow's sending socket, in any state."""
    family = rtnetlink.family_of(flow.src_ip)
    body = inet_diag_request(
        _EXTENSIONS,
        _ALL_STATES,
        ports=(flow.sport, flow.dport),
        addresses=b"".join(
            rtnetlink.packed(address).ljust(16, b"\0") for address in (flow.src_ip, flow.dst_ip)
        ),
        family=family,
    )
    return netlink.message(SOCK_DIAG_BY_FAMILY, netlink.REQUEST, sequence, body)


class NetlinkSocket:
    """A netlink socket in a network namespace; None is the present one."""

    def __init__(self, protocol: int, netns: int | None) -> None:
        with entered(netns):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        self._socket.bind((0, 0))

    def ask(self, requests: bytes, count: int) -> list[bytes]:
        """The answer to each request. It never waits: the kernel has answered when `send` returns.

        Raises OSError: an answer is missing.
        """
        self._socket.send(requests)
        return [self._socket.recv(_ANSWER_BYTES, socket.MSG_DONTWAIT) for _ in range(count)]

    def do(self, request: bytes) -> bytes:
        """The answer to a request. Raises OSError where the kernel refuses."""
        (answer,) = self.ask(request, 1)
        if number := netlink.refusal(answer):
            raise OSError(number, os.strerror(number))
        return answer

    def close(self) -> None:
        self._socket.close()


@dataclass(frozen=True)
class Question:
    """The requests that one netlink socket sends at once, one for each source."""

    netlink: NetlinkSocket
    requests: bytes
    sources: tuple[int, ...]


def _questions(connection: NetlinkSocket, requests: Sequence[tuple[int, bytes]]) -> list[Question]:
    """Splits requests, each beside its source, into questions.

    The kernel gives all answers before any is read. A socket's buffer holds some hundred answers,
    and those that do not fit are lost (ENOBUFS, netlink(7)).
    """
    return [
        Question(connection, b"".join(r for _, r in part), tuple(source for source, _ in part))
        for first in range(0, len(requests), ANSWERS_AT_ONCE)
        if (part := requests[first : first + ANSWERS_AT_ONCE])
    ]


def socket_questions(flows: Sequence[Flow], netns: Callable[[str], int]) -> list[Question]:
    """Questions for every sending host; the sources are the indices of the flows."""
    by_host: dict[str, list[int]] = {}
    for index, flow in enumerate(flows):
        by_host.setdefault(flow.src, []).append(index)
    return [
        question
        for host, mine in sorted(by_host.items())
        for question in _questions(
            NetlinkSocket(NETLINK_SOCK_DIAG, netns(host)),
            [(index, socket_request(index, flows[index])) for index in mine],
        )
    ]


def queue_questions(ports: Sequence[str], place: Callable[[str], int | None]) -> list[Question]:
    """Questions for the shaper and the queue of every port; `place` gives its namespace."""
    questions = []
    for netns in dict.fromkeys(map(place, ports)):
        with entered(netns):
            interfaces = [
                (source, socket.if_nametoindex(port))
                for source, port in enumerate(ports)
                if place(port) == netns
            ]
        of_ports = itertools.product(interfaces, (SHAPER_HANDLE, QUEUE_HANDLE))
        requests = [
            (source, rtnetlink.queue_request(number, interface, handle))
            for number, ((source, interface), handle) in enumerate(of_ports)
        ]
        questions += _questions(NetlinkSocket(socket.NETLINK_ROUTE, netns), requests)
    return questions


@dataclass(frozen=True)
class Series:
    file: str
    sources: tuple[str, ...]
    questions: tuple[Question, ...]


def series_of(run: Context) -> tuple[Series, ...]:
    """Lists what a run samples: every flow's sending socket, and every captured output port."""
    plan = run.plan
    ports = sorted({port for port, direction in plan.capture_ports if direction == "out"})
    of_flows = socket_questions(plan.flows, run.netns)
    of_ports = queue_questions(ports, lambda port: run.place(plan.ends[port][0]))
    return (
        Series(SOCKETS_FILE, tuple(str(flow.flow) for flow in plan.flows), tuple(of_flows)),
        Series(PORTS_FILE, tuple(ports), tuple(of_ports)),
    )


class Sampler(ThreadPart):
    """Takes samples from `start` until `finish`; counts as in records.effective.Sampling."""

    def __init__(
        self,
        folder: Path,
        series: Sequence[Series],
        every_ns: int,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        last = "the last sample of sockets and queues"
        super().__init__("samples", "sampling sockets and queues", last)
        self._folder = folder
        self._series = [file for file in series if file.questions]
        self._t_start_ns = 0
        self._every_ns = every_ns
        self._now_ns = now_ns
        self.taken = self.missed = self.longest_ns = 0

    def __exit__(self, *_error: object) -> None:
        self._stopped.set()
        for series in self._series:
            for question in series.questions:
                question.netlink.close()

    def start(self, t_start_ns: int) -> None:
        self._t_start_ns = t_start_ns
        if self._every_ns and self._series:
            self._folder.mkdir(exist_ok=True)
            self._thread.start()

    def finish(self) -> Record:
        self.stop()
        taken = Sampling(self._every_ns, self.taken, self.missed, self.longest_ns)
        return Record(effective={"sampling": taken})

    def work(self) -> None:
        with contextlib.ExitStack() as files:
            writers = [
                files.enter_context(
                    SamplesWriter(self._folder / series.file, self._every_ns, series.sources)
                )
                for series in self._series
            ]
            due_ns = self._t_start_ns
            while not self._stopped.wait(max(0, due_ns - self._now_ns()) / 1e9):
                began_ns = self._now_ns()
                for series, writer in zip(self._series, writers, strict=True):
                    for question in series.questions:
                        writer.write(answers(question, began_ns))
                self.taken += 1
                ended_ns = self._now_ns()
                self.longest_ns = max(self.longest_ns, ended_ns - began_ns)
                passed = max(1, -(-(ended_ns - due_ns) // self._every_ns))
                self.missed += passed - 1
                due_ns += passed * self._every_ns


def answers(question: Question, t_ns: int) -> list[Sample]:
    """Pairs the kernel's answers with their sources. A socket that is gone has no answer.

    Raises OSError: the kernel refused a request or gave no answer.
    """
    samples = []
    messages = question.netlink.ask(question.requests, len(question.sources))
    for source, message in zip(question.sources, messages, strict=True):
        number = netlink.refusal(message)
        if number is None:
            samples.append(Sample(t_ns, source, message))
            continue
        if number != errno.ENOENT:
            raise OSError(number, os.strerror(number))
    return samples
