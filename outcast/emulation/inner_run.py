"""The run itself, in the inner program (`python -m outcast.emulation`, see `__main__.py`).

It reads config.yaml and plan.json in the run directory. It builds and verifies the network, runs
the flows, and writes captures, counters, flow logs and the manifest.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from outcast.emulation import instants
from outcast.emulation import manifest as records
from outcast.emulation.commands import SystemCommands
from outcast.emulation.generator.tasks import Programs
from outcast.emulation.kernel import counters, sampling, sockets
from outcast.emulation.kernel.kernel_events import Recorder
from outcast.emulation.network import forwarding, lossy_links, multipath, transport
from outcast.emulation.network.controller import Controller, verify_paths, verify_tables
from outcast.emulation.network.lossy_links import BlackoutSwitch
from outcast.emulation.network.network import Network
from outcast.emulation.network.openvswitch import OpenVSwitch
from outcast.emulation.part import DURING, Context, Part, Record
from outcast.emulation.queues import port_queues
from outcast.emulation.queues.qdiscs import frame_time_warnings
from outcast.emulation.traffic import capture, iperf
from outcast.emulation.traffic.load import LoadMeter, read_load
from outcast.errors import CommandError
from outcast.experiment import load_resolved
from outcast.experiment.engine import EngineName
from outcast.files import write_json
from outcast.plan import link_words
from outcast.plan.flows import all_transports
from outcast.plan.hints import beforehand
from outcast.records.flows import TrafficRecord
from outcast.records.run_directory import RunDirectory

if TYPE_CHECKING:
    from outcast.plan.programs import Command

GOODPUT_PAUSE_S = 1.0
_AT_START_S = -0.01
"""When links' counters are read for the start: all flows have connected, and no flow sends yet."""

Made = TypeVar("Made", bound=Part)


def run(
    directory: RunDirectory, engine: EngineName, emit: Callable[[Mapping[str, Any]], None]
) -> None:
    """Does one run. Raises OutcastError: it failed, and all that it started has been ended."""
    directory.captures.mkdir(exist_ok=True)
    directory.flows.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="outcast-", ignore_cleanup_errors=True) as scratch,
        SystemCommands() as commands,
    ):
        whole = _Run(directory, engine, emit, commands, Path(scratch))
        try:
            whole.go()
        except CommandError as error:
            print(error.in_full(), file=sys.stderr, flush=True)
            raise error.during(DURING[whole.phase]) from None


class _Run:
    """The run in progress, whose steps `go` takes in order.

    Attributes:
        record: what the manifest has so far.
        parts: the parts that were entered and not left.
        instants: fixed instants of virtual time, by the step that began then.
    """

    network: Network
    switches: OpenVSwitch
    blackout: BlackoutSwitch

    def __init__(
        self,
        directory: RunDirectory,
        engine: EngineName,
        emit: Callable[[Mapping[str, Any]], None],
        commands: SystemCommands,
        scratch: Path,
    ) -> None:
        experiment, plan = load_resolved(directory.config), directory.read_plan()
        self.context = Context(
            *(experiment, plan, engine, directory, scratch, commands, emit),
            netns=lambda host: self.network.netns(host),
            place=lambda node: self.network.place(node),
        )
        self.experiment, self.plan, self.directory = experiment, plan, directory
        self.commands, self.emit = commands, emit
        self.is_virtual = self.context.is_virtual
        self.instants: dict[str, int] = {}
        hints = beforehand(experiment, plan, engine)
        self.record = Record(effective={"instants_ns": self.instants}, warnings=hints)
        self.parts: list[Part] = []
        # In real time the kernel is the user's own.
        self.events = Recorder(plan.events, directory) if self.is_virtual else None
        self.at_start: counters.Counted | None = None
        self.at_end: counters.Snapshot | None = None
        self.phase = "setup"

    def sleep_to_instant(self, of: str, step_ns: int = instants.STEP_NS) -> None:
        if self.is_virtual:
            self.instants[of] = instants.sleep_to(step_ns)

    def enter(self, phase: str) -> None:
        self.phase = phase
        self.emit({"event": "phase", "phase": phase})

    def add(self, stack: ExitStack, part: Made) -> Made:
        stack.enter_context(part)
        self.parts.append(part)
        stack.callback(self.parts.remove, part)
        return part

    def watch(self) -> None:
        for part in self.parts:
            part.require_alive()

    def finish(self) -> None:
        finished = [part.finish() for part in reversed(self.parts)]
        for record in reversed(finished):
            self.record.add(record)

    def go(self) -> None:
        self.enter("setup")
        studied = [port.egress for port in (self.plan.bottleneck, *self.plan.others)]
        limits = link_words.limits(self.experiment, self.plan, studied)
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
            captures = capture.Captures(self.context)
            with ExitStack() as capturing:
                self.add(capturing, captures)
                before = counters.read(self.network)
                self.enter("connect")
                with ExitStack() as running:
                    self._run_flows(running)
                self.enter("capture_end")
                if unfinished := counters.await_empty(self.network, studied):
                    self.record.manifest["distrust"].append(unfinished)
                time.sleep(capture.RING_TIMEOUT_S * 1.25)
                self.watch()
            after = counters.read(self.network)
        read = (before, self.at_start, self.at_end, after)
        self.directory.write_counters(counters.record(self.plan, *read, captures.records))
        self.record.manifest |= {
            "datapath": self.switches.datapath,
            "blackout": self.blackout.record,
            "captures": captures.records,
        }
        self.directory.write_manifest(records.manifest(self.context, self.record))
        self.emit({"event": "done"})

    def _build(self, stack: ExitStack) -> None:
        if self.is_virtual:
            # The guest's first namespace is the initial one. On a host the engine does it outside.
            for settings in all_transports(self.experiment):
                transport.allow_congestion_control(settings.congestion_control)
        self.switches = OpenVSwitch(self.commands, self.context.scratch)
        controller = self.add(stack, Controller(self.context))
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
            self.network.steer_arrivals(arrivals_core, self.context.scratch / "sys")
        if self.switches.datapath == "netdev":
            forwarding.create_bridges(self.plan, self.commands)
        self.blackout = self.add(stack, BlackoutSwitch(self.context))
        self.switches.create_switches(self.plan, controller.target)
        # Before the instant, because how long this takes would shift the probes.
        framework = controller.await_ready()
        self.sleep_to_instant("queues")
        with self.switches.held():
            queues = port_queues.configure(self.network)
        self.enter("verify")
        self.record.effective.update(
            hosts=hosts,
            queues=queues,
            arrivals_core=arrivals_core,
            forwarding=self._verify(),
            routing=records.routing(self.plan),
            controller_framework=framework,
            mtus=self.network.read_mtus(),
        )
        if split := self.record.effective["routing"].get("split"):
            self.emit({"event": "split", "flows": split})
        self.record.warnings += self.network.warnings
        if self.is_virtual:  # Ordinary kernels lack it, as the documentation says.
            self.record.warnings += frame_time_warnings()

    def _execute(self, command: Command) -> None:
        """Runs the plan's command, beside its servers. Events count from the command's start."""
        from outcast.emulation.programs import launch

        self.enter("command")
        with ExitStack() as stack:
            self._add_programs(stack)
            self._add_changes(stack)
            self.sleep_to_instant("connect", instants.CONNECT_STEP_NS)
            lossy_links.start_losing(self.experiment, self.plan)
            t_start_ns = time.time_ns()
            for part in self.parts:
                part.start(t_start_ns)
            launch.execute(self.context, command, self.watch)
            self.finish()

    def _verify(self) -> str:
        """Verifies tables and paths; returns the name of what forwards packets."""
        dump_flows = partial(self.switches.ask, "bridge/dump-flows")
        tables = verify_tables(self.plan, dump_flows, self.commands)
        forwards = "Open vSwitch"
        if self.switches.datapath == "netdev":
            forwarding.install(self.plan, tables, self.commands)
            forwards = "Linux bridge, by Open vSwitch's flow tables"
        verify_paths(self.network)
        return forwards

    def _run_flows(self, stack: ExitStack) -> None:
        flows, logs, netns = self.plan.flows, self.directory.flows, self.network.netns
        generators = self.add(stack, Programs(self.context))
        sending = iperf.flows_of(self.context)
        subflow_limits = multipath.configure(
            flows, netns, self.commands, self.network.further_interfaces
        )
        self._add_programs(stack)
        self.add(stack, sending)
        self._add_probes(stack)
        series, every_ns = sampling.series_of(self.context), self.experiment.samples.every_ns
        self.add(stack, sampling.Sampler(self.directory.samples, series, every_ns or 0))
        self._add_changes(stack)
        if self.events is not None:
            self.events.record(instants.CONNECT_STEP_NS)
        self.sleep_to_instant("connect", instants.CONNECT_STEP_NS)
        sending.connect(counters.longest_round_trip_ns(self.plan))
        losses = lossy_links.start_losing(self.experiment, self.plan)
        samples: list[sockets.SocketSample] = []
        if sending.start_afterwards:
            generators.connect()
            # On a slow machine flows may have ended when the middle sample is taken.
            samples += sockets.sample_flows(flows, netns)
        t_start_ns, start, warnings = sending.set_start()
        for part in self.parts:
            part.start(t_start_ns)
        middle_ns = self.experiment.duration_ns / 2
        active = [f for f in flows if f.duration_ns and 0 <= middle_ns - f.start_ns < f.duration_ns]
        others = [flow for flow in flows if flow not in active]
        sockets.check_sockets(others, sockets.sample_flows(others, netns))
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
            distrust=sockets.failed_checks(
                flows, active, samples, steady=not (self.experiment.events or self.plan.traces)
            ),
        )
        write_json(logs / "sockets.json", [asdict(sample) for sample in samples])

    def _add_programs(self, stack: ExitStack) -> None:
        """Starts the configuration's programs; its servers are ready then.

        Its modules are imported here, because imports change a run's bytes, and runs without
        programs must not change.
        """
        if not self.plan.programs and self.plan.command is None:
            return
        from outcast.emulation.programs import launch, names

        if self.is_virtual:
            launch.bound_processes()
            # In real time a machine's own names stay as they are.
            self.add(stack, names.HostNames(self.context))
        if self.plan.programs:
            self.add(stack, launch.UserPrograms(self.context))

    def _add_probes(self, stack: ExitStack) -> None:
        if self.plan.probes:
            from outcast.emulation.traffic.probing import Probes

            # The kernel draws IPv4's identifiers and flow labels when a socket is opened.
            self.sleep_to_instant("probes")
            self.add(stack, Probes(self.context))

    def _add_changes(self, stack: ExitStack) -> None:
        if self.experiment.events or self.plan.traces:
            from outcast.emulation.network.changes import changer

            self.add(stack, changer(self.context))

    def _await_end(
        self, t_start_ns: int, subflows: multipath.Subflows, samples: list[sockets.SocketSample]
    ) -> LoadMeter:
        """Waits for the flows' end and reports goodput; adds to `samples` in the middle."""
        flows, duration_ns = self.plan.flows, self.experiment.duration_ns
        duration_s = duration_ns / 1e9
        middle_s = duration_s / 2
        pause_s = min(GOODPUT_PAUSE_S, duration_s / 5)
        paused = (pause_s * n for n in range(1, int(duration_s / pause_s) + 1))
        times = sorted({_AT_START_S, middle_s, duration_s, *paused})
        due = {middle_s}
        group_by = self.experiment.analysis.group_by
        goodput = iperf.Goodput(self.plan, group_by, self.network.netns) if flows else None
        load = LoadMeter(partial(read_load, self.switches.pid, max(os.sched_getaffinity(0))))

        def watch() -> None:
            self.watch()
            # Under virtual time nothing waits for the CPU.
            if not self.is_virtual and time.time_ns() >= t_start_ns:
                load.tick()

        def on_sample(t_s: float) -> None:
            if self.at_start is None:
                self.at_start = counters.read_links(self.network)
                return
            if due and t_s >= middle_s:
                due.clear()
                samples.extend(sockets.sample_flows(flows, self.network.netns))
            if t_s >= duration_s and self.at_end is None:
                self.at_end = counters.read(self.network)
            if goodput is not None:
                self.emit(goodput.event(t_s, subflows))

        def running() -> list[str]:
            return [name for part in self.parts for name in part.running()]

        iperf.await_end(running, t_start_ns, duration_ns, watch, on_sample, times)
        load.finish()
        return load
