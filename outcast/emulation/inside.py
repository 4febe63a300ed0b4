"""The inner program, which does the run: `python -m outcast.emulation RUN_DIR ENGINE`.

Both engines start it: the realtime one in fresh network, mount and process namespaces, the virtual
one as the payload of its guest. It reads config.yaml and plan.json in RUN_DIR. It builds and
verifies the network, runs the flows, and writes captures, counters, flow logs and the manifest.

It reports on standard output, with a JSON object on each line:

```
{"event": "phase", "phase": "setup"}                  a phase begins
{"event": "note", "text": "flow 0: ..."}              what to know before the traffic
{"event": "goodput", "t_s": 1.5, "classes": {"2": 4.1e6}}   mean of the class since the last event;
    with `groups` by label too where flows are not shown by hop count
{"event": "programs", "running": ["program get at h4 (curl)"]}   when one starts or ends
{"event": "output", "stream": "out", "data": "aGkK"}        of a single command, in base64
{"event": "ended", "status": 0}                             of a single command
{"event": "done"}
{"event": "error", "kind": "ReadBackError", "message": "..."}   and exit status 1
```
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from controllers.entries import HASH_FIELDS
from outcast import __version__, files
from outcast.emulation import (
    capture,
    counters,
    forwarding,
    in_c,
    instants,
    multipath,
    queues,
    receivers,
    sampling,
    senders,
    sockets,
    traffic,
    transport,
    wires,
)
from outcast.emulation import link_counters as links
from outcast.emulation import manifest as records
from outcast.emulation.blackout_switch import BlackoutSwitch
from outcast.emulation.commands import SystemCommands
from outcast.emulation.controller import Controller, verify_paths, verify_tables
from outcast.emulation.generator.programs import Programs
from outcast.emulation.kernel_events import Recorder
from outcast.emulation.load import LoadMeter, read_load
from outcast.emulation.network import Network
from outcast.emulation.openvswitch import Datapath, OpenVSwitch
from outcast.emulation.phases import DURING
from outcast.emulation.queues.port import frame_time_warnings
from outcast.errors import CommandError, OutcastError, ReadBackError, RunError
from outcast.experiment import Experiment, GroupKind, load_resolved
from outcast.files import write_json
from outcast.plan import grouping, link_words, ports
from outcast.plan import transport as plan_transport
from outcast.plan.envelope import envelope_warnings
from outcast.plan.flows import Flow, families_of
from outcast.plan.hints import hints
from outcast.plan.model import Plan
from outcast.records.effective import (
    AppliedChange,
    Effective,
    HostSettings,
    LossSettings,
    QueueSettings,
    Routing,
    Sampling,
    Start,
)
from outcast.records.run_directory import (
    BlackoutRecord,
    BottleneckRecord,
    CaptureRecord,
    ControlRecord,
    Counters,
    HostCounters,
    Manifest,
    PortCounters,
    ProgramRecord,
    RunDirectory,
    TrafficRecord,
)

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from outcast.emulation.changes import Changer
    from outcast.emulation.lost import LostPackets
    from outcast.emulation.probing import Probes
    from outcast.emulation.programs.launch import UserPrograms
    from outcast.plan.programs import Command
    from outcast.records.probes import ProbeRecord

DRAIN_DEADLINE_S = 10.0
GOODPUT_PAUSE_S = 1.0
HOSTS_TABLE = Path("/etc/hosts")
"""Names and addresses, as programs look them up (hosts(5))."""
_LOOPBACK_NAMES = {
    "ipv4": "127.0.0.1 localhost outcast\n",
    "ipv6": "::1 localhost outcast\n",
}
_LONGEST_MESSAGE = 300

Emit = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class _Counted:
    """The kernel's counters of captured ports, of hosts, and of every switch port's interface.

    `losses` has what every port lost, by cause.
    """

    ports: Mapping[str, dict[str, Any]]
    hosts: Mapping[str, dict[str, int]]
    interfaces: links.Interfaces
    losses: links.Losses


def run(directory: RunDirectory, engine: Literal["realtime", "virtual"], emit: Emit) -> None:
    """Does one run, from the stored plan to the manifest.

    Raises:
        OutcastError: the run failed. Everything that was started here has then been ended.
    """
    experiment = load_resolved(directory.config)
    plan = directory.read_plan()
    directory.captures.mkdir(exist_ok=True)
    directory.flows.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="outcast-", ignore_cleanup_errors=True) as scratch,
        SystemCommands() as commands,
    ):
        whole = _Run(directory, experiment, plan, engine, emit, commands, Path(scratch))
        try:
            whole.go()
        except CommandError as error:
            print(error.in_full(), file=sys.stderr, flush=True)
            raise error.during(DURING[whole.phase]) from None


@dataclass(frozen=True)
class _Built:
    """What the set-up built and read back.

    Attributes:
        hosts, queues, mtus, arrivals_core, forwarding, routing: as in records.effective.Effective.
        framework: Ryu or os-ken, which the controller runs on.
        warnings: what the kernel cannot do as it should.
    """

    hosts: HostSettings
    queues: QueueSettings
    arrivals_core: int | None
    forwarding: str
    routing: Routing
    framework: str
    mtus: Mapping[int, Sequence[str]]
    warnings: Sequence[str]


@dataclass(frozen=True)
class _Traffic:
    """What came of the flows.

    Attributes:
        record: when they ran.
        start, sampling, workloads, mptcp_subflows, losses: as in records.effective.Effective.
        changes: what `events` changed.
        subflows: of flows with Multipath TCP.
        programs: every program with its executions.
        program_controls: congestion controls that programs chose.
        sockets: samples of both ends' sockets, taken before the start and in the middle.
        warnings: what makes the timing doubtful.
        distrust: the checks of sockets that failed.
    """

    record: TrafficRecord
    start: Start
    sampling: Sampling
    workloads: Mapping[str, Any]
    changes: Sequence[AppliedChange]
    mptcp_subflows: Mapping[str, int]
    subflows: multipath.Subflows
    programs: Sequence[ProgramRecord]
    program_controls: Sequence[ControlRecord]
    sockets: Sequence[sockets.SocketSample]
    warnings: Sequence[str]
    losses: Sequence[LossSettings]
    distrust: Sequence[str]


@dataclass(frozen=True)
class _Measured:
    """What the captures and counters of the traffic show.

    Attributes:
        captures: with their closing counters.
        before, after: the kernel's counters.
        blackout: what a synthetic blackout's switch did.
        load: how busy the machine was.
    """

    captures: Sequence[CaptureRecord]
    before: _Counted
    after: _Counted
    blackout: BlackoutRecord | None
    load: LoadMeter


class _Run:
    def __init__(
        self,
        directory: RunDirectory,
        experiment: Experiment,
        plan: Plan,
        engine: Literal["realtime", "virtual"],
        emit: Emit,
        commands: SystemCommands,
        scratch: Path,
    ) -> None:
        self.directory = directory
        self.experiment = experiment
        self.plan = plan
        self.engine = engine
        self.emit = emit
        self.commands = commands
        self.scratch = scratch
        self.lost = self._lost_packets()
        self.received: dict[int, tuple[float, int]] = {}
        self.instants: dict[str, int] = {}
        self.at_end: _Counted | None = None
        self.beforehand = [
            *hints(experiment, plan),
            *envelope_warnings(experiment, plan, engine),
        ]
        self.phase = "setup"
        # In real time the kernel is the user's own.
        self.events = Recorder(plan.events, directory) if engine == "virtual" else None

    def _lost_packets(self) -> LostPackets | None:
        """The packets that links are to lose; None if nobody asks for any."""
        packets = self.directory.read_lost().packets
        if not packets:
            return None
        # As with programs, a run imports only what it needs.
        from outcast.emulation.lost import LostPackets

        return LostPackets(packets, self.plan, self.commands)

    def sleep_to_instant(self, of: str, step_ns: int = instants.STEP_NS) -> None:
        """Sleeps to the next fixed instant under virtual time, and notes whose instant it is."""
        if self.engine == "virtual":
            self.instants[of] = instants.sleep_to(step_ns)

    def enter(self, phase: str) -> None:
        self.phase = phase
        self.emit({"event": "phase", "phase": phase})

    def go(self) -> None:
        """The whole run. What is entered here is left in the opposite order."""
        self.enter("setup")
        bottlenecks = [port.egress for port in (self.plan.bottleneck, *self.plan.others)]
        limits = link_words.limits(self.experiment, self.plan, bottlenecks)
        for text in (*limits, *self.beforehand):
            self.emit({"event": "note", "text": text})
        self.sleep_to_instant("network")
        if self.engine == "virtual":
            # The guest's first namespace is the initial one. On a host the engine does it outside.
            for settings in plan_transport.all_of(self.experiment):
                transport.allow_congestion_control(settings.congestion_control)
        switches = OpenVSwitch(self.commands, self.scratch)
        blackout = BlackoutSwitch(
            self.experiment, self.plan, self.directory, self.scratch, self.commands
        )
        captures = capture.Captures(
            *(self.plan.capture_ports, self.engine, self.directory, self.scratch, self.commands),
            wanted=capture.wanted(self.plan.families),
            lost=self.lost,
        )
        core = max(os.sched_getaffinity(0))
        load = LoadMeter(lambda: read_load(switches.pid, core))
        with (
            Controller(self.plan, self.commands, self.scratch) as controller,
            Network(self.experiment, self.plan, self.commands) as network,
            # Before Open vSwitch, because it looks at all interfaces whenever one changes.
            contextlib.nullcontext(network.build()) as hosts,
            switches,
            self.events or contextlib.nullcontext(),
        ):
            arrivals_core = None
            if (os.cpu_count() or 1) > 1:
                network.steer_arrivals(core, self.scratch / "sys")
                arrivals_core = core
            if switches.datapath == "netdev":
                forwarding.create_bridges(self.plan, self.commands)
            with blackout:
                network.start_switches(switches.datapath, controller.target)
                # Before the instant, because how long this takes would shift the probes.
                framework = controller.await_ready()
                self.sleep_to_instant("queues")
                port_queues = network.configure_queues()
                self.enter("verify")
                forwards = self._verify(network, switches)
                built = _Built(
                    hosts=hosts,
                    queues=port_queues,
                    arrivals_core=arrivals_core,
                    forwarding=forwards,
                    routing=self._routing(),
                    framework=framework,
                    mtus=network.read_mtus(),
                    # In real time no kernel has it, which the documentation says.
                    warnings=[
                        *network.warnings,
                        *(frame_time_warnings() if self.engine == "virtual" else []),
                    ],
                )

                def watch() -> None:
                    switches.require_alive()
                    controller.require_alive()
                    captures.require_alive()
                    blackout.require_alive()
                    if self.events is not None:
                        self.events.require_alive()

                if self.plan.command is not None:
                    self._execute(network, self.plan.command, switches, controller)
                    return
                self.enter("capture_start")
                with captures:
                    before = self._read_counters(network)
                    self.enter("connect")
                    flows = self._run_flows(network, watch, load, blackout.end_drops)
                    self.enter("capture_end")
                    undrained = self._drain(network)
                    watch()
                    if self.lost is not None:
                        self.directory.write_lost(self.lost.record())
                after = self._read_counters(network)
        measured = _Measured(captures.records, before, after, blackout.record, load)
        flows = replace(flows, distrust=[*flows.distrust, *undrained])
        self._write(switches.datapath, built, flows, measured)
        self.emit({"event": "done"})

    def _execute(
        self, network: Network, command: Command, switches: OpenVSwitch, controller: Controller
    ) -> None:
        """Runs the plan's command, beside its servers. Events count from the command's start."""
        from outcast.emulation.programs import single

        self.enter("command")
        programs = self._programs(network)

        netns = network.netns(command.host)
        self.sleep_to_instant("connect", instants.CONNECT_STEP_NS)
        wires.start_losing(self.experiment, self.plan, self.commands)
        self._name_hosts()
        changer = self._changer(network, time.time_ns())

        def watch() -> None:
            switches.require_alive()
            controller.require_alive()
            if programs is not None:
                programs.require_servers()
            if changer is not None:
                changer.require_alive()

        with changer or contextlib.nullcontext():
            single.execute(
                *(command, netns, self.scratch, self.commands),
                *(self.experiment.seed, self.emit, watch, self.engine == "virtual"),
            )
        if programs is not None:
            programs.finish()
        self.emit({"event": "done"})

    def _verify(self, network: Network, switches: OpenVSwitch) -> str:
        """Compares the switches' tables and every path with the plan; what forwards packets.

        Raises:
            ReadBackError: where they differ.
        """
        tables = verify_tables(self.plan, partial(switches.ask, "bridge/dump-flows"), self.commands)
        forwards = "Open vSwitch"
        if switches.datapath == "netdev":
            forwarding.install(self.plan, tables, self.commands)
            forwards = "Linux bridge, by Open vSwitch's flow tables"
        verify_paths(network)
        return forwards

    def _run_flows(
        self,
        network: Network,
        watch: Callable[[], None],
        load: LoadMeter,
        on_end: Callable[[], None],
    ) -> _Traffic:
        flows = self.plan.flows
        logs = self.directory.flows
        samples: list[sockets.SocketSample] = []
        # Under virtual time computing takes no time, so a start set beforehand is never missed.
        afterwards = self.engine == "realtime"
        with Programs(
            *(self.experiment, self.plan, self.directory, self.scratch, self.commands),
            network.netns,
        ) as generators:
            stream, held_start = self._build_senders(afterwards)
            mptcp_subflows = multipath.configure(flows, network.netns, self.commands)
            programs = self._programs(network)
            with (
                traffic.serving(
                    flows, network.netns, logs, self.commands, stream, held_start
                ) as servers,
                self._probes(network) as probes,
            ):
                if self.events is not None:
                    self.events.start(instants.CONNECT_STEP_NS)
                self.sleep_to_instant("connect", instants.CONNECT_STEP_NS)
                connected = traffic.connect_clients(
                    *(flows, network.netns, logs, self.commands, stream, self.experiment.seed),
                    links.longest_round_trip_ns(self.plan),
                    syn_rounds=ports.rounds_of_handshakes(self.experiment, self.plan),
                    start_afterwards=afterwards,
                    held_start=held_start,
                )
                losses = wires.start_losing(self.experiment, self.plan, self.commands)
                if self.lost is not None:
                    self.lost.start(network.netns)
                if afterwards:
                    generators.connect()
                    # On a slow machine flows may have ended when the middle sample is taken.
                    samples += self._sample(network, flows)
                clients = traffic.set_start(flows, connected)
                generators.start(clients.t_start_ns)
                if programs is not None:
                    programs.start(clients.t_start_ns)
                if probes is not None:
                    probes.start(clients.t_start_ns)
                receivers.read_at_once(server.popen.pid for server in servers)
                middle_s = self.experiment.duration_ns / 2e9
                active = [f for f in flows if _is_active(f.start_ns, f.duration_ns, middle_s)]
                self._check_connected(network, [flow for flow in flows if flow not in active])
                sampler = sampling.Sampler(
                    self.directory.samples,
                    sampling.series_of(self.plan, network.netns),
                    clients.t_start_ns,
                    self.experiment.samples.every_ns or 0,
                )

                changer = self._changer(network, clients.t_start_ns)

                def watch_running() -> None:
                    watch()
                    if changer is not None:
                        changer.require_alive()
                    for server in servers:
                        server.require_alive()
                    sampler.require_alive()
                    # Under virtual time nothing waits for the CPU.
                    if self.engine == "realtime" and time.time_ns() >= clients.t_start_ns:
                        load.tick()

                def others() -> list[str]:
                    still = generators.running()
                    if probes is not None:
                        still += probes.running()
                    return still if programs is None else still + programs.running(time.time_ns())

                self.enter("traffic")
                with sampler, changer or contextlib.nullcontext():
                    self._await_end(network, connected, clients, samples, watch_running, others)
                workloads, warnings = generators.verify(clients.t_start_ns)
                program_records: list[ProgramRecord] = []
                controls: list[ControlRecord] = []
                if programs is not None:
                    controls = programs.controls()
                    program_records, program_warnings = programs.finish()
                    warnings += program_warnings
                if changer is not None:
                    warnings += changer.warnings()
                    if self.plan.traces:
                        self.directory.write_rates(changer.rates())
                on_end()
                t_end_ns = time.time_ns()
                load.finish()
        return _Traffic(
            record=TrafficRecord(
                t_start_ns=clients.t_start_ns,
                t_end_ns=t_end_ns,
                duration_ns=self.experiment.duration_ns,
            ),
            start=clients.start,
            sampling=sampler.sampling(),
            workloads=workloads,
            changes=() if changer is None else changer.applied(),
            mptcp_subflows=mptcp_subflows,
            subflows=connected.subflows,
            programs=program_records,
            program_controls=controls,
            sockets=samples,
            warnings=[*clients.warnings, *warnings],
            losses=losses,
            distrust=self._failed_checks(active, samples),
        )

    def _name_hosts(self) -> None:
        """Puts every host into the guest's table of names; a machine's own stays as it is."""
        if self.engine == "virtual":
            names = [
                f"{address} {host}\n"
                for host in self.plan.hosts
                for address in self.plan.addresses(host)
            ]
            own = [_LOOPBACK_NAMES[family] for family in self.plan.families]
            HOSTS_TABLE.write_text("".join([*own, *names]))

    def _programs(self, network: Network) -> UserPrograms | None:
        """The configuration's programs, its servers ready; None if there are none."""
        if not self.plan.programs:
            return None
        # Imported here, because what a run without programs imports decides its bytes.
        from outcast.emulation.programs.launch import UserPrograms

        self._name_hosts()
        programs = UserPrograms(
            *(self.experiment, self.plan, self.directory, self.scratch, self.commands),
            *(network.netns, self.emit, self.engine == "virtual"),
        )
        programs.serve()
        programs.prepare()
        return programs

    def _probes(self, network: Network) -> AbstractContextManager[Probes | None]:
        """The programs of the configuration's probes; None if there are none."""
        if not self.plan.probes:
            return contextlib.nullcontext()
        # Imported here, because what a run without probes imports decides its bytes.
        from outcast.emulation import probing

        arguments = (self.experiment, self.plan, self.directory.flows, self.scratch, self.commands)
        return probing.probing(*arguments, network.netns)

    def _changer(self, network: Network, t_start_ns: int) -> Changer | None:
        """What makes the changes of events and traces; None if there are none."""
        if not (self.experiment.events or self.plan.traces):
            return None
        # What the inner program imports is part of a run, so runs without events import nothing.
        from outcast.emulation.changes import Changer, NetlinkKernel
        from outcast.plan.events import changes, port_traces

        def netns(node: str) -> int | None:
            return network.netns(node) if node in self.plan.hosts else None

        planned = changes(self.experiment, self.plan)
        traces = port_traces(self.experiment, self.plan)
        nodes = {change.port: change.node for change in planned}
        # A link's inner ends are where the switches are.
        nodes |= {change.wire: change.wire for change in planned if change.wire is not None}
        nodes |= {trace.port.port: trace.node for trace in traces}
        return Changer(planned, traces, NetlinkKernel(nodes, netns), t_start_ns)

    def _build_senders(self, afterwards: bool) -> tuple[Path | None, Path | None]:
        """What flows need in C: our own sender, and what holds iperf's start back."""
        flows = self.plan.flows
        stream = held_start = None
        if any(senders.sends(flow) for flow in flows):
            stream = in_c.provide(in_c.STREAM, self.scratch, self.commands)
        if afterwards and not all(senders.sends(flow) for flow in flows):
            held_start = in_c.provide(in_c.HELD_START, self.scratch, self.commands)
        return stream, held_start

    def _await_end(
        self,
        network: Network,
        connected: traffic.Connected,
        clients: traffic.Clients,
        samples: list[sockets.SocketSample],
        watch: Callable[[], None],
        others: Callable[[], Sequence[str]],
    ) -> None:
        """Waits for the flows' end; reports goodput, and adds to `samples` in the middle."""
        flows = self.plan.flows
        duration_s = self.experiment.duration_ns / 1e9
        middle_s = duration_s / 2
        pause_s = min(GOODPUT_PAUSE_S, duration_s / 5)
        times = sorted(
            {middle_s, duration_s, *(pause_s * n for n in range(1, int(duration_s / pause_s) + 1))}
        )
        due = {middle_s}

        def on_sample(t_s: float) -> None:
            if due and t_s >= middle_s:
                due.clear()
                samples.extend(self._sample(network, flows))
            if t_s >= duration_s and self.at_end is None:
                self.at_end = self._read_counters(network)
            self._report_goodput(network, t_s, connected.subflows)

        traffic.await_end(
            *(flows, clients, self.experiment.duration_ns, watch, on_sample, times),
            others,
        )

    def _failed_checks(
        self, active: Sequence[Flow], samples: Sequence[sockets.SocketSample]
    ) -> list[str]:
        """Where flows had other settings than were asked for, a line for each check.

        The traffic is over, so an error would only destroy what was measured.
        """
        failed = []
        for check in (sockets.check_sockets, self._check_min_rto):
            try:
                check(active, samples)
            except ReadBackError as error:
                failed.append(str(error))
        return failed

    def _check_min_rto(self, _: Sequence[Flow], samples: Sequence[sockets.SocketSample]) -> None:
        """Raises ReadBackError where timeouts do not follow the minimum RTO."""
        flows = self.plan.flows
        for requested_ns in sorted({flow.transport.min_rto_ns for flow in flows}):
            min_rto_ns = transport.effective_min_rto_ns(requested_ns, transport.kernel_hz())
            own = {flow.sport for flow in flows if flow.transport.min_rto_ns == requested_ns}
            if min_rto_ns is not None:
                sockets.check_min_rto(
                    [sample for sample in samples if sample.local_port in own],
                    min_rto_ns,
                    steady=not (self.experiment.events or self.plan.traces),
                )

    def _sample(self, network: Network, flows: Sequence[Flow]) -> list[sockets.SocketSample]:
        hosts = sorted({name for flow in flows for name in (flow.src, flow.dst)})
        return [
            sample
            for host in hosts
            for sample in sockets.sample_sockets(network.netns(host), families_of(flows))
        ]

    def _check_connected(self, network: Network, flows: Sequence[Flow]) -> None:
        """Checks the sockets of flows that are not active in the middle of the run."""
        sockets.check_sockets(flows, self._sample(network, flows))

    def _report_goodput(self, network: Network, t_s: float, subflows: multipath.Subflows) -> None:
        """Reports each class's mean goodput since the last report, from the receivers' sockets."""
        if not self.plan.flows:
            return
        by_port: dict[int, int] = {}
        for host in sorted({flow.dst for flow in self.plan.flows}):
            for sample in sockets.sample_sockets(network.netns(host), families_of(self.plan.flows)):
                by_port[sample.peer_port] = sample.bytes_received
        rates_bps: dict[int, float] = {}
        for flow in self.plan.flows:
            last_t_s, last_bytes = self.received.get(flow.sport, (0.0, 0))
            now_bytes = by_port.get(flow.sport, last_bytes) + sum(
                by_port.get(sport, 0) for sport, _ in subflows.get(flow.flow, ())
            )
            if t_s > last_t_s:
                rates_bps[flow.flow] = (now_bytes - last_bytes) * 8 / (t_s - last_t_s)
            self.received[flow.sport] = (t_s, now_bytes)
        event = {
            "event": "goodput",
            "t_s": round(t_s, 3),
            "classes": self._means("hops", rates_bps),
        }
        kind = grouping.chosen(self.experiment.analysis.group_by, self.plan.groups)
        if kind != "hops":
            event["groups"] = self._means(kind, rates_bps)
        self.emit(event)

    def _means(self, kind: GroupKind, rates_bps: Mapping[int, float]) -> dict[str, int]:
        """The mean of each group's flows, by its label; that of a class by its number of hops."""
        means = {}
        for label, flows in self.plan.groups[kind].items():
            mine = [rates_bps[flow.flow] for flow in flows if flow.flow in rates_bps]
            if mine:
                key = label.removesuffix("-hop") if kind == "hops" else label
                means[key] = round(sum(mine) / len(mine))
        return means

    def _drain(self, network: Network) -> list[str]:
        """Waits until the studied queues are empty and tcpdump has read its ring.

        Returns:
            A line if a queue did not run empty, because no check after the traffic ends a run.
        """
        lines = []
        end = time.monotonic() + DRAIN_DEADLINE_S
        studied = [port.egress for port in (self.plan.bottleneck, *self.plan.others)]
        while left := [
            port
            for port, counted in counters.port_counters(network, studied).items()
            if counted["qlen"]
        ]:
            if time.monotonic() > end:
                lines = [
                    f"{', '.join(left)}: packets were still queued {DRAIN_DEADLINE_S:.0f} s after "
                    "the flows' end"
                ]
                break
            time.sleep(0.05)
        time.sleep(capture.RING_TIMEOUT_S * 1.25)
        return lines

    def _routing(self) -> Routing:
        """How paths are chosen; reports the split of the flows where switches choose by a hash."""
        plan = self.plan
        if not plan.routes.choices:
            return Routing(plan.routing, plan.openflow)
        split = links.split(plan)
        self.emit({"event": "split", "flows": split})
        hashed = f"Open vSwitch's over {', '.join(HASH_FIELDS)}"
        return Routing(plan.routing, plan.openflow, hashed, plan.hash_seed, split)

    def _read_counters(self, network: Network) -> _Counted:
        captured_ports = sorted({port for port, _ in self.plan.capture_ports})
        hosts = sorted({name for pair in self.plan.pairs for name in pair})
        return _Counted(
            counters.port_counters(network, captured_ports),
            {host: counters.host_counters(network, host) for host in hosts},
            {**network.interface_counters(), **network.wire_counters()},
            self._losses(network),
        )

    def _losses(self, network: Network) -> links.Losses:
        losses = network.losses()
        if self.lost is not None:
            for port, count in self.lost.by_sender().items():
                losses[port]["link"] = losses[port].get("link", 0) + count
        return losses

    def _probe_records(self) -> list[ProbeRecord]:
        if not self.plan.probes:
            return []
        from outcast.emulation import probing

        return probing.records(self.plan)

    def _modules(self) -> Mapping[str, Mapping[str, str]]:
        """The user's modules with their parameters as the kernel shows them. Raises ReadBackError.

        The kernel is asked at the end, because to ask takes time, even if only nanoseconds, and a
        run with a module has to go on as one without it.
        """
        kernel = self.experiment.kernel
        if kernel is None or not kernel.modules:
            return {}
        from outcast.emulation import own_modules

        return own_modules.read_back(kernel)

    def _write(
        self, datapath: Datapath, built: _Built, flows: _Traffic, measured: _Measured
    ) -> None:
        """Writes counters.json, the sockets' samples and the manifest."""
        experiment, plan = self.experiment, self.plan
        before, at_end, after = measured.before, self.at_end, measured.after
        self.directory.write_counters(
            Counters(
                ports={
                    port: PortCounters(
                        before=counted,
                        at_end=None if at_end is None else at_end.ports[port],
                        after=after.ports[port],
                    )
                    for port, counted in before.ports.items()
                },
                hosts={
                    host: HostCounters(
                        before=counted,
                        at_end=None if at_end is None else at_end.hosts[host],
                        after=after.hosts[host],
                    )
                    for host, counted in before.hosts.items()
                },
                captures=list(measured.captures),
                links=links.records(
                    plan,
                    (before.interfaces, before.losses),
                    None if at_end is None else (at_end.interfaces, at_end.losses),
                    (after.interfaces, after.losses),
                ),
            )
        )
        write_json(
            self.directory.flows / "sockets.json", [asdict(sample) for sample in flows.sockets]
        )
        hz = transport.kernel_hz()
        effective = Effective(
            hosts=built.hosts,
            arrivals_core=built.arrivals_core,
            queues=built.queues,
            forwarding=built.forwarding,
            routing=built.routing,
            mptcp_subflows=flows.mptcp_subflows,
            start=flows.start,
            workloads=flows.workloads,
            sampling=flows.sampling,
            load=measured.load.effective(),
            instants_ns=self.instants,
            min_rto_ns=transport.effective_min_rto_ns(experiment.transport.min_rto_ns, hz),
            controller_framework=built.framework,
            mtus=built.mtus,
            losses=flows.losses,
            modules=self._modules(),
        )
        self.directory.write_manifest(
            Manifest(
                outcast=__version__,
                name=experiment.name,
                engine=self.engine,
                datapath=datapath,
                seed=experiment.seed,
                kernel={
                    "release": platform.release(),
                    "version": platform.version(),
                    "machine": platform.machine(),
                    "hz": hz,
                },
                versions=records.versions(self.commands),
                requested=records.requested(experiment),
                effective=effective.flat(),
                traffic=flows.record,
                flows=records.flows(plan, flows.subflows),
                generated_hosts=sorted({flow.src for flow in plan.generated}),
                programs=list(flows.programs),
                probes=self._probe_records(),
                program_controls=list(flows.program_controls),
                blackout=measured.blackout,
                bottlenecks=[
                    BottleneckRecord(
                        switch=bottleneck.switch,
                        egress=bottleneck.egress,
                        ingress=list(bottleneck.ingress),
                        destinations=list(bottleneck.destinations),
                        queue=queues.record(
                            ports.switch_queue(experiment, plan, bottleneck.egress)
                        ),
                    )
                    for bottleneck in (plan.bottleneck, *plan.others)
                ],
                captures=list(measured.captures),
                changes=list(flows.changes),
                warnings=[
                    *self.beforehand,
                    *built.warnings,
                    *measured.load.warnings(),
                    *flows.warnings,
                ],
                distrust=list(flows.distrust),
            )
        )


def _is_active(start_ns: int, duration_ns: int | None, t_s: float) -> bool:
    return duration_ns is not None and start_ns <= t_s * 1e9 < start_ns + duration_ns


def main(argv: Sequence[str]) -> int:
    """Runs with the arguments `RUN_DIR ENGINE`; see the module. The exit status is 1 on failure."""
    directory = RunDirectory(Path(argv[0]))
    engine: Literal["realtime", "virtual"] = "virtual" if argv[1] == "virtual" else "realtime"

    def emit(event: Mapping[str, Any]) -> None:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()

    try:
        run(directory, engine, emit)
    except OutcastError as error:
        emit({"event": "error", "kind": type(error).__name__, "message": str(error)})
        return 1
    except OSError as error:
        # The run directory's disk is full, say; the cause is to come before the traceback.
        traceback.print_exc()
        emit({"event": "error", "kind": RunError.__name__, "message": files.describe(error)})
        return 1
    except Exception as error:
        # A mistake of ours. Without its name the log's last lines would look like the cause.
        traceback.print_exc()
        message = f"{type(error).__name__}: {' '.join(str(error).split())[:_LONGEST_MESSAGE]}"
        emit({"event": "error", "kind": RunError.__name__, "message": message})
        return 1
    return 0
