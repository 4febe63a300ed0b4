"""The run itself, inside an isolated environment: `python -m outcast.emulation.inside RUN_DIR`.

Both engines start this program, the realtime one in fresh network, mount and process namespaces,
the virtual one as the payload of its guest. It reads config.yaml and plan.json in RUN_DIR,
builds and verifies the network, captures, runs the flows, and writes captures, counters, flow
logs and the manifest.

It reports on standard output, one JSON object a line:

```
{"event": "phase", "phase": "setup"}                  a phase begins
{"event": "goodput", "t_s": 1.5, "classes": {"2": 4.1e6}}   mean of the class since the last one
{"event": "done"}
{"event": "error", "kind": "ReadBackError", "message": "..."}   and exit status 1
```
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from controllers.entries import HASH_FIELDS
from outcast import __version__, files
from outcast.emulation import (
    capture,
    counters,
    forwarding,
    multipath,
    queues,
    receivers,
    sampling,
    senders,
    sockets,
    traffic,
    transport,
)
from outcast.emulation import link_counters as links
from outcast.emulation import manifest as records
from outcast.emulation.blackout_switch import BlackoutSwitch
from outcast.emulation.commands import SystemCommands
from outcast.emulation.controller import Controller, verify_paths, verify_tables
from outcast.emulation.generator.programs import Programs
from outcast.emulation.load import LoadMeter, read
from outcast.emulation.network import Network
from outcast.emulation.openvswitch import Datapath, OpenVSwitch
from outcast.emulation.phases import DURING
from outcast.errors import CommandError, OutcastError, ReadBackError, RunError
from outcast.experiment import Experiment, load_resolved
from outcast.files import write_json
from outcast.plan import ports
from outcast.plan import transport as plan_transport
from outcast.plan.flows import Flow
from outcast.plan.model import Plan
from outcast.records.run_directory import (
    BlackoutRecord,
    BottleneckRecord,
    CaptureRecord,
    Counters,
    HostCounters,
    Manifest,
    PortCounters,
    RunDirectory,
    TrafficRecord,
)

DRAIN_DEADLINE_S = 10.0
GOODPUT_PAUSE_S = 1.0
_LONGEST_MESSAGE = 300

_Read = tuple[dict[str, Any], dict[str, Any], links.Interfaces]
"""Counters of captured ports, of hosts, and of every switch port's interface."""
Emit = Callable[[Mapping[str, Any]], None]


def run(directory: RunDirectory, engine: Literal["realtime", "virtual"], emit: Emit) -> None:
    """One run, from the resolved configuration to the manifest.

    Raises:
        OutcastError: whatever went wrong; everything started here has then been ended.
    """
    experiment = load_resolved(directory.config)
    plan = directory.read_plan()
    directory.captures.mkdir(exist_ok=True)
    directory.flows.mkdir(exist_ok=True)
    commands = SystemCommands()
    scratch = Path(tempfile.mkdtemp(prefix="outcast-"))
    try:
        whole = _Run(directory, experiment, plan, engine, emit, commands, scratch)
        try:
            whole.go()
        except CommandError as error:
            print(error.in_full(), file=sys.stderr, flush=True)
            raise error.during(DURING[whole.phase]) from None
    finally:
        commands.end_all()
        shutil.rmtree(scratch, ignore_errors=True)


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
        self.samples: list[sockets.SocketSample] = []
        self.subflows: multipath.Subflows = {}
        self.received: dict[int, tuple[float, int]] = {}
        self.warnings: list[str] = []
        self.blackout: BlackoutRecord | None = None
        self.phase = "setup"

    def enter(self, phase: str) -> None:
        self.phase = phase
        self.emit({"event": "phase", "phase": phase})

    def go(self) -> None:
        self.enter("setup")
        if self.engine == "virtual":
            # The guest's first namespace is the initial one; on a host the engine outside does it.
            for each in plan_transport.all_of(self.experiment):
                transport.allow_congestion_control(each.congestion_control)
        switches = OpenVSwitch(self.commands, self.scratch)
        controller = Controller(self.plan, self.commands, self.scratch)
        network = Network(self.experiment, self.plan, self.commands)
        core = max(os.sched_getaffinity(0))
        try:
            switches.start()
            network.build()
            if (os.cpu_count() or 1) > 1:
                network.steer_arrivals(core, self.scratch / "sys")
            if switches.datapath == "netdev":
                forwarding.create_bridges(self.plan, self.commands)
            blackout = BlackoutSwitch(self.experiment, self.plan, self.scratch, self.commands)
            blackout.start()
            network.start_switches(switches.datapath, controller.target)
            network.configure_queues()
            framework = controller.await_ready()
            self.enter("verify")
            tables = verify_tables(self.plan, self.commands)
            if switches.datapath == "netdev":
                forwarding.install(self.plan, tables, self.commands)
                network.effective["forwarding"] = "Linux bridge, by Open vSwitch's flow tables"
            else:
                network.effective["forwarding"] = "Open vSwitch"
            verify_paths(network)
            self._record_routing(network)

            load = LoadMeter(lambda: read(switches.pid, core))

            def watch() -> None:
                switches.require_alive()
                controller.require_alive()
                capture.require_alive(captures)
                blackout.require_alive()

            self.enter("capture_start")
            captures = capture.start(
                self.plan.capture_ports, self.directory.captures, self.scratch, self.commands
            )
            before = self._read_counters(network)
            self.enter("traffic")
            record = self._run_flows(network, watch, load, blackout.end_drops)
            self.enter("capture_end")
            self._drain(network)
            watch()
            capture_records = capture.stop(captures, self.directory.path)
            after = self._read_counters(network)
            self.blackout = blackout.stop(self.directory)
            controller.stop()
            switches.stop()
        finally:
            network.close()
        network.effective.update(load.effective())
        self._write(
            network,
            switches.datapath,
            framework,
            record,
            capture_records,
            before,
            after,
            [*load.warnings(), *self.warnings],
        )
        self.emit({"event": "done"})

    def _run_flows(
        self,
        network: Network,
        watch: Callable[[], None],
        load: LoadMeter,
        on_end: Callable[[], None],
    ) -> TrafficRecord:
        flows = self.plan.flows
        logs = self.directory.flows
        duration_ns = self.experiment.duration_ns
        generators = Programs(
            self.experiment, self.plan, self.directory, self.scratch, self.commands
        )
        generators.prepare(network.netns)
        stream = None
        if any(senders.sends(flow) for flow in flows):
            stream = senders.build(self.scratch, self.commands)
        # Under virtual time computing takes none: a start that is set beforehand is never missed.
        afterwards = self.engine == "realtime"
        held_start = None
        if afterwards and not all(senders.sends(flow) for flow in flows):
            held_start = senders.build_held_start(self.scratch, self.commands)
        subflows = multipath.configure(flows, network.netns, self.commands)
        if subflows:
            network.effective["mptcp.subflows"] = subflows
        servers = traffic.start_servers(
            *(flows, network.netns, logs, self.commands, stream, held_start),
        )
        connected = traffic.connect_clients(
            *(flows, network.netns, logs, self.commands, stream, self.experiment.seed),
            links.longest_round_trip_ns(self.experiment, self.plan),
            start_afterwards=afterwards,
            held_start=held_start,
        )
        self.subflows = connected.subflows
        if afterwards:
            generators.connect()
            # On a slow machine the sample in the middle may come when flows have ended.
            self.samples += self._sample(network, flows)
        clients = traffic.set_start(flows, connected)
        generators.start(clients.t_start_ns)
        network.effective.update(clients.effective)
        self.warnings += clients.warnings
        receivers.read_in_batches(server.popen.pid for server in servers)
        duration_s = duration_ns / 1e9
        middle_s = duration_s / 2
        active = [f for f in flows if _is_active(f.start_ns, f.duration_ns, middle_s)]
        self._check_connected(network, [flow for flow in flows if flow not in active])
        pause_s = min(GOODPUT_PAUSE_S, duration_s / 5)
        times = sorted({middle_s, *(pause_s * n for n in range(1, int(duration_s / pause_s) + 1))})
        reported = {middle_s}

        def on_sample(t_s: float) -> None:
            if reported and t_s >= middle_s:
                reported.clear()
                self.samples += self._sample(network, flows)
            self._report_goodput(network, t_s)

        def watch_running() -> None:
            watch()
            for server in servers:
                server.require_alive()
            sampler.require_alive()
            # Under virtual time the CPU is never waited for.
            if self.engine == "realtime" and time.time_ns() >= clients.t_start_ns:
                load.tick()

        sampler = sampling.Sampler(
            self.directory.samples,
            sampling.series_of(self.plan, network.netns),
            clients.t_start_ns,
            self.experiment.samples.every_ns or 0,
        )
        with sampler:
            traffic.await_end(
                *(flows, clients, duration_ns, watch_running, on_sample, times), generators.running
            )
        facts, warnings = generators.verify(clients.t_start_ns)
        network.effective.update(facts)
        self.warnings += warnings
        network.effective.update(sampler.effective())
        on_end()
        t_end_ns = time.time_ns()
        load.finish()
        traffic.stop_servers(servers)
        sockets.check_sockets(active, self.samples)
        for requested_ns in sorted({flow.transport.min_rto_ns for flow in flows}):
            min_rto_ns = transport.effective_min_rto_ns(requested_ns, transport.kernel_hz())
            own = {flow.sport for flow in flows if flow.transport.min_rto_ns == requested_ns}
            if min_rto_ns is not None:
                sockets.check_min_rto(
                    [sample for sample in self.samples if sample.local_port in own], min_rto_ns
                )
        return TrafficRecord(
            t_start_ns=clients.t_start_ns, t_end_ns=t_end_ns, duration_ns=duration_ns
        )

    def _sample(self, network: Network, flows: Sequence[Flow]) -> list[sockets.SocketSample]:
        hosts = sorted({name for flow in flows for name in (flow.src, flow.dst)})
        return [
            sample
            for host in hosts
            for sample in sockets.sample_sockets(network.netns(host), self.commands)
        ]

    def _check_connected(self, network: Network, flows: Sequence[Flow]) -> None:
        """The same as in the middle of the run, of flows that will not be active then."""
        sockets.check_sockets(flows, self._sample(network, flows))

    def _report_goodput(self, network: Network, t_s: float) -> None:
        """The mean goodput of each class since the last report, from the receivers' sockets."""
        if not self.plan.flows:
            return
        by_port: dict[int, int] = {}
        for host in sorted({flow.dst for flow in self.plan.flows}):
            for sample in sockets.sample_sockets(network.netns(host), self.commands):
                by_port[sample.peer_port] = int(sample.values.get("bytes_received", "0"))
        rates: dict[str, list[float]] = {}
        for flow in self.plan.flows:
            last_t_s, last_bytes = self.received.get(flow.sport, (0.0, 0))
            now_bytes = by_port.get(flow.sport, last_bytes) + sum(
                by_port.get(sport, 0) for sport, _ in self.subflows.get(flow.flow, ())
            )
            if t_s > last_t_s:
                rate_bps = (now_bytes - last_bytes) * 8 / (t_s - last_t_s)
                rates.setdefault(str(flow.hops), []).append(rate_bps)
            self.received[flow.sport] = (t_s, now_bytes)
        classes = {hops: round(sum(each) / len(each)) for hops, each in sorted(rates.items())}
        self.emit({"event": "goodput", "t_s": round(t_s, 3), "classes": classes})

    def _drain(self, network: Network) -> None:
        """Until the studied queues are empty and tcpdump has read its ring."""
        end = time.monotonic() + DRAIN_DEADLINE_S
        studied = [each.egress for each in (self.plan.bottleneck, *self.plan.others)]
        while left := [
            port
            for port, counted in counters.port_counters(network, studied).items()
            if counted["qlen"]
        ]:
            if time.monotonic() > end:
                raise ReadBackError(left[0], "packets queued after the flows' end", 0, "some")
            time.sleep(0.05)
        time.sleep(capture.RING_TIMEOUT_S * 1.25)

    def _record_routing(self, network: Network) -> None:
        network.effective["routing.kind"] = self.plan.routes.kind
        network.effective["routing.openflow"] = self.plan.openflow
        if self.plan.routes.choices:
            split = links.split(self.plan)
            network.effective["routing.hash"] = f"Open vSwitch's over {', '.join(HASH_FIELDS)}"
            network.effective["routing.hash_seed"] = self.plan.routes.hash_seed
            network.effective["routing.split"] = split
            self.emit({"event": "split", "flows": split})

    def _read_counters(self, network: Network) -> _Read:
        captured_ports = sorted({port for port, _ in self.plan.capture_ports})
        hosts = sorted({name for pair in self.plan.pairs for name in pair})
        return (
            counters.port_counters(network, captured_ports),
            {host: counters.host_counters(network, host) for host in hosts},
            network.interface_counters(),
        )

    def _write(
        self,
        network: Network,
        datapath: Datapath,
        framework: str,
        record: TrafficRecord,
        captures: Sequence[CaptureRecord],
        before: _Read,
        after: _Read,
        warnings: list[str],
    ) -> None:
        experiment, plan = self.experiment, self.plan
        self.directory.write_counters(
            Counters(
                ports={
                    port: PortCounters(before=before[0][port], after=after[0][port])
                    for port in before[0]
                },
                hosts={
                    host: HostCounters(before=before[1][host], after=after[1][host])
                    for host in before[1]
                },
                captures=list(captures),
                links=links.records(experiment, plan, before[2], after[2]),
            )
        )
        write_json(
            self.directory.flows / "sockets.json", [asdict(sample) for sample in self.samples]
        )
        hz = transport.kernel_hz()
        network.effective["min_rto_ns"] = transport.effective_min_rto_ns(
            experiment.transport.min_rto_ns, hz
        )
        network.effective["controller_framework"] = framework
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
                effective=network.effective,
                traffic=record,
                flows=records.flows(plan, self.subflows),
                generated_hosts=sorted({flow.src for flow in plan.generated}),
                blackout=self.blackout,
                bottlenecks=[
                    BottleneckRecord(
                        switch=each.switch,
                        egress=each.egress,
                        ingress=list(each.ingress),
                        destinations=list(each.destinations),
                        queue=queues.record(ports.switch_queue(experiment, plan, each.egress)),
                    )
                    for each in (plan.bottleneck, *plan.others)
                ],
                captures=list(captures),
                warnings=warnings,
            )
        )


def _is_active(start_ns: int, duration_ns: int | None, t_s: float) -> bool:
    return duration_ns is not None and start_ns <= t_s * 1e9 < start_ns + duration_ns


def main(argv: Sequence[str]) -> int:
    """`RUN_DIR ENGINE`; see the module."""
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
        # A mistake of ours. It is named, since else the log's last lines would pass for the cause.
        traceback.print_exc()
        message = f"{type(error).__name__}: {' '.join(str(error).split())[:_LONGEST_MESSAGE]}"
        emit({"event": "error", "kind": RunError.__name__, "message": message})
        return 1
    return 0


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main(sys.argv[1:]))
