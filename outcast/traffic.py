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

from outcast import senders
from outcast.commands import Commands, Process, wait_until
from outcast.errors import CommandError, ReadBackError, RunError
from outcast.plan import Flow

SERVER_DEADLINE_S = 10.0
LEAD_S = 0.5
"""From the start of the last client to the start of the first flow, for all to connect."""
LEAD_PER_FLOW_S = 0.02
END_GRACE_S = 30.0
"""How long a flow may take to hand over what its socket still holds after its time."""
SAMPLE_PAUSE_S = 0.25
_VARIATION_MARGIN = 8.0
"""ss(8) shows a quarter of what the kernel adds at the least, and the kernel keeps peaks longer."""
_JIFFIES_MS = 8.0
"""Rounding of an RTO to whole jiffies, twice, where HZ is 250."""


@dataclass(frozen=True, slots=True)
class SocketSample:
    """A TCP socket as ss(8) shows it (`ss -tinoHO`)."""

    t_ns: int
    local_port: int
    peer_port: int
    state: str
    congestion_control: str
    values: dict[str, str]


@dataclass(frozen=True)
class Clients:
    """The running clients, by flow number."""

    processes: dict[int, Process]
    t_start_ns: int


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
) -> Clients:
    """Starts every client; none sends before the common start, by which all are connected.

    Raises:
        RunError: where a flow has not connected when it was to start.
    """
    t_start_ns = time.time_ns() + int((LEAD_S + LEAD_PER_FLOW_S * len(flows)) * 1e9)
    processes = {
        flow.flow: commands.spawn(
            f"the client of flow {flow.flow} at {flow.src}",
            senders.sender_arguments(stream, flow, t_start_ns, seed)
            if stream is not None and senders.needed(flow.transport)
            else client_arguments(flow, t_start_ns),
            netns=netns(flow.src),
            stdout=logs / f"client.{flow.flow}.out",
            stderr=logs / f"client.{flow.flow}.err",
        )
        for flow in flows
    }
    connected: set[int] = set()
    while len(connected) < len(flows) and time.time_ns() < t_start_ns:
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
    return Clients(processes, t_start_ns)


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
    return [*argv, "-t", f"{flow.duration_ns / 1e9:g}"]


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
        mine = [p.name for p in clients.processes.values() if p.popen.poll() is None]
        return [*mine, *others()]

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
    """Raises CommandError where a client did not end well and report the bytes it sent."""
    status = process.popen.returncode
    text = process.output()
    errors = process.errors()
    said_bytes = senders.sent_bytes if senders.needed(flow.transport) else client_bytes
    if status or said_bytes(text) is None:
        raise CommandError(process.argv, status, errors or text)


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


def sample_sockets(netns: int, commands: Commands) -> list[SocketSample]:
    """The TCP connections of a host, as ss(8) shows them now."""
    return parse_ss(commands.run(["ss", "-tinoHO"], netns=netns), time.time_ns())


def parse_ss(text: str, t_ns: int) -> list[SocketSample]:
    """The output of `ss -tinoHO`: one line for each socket."""
    samples = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 6:
            continue
        state, _receive_queue, _send_queue, local, peer = words[:5]
        values: dict[str, str] = {}
        names: list[str] = []
        rest = iter(words[5:])
        for word in rest:
            name, separator, value = word.partition(":")
            if separator:
                values[name] = value
            elif name in ("send", "pacing_rate", "delivery_rate"):
                values[name] = next(rest, "")
            else:
                names.append(word)
        known = {"ts", "sack", "ecn", "ecnseen", "fastopen", "app_limited"}
        controls = [name for name in names if name not in known]
        samples.append(
            SocketSample(
                t_ns=t_ns,
                local_port=int(local.rsplit(":", 1)[1]),
                peer_port=int(peer.rsplit(":", 1)[1]),
                state=state,
                congestion_control=controls[0] if controls else "",
                values={**values, "flags": ",".join(name for name in names if name in known)},
            )
        )
    return samples


def check_sockets(flows: Sequence[Flow], samples: Sequence[SocketSample]) -> None:
    """Every flow's sockets, at both ends, have what was asked for.

    The sender's congestion control and pacing rate, selective acknowledgements and ECN as
    negotiated; at the receiver its congestion control.

    Raises:
        ReadBackError: naming the first flow that has not, or that was never seen.
    """
    by_port = {sample.local_port: sample for sample in samples}
    receivers = {(sample.peer_port, sample.local_port): sample for sample in samples}
    for flow in flows:
        at = f"flow {flow.flow} at {flow.src}"
        wanted = flow.transport.congestion_control
        sender = by_port.get(flow.sport)
        if sender is None:
            raise ReadBackError(at, "congestion control", wanted, "no socket seen")
        if sender.congestion_control != wanted:
            raise ReadBackError(at, "congestion control", wanted, sender.congestion_control)
        flags = sender.values.get("flags", "").split(",")
        for flag, is_wanted in (
            ("sack", flow.transport.sack),
            ("ecn", flow.transport.negotiates_ecn),
        ):
            if (flag in flags) is not is_wanted:
                raise ReadBackError(at, flag, _on(is_wanted), _on(not is_wanted))
        rate_bps = senders.pacing_rate_bps(flow.transport)
        if rate_bps is not None:
            # "now/at most"; ss leaves the second out where nothing limits the rate.
            _, _, shown = sender.values.get("pacing_rate", "").partition("/")
            if shown != f"{rate_bps}bps":
                raise ReadBackError(at, "pacing_rate", f"{rate_bps}bps", shown or "none")
        receiver = receivers.get((flow.sport, flow.dport))
        if receiver is not None and receiver.congestion_control != wanted:
            raise ReadBackError(
                f"flow {flow.flow} at {flow.dst}",
                "congestion control",
                wanted,
                receiver.congestion_control,
            )


def _on(value: bool) -> str:
    return "on" if value else "off"


def check_min_rto(samples: Sequence[SocketSample], effective_ns: int) -> None:
    """The sockets' timeouts go down to the minimum RTO and not below.

    A timeout is the smoothed RTT plus four times its variation, or plus the minimum where that is
    more (RFC 6298; net/ipv4/tcp_input.c, __tcp_set_rto). Where no socket is as near to its RTT as
    the minimum and its own variation allow, the setting has not taken, whatever the route shows.

    Raises:
        ReadBackError: with the nearest timeout seen.
    """
    above_ms = []
    for sample in samples:
        # A socket that has measured no round trip yet shows none.
        if "rtt" in sample.values and "backoff" not in sample.values:
            rtt_ms, variation_ms = (float(part) for part in sample.values["rtt"].split("/"))
            rto_ms = float(sample.values["rto"])
            above_ms.append((rto_ms - rtt_ms, _VARIATION_MARGIN * variation_ms))
    if not above_ms:
        return
    minimum_ms = effective_ns / 1e6
    too_long = all(above > minimum_ms + slack + _JIFFIES_MS for above, slack in above_ms)
    too_short = min(above for above, _ in above_ms) < minimum_ms - _JIFFIES_MS
    if too_long or too_short:
        nearest = min(above for above, _ in above_ms)
        raise ReadBackError(
            "every socket", "minimum RTO", f"{minimum_ms:g} ms", f"an RTO of RTT + {nearest:g} ms"
        )
