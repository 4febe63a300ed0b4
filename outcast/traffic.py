"""The flows: iperf (version 2) at both ends, connected first and then started together.

Every client connects at once and holds back until its start (`--txstart-time`); a client that
is not connected by then is an error. What iperf cannot send, `outcast.senders` sends in the same
way. Flows keep a source port of their own, by which captures and sockets are told apart.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from outcast import multipath, senders
from outcast.commands import Commands, Process, wait_until
from outcast.errors import ReadBackError, RunError
from outcast.flows import Flow
from outcast.multipath import Subflows
from outcast.sockets import sample_sockets

SERVER_DEADLINE_S = 10.0
LEAD_S = 0.5
"""From the start of the last client to the start of the first flow, for all to connect."""
LEAD_PER_FLOW_S = 0.02
LEAD_ROUND_TRIPS = 5
"""As many at the least: a subflow of Multipath TCP is there after three and a half."""
END_GRACE_S = 150.0
"""How long a flow may take to hand over what its socket still holds after its time.

One that was starved to the last tries again only when its timeout comes, which doubles up to two
minutes (TCP_RTO_MAX); the run with the strongest effect is not to be the one that fails.
"""
SAMPLE_PAUSE_S = 0.25


@dataclass(frozen=True)
class Clients:
    """The running clients, by flow number.

    Attributes:
        processes: of each flow.
        t_start_ns: the epoch time at which flows with start 0 begin.
        subflows: of flows with Multipath TCP.
    """

    processes: dict[int, Process]
    t_start_ns: int
    subflows: Subflows


def start_servers(
    flows: Sequence[Flow],
    netns: Callable[[str], int],
    logs: Path,
    commands: Commands,
    stream: Path | None = None,
) -> list[Process]:
    """A server at every receiver's port, awaited until it listens: iperf, or our own.

    `stream` is our own program, where there are flows that need it.
    """
    servers = []
    kinds = {(flow.dst, flow.dport): flow.transport for flow in flows}
    for (host, port), transport in sorted(kinds.items(), key=lambda item: item[0]):
        if stream is not None and senders.needed(transport):
            argv = senders.receiver_arguments(stream, port, transport)
        else:
            argv = ["iperf", "-s", "-p", str(port), "-f", "b", "-Z", transport.congestion_control]
        server = commands.spawn(
            f"the {Path(argv[0]).name} server at {host}",
            argv,
            netns=netns(host),
            stdout=logs / f"server.{host}.{port}.out",
            stderr=logs / f"server.{host}.{port}.err",
        )
        servers.append(server)

        def listens(host: str = host, port: int = port, server: Process = server) -> bool:
            server.require_alive()
            return bool(
                commands.run(["ss", "-tlnH", "sport", "=", f":{port}"], netns=netns(host)).strip()
            )

        wait_until(listens, f"{server.name} to listen", SERVER_DEADLINE_S, detail=server.errors)
    return servers


def start_clients(
    flows: Sequence[Flow],
    netns: Callable[[str], int],
    logs: Path,
    commands: Commands,
    stream: Path | None = None,
    seed: int = 0,
    round_trip_ns: int = 0,
) -> Clients:
    """Starts every client; none sends before the common start, by which all are connected.

    `round_trip_ns` is the longest that the links' delays make.

    Raises:
        RunError: where a flow has not connected when it was to start.
    """
    lead_s = max(LEAD_S, LEAD_ROUND_TRIPS * round_trip_ns / 1e9)
    t_start_ns = time.time_ns() + int((lead_s + LEAD_PER_FLOW_S * len(flows)) * 1e9)
    processes = {
        flow.flow: commands.spawn(
            f"the client of flow {flow.flow} at {flow.src}",
            senders.sender_arguments(stream, flow, t_start_ns, seed)
            if stream is not None and senders.sends(flow)
            else client_arguments(flow, t_start_ns),
            netns=netns(flow.src),
            stdout=logs / f"client.{flow.flow}.out",
            stderr=logs / f"client.{flow.flow}.err",
        )
        for flow in flows
    }
    connected: set[int] = set()
    while not connected.issuperset(flow.sport for flow in flows) and time.time_ns() < t_start_ns:
        time.sleep(0.02)
        connected = {
            sample.peer_port
            for host in sorted({flow.dst for flow in flows})
            for sample in sample_sockets(netns(host), commands)
            if sample.state == "ESTAB"
        }
    for flow in flows:
        if flow.sport not in connected:
            said = processes[flow.flow].errors() or processes[flow.flow].output()
            raise RunError(
                f"flow {flow.flow} ({flow.src} to {flow.dst}) had not connected when it was to "
                f"start: {' '.join(said.split()) or 'its client said nothing'}"
            )
    subflows = multipath.await_subflows(
        flows, lambda host: sample_sockets(netns(host), commands), t_start_ns
    )
    return Clients(processes, t_start_ns, subflows)


def client_arguments(flow: Flow, t_start_ns: int) -> list[str]:
    """iperf(1)'s command line for one flow."""
    start_ns = t_start_ns + flow.start_ns
    argv = ["iperf", "-c", flow.dst_ip, "-p", str(flow.dport), "-B", f"{flow.src_ip}:{flow.sport}"]
    argv += ["-Z", flow.transport.congestion_control]
    rate_bps = senders.pacing_rate_bps(flow.transport)
    if rate_bps is not None:
        argv += ["--fq-rate", str(rate_bps)]
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
    """Waits for every client's end; calls `on_sample` at the given times after the start.

    `watch` is called in between, and raises where something else that the run needs has died.
    `others` names what else has to end and has not.

    Raises:
        RunError: where a client failed, or had not ended END_GRACE_S after its time.
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
                # What else has died is the cause, and this one's end its consequence.
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
        time.sleep(max(pause_s, 0.005))
    for flow in flows:
        check_client(flow, clients.processes[flow.flow])


def check_client(flow: Flow, process: Process) -> None:
    """A client ended well, reported the bytes it sent, and sent what was asked for.

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
    """The bytes that iperf's client says it handed to its kernel, from its last report line."""
    matches = re.findall(r"^\[ *[0-9]+\] .*? sec +([0-9.]+) Bytes", text, re.MULTILINE)
    return int(float(matches[-1])) if matches else None


def stop_servers(servers: Sequence[Process]) -> None:
    """Ends the servers."""
    for server in servers:
        server.require_alive()
    for server in servers:
        server.end(signal.SIGINT, 10.0)
