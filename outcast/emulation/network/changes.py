"""Makes the planned changes of a run, each at its time and by netlink, and reads each back.

A thread waits for each change's time on the run's clock. It starts no program, so a change takes
microseconds in the virtual engine, and is late in real time only where the machine is.
"""

from __future__ import annotations

import ctypes
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from outcast import netlink
from outcast.emulation.commands import entered
from outcast.emulation.kernel.rtnetlink import LINK_MESSAGE
from outcast.emulation.kernel.sampling import NetlinkSocket
from outcast.emulation.network import lossy_links
from outcast.emulation.part import Context, Record, ThreadPart
from outcast.emulation.queues import netem, port_checks, reconfigure
from outcast.errors import ReadBackError, RunError
from outcast.experiment.links import Link, Policer
from outcast.plan import events
from outcast.plan.events import Change, PortTrace
from outcast.plan.ports import PortQueue
from outcast.records.counters import PortRates, Rates
from outcast.records.effective import AppliedChange

LATE_NS = 5 * 10**6
"""A change that came later than this is named in the run's warnings."""
MOST_LATE_NS = 250 * 10**6
"""A change that came later than this ends the run, because it measured another experiment."""
_IFF_UP = 1
_HEADER_BYTES = 16
_PR_SET_TIMERSLACK = 29
_REMEDY = "less load on this machine, or the virtual engine, keeps their times"
_libc = ctypes.CDLL(None, use_errno=True)


class NetlinkKernel:
    """The kernel, by a netlink socket in each namespace that has a port to change."""

    def __init__(self, ports: Mapping[str, str], netns: Callable[[str], int | None]) -> None:
        """`ports` has the node of each port."""
        self._sockets: dict[int | None, NetlinkSocket] = {}
        self._places: dict[str, tuple[NetlinkSocket, int]] = {}
        for port, node in ports.items():
            namespace = netns(node)
            if namespace not in self._sockets:
                self._sockets[namespace] = NetlinkSocket(socket.NETLINK_ROUTE, namespace)
            with entered(namespace):
                index = socket.if_nametoindex(port)
            self._places[port] = (self._sockets[namespace], index)

    def apply(self, change: Change) -> int:
        """Makes a change; returns the value that the kernel then shows."""
        netlink_socket, index = self._places[change.port]
        try:
            if change.what == "up":
                return self._set_up(netlink_socket, index, change)
            if change.what == "policer_bps" and change.link is not None and change.link.policer:
                return self._set_policer(str(change.wire), change.link.policer)
            if change.link is not None:
                return self._set_faults(change, change.link)
            for request in reconfigure.requests(index, change.before, change.after):
                netlink_socket.do(request)
            questions = reconfigure.questions(index, change.after)
            answers = [netlink_socket.do(question) for question in questions]
        except OSError as error:
            raise RunError(f"{change.port}: {change.what}: {error.strerror}") from None
        effective = port_checks.read_back(change.after, reconfigure.decoded(answers))
        added_ns = change.after.noise_ns if change.what == "delay_ns" else 0
        return int(effective[change.what]) - added_ns

    def set_rate(self, port: PortQueue) -> int:
        """Gives a port with an htb class its rate. Returns as `apply`."""
        netlink_socket, index = self._places[port.port]
        request = reconfigure.rate_request(index, port, echo=True)
        try:
            shown_bps = reconfigure.shown_rate_bps(netlink_socket.do(request))
        except OSError as error:
            raise RunError(f"{port.port}: rate_bps: {error.strerror}") from None
        if shown_bps != port.rate_bps:
            raise ReadBackError(port.port, "rate_bps", port.rate_bps, shown_bps)
        return shown_bps

    def _set_faults(self, change: Change, link: Link) -> int:
        netlink_socket, index = self._places[str(change.wire)]
        loss = netem.Loss.of(link, change.seed)
        request, question = reconfigure.loss_requests(index, loss)
        netlink_socket.do(request)
        netem.check_loss(change.port, loss, reconfigure.shown_options(netlink_socket.do(question)))
        return change.value

    def _set_policer(self, wire: str, policer: Policer) -> int:
        netlink_socket, _ = self._places[wire]
        request, question = reconfigure.policer_requests(lossy_links.policer_index(wire), policer)
        netlink_socket.do(request)
        return reconfigure.checked_policer(wire, policer, netlink_socket.do(question))[0]

    def _set_up(self, netlink_socket: NetlinkSocket, index: int, change: Change) -> int:
        flags = _IFF_UP if change.value else 0
        body = LINK_MESSAGE.pack(socket.AF_UNSPEC, 0, index, flags, _IFF_UP)
        acknowledged = netlink.REQUEST | netlink.ACK
        netlink_socket.do(netlink.message(netlink.RTM_NEWLINK, acknowledged, 1, body))
        body = LINK_MESSAGE.pack(socket.AF_UNSPEC, 0, index, 0, 0)
        question = netlink.message(netlink.RTM_GETLINK, netlink.REQUEST, 1, body)
        read_back = LINK_MESSAGE.unpack_from(netlink_socket.do(question), _HEADER_BYTES)[3]
        is_up = int(bool(read_back & _IFF_UP))
        if is_up != change.value:
            raise ReadBackError(change.port, "interface up", change.value, is_up)
        return is_up

    def close(self) -> None:
        for netlink_socket in self._sockets.values():
            netlink_socket.close()


def changer(run: Context) -> Changer:
    experiment, plan = run.experiment, run.plan

    def namespace(node: str) -> int | None:
        return run.place(node) if node in plan.graph else None

    planned, traces = events.changes(experiment, plan), events.port_traces(experiment, plan)
    nodes = {change.port: change.node for change in planned}
    # A link's inner ends are where the switches are.
    nodes |= {change.wire: change.wire for change in planned if change.wire is not None}
    nodes |= {trace.port.port: trace.node for trace in traces}
    return Changer(planned, traces, NetlinkKernel(nodes, namespace), run.directory.write_rates)


class _Player:
    """Gives one port the rates of a trace."""

    def __init__(self, planned: PortTrace) -> None:
        self._planned = planned
        self._set: list[tuple[int, int]] = []
        self._next = self._latest_ns = self._skipped = 0

    def rates(self) -> PortRates:
        return PortRates(
            port=self._planned.port.port,
            trace=self._planned.trace,
            t_ns=[t_ns for t_ns, _ in self._set],
            rate_bps=[rate_bps for _, rate_bps in self._set],
            latest_ns=self._latest_ns,
            skipped=self._skipped,
        )

    @property
    def due_ns(self) -> int | None:
        """When the next rate is due, after the traffic's start; None after the last one."""
        steps_ns = self._planned.t_ns
        return steps_ns[self._next] if self._next < len(steps_ns) else None

    def play(self, kernel: NetlinkKernel, now_ns: Callable[[], int]) -> None:
        """Sets the rate that is due. Rates whose time is over are left out."""
        times, began_ns = self._planned.t_ns, now_ns()
        while self._next + 1 < len(times) and times[self._next + 1] <= began_ns:
            self._next += 1
            self._skipped += 1
        port = replace(self._planned.port, rate_bps=self._planned.rate_bps[self._next])
        shown_bps = kernel.set_rate(port)
        set_ns = now_ns()
        self._set.append((set_ns, shown_bps))
        self._latest_ns = max(self._latest_ns, set_ns - times[self._next])
        self._next += 1


class Changer(ThreadPart):
    """Makes the changes from `start` until `finish`; those that are due later are not made."""

    def __init__(
        self,
        changes: Sequence[Change],
        traces: Sequence[PortTrace],
        kernel: NetlinkKernel,
        keep_rates: Callable[[Rates], None] = lambda rates: None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        last = "the last change of a link or queue"
        super().__init__("changes", "changing links and queues", last)
        self._changes = list(changes)
        self._players = [_Player(trace) for trace in traces]
        self._kernel = kernel
        self._keep_rates = keep_rates
        self._t_start_ns = 0
        self._now_ns = now_ns
        self._applied: list[AppliedChange] = []

    def __exit__(self, *_error: object) -> None:
        self._stopped.set()
        self._kernel.close()

    def start(self, t_start_ns: int) -> None:
        self._t_start_ns = t_start_ns
        self._thread.start()

    def finish(self) -> Record:
        self.stop()
        if self._players:
            self._keep_rates(self.rates())
        return Record({"changes": list(self.applied())}, warnings=self.warnings())

    def applied(self) -> tuple[AppliedChange, ...]:
        """Every planned change, and when it was made and read back."""
        remaining = self._changes[len(self._applied) :]
        return (*self._applied, *(_record(change, None, None) for change in remaining))

    def warnings(self) -> list[str]:
        """A line for changes that came late, and one for changes that were not made."""
        lines = []
        all_late_ns = [(change.applied_ns or 0) - change.at_ns for change in self._applied]
        if late_ns := [each for each in all_late_ns if each > LATE_NS]:
            lines.append(
                f"{len(late_ns)} of {len(self._changes)} changes of links and queues came late, "
                f"the latest by {max(late_ns) / 1e6:.1f} ms; {_REMEDY}"
            )
        lines += [
            f"{trace.port}: {trace.skipped} of {trace.skipped + len(trace.t_ns)} rates of "
            f"{trace.trace} came too late to be set, and one {trace.latest_ns / 1e6:.1f} ms late; "
            f"{_REMEDY}"
            for trace in self.rates().ports
            if trace.skipped or trace.latest_ns > LATE_NS
        ]
        remaining = self._changes[len(self._applied) :]
        if remaining:
            lines.append(
                f"events.{remaining[0].event} at {remaining[0].at_ns / 1e9:g} s was not reached, "
                "because all flows had ended before"
            )
        return lines

    def rates(self) -> Rates:
        return Rates(ports=[player.rates() for player in self._players])

    def _since_start_ns(self) -> int:
        return self._now_ns() - self._t_start_ns

    def work(self) -> None:
        wake_on_time()
        while step := self._next_step():
            at_ns, make = step
            if not self._awaited(at_ns):
                return
            make()

    def _next_step(self) -> tuple[int, Callable[[], None]] | None:
        """When the next change or rate is due, and what makes it. Changes go first."""
        steps: list[tuple[int, Callable[[], None]]] = [
            (change.at_ns, partial(self._apply, change))
            for change in self._changes[len(self._applied) :][:1]
        ]
        steps += [
            (player.due_ns, partial(player.play, self._kernel, self._since_start_ns))
            for player in self._players
            if player.due_ns is not None
        ]
        return min(steps, key=lambda step: step[0], default=None)

    def _awaited(self, at_ns: int) -> bool:
        """Waits for a time after the traffic's start; False if the block has ended before."""
        while (left_ns := at_ns - self._since_start_ns()) > 0:
            if self._stopped.wait(left_ns / 1e9):
                return False
        return True

    def _apply(self, change: Change) -> None:
        read_back = self._kernel.apply(change)
        applied_ns = self._since_start_ns()
        if applied_ns - change.at_ns > MOST_LATE_NS:
            raise RunError(
                f"{change.port}: {change.what} changed "
                f"{(applied_ns - change.at_ns) / 1e6:.0f} ms after its time of "
                f"{change.at_ns / 1e9:g} s; allowed are {MOST_LATE_NS // 10**6} ms: less load on "
                "this machine, or the virtual engine, keeps the time"
            )
        self._applied.append(_record(change, applied_ns, read_back))


def wake_on_time() -> None:
    """Makes this thread's waits end on time; by default they may take 50 us longer (prctl(2))."""
    _libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)


def _record(change: Change, applied_ns: int | None, read_back: int | None) -> AppliedChange:
    where = (change.node, change.neighbour, change.port, change.what)
    return AppliedChange(change.event, change.at_ns, applied_ns, *where, change.value, read_back)
