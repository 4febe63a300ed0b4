"""The generator's programs: one at each host that sends or receives generated flows."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from controllers import routes
from outcast.emulation import c_programs, senders, standalone
from outcast.emulation.generator import generator
from outcast.emulation.part import Context, Part, Record
from outcast.errors import ReadBackError
from outcast.experiment import Experiment, Incast, Shuffle, TcpRand
from outcast.files import write_text
from outcast.plan import addresses
from outcast.plan.hints import longest_way_ns
from outcast.plan.model import Plan
from outcast.plan.schedule import TCP_PORT, UDP_PORT, Generated, generated_packet
from outcast.records import generated as results
from outcast.records.generated import Completed

READY_DEADLINE_S = 60.0
CONNECT_DEADLINE_S = 60.0
LONGEST_DRAIN_NS = 120 * 10**9
"""A datagram that takes longer counts as lost. Its queue makes captures and counters disagree."""
LATE_NS = 1_000_000
"""A flow that starts later than this after its time makes the run's timing doubtful."""


class Programs(Part):
    def __init__(self, run: Context) -> None:
        super().__init__(run)
        self._start_file = run.scratch / "generator.start"
        self._t_start_ns = 0

    def prepare(self) -> None:
        """Starts every program and waits until all listen."""
        run, plan = self._run, self._run.plan
        if not plan.generated:
            return
        write_text(
            results.schedule_file(run.directory),
            "".join(json.dumps(asdict(flow)) + "\n" for flow in plan.generated),
        )
        library, has_tcp = None, any(flow.size_bytes is not None for flow in plan.generated)
        if run.experiment.transport.tcprand is not None and has_tcp:
            library = c_programs.provide(c_programs.TCPRAND, run.scratch, run.commands)
        for host, task in tasks(run.experiment, plan, library).items():
            task_file = run.scratch / f"generator.{host}.json"
            task_file.write_text(json.dumps(task), encoding="utf-8")
            result_file = results.result_file(run.directory, host)
            files = (task_file, self._start_file, result_file)
            self.ending.append(
                run.commands.spawn(
                    f"the traffic generator at {host}",
                    standalone.command(generator.__name__, *files),
                    netns=run.netns(host),
                    stdout=run.scratch / f"generator.{host}.out",
                    stderr=run.scratch / f"generator.{host}.err",
                )
            )
        self._await_word("ready", "to listen", READY_DEADLINE_S)

    def _await_word(self, word: str, what: str, deadline_s: float) -> None:
        for process in self.ending:
            process.await_word(word, f"{process.name} {what}", deadline_s)

    def connect(self) -> None:
        """Makes all programs open their standing connections now, and waits for them."""
        if self.ending:
            write_text(Path(f"{self._start_file}{generator.CONNECT_SUFFIX}"), "")
        self._await_word("connected", "to connect", CONNECT_DEADLINE_S)

    def start(self, t_start_ns: int) -> None:
        self._t_start_ns = t_start_ns
        if self.ending:
            write_text(self._start_file, str(t_start_ns))

    def finish(self) -> Record:
        if not self.ending:
            return Record(effective={"workloads": {}})
        directory, transport = self._run.directory, self._run.experiment.transport
        control = transport.congestion_control
        for row in results.read_rows(directory):
            used = row.get("congestion_control", control)
            if used != control:
                raise ReadBackError(
                    f"generated flow {row.get('flow', '')}", "congestion control", control, used
                )
        smallest = check_smallest_payloads(transport.tcprand, results.read_rows(directory))
        flows = results.read_generated_flows(directory, self._t_start_ns)
        late = [flow.late_ns for flow in flows if flow.late_ns is not None]
        facts: dict[str, Any] = {
            "workloads.flows": len(flows),
            "workloads.unfinished": sum(
                flow.end_ns is None for flow in flows if flow.planned.size_bytes is not None
            ),
            "workloads.failed": sum(flow.error is not None for flow in flows),
            "workloads.latest_start_ns": max(late, default=0),
        }
        if smallest is not None:
            facts["workloads.tcprand.smallest_payload_bytes"] = "{} to {}".format(*smallest)
        return Record(effective={"workloads": facts}, warnings=warnings_of(flows))


def warnings_of(flows: Sequence[Completed]) -> list[str]:
    warnings = []
    late = [late_ns for flow in flows if (late_ns := flow.late_ns or 0) > LATE_NS]
    if late:
        warnings.append(
            f"{len(late)} of {len(flows)} generated flows started more than "
            f"{LATE_NS / 1e6:g} ms after their time, the last by {max(late) / 1e6:.1f} ms; "
            "less load, or the virtual engine, keeps the schedule"
        )
    failed = [flow for flow in flows if flow.error is not None]
    if failed:
        first = failed[0]
        warnings.append(
            f"{len(failed)} of {len(flows)} generated flows failed, the first from "
            f"{first.planned.src} to {first.planned.dst}: {first.error}"
        )
    for flow in flows:
        planned = flow.planned.datagrams
        # The last datagram may be due at the very end.
        if planned is not None and (flow.sent or 0) < planned - 1:
            warnings.append(
                f"the stream from {flow.planned.src} to {flow.planned.dst} sent {flow.sent or 0} "
                f"of {planned} datagrams; a lower rate or larger datagrams keep the schedule"
            )
    return warnings


def check_smallest_payloads(
    tcprand: TcpRand | None, rows: Iterable[Mapping[str, Any]]
) -> tuple[int, int] | None:
    """The smallest and the largest rMin of all connections; None if no payload was random.

    Raises ReadBackError: a connection's rMin differs from the request, or its payloads do.
    """
    smallest: list[int] = []
    for row in rows:
        used = row.get("smallest_payload")
        where = f"generated flow {row.get('flow', '')}"
        if used is None:
            if tcprand is not None and row.get("sent_bytes"):
                raise ReadBackError(where, "payloads", "of random sizes", "of any size")
            continue
        least, most = used
        if tcprand is None:
            raise ReadBackError(where, "payloads", "of any size", f"of {least} bytes or more")
        senders.check_smallest_payload(tcprand, (least, most), where)
        smallest += used
    return (min(smallest), max(smallest)) if smallest else None


def tasks(
    experiment: Experiment, plan: Plan, library: Path | None = None
) -> dict[str, dict[str, Any]]:
    """Each host's task, as generator.py reads it; `library` is that of TCPRand's payloads."""
    by_host: dict[str, dict[str, Any]] = {}

    def task(host: str) -> dict[str, Any]:
        if host not in by_host:
            by_host[host] = {
                "ips": plan.addresses(host),
                "tcp_port": TCP_PORT,
                "udp_port": UDP_PORT,
                "end_ns": experiment.duration_ns,
                **{name: [] for name in ("send", "turns", "receive", "answer", "ask")},
                **{name: [] for name in ("streams", "datagrams_from")},
            }
        return by_host[host]

    by_workload: dict[int, list[Generated]] = defaultdict(list)
    for flow in plan.generated:
        by_workload[flow.workload].append(flow)
    for index, flows in by_workload.items():
        dscp = experiment.workloads[index].dscp
        for flow in flows if dscp else ():
            task(flow.src).setdefault("tos", {})[str(flow.sport)] = dscp << 2
        match experiment.workloads[index]:
            case Incast() as incast:
                _add_incast(task, plan, index, incast, flows)
            case Shuffle() as shuffle:
                _add_shuffle(task, plan, shuffle, flows)
            case _:
                _add_timed(task, experiment, plan, flows)
    if experiment.transport.tcprand is not None:
        _add_tcprand(by_host, experiment.transport.tcprand, experiment.seed, plan, library)
    return by_host


def _add_tcprand(
    by_host: Mapping[str, dict[str, Any]],
    tcprand: TcpRand,
    seed: int,
    plan: Plan,
    library: Path | None,
) -> None:
    """Adds what senders need for payloads of random sizes: a seed for each connection, by port."""
    for flow in plan.generated:
        if flow.size_bytes is None:
            continue
        mine = by_host[flow.src].setdefault(
            "tcprand",
            {
                "library": str(library),
                "least": tcprand.min_payload or 0,
                "adaptive": senders.adaptive_numbers(tcprand),
                "seeds": {},
            },
        )
        # An incast's connection keeps its numbers from block to block.
        own = random.Random(f"{seed} tcprand generated {flow.flow}").getrandbits(64)
        mine["seeds"].setdefault(str(flow.sport), own)


_Task = Callable[[str], dict[str, Any]]


def _add_timed(task: _Task, experiment: Experiment, plan: Plan, flows: Sequence[Generated]) -> None:
    longest_ns: dict[tuple[str, ...], int] = {}
    for flow in flows:
        src_ip, dst_ip = _ip(plan, flow, flow.src), _ip(plan, flow, flow.dst)
        if flow.size_bytes is None:
            task(flow.src)["streams"].append(
                [
                    *(flow.flow, flow.start_ns, flow.end_ns, dst_ip, flow.sport),
                    *(flow.datagram_bytes, flow.gap_ns),
                ]
            )
            task(flow.dst)["datagrams_from"].append([flow.flow, src_ip, flow.sport])
            packet = generated_packet(plan.graph, flow)
            way = routes.path(plan.routes, plan.graph, flow.src, flow.dst, packet)
            if tuple(way) not in longest_ns:
                longest_ns[tuple(way)] = longest_way_ns(experiment, plan, way)
            after_ns = min(generator.DRAIN_NS // 2 + longest_ns[tuple(way)], LONGEST_DRAIN_NS)
            until_ns = experiment.duration_ns + after_ns
            known_ns = task(flow.dst).get("datagrams_until_ns", 0)
            task(flow.dst)["datagrams_until_ns"] = max(until_ns, known_ns)
        else:
            task(flow.src)["send"].append(
                [flow.flow, flow.start_ns, dst_ip, flow.sport, flow.size_bytes]
            )
            task(flow.dst)["receive"].append([flow.flow, src_ip, flow.sport, flow.size_bytes])


def _ip(plan: Plan, flow: Generated, host: str) -> str:
    return addresses.address_of(plan.graph, host, flow.family)


def _add_shuffle(task: _Task, plan: Plan, shuffle: Shuffle, flows: Sequence[Generated]) -> None:
    by_source: dict[str, list[Generated]] = defaultdict(list)
    for flow in flows:
        by_source[flow.src].append(flow)
        task(flow.dst)["receive"].append(
            [flow.flow, _ip(plan, flow, flow.src), flow.sport, flow.size_bytes]
        )
    for src, mine in by_source.items():
        task(src)["turns"].append(
            {
                "start_ns": shuffle.start_ns,
                "concurrent": shuffle.concurrent,
                "transfers": [
                    [flow.flow, _ip(plan, flow, flow.dst), flow.sport, flow.size_bytes]
                    for flow in mine
                ],
            }
        )


def _add_incast(
    task: _Task, plan: Plan, index: int, incast: Incast, flows: Sequence[Generated]
) -> None:
    rounds: dict[int, list[int]] = defaultdict(list)
    for flow in flows:
        rounds[flow.round or 0].append(flow.flow)
    first = [flow for flow in flows if flow.round == 0]
    dst = first[0].dst
    task(dst)["ask"].append(
        {
            "start_ns": incast.start_ns,
            "block": incast.block_bytes,
            "senders": [[_ip(plan, flow, flow.src), flow.sport] for flow in first],
            "rounds": list(rounds.values()),
        }
    )
    for flow in first:
        answer = [_ip(plan, flow, flow.dst), flow.sport, incast.block_bytes, index]
        task(flow.src)["answer"].append(answer)
