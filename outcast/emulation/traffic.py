"""The flows: iperf (version 2) at both ends, connected first and then started together.

Every client connects at once and waits for its start. In real time the start is set when all have
connected, however long that takes, and each client is told it. iperf hears of it through
senders/held_start.c. Under virtual time computing takes no time, so the start is set beforehand on
iperf's command line (`--txstart-time`). There a client that has not connected by then is an error.
`outcast.emulation.senders` sends in the same way what iperf cannot send. Each flow has its own
source port, by which captures and sockets tell flows apart.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from outcast.emulation import multipath, receivers, senders
from outcast.emulation.commands import Commands, Process, wait_until
from outcast.emulation.multipath import Subflows
from outcast.emulation.part import Part
from outcast.emulation.sockets import listens, sample_sockets
from outcast.errors import DeadlineError, ReadBackError, RunError, gist
from outcast.plan.flows import Flow, families_of
from outcast.records.effective import Start

if TYPE_CHECKING:
    from outcast.experiment.parts import Family

SERVER_DEADLINE_S = 60.0
CONNECT_DEADLINE_S = 240.0
"""How long connecting may take if the start is set afterwards; a slow machine needs seconds."""
LEAST_NOTICE_S = 0.4
MOST_NOTICE_S = 5.0
NOTICE_SHARE = 0.25
"""How long before the start clients are told of it, as a share of the time that connecting took and
within the two bounds. A machine that was slow at connecting is slow at this too."""
LEAD_S = 0.5
"""If the start is set beforehand: the time for connecting, before the first flow starts."""
LEAD_PER_FLOW_S = 0.02
LEAD_ROUND_TRIPS = 5
"""The least time to connect, in round trips. A subflow of Multipath TCP needs three and a half."""
SYN_RETRIES = 6
"""How often Linux sends a SYN again: net.ipv4.tcp_syn_retries.

The first pause is of one second, and each is twice the one before (RFC 6298, sections 2.1, 5.5).
"""
END_GRACE_S = 150.0
"""How long a flow may take, after its time, to hand over what its socket still holds.

A flow that was starved to the end tries again only at its timeout, which doubles up to two minutes
(TCP_RTO_MAX). The run with the strongest effect must not fail for that.
"""
SERVER_END_S = 10.0
SAMPLE_PAUSE_S = 0.25


@dataclass(frozen=True)
class Connected:
    """Clients that have connected and wait for their start.

    Attributes:
        processes: the clients, by flow number.
        subflows: of the flows with Multipath TCP.
        began_ns: the epoch time at which the first client was started.
        connect_ns: how long it took until all had connected.
        t_start_ns: the epoch time of the start; None if it is set afterwards.
    """

    processes: dict[int, Process]
    subflows: Subflows
    began_ns: int
    connect_ns: int
    t_start_ns: int | None


@dataclass(frozen=True)
class Clients:
    """Clients that know their start.

    Attributes:
        processes: the clients, by flow number.
        t_start_ns: the epoch time at which flows with start 0 begin.
        start: how the start came about.
        warnings: a line if flows were told of their start too late.
    """

    processes: dict[int, Process]
    t_start_ns: int
    start: Start
    warnings: tuple[str, ...]


def start_servers(
    flows: Sequence[Flow],
    netns: Callable[[str], int],
    logs: Path,
    commands: Commands,
    stream: Path | None = None,
    held_start: Path | None = None,
) -> list[Process]:
    """Starts a server at every receiver's port, iperf or our own, and waits until it listens.

    Args:
        flows: all flows.
        netns: a host's network namespace.
        logs: the folder for the servers' output.
        commands: starts the servers.
        stream: our own program, if some flow needs it.
        held_start: the library to preload into iperf, if the start is set when all have connected.
    """
    servers = []
    kinds = {(flow.dst, flow.dport): (flow.transport, flow.family) for flow in flows}
    served = set()
    for (host, port), (transport, family) in sorted(kinds.items(), key=lambda item: item[0]):
        if (place := (netns(host), port)) in served:
            # Another interface of the same host.
            continue
        served.add(place)
        if stream is not None and senders.needed(transport):
            argv, environment = senders.receiver_arguments(stream, port, transport, family), None
        else:
            environment = _preloaded(held_start, "server")
            argv = ["iperf", "-s", "-p", str(port), "-f", "b", "-Z", transport.congestion_control]
            argv += ["-V"] if family == "ipv6" else []
        server = commands.spawn(
            f"the {Path(argv[0]).name} server at {host}",
            argv,
            netns=netns(host),
            stdout=logs / f"server.{host}.{port}.out",
            stderr=logs / f"server.{host}.{port}.err",
            environment=environment,
        )
        servers.append(server)

        def is_ready(
            host: str = host, port: int = port, server: Process = server, family: Family = family
        ) -> bool:
            server.require_alive()
            return listens(netns(host), port, family)

        wait_until(is_ready, f"{server.name} to listen", SERVER_DEADLINE_S, detail=server.errors)
    return servers


class Servers(Part):
    """The servers that `start_servers` starts; they end with a block that ends well."""

    def __init__(self, start: Callable[[], Sequence[Process]]) -> None:
        self._start = start
        self._servers: Sequence[Process] = ()

    def __enter__(self) -> Servers:
        self._servers = self._start()
        return self

    def __exit__(self, failed: type[BaseException] | None, *_error: object) -> None:
        if failed is None:
            stop_servers(self._servers)

    def start(self, t_start_ns: int) -> None:
        """Lets the kernel read what comes to the servers (see receivers.read_at_once)."""
        receivers.read_at_once(server.popen.pid for server in self._servers)

    def require_alive(self) -> None:
        """Raises CommandError where one has ended."""
        for server in self._servers:
            server.require_alive()


def connect_clients(
    flows: Sequence[Flow],
    netns: Callable[[str], int],
    logs: Path,
    commands: Commands,
    stream: Path | None = None,
    seed: int = 0,
    round_trip_ns: int = 0,
    *,
    syn_rounds: int = 1,
    start_afterwards: bool = False,
    held_start: Path | None = None,
) -> Connected:
    """Starts every client and waits until all are connected; none sends yet.

    Args:
        flows: all flows.
        netns: a host's network namespace.
        logs: the folder for the clients' output.
        commands: starts the clients.
        stream: our own program, if some flow needs it.
        seed: the experiment's seed.
        round_trip_ns: the longest round trip by the links' delays.
        syn_rounds: how many times a flow may have to send its SYN, because queues drop it.
        start_afterwards: whether `set_start` sets the start; else it is set here, beforehand.
        held_start: the library to preload into iperf's clients, if the start is set afterwards.

    Raises:
        RunError: a flow has not connected by its start, or within CONNECT_DEADLINE_S.
    """
    began_ns = time.time_ns()
    if start_afterwards:
        deadline_ns = began_ns + int(CONNECT_DEADLINE_S * 1e9)
    else:
        deadline_ns = began_ns + int(lead_s(len(flows), round_trip_ns, syn_rounds) * 1e9)
    t_start_ns = None if start_afterwards else deadline_ns
    processes = {}
    for flow in flows:
        ours = stream is not None and senders.sends(flow)
        processes[flow.flow] = commands.spawn(
            f"the client of flow {flow.flow} at {flow.src}",
            senders.sender_arguments(stream, flow, seed, t_start_ns)
            if stream is not None and ours
            # iperf needs a start in any case. If it is told another one, it ignores this one.
            else client_arguments(flow, deadline_ns),
            netns=netns(flow.src),
            stdout=logs / f"client.{flow.flow}.out",
            stderr=logs / f"client.{flow.flow}.err",
            environment=None if ours else _preloaded(held_start, "client"),
            hears=start_afterwards,
        )
    _await_connected(flows, processes, netns, deadline_ns, hold=start_afterwards)
    subflows = multipath.await_subflows(
        flows, lambda host: sample_sockets(netns(host), families_of(flows)), deadline_ns
    )
    return Connected(
        processes,
        subflows,
        began_ns,
        time.time_ns() - began_ns,
        t_start_ns,
    )


def lead_s(flows: int, round_trip_ns: int, syn_rounds: int = 1) -> float:
    """How long so many flows may take to connect, in seconds, if the start is set beforehand.

    Args:
        flows: their number.
        round_trip_ns: the longest round trip by the links' delays.
        syn_rounds: how many times a flow may have to send its SYN, because queues drop it.
    """
    undropped_s = max(LEAD_S, LEAD_ROUND_TRIPS * round_trip_ns / 1e9) + LEAD_PER_FLOW_S * flows
    if syn_rounds <= 1:
        return undropped_s
    # The pauses before the last SYN add up to one second less than this.
    return max(undropped_s, 2.0 ** min(syn_rounds - 1, SYN_RETRIES))


def _preloaded(held_start: Path | None, side: Literal["client", "server"]) -> dict[str, str] | None:
    """Variables for iperf's environment, besides ours; see senders/held_start.c."""
    if held_start is None:
        return None
    return {"LD_PRELOAD": str(held_start), "OUTCAST_IPERF": side}


def _await_connected(
    flows: Sequence[Flow],
    processes: Mapping[int, Process],
    netns: Callable[[str], int],
    deadline_ns: int,
    *,
    hold: bool,
) -> None:
    """Waits until every receiver shows each flow's connection, and each client says that it waits.

    Clients say so only with `hold`.

    Raises:
        RunError: a flow has not connected by the deadline; the error names the first one.
    """
    connected: set[int] = set()
    waiting = list(flows)
    while waiting and time.time_ns() < deadline_ns:
        if hold and any(processes[flow.flow].popen.poll() is not None for flow in waiting):
            break
        time.sleep(0.02)
        connected = {
            sample.peer_port
            for host in sorted({flow.dst for flow in flows})
            for sample in sample_sockets(netns(host), families_of(flows))
            if sample.is_established
        }
        waiting = [
            flow
            for flow in flows
            if flow.sport not in connected or (hold and not _holds(processes[flow.flow]))
        ]
    if not waiting:
        return
    flow = waiting[0]
    if hold:
        flow = next((f for f in waiting if processes[f.flow].popen.poll() is not None), flow)
    process = processes[flow.flow]
    # What it wrote to standard output is what iperf always writes first.
    said = gist(process.errors())
    if not hold:
        when = "when it was to start"
    elif process.popen.poll() is not None:
        when = f"when its client ended with status {process.popen.returncode}"
        said = said or "it wrote no reason"
    else:
        when = f"within {CONNECT_DEADLINE_S:g} s"
    what = "waited for its start" if flow.sport in connected else "connected"
    raise RunError(
        f"flow {flow.flow} ({flow.src} to {flow.dst}) had not {what} {when}{said and f': {said}'}"
    )


def _holds(process: Process) -> bool:
    """Whether a client has said that it waits for its start; see senders/start.h."""
    return "ready" in process.output().splitlines()


def set_start(flows: Sequence[Flow], connected: Connected) -> Clients:
    """Sets the common start of clients that have connected, and tells each client its own.

    Raises:
        CommandError: a client has ended.
    """
    warnings = []
    start_set, notice_s = "beforehand", None
    t_start_ns = connected.t_start_ns
    if t_start_ns is None:
        share_s = NOTICE_SHARE * connected.connect_ns / 1e9
        notice_s = min(max(share_s, LEAST_NOTICE_S), MOST_NOTICE_S)
        t_start_ns = time.time_ns() + int(notice_s * 1e9)
        for flow in flows:
            connected.processes[flow.flow].tell(str(t_start_ns + flow.start_ns))
        late_ns = time.time_ns() - t_start_ns
        if late_ns > 0:
            warnings.append(
                f"the last flow was told of its start {late_ns / 1e6:.1f} ms after it; "
                "less load on this machine, or the virtual engine, keeps the start"
            )
        start_set = "when all had connected"
    start = Start(
        connect_s=round(connected.connect_ns / 1e9, 6),
        start_set=start_set,
        notice_s=None if notice_s is None else round(notice_s, 6),
        lead_s=round((t_start_ns - connected.began_ns) / 1e9, 6),
    )
    return Clients(connected.processes, t_start_ns, start, tuple(warnings))


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
    flows: Sequence[Flow],
    clients: Clients,
    duration_ns: int,
    watch: Callable[[], None],
    on_sample: Callable[[float], None],
    sample_times_s: Sequence[float],
    others: Callable[[], Sequence[str]] = tuple,
) -> None:
    """Waits for every client's end.

    Args:
        flows: all flows.
        clients: their clients.
        duration_ns: the experiment's duration.
        watch: is called in between; it raises if something that the run needs has died.
        on_sample: is called with the seconds since the start, at `sample_times_s`.
        sample_times_s: seconds after the start, ascending.
        others: returns the names of other programs that must end and have not.

    Raises:
        RunError: a client failed, or had not ended END_GRACE_S after its time.
    """
    due = list(sample_times_s)
    deadline_ns = clients.t_start_ns + duration_ns + int(END_GRACE_S * 1e9)

    def running() -> list[str]:
        still = []
        for client in clients.processes.values():
            status = client.popen.poll()
            if status is None:
                still.append(client.name)
            elif status:
                # If something else has died, that is the cause of this client's end.
                watch()
                raise client.failure()
        return [*still, *others()]

    while late := running():
        now_ns = time.time_ns()
        since_start_s = (now_ns - clients.t_start_ns) / 1e9
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
    for flow in flows:
        check_client(flow, clients.processes[flow.flow])


def check_client(flow: Flow, process: Process) -> None:
    """Checks that a client ended well, reported its bytes, and sent what was asked for.

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


def stop_servers(servers: Sequence[Process]) -> None:
    """Ends the servers."""
    for server in servers:
        server.require_alive()
    for server in servers:
        try:
            server.end(signal.SIGINT, SERVER_END_S)
        except DeadlineError:
            # At the first interrupt iperf waits for its threads ("Interrupt again to force quit").
            server.end(signal.SIGINT, SERVER_END_S)
