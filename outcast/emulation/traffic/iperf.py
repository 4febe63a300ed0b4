"""The flows: iperf (version 2) at both ends, connected first and then started together.

Every client connects at once and waits for its start. In real time the start is set when all have
connected, however long that takes; iperf gets it through senders/held_start.c. Under virtual time
computing takes no time, so the start is set beforehand on iperf's command line (`--txstart-time`),
and a client that has not connected by then is an error. `outcast.emulation.senders` sends what
iperf cannot send. Each flow has its own source port, by which flows differ in captures and sockets.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from outcast.emulation import c_programs, senders
from outcast.emulation.commands import Process, SystemCommands, wait_until
from outcast.emulation.kernel import sockets
from outcast.emulation.kernel.sockets import SocketSample, listens, sample_sockets
from outcast.emulation.network import multipath
from outcast.emulation.network.multipath import Subflows
from outcast.emulation.part import Context, Part, Record
from outcast.errors import DeadlineError, ReadBackError, RunError, gist
from outcast.experiment import GroupKind
from outcast.plan import events, grouping, ports
from outcast.plan.flows import Flow, families_of
from outcast.plan.model import Plan

SERVER_DEADLINE_S = 60.0
CONNECT_DEADLINE_S = 240.0
"""How long connecting may take if the start is set afterwards; a slow machine needs seconds."""
LEAST_NOTICE_S = 0.4
MOST_NOTICE_S = 5.0
NOTICE_SHARE = 0.25
"""Clients learn the start in advance, by this share of the time that connecting took, within the
two bounds. A machine that was slow at connecting is slow at this too."""
LEAD_S = 0.5
"""The time for connecting, if the start is set beforehand."""
LEAD_PER_FLOW_S = 0.02
LEAD_ROUND_TRIPS = 5
"""The least time to connect, in round trips. A subflow of Multipath TCP needs three and a half."""
SYN_RETRIES = 6
"""How often Linux sends a SYN again: net.ipv4.tcp_syn_retries.

The first pause is of one second, and each is twice the one before (RFC 6298, sections 2.1, 5.5).
"""
END_GRACE_S = 150.0
"""How long after its time a flow may take to deliver the data that its socket still holds.

A flow that was starved to the end tries again only at its timeout, which doubles up to two minutes
(TCP_RTO_MAX). The run with the strongest effect must not fail for that.
"""
SERVER_END_S = 10.0
SAMPLE_PAUSE_S = 0.25


@dataclass
class Flows(Part):
    """Servers and clients of all flows. The servers listen while the block lasts.

    Attributes:
        held_start: the library to preload into iperf, if `start_afterwards`.
        start_afterwards: whether the start is set when all have connected, not beforehand.
        syn_rounds: how many times a flow may have to send its SYN, because queues drop it.
        cut_off: flows whose clients are ended after `duration_ns`, because a link that is down
            keeps their packets.
    """

    flows: Sequence[Flow]
    netns: Callable[[str], int]
    logs: Path
    commands: SystemCommands
    stream: Path | None = None
    held_start: Path | None = None
    seed: int = 0
    start_afterwards: bool = False
    syn_rounds: int = 1
    cut_off: Collection[int] = ()
    duration_ns: int = 0
    clients: dict[int, Process] = field(default_factory=dict)
    subflows: Subflows = field(default_factory=dict)
    _began_ns: int = 0
    _connect_ns: int = 0
    _deadline_ns: int = 0
    _over_ns: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def prepare(self) -> None:
        received: dict[tuple[int, int], list[Flow]] = {}
        for flow in sorted(self.flows, key=lambda flow: (flow.dst, flow.dport)):
            # Interfaces of one host share its server.
            received.setdefault((self.netns(flow.dst), flow.dport), []).append(flow)
        for flows in received.values():
            self.lasting.append(self._serve(flows))

    def _serve(self, flows: Sequence[Flow]) -> Process:
        """Starts the server of flows that share one, and waits until it listens.

        iperf's server takes one connection after the other, and gives each 4 s for its first bytes
        (Listener::apply_client_settings_tcp). stream.c sends none before its start, and an iperf
        client's come late where queues drop them. There stream.c is the server.
        """
        host, port = flows[0].dst, flows[0].dport
        transport, family = flows[-1].transport, flows[-1].family
        environment = None
        if self.stream is not None and (self.syn_rounds > 1 or any(map(senders.sends, flows))):
            argv = senders.receiver_arguments(self.stream, port, transport, family)
        else:
            environment = self._preloaded("server")
            argv = ["iperf", "-s", "-p", str(port), "-f", "b", "-Z", transport.congestion_control]
        server = self.commands.spawn(
            f"the {Path(argv[0]).name} server at {host}",
            argv,
            netns=self.netns(host),
            stdout=self.logs / f"server.{host}.{port}.out",
            stderr=self.logs / f"server.{host}.{port}.err",
            environment=environment,
        )

        def is_ready() -> bool:
            server.require_alive()
            return listens(self.netns(host), port, family)

        what = f"{server.name} to listen"
        wait_until(is_ready, what, SERVER_DEADLINE_S, detail=server.errors)
        return server

    def connect(self, round_trip_ns: int = 0) -> None:
        """Starts every client and waits until all are connected; none sends yet.

        Raises RunError: a flow has not connected by its start, or within CONNECT_DEADLINE_S.
        """
        self._began_ns = time.time_ns()
        patience_s = CONNECT_DEADLINE_S
        if not self.start_afterwards:
            patience_s = lead_s(len(self.flows), round_trip_ns, self.syn_rounds)
        self._deadline_ns = self._began_ns + int(patience_s * 1e9)
        for flow in self.flows:
            argv, environment = self._client(flow)
            client = self.commands.spawn(
                f"the client of flow {flow.flow} at {flow.src}",
                argv,
                netns=self.netns(flow.src),
                stdout=self.logs / f"client.{flow.flow}.out",
                stderr=self.logs / f"client.{flow.flow}.err",
                environment=environment,
                hears=self.start_afterwards,
            )
            self.clients[flow.flow] = client
            self.ending.append(client)
        self._await_connected()
        self.subflows = multipath.await_subflows(self.flows, self._sample, self._deadline_ns)
        self._connect_ns = time.time_ns() - self._began_ns

    def _client(self, flow: Flow) -> tuple[list[str], dict[str, str] | None]:
        if self.stream is not None and senders.sends(flow):
            t_start_ns = None if self.start_afterwards else self._deadline_ns
            return senders.sender_arguments(self.stream, flow, self.seed, t_start_ns), None
        # iperf needs a start in any case. If it gets another one, it ignores this one.
        return client_arguments(flow, self._deadline_ns), self._preloaded("client")

    def _preloaded(self, side: Literal["client", "server"]) -> dict[str, str] | None:
        """Variables for iperf's environment; see senders/held_start.c."""
        if self.held_start is None:
            return None
        return {"LD_PRELOAD": str(self.held_start), "OUTCAST_IPERF": side}

    def _sample(self, host: str) -> list[SocketSample]:
        return sample_sockets(self.netns(host), families_of(self.flows))

    def _await_connected(self) -> None:
        """Waits until every receiver shows each flow's connection.

        Where the start is set afterwards, each client also has to say that it waits.
        """
        hold, clients = self.start_afterwards, self.clients
        connected: set[int] = set()
        waiting = list(self.flows)
        while waiting and time.time_ns() < self._deadline_ns:
            if hold and any(clients[flow.flow].popen.poll() is not None for flow in waiting):
                break
            time.sleep(0.02)
            connected = {
                sample.peer_port
                for host in sorted({flow.dst for flow in self.flows})
                for sample in self._sample(host)
                if sample.is_established
            }
            waiting = [
                flow
                for flow in self.flows
                if flow.sport not in connected
                or (hold and "ready" not in clients[flow.flow].output().splitlines())
            ]
        if waiting:
            raise self._not_connected(waiting, connected)

    def _not_connected(self, waiting: Sequence[Flow], connected: Collection[int]) -> RunError:
        flow = waiting[0]
        if self.start_afterwards:
            ended = (f for f in waiting if self.clients[f.flow].popen.poll() is not None)
            flow = next(ended, flow)
        process = self.clients[flow.flow]
        said = gist(process.errors())
        if not self.start_afterwards:
            when = "when it was to start"
        elif process.popen.poll() is not None:
            when = f"when its client ended with status {process.popen.returncode}"
            said = said or "it wrote no reason"
        else:
            when = f"within {CONNECT_DEADLINE_S:g} s"
        what = "waited for its start" if flow.sport in connected else "connected"
        return RunError(
            f"flow {flow.flow} ({flow.src} to {flow.dst}) had not {what} {when}"
            f"{said and f': {said}'}"
        )

    def set_start(self) -> tuple[int, dict[str, Any], list[str]]:
        """Sets the common start of clients that have connected, and sends each client its own.

        Returns the epoch time at which flows with start 0 begin, how it came about, and a warning
        if flows got it too late.
        """
        warnings = []
        start_set, notice_s = "beforehand", None
        t_start_ns = self._deadline_ns
        if self.start_afterwards:
            share_s = NOTICE_SHARE * self._connect_ns / 1e9
            notice_s = min(max(share_s, LEAST_NOTICE_S), MOST_NOTICE_S)
            t_start_ns = time.time_ns() + int(notice_s * 1e9)
            for flow in self.flows:
                self.clients[flow.flow].tell(str(t_start_ns + flow.start_ns))
            late_ns = time.time_ns() - t_start_ns
            if late_ns > 0:
                warnings.append(
                    f"the last flow was told of its start {late_ns / 1e6:.1f} ms after it; "
                    "less load on this machine, or the virtual engine, keeps the start"
                )
            start_set = "when all had connected"
        start = {
            "connect_s": round(self._connect_ns / 1e9, 6),
            "start_set": start_set,
            # How long before the start the flows got it.
            "notice_s": None if notice_s is None else round(notice_s, 6),
            "lead_s": round((t_start_ns - self._began_ns) / 1e9, 6),
        }
        return t_start_ns, start, warnings

    def start(self, t_start_ns: int) -> None:
        """Lets the kernel read what comes to the servers (see sockets.read_at_once)."""
        sockets.read_at_once(server.popen.pid for server in self.lasting)
        self._over_ns = t_start_ns + self.duration_ns

    def running(self) -> list[str]:
        """Also ends the clients of flows that are cut off when their time is over."""
        if time.time_ns() >= self._over_ns:
            for number in self.cut_off:
                client = self.clients[number]
                if client.popen.poll() is None:
                    client.end(signal.SIGKILL, SERVER_END_S)
                    self.ending.remove(client)
        return super().running()

    def finish(self) -> Record:
        for flow in self.flows:
            if self.clients[flow.flow] in self.ending:
                check_client(flow, self.clients[flow.flow])
        return Record()

    def end(self) -> None:
        self.require_alive()
        for server in self.lasting:
            try:
                server.end(signal.SIGINT, SERVER_END_S)
            except DeadlineError:
                # At the first interrupt iperf waits ("Interrupt again to force quit").
                server.end(signal.SIGINT, SERVER_END_S)


def flows_of(run: Context) -> Flows:
    flows, afterwards = run.plan.flows, not run.is_virtual
    syn_rounds = ports.rounds_of_handshakes(run.experiment, run.plan)
    stream = held_start = None
    if syn_rounds > 1 or any(senders.sends(flow) for flow in flows):
        stream = c_programs.provide(c_programs.STREAM, run.scratch, run.commands)
    if afterwards and not all(senders.sends(flow) for flow in flows):
        held_start = c_programs.provide(c_programs.HELD_START, run.scratch, run.commands)
    return Flows(
        *(flows, run.netns, run.directory.flows, run.commands, stream, held_start),
        *(run.experiment.seed, afterwards, syn_rounds, events.cut_off(run.experiment, run.plan)),
        run.experiment.duration_ns,
    )


def lead_s(flows: int, round_trip_ns: int, syn_rounds: int = 1) -> float:
    """How long these flows may take to connect, if the start is set beforehand."""
    undropped_s = max(LEAD_S, LEAD_ROUND_TRIPS * round_trip_ns / 1e9) + LEAD_PER_FLOW_S * flows
    if syn_rounds <= 1:
        return undropped_s
    # The pauses before the last SYN add up to one second less than this.
    return max(undropped_s, 2.0 ** min(syn_rounds - 1, SYN_RETRIES))


def client_arguments(flow: Flow, t_start_ns: int) -> list[str]:
    """iperf(1)'s command line for one flow."""
    start_ns = t_start_ns + flow.start_ns
    argv = ["iperf", "-c", flow.dst_ip, "-p", str(flow.dport), "-B", f"{flow.src_ip}:{flow.sport}"]
    argv += ["-Z", flow.transport.congestion_control]
    rate_bps = senders.pacing_rate_bps(flow.transport)
    if rate_bps is not None:
        argv += ["--fq-rate", str(rate_bps)]
    if flow.dscp:
        argv += ["-S", str(flow.dscp << 2)]
    argv += ["-f", "b", "--txstart-time", f"{start_ns // 10**9}.{start_ns % 10**9 // 1000:06d}"]
    if flow.size_bytes is not None:
        return [*argv, "-n", str(flow.size_bytes)]
    assert flow.duration_ns is not None
    return [*argv, "-t", f"{flow.duration_ns / 1e9:.12g}"]


def await_end(
    running: Callable[[], Sequence[str]],
    t_start_ns: int,
    duration_ns: int,
    watch: Callable[[], None],
    on_sample: Callable[[float], None],
    sample_times_s: Sequence[float],
) -> None:
    """Waits for every client's end.

    `watch` is called in between; it raises if something that the run needs has died.
    `on_sample` is called with the seconds since the start, at `sample_times_s`.

    Raises RunError: a program failed, or had not ended END_GRACE_S after its time.
    """
    due = list(sample_times_s)
    deadline_ns = t_start_ns + duration_ns + int(END_GRACE_S * 1e9)

    def still() -> Sequence[str]:
        try:
            return running()
        except RunError:
            # If something else has died, that is the cause of this program's end.
            watch()
            raise

    while late := still():
        now_ns = time.time_ns()
        since_start_s = (now_ns - t_start_ns) / 1e9
        if due and since_start_s >= due[0]:
            on_sample(since_start_s)
            due.pop(0)
            continue
        watch()
        if now_ns > deadline_ns:
            raise RunError(
                f"{', '.join(late)}: not ended {END_GRACE_S:g} s after the experiment's duration"
            )
        pause_s = SAMPLE_PAUSE_S
        if due:
            pause_s = min(pause_s, max(0.0, due[0] - since_start_s))
        time.sleep(pause_s)


def check_client(flow: Flow, process: Process) -> None:
    """Checks that a client ended well, reported its bytes, and sent as requested.

    Raises:
        CommandError: it did not end well.
        ReadBackError: it sent another number of bytes, or payloads of other sizes.
    """
    text = process.output()
    said_bytes = senders.sent_bytes if senders.sends(flow) else client_bytes
    sent = said_bytes(text)
    if process.popen.returncode or sent is None:
        raise process.failure()
    if flow.size_bytes is not None and sent != flow.size_bytes:
        raise ReadBackError(process.name, "bytes", flow.size_bytes, sent)
    tcprand = flow.transport.tcprand
    if tcprand is not None and sent:
        used = senders.smallest_payload(text)
        if used is None:
            raise ReadBackError(process.name, "payloads", "of random sizes", "of any size")
        senders.check_smallest_payload(tcprand, used, process.name)


def client_bytes(text: str) -> int | None:
    """The bytes that iperf's client handed to its kernel, from the last line of its report."""
    matches = re.findall(r"^\[ *[0-9]+\] .*? sec +([0-9.]+) Bytes", text, re.MULTILINE)
    return int(float(matches[-1])) if matches else None


class Goodput:
    """Reports each class's mean goodput since its last report, and each group's by `group_by`."""

    def __init__(self, plan: Plan, group_by: GroupKind | None, netns: Callable[[str], int]) -> None:
        self._plan, self._netns = plan, netns
        self._kind = grouping.chosen(group_by, plan.groups)
        self._received: dict[int, tuple[float, int]] = {}

    def event(self, t_s: float, subflows: Subflows) -> dict[str, Any]:
        """The event `goodput` of `outcast.emulation.__main__`; rates in bit/s."""
        by_port = {
            sample.peer_port: sample.bytes_received
            for host in sorted({flow.dst for flow in self._plan.flows})
            for sample in sample_sockets(self._netns(host), families_of(self._plan.flows))
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
