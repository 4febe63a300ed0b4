"""Probes: a program at each sender, and one that answers at each receiver of UDP probes."""

from __future__ import annotations

import signal

from outcast.emulation import c_programs
from outcast.emulation.part import Part, Record, as_record
from outcast.experiment import Experiment
from outcast.plan.hints import longest_way_ns
from outcast.plan.model import Plan
from outcast.plan.probes import ECHO_PORT, Probe, base_rtt_ns
from outcast.records.flows import ProbeRecord, probe_file

READY_DEADLINE_S = 60.0
END_DEADLINE_S = 10.0
DRAIN_NS = 20_000_000
"""How much longer the program waits for the last answer than full queues take."""
LONGEST_DRAIN_NS = 30 * 10**9
"""An answer that takes longer counts as lost."""


class Probes(Part):
    def prepare(self) -> None:
        run, plan, logs = self._run, self._run.plan, self._run.directory.flows
        program = str(c_programs.provide(c_programs.PROBE, run.scratch, run.commands))
        self.lasting = [
            run.commands.spawn(
                f"the answerer of probes at {host}",
                [program, "answer", "--port", str(ECHO_PORT)],
                netns=run.netns(host),
                stdout=logs / f"probes.{host}.out",
                stderr=logs / f"probes.{host}.err",
            )
            for host in sorted({probe.dst for probe in plan.probes if probe.kind == "udp"})
        ]
        self.ending = [
            run.commands.spawn(
                f"probe {probe.probe} at {probe.src}",
                arguments(program, probe, drain_ns(run.experiment, plan, probe)),
                netns=run.netns(probe.src),
                stdout=probe_file(logs, probe.probe),
                stderr=logs / f"probe.{probe.probe}.err",
                hears=True,
            )
            for probe in plan.probes
        ]
        for process in (*self.lasting, *self.ending):
            process.await_word("ready", f"{process.name} to be ready", READY_DEADLINE_S)

    def start(self, t_start_ns: int) -> None:
        for process in self.ending:
            process.tell(str(t_start_ns))

    def finish(self) -> Record:
        # The programs have written the measurements.
        return Record({"probes": records(self._run.plan)})

    def end(self) -> None:
        self.require_alive()
        for process in self.lasting:
            process.end(signal.SIGTERM, END_DEADLINE_S)


def arguments(program: str, probe: Probe, after_ns: int) -> list[str]:
    """The command line of a probe that waits `after_ns` for the last answer."""
    words = {
        "kind": probe.kind,
        "from": probe.src_ip,
        "to": probe.dst_ip,
        "sport": probe.sport,
        "dport": probe.dport,
        "payload": probe.payload_bytes,
        "first": probe.start_ns,
        "every": probe.every_ns,
        "count": probe.packets,
        "drain": after_ns,
        **({"tos": probe.dscp << 2} if probe.dscp else {}),
    }
    options = [part for key, value in words.items() for part in (f"--{key}", str(value))]
    return [program, "ask", *options]


def drain_ns(experiment: Experiment, plan: Plan, probe: Probe) -> int:
    """How long an answer may take: as full queues on the whole way take, and a little more."""
    longest_ns = sum(longest_way_ns(experiment, plan, way) for way in _ways(plan, probe))
    return min(longest_ns + DRAIN_NS, LONGEST_DRAIN_NS)


def records(plan: Plan) -> list[ProbeRecord]:
    return [
        as_record(
            ProbeRecord, probe, base_rtt_ns=base_rtt_ns(plan.links, probe, *_ways(plan, probe))
        )
        for probe in plan.probes
    ]


def _ways(plan: Plan, probe: Probe) -> tuple[list[str], list[str]]:
    packet = probe.headers
    return (
        plan.path(probe.src, probe.dst, packet),
        plan.path(probe.dst, probe.src, packet.reversed()),
    )
