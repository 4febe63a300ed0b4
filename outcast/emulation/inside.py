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
{"event": "ended", "status": 0, "fault": null}              of a single command
{"event": "done"}
{"event": "error", "kind": "ReadBackError", "message": "..."}   and exit status 1
```
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from controllers.entries import HASH_FIELDS
from outcast import __version__, files
from outcast.emulation import (
    capture,
    counters,
    forwarding,
    in_c,
    instants,
    multipath,
    port_queues,
    sampling,
    senders,
    sockets,
    switches,
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
from outcast.emulation.lost import LostPackets
from outcast.emulation.network import Network
from outcast.emulation.openvswitch import OpenVSwitch
from outcast.emulation.part import Part, Record
from outcast.emulation.phases import DURING
from outcast.emulation.queues.port import frame_time_warnings
from outcast.errors import CommandError, OutcastError, ReadBackError, RunError
from outcast.experiment import Experiment, GroupKind, load_resolved
from outcast.experiment.engine import EngineName, properties
from outcast.files import write_json
from outcast.plan import grouping, link_words, ports
from outcast.plan import transport as plan_transport
from outcast.plan.flows import Flow, families_of
from outcast.plan.hints import beforehand
from outcast.plan.model import Plan
from outcast.records.effective import Effective, Routing
from outcast.records.run_directory import (
    CaptureRecord,
    Counters,
    HostCounters,
    Manifest,
    PortCounters,
    RunDirectory,
    TrafficRecord,
)

if TYPE_CHECKING:
    from outcast.plan.programs import Command

DRAIN_DEADLINE_S = 10.0
GOODPUT_PAUSE_S = 1.0
_AT_START_S = -0.01
"""When links' counters are read for the start: all have connected, and none sends yet."""
_LONGEST_MESSAGE = 300

Emit = Callable[[Mapping[str, Any]], None]
Made = TypeVar("Made", bound=Part)


@dataclass(frozen=True)
class _Counted:
    """The kernel's counters of captured ports, of hosts, and of links."""

    ports: Mapping[str, dict[str, Any]]
    hosts: Mapping[str, dict[str, int]]
    links: links.Counted


def run(directory: RunDirectory, engine: EngineName, emit: Emit) -> None:
    """Does one run, from the stored plan to the manifest.

    Raises OutcastError: the run failed. Everything that was started here has then been ended.
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


class _Run:
    """One run.

    Attributes:
        record: what the manifest is told so far.
        parts: what has been entered and not left.
        received: by a flow's port, when its bytes were reported last, and how many.
        instants: by what began then, fixed instants of virtual time.
    """

    network: Network
    switches: OpenVSwitch
    blackout: BlackoutSwitch
    before: _Counted

    def __init__(
        self,
        directory: RunDirectory,
        experiment: Experiment,
        plan: Plan,
        engine: EngineName,
        emit: Emit,
        commands: SystemCommands,
        scratch: Path,
    ) -> None:
        self.directory = directory
        self.experiment = experiment
        self.plan = plan
        self.engine = engine
        self.is_virtual = properties(engine).virtual_clock
        self.emit = emit
        self.commands = commands
        self.scratch = scratch
        self.lost = LostPackets(directory.read_lost().packets, plan, commands)
        self.record = Record(warnings=beforehand(experiment, plan, engine))
        self.parts: list[Part] = []
        # In real time the kernel is the user's own.
        self.events = Recorder(plan.events, directory) if self.is_virtual else None
        self.received: dict[int, tuple[float, int]] = {}
        self.instants: dict[str, int] = {}
        self.at_start: links.Counted | None = None
        self.at_end: _Counted | None = None
        self.phase = "setup"

    def sleep_to_instant(self, of: str, step_ns: int = instants.STEP_NS) -> None:
        """Sleeps to the next fixed instant under virtual time, and notes whose instant it is."""
        if self.is_virtual:
            self.instants[of] = instants.sleep_to(step_ns)

    def enter(self, phase: str) -> None:
        self.phase = phase
        self.emit({"event": "phase", "phase": phase})

    def add(self, stack: ExitStack, part: Made) -> Made:
        """Enters a part, which is watched until it is left."""
        stack.enter_context(part)
        self.parts.append(part)
        stack.callback(self.parts.remove, part)
        return part

    def watch(self) -> None:
        """Raises RunError where a part has ended by itself."""
        for part in self.parts:
            part.require_alive()

    def finish(self) -> None:
        """Ends what ends with the flows, the last one first, and notes what each part tells."""
        records = [part.finish() for part in reversed(self.parts)]
        for record in reversed(records):
            self.record.add(record)

    def go(self) -> None:
        """The whole run. What is entered here is left in the opposite order."""
        self.enter("setup")
        bottlenecks = [port.egress for port in (self.plan.bottleneck, *self.plan.others)]
        limits = link_words.limits(self.experiment, self.plan, bottlenecks)
        for text in (*limits, *self.record.warnings):
            self.emit({"event": "note", "text": text})
        self.sleep_to_instant("network")
        with ExitStack() as stack:
            self._build(stack)
            if self.plan.command is not None:
                self._execute(self.plan.command)
                self.emit({"event": "done"})
                return
            self.enter("capture_start")
            captures = capture.Captures(
                *(self.plan.capture_ports, self.engine, self.directory, self.scratch),
                *(self.commands, capture.wanted(self.plan.families), self.lost),
                lambda port: self.network.place(self.plan.ends[port][0]),
            )
            with ExitStack() as capturing:
                self.add(capturing, captures)
                self.before = self._read_counters()
                self.enter("connect")
                with ExitStack() as running:
                    self._run_flows(running)
                self.enter("capture_end")
                self._drain()
                self.watch()
                if self.lost.packets:
                    self.directory.write_lost(self.lost.record())
            after = self._read_counters()
        self._write_counters(after, captures.records)
        self._write_manifest(captures.records)
        self.emit({"event": "done"})

    def _build(self, stack: ExitStack) -> None:
        """Builds the network, and verifies it."""
        if self.is_virtual:
            # The guest's first namespace is the initial one. On a host the engine does it outside.
            for settings in plan_transport.all_of(self.experiment):
                transport.allow_congestion_control(settings.congestion_control)
        self.switches = OpenVSwitch(self.commands, self.scratch)
        controller = self.add(stack, Controller(self.plan, self.commands, self.scratch))
        self.network = Network(self.experiment, self.plan, self.commands)
        stack.enter_context(self.network)
        # Before Open vSwitch, because it looks at all interfaces whenever one changes.
        hosts = self.network.build()
        self.add(stack, self.switches)
        if self.events is not None:
            self.add(stack, self.events)
        arrivals_core = None
        if (os.cpu_count() or 1) > 1:
            arrivals_core = max(os.sched_getaffinity(0))
            self.network.steer_arrivals(arrivals_core, self.scratch / "sys")
        if self.switches.datapath == "netdev":
            forwarding.create_bridges(self.plan, self.commands)
        self.blackout = self.add(
            stack,
            BlackoutSwitch(self.experiment, self.plan, self.directory, self.scratch, self.commands),
        )
        switches.start(self.plan, self.switches.datapath, controller.target, self.commands)
        # Before the instant, because how long this takes would shift the probes.
        framework = controller.await_ready()
        self.sleep_to_instant("queues")
        queues = port_queues.configure(self.network)
        self.enter("verify")
        self.record.effective.update(
            hosts=hosts,
            queues=queues,
            arrivals_core=arrivals_core,
            forwarding=self._verify(),
            routing=self._routing(),
            controller_framework=framework,
            mtus=self.network.read_mtus(),
        )
        self.record.warnings += self.network.warnings
        if self.is_virtual:  # In real time no kernel has it, which the documentation says.
            self.record.warnings += frame_time_warnings()

    def _execute(self, command: Command) -> None:
        """Runs the plan's command, beside its servers. Events count from the command's start."""
        from outcast.emulation.programs import single

        self.enter("command")
        with ExitStack() as stack:
            self._add_programs(stack)
            self._add_changes(stack)
            self.sleep_to_instant("connect", instants.CONNECT_STEP_NS)
            wires.start_losing(self.experiment, self.plan, self.commands)
            t_start_ns = time.time_ns()
            for part in self.parts:
                part.start(t_start_ns)
            single.execute(
                *(command, self.network.netns(command.host), self.scratch, self.commands),
                *(self.experiment.seed, self.emit, self.watch, self.is_virtual),
            )
            self.finish()

    def _verify(self) -> str:
        """Compares the switches' tables and every path with the plan; what forwards packets.

        Raises ReadBackError where they differ.
        """
        dump_flows = partial(self.switches.ask, "bridge/dump-flows")
        tables = verify_tables(self.plan, dump_flows, self.commands)
        forwards = "Open vSwitch"
        if self.switches.datapath == "netdev":
            forwarding.install(self.plan, tables, self.commands)
            forwards = "Linux bridge, by Open vSwitch's flow tables"
        verify_paths(self.network)
        return forwards

    def _run_flows(self, stack: ExitStack) -> None:
        """Connects the flows, starts them with what goes on beside them, and awaits their end."""
        flows, logs, netns = self.plan.flows, self.directory.flows, self.network.netns
        # Under virtual time computing takes no time, so a start set beforehand is never missed.
        afterwards = not self.is_virtual
        generators = self.add(
            stack,
            Programs(
                *(self.experiment, self.plan, self.directory, self.scratch, self.commands), netns
            ),
        )
        syn_rounds = ports.rounds_of_handshakes(self.experiment, self.plan)
        stream, held_start = self._build_senders(afterwards, syn_rounds > 1)
        subflow_limits = multipath.configure(
            flows, netns, self.commands, self.network.further_interfaces
        )
        self._add_programs(stack)
        sending = traffic.Flows(
            *(flows, netns, logs, self.commands, stream, held_start, self.experiment.seed),
            start_afterwards=afterwards,
            syn_rounds=syn_rounds,
        )
        self.add(stack, sending)
        self._add_probes(stack)
        self._add_sampler(stack)
        self._add_changes(stack)
        if self.events is not None:
            self.events.record(instants.CONNECT_STEP_NS)
        self.sleep_to_instant("connect", instants.CONNECT_STEP_NS)
        sending.connect(links.longest_round_trip_ns(self.plan))
        losses = wires.start_losing(self.experiment, self.plan, self.commands)
        self.lost.start(self.network.place)
        samples: list[sockets.SocketSample] = []
        if afterwards:
            generators.connect()
            # On a slow machine flows may have ended when the middle sample is taken.
            samples += self._sample(flows)
        t_start_ns, start, warnings = sending.set_start()
        for part in self.parts:
            part.start(t_start_ns)
        middle_ns = self.experiment.duration_ns / 2
        active = [flow for flow in flows if _is_active(flow, middle_ns)]
        self._check_connected([flow for flow in flows if flow not in active])
        self.enter("traffic")
        load = self._await_end(t_start_ns, sending.subflows, samples)
        self.record.warnings += [*load.warnings(), *warnings]
        self.finish()
        self.record.effective.update(
            mptcp_subflows=subflow_limits, losses=losses, start=start, load=load.effective()
        )
        self.record.manifest.update(
            traffic=TrafficRecord(
                t_start_ns=t_start_ns,
                t_end_ns=time.time_ns(),
                duration_ns=self.experiment.duration_ns,
            ),
            flows=records.flows(self.plan, sending.subflows),
            distrust=self._failed_checks(active, samples),
        )
        write_json(logs / "sockets.json", [asdict(sample) for sample in samples])

    def _add_programs(self, stack: ExitStack) -> None:
        """Starts the configuration's programs; its servers are ready then.

        Its modules are imported here, because what other runs import decides their bytes.
        """
        if self.is_virtual and (self.plan.programs or self.plan.command):
            from outcast.emulation.programs.launch import bound_processes
            from outcast.emulation.programs.names import HostNames

            bound_processes()
            # In real time a machine's own names stay as they are.
            self.add(stack, HostNames(self.plan, self.network.netns))
        if self.plan.programs:
            from outcast.emulation.programs.launch import UserPrograms

            programs = UserPrograms(
                *(self.experiment, self.plan, self.directory, self.scratch, self.commands),
                *(self.network.netns, self.emit, self.is_virtual),
            )
            self.add(stack, programs)

    def _add_probes(self, stack: ExitStack) -> None:
        """Starts the programs of the configuration's probes."""
        if self.plan.probes:
            from outcast.emulation.probing import Probes

            arguments = (self.experiment, self.plan, self.directory.flows, self.scratch)
            # The kernel draws IPv4's identifiers and flow labels when a socket is opened.
            self.sleep_to_instant("probes")
            self.add(stack, Probes(*arguments, self.commands, self.network.netns))

    def _add_sampler(self, stack: ExitStack) -> None:
        """Prepares the samples of sockets and queues."""
        series = sampling.series_of(self.plan, self.network.netns, self.network.place)
        every_ns = self.experiment.samples.every_ns or 0
        self.add(stack, sampling.Sampler(self.directory.samples, series, every_ns))

    def _add_changes(self, stack: ExitStack) -> None:
        """Prepares the changes of events and traces."""
        if self.experiment.events or self.plan.traces:
            from outcast.emulation.changes import changer

            place, keep_rates = self.network.place, self.directory.write_rates
            self.add(stack, changer(self.experiment, self.plan, place, keep_rates))

    def _build_senders(self, afterwards: bool, is_lossy: bool) -> tuple[Path | None, Path | None]:
        """Makes what flows need in C: our own program, and what holds iperf's start back.

        `is_lossy` tells whether queues drop handshakes.
        """
        flows = self.plan.flows
        stream = held_start = None
        if is_lossy or any(senders.sends(flow) for flow in flows):
            stream = in_c.provide(in_c.STREAM, self.scratch, self.commands)
        if afterwards and not all(senders.sends(flow) for flow in flows):
            held_start = in_c.provide(in_c.HELD_START, self.scratch, self.commands)
        return stream, held_start

    def _await_end(
        self,
        t_start_ns: int,
        subflows: multipath.Subflows,
        samples: list[sockets.SocketSample],
    ) -> LoadMeter:
        """Waits for the flows' end; how busy the machine was.

        Reports goodput, and adds to `samples` in the middle.
        """
        flows, duration_ns = self.plan.flows, self.experiment.duration_ns
        duration_s = duration_ns / 1e9
        middle_s = duration_s / 2
        pause_s = min(GOODPUT_PAUSE_S, duration_s / 5)
        paused = (pause_s * n for n in range(1, int(duration_s / pause_s) + 1))
        times = sorted({_AT_START_S, middle_s, duration_s, *paused})
        due = {middle_s}
        load = LoadMeter(partial(read_load, self.switches.pid, max(os.sched_getaffinity(0))))

        def watch() -> None:
            self.watch()
            # Under virtual time nothing waits for the CPU.
            if not self.is_virtual and time.time_ns() >= t_start_ns:
                load.tick()

        def on_sample(t_s: float) -> None:
            if self.at_start is None:
                self.at_start = self._read_links()
                return
            if due and t_s >= middle_s:
                due.clear()
                samples.extend(self._sample(flows))
            if t_s >= duration_s and self.at_end is None:
                self.at_end = self._read_counters()
            self._report_goodput(t_s, subflows)

        def running() -> list[str]:
            return [name for part in self.parts for name in part.running()]

        traffic.await_end(running, t_start_ns, duration_ns, watch, on_sample, times)
        load.finish()
        return load

    def _failed_checks(
        self, active: Sequence[Flow], samples: Sequence[sockets.SocketSample]
    ) -> list[str]:
        """Says where flows had other settings than were asked for, a line for each check.

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

    def _sample(self, flows: Sequence[Flow]) -> list[sockets.SocketSample]:
        hosts = sorted({name for flow in flows for name in (flow.src, flow.dst)})
        return [
            sample
            for host in hosts
            for sample in sockets.sample_sockets(self.network.netns(host), families_of(flows))
        ]

    def _check_connected(self, flows: Sequence[Flow]) -> None:
        """Checks the sockets of flows that are not active in the middle of the run."""
        sockets.check_sockets(flows, self._sample(flows))

    def _report_goodput(self, t_s: float, subflows: multipath.Subflows) -> None:
        """Reports each class's mean goodput since the last report, from the receivers' sockets."""
        if not self.plan.flows:
            return
        by_port = {
            sample.peer_port: sample.bytes_received
            for host in sorted({flow.dst for flow in self.plan.flows})
            for sample in sockets.sample_sockets(
                self.network.netns(host), families_of(self.plan.flows)
            )
        }
        rates_bps: dict[int, float] = {}
        for flow in self.plan.flows:
            last_t_s, last_bytes = self.received.get(flow.sport, (0.0, 0))
            now_bytes = by_port.get(flow.sport, last_bytes) + sum(
                by_port.get(sport, 0) for sport, *_ in subflows.get(flow.flow, ())
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

    def _drain(self) -> None:
        """Waits until the studied queues are empty and tcpdump has read its ring.

        A queue that does not run empty is told, because no check after the traffic ends a run.
        """
        end = time.monotonic() + DRAIN_DEADLINE_S
        studied = [port.egress for port in (self.plan.bottleneck, *self.plan.others)]
        while unfinished := [
            port
            for port, counted in counters.port_counters(self.network, studied).items()
            if counted["qlen"]
        ]:
            if time.monotonic() > end:
                self.record.manifest["distrust"].append(
                    f"{', '.join(unfinished)}: packets were still queued "
                    f"{DRAIN_DEADLINE_S:.0f} s after the flows' end"
                )
                break
            time.sleep(0.05)
        time.sleep(capture.RING_TIMEOUT_S * 1.25)

    def _routing(self) -> Routing:
        """How paths are chosen; reports the split of the flows where switches choose by a hash."""
        plan = self.plan
        if not plan.routes.choices:
            return Routing(plan.routing, plan.openflow)
        split = links.split(plan)
        self.emit({"event": "split", "flows": split})
        hashed = f"Open vSwitch's over {', '.join(HASH_FIELDS)}"
        return Routing(plan.routing, plan.openflow, hashed, plan.hash_seed, split)

    def _read_links(self) -> links.Counted:
        network = self.network
        losses = network.losses()
        for port, count in self.lost.by_sender().items():
            losses[port]["link"] = losses[port].get("link", 0) + count
        return {**network.interface_counters(), **network.wire_counters()}, losses

    def _read_counters(self) -> _Counted:
        network = self.network
        captured_ports = sorted({port for port, _ in self.plan.capture_ports})
        return _Counted(
            counters.port_counters(network, captured_ports),
            {host: counters.host_counters(network, host) for host in self.plan.counted_hosts},
            self._read_links(),
        )

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

    def _write_counters(self, after: _Counted, captures: Sequence[CaptureRecord]) -> None:
        """Writes counters.json."""
        before, at_end = self.before, self.at_end
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
                captures=list(captures),
                links=links.records(
                    self.plan,
                    before.links,
                    self.at_start,
                    None if at_end is None else at_end.links,
                    after.links,
                ),
            )
        )

    def _write_manifest(self, captures: Sequence[CaptureRecord]) -> None:
        experiment, plan, hz = self.experiment, self.plan, transport.kernel_hz()
        effective = Effective(
            **self.record.effective,
            instants_ns=self.instants,
            min_rto_ns=transport.effective_min_rto_ns(experiment.transport.min_rto_ns, hz),
            modules=self._modules(),
        )
        self.directory.write_manifest(
            Manifest(
                **self.record.manifest,
                outcast=__version__,
                name=experiment.name,
                engine=self.engine,
                datapath=self.switches.datapath,
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
                generated_hosts=sorted({flow.src for flow in plan.generated}),
                blackout=self.blackout.record,
                bottlenecks=records.bottlenecks(experiment, plan),
                captures=list(captures),
                warnings=self.record.warnings,
            )
        )


def _is_active(flow: Flow, t_ns: float) -> bool:
    return flow.duration_ns is not None and 0 <= t_ns - flow.start_ns < flow.duration_ns


def main(argv: Sequence[str]) -> int:
    """Runs with the arguments `RUN_DIR ENGINE`; see the module. The exit status is 1 on failure."""
    directory = RunDirectory(Path(argv[0]))
    engine = cast(EngineName, argv[1])

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
