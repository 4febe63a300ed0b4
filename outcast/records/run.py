"""Reads a finished run: its records, its tables, and what follows from them.

Other modules read a finished run through `Run`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from controllers.hashing import TCP, FiveTuple
from outcast import experiment
from outcast.errors import InputError
from outcast.experiment import MTU_FRAME_BYTES, Experiment
from outcast.plan import grouping
from outcast.plan.model import Plan
from outcast.plan.topology import ingress_port
from outcast.records import captures
from outcast.records.captures import AnyManifest, CapturesManifest
from outcast.records.counters import NO_COUNTERS, Counters, Rates
from outcast.records.flows import BottleneckRecord, FlowRecord
from outcast.records.link_rate import LinkRate, link_rate
from outcast.records.run_directory import RunDirectory, read_record
from outcast.records.summary import GroupSummary, Summary
from outcast.records.tables import refusing, scan_table

IN_INTERVAL = "in_interval"
"""The column that says whether a row counts in the summary."""
OF_INTERVAL = {"packets": "packet", "blackouts": "blackout"}
"""The tables with this column, and the column that numbers their rows where some are left out."""

_MOST_IN_LABEL = 2
"""The most groups that a port's label names; of more it gives the number."""


@dataclass(frozen=True, slots=True)
class FlowsOfGroup:
    """A group of flows, by their numbers, as tables and figures show it.

    Its label is a key of the summary's groups; `controls` are the flows' congestion controls.
    """

    label: str
    controls: tuple[str, ...]
    flows: tuple[int, ...]
    summary: GroupSummary

    @property
    def title(self) -> str:
        """The label with the congestion controls: `2-hop (cubic)`."""
        return grouping.title(self.label, self.controls)

    @property
    def counted(self) -> str:
        """The title with the number of flows: `2-hop (cubic), 1 flow`."""
        return f"{self.title}, {len(self.flows)} flow{'' if len(self.flows) == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Way:
    """An input port and an output that its packets leave by."""

    ingress: str
    egress: str
    label: str


class Run:
    """A finished and analysed run, or joined captures in a folder of their own.

    A record is read at its first use and then kept. A table is read at every call and not kept,
    because a sweep or a reproduction holds hundreds of runs.

    Every reader raises InputError if its file is missing or cannot be read.
    """

    def __init__(self, directory: RunDirectory | Path) -> None:
        self.directory = RunDirectory(directory) if isinstance(directory, Path) else directory

    @cached_property
    def manifest(self) -> AnyManifest:
        """The run's manifest: what ran, and with which settings; or which captures were joined."""
        return captures.read_manifest(self.directory)

    @cached_property
    def counters(self) -> Counters:
        """The kernel's counters before and after the traffic; empty for joined captures."""
        return self.directory.read_counters() if self.captured is None else NO_COUNTERS

    @cached_property
    def plan(self) -> Plan | None:
        """The plan that was built for the run; None for joined captures, which do not show it."""
        return self.directory.read_plan() if self.directory.plan.exists() else None

    @cached_property
    def summary(self) -> Summary:
        """The analysis's findings."""
        hint = f"`outcast analyze {self.directory.path}` writes it"
        return read_record(self.directory.summary, Summary, hint)

    @cached_property
    def experiment(self) -> Experiment:
        """The requested experiment, with every default filled in.

        Raises InputError for joined captures too, because their experiment is not known.
        """
        if self.captured is not None:
            raise InputError(f"{self.directory.path}: holds joined captures; only runs have this")
        return experiment.load_resolved(self.directory.config)

    @property
    def captured(self) -> CapturesManifest | None:
        """The manifest of joined captures; None for a run."""
        return self.manifest if isinstance(self.manifest, CapturesManifest) else None

    @property
    def fair_bps(self) -> float | None:
        """An equal share of a flow; None if the flows do not share one output."""
        flows = [flow for flow in self.manifest.flows if flow.carries_data]
        is_one_output = not self.manifest.has_all_outputs or flows == self.manifest.compared_flows
        if not flows or not is_one_output:
            return None
        return self.summary.total_goodput_bps / len(flows)

    @property
    def trusted(self) -> bool:
        """Whether captures and counters agree."""
        return self.summary.capture.trusted

    @property
    def reasons(self) -> list[str]:
        """Why captures and counters do not agree; empty if they do."""
        if self.trusted:
            return []
        return self.summary.capture.reasons or ["no reason is given"]

    @property
    def tables(self) -> list[str]:
        """Names of the tables: the stems of the folder's Parquet files, and `trace/EVENT`."""
        folder = self.directory.path
        files = (*folder.glob("*.parquet"), *self.directory.trace.glob("[!.]*.parquet"))
        return sorted(str(path.relative_to(folder).with_suffix("")) for path in files)

    def scan(self, name: str, whole: bool = False) -> pl.LazyFrame:
        """Opens a table by its name. Only the columns and rows that are used are read.

        Of `packets` and `blackouts` it has the rows of the interval that the summary covers, or
        with `whole` all rows. A packet's or blackout's number is its row in the whole table. Where
        rows are left out, the column `packet` or `blackout` has this number.
        """
        table = scan_table(self._table_file(name))
        if whole or name not in OF_INTERVAL:
            return table
        return table.with_row_index(OF_INTERVAL[name]).filter(IN_INTERVAL)

    def table(self, name: str, whole: bool = False) -> pl.DataFrame:
        """Reads a table by its name; `whole` is as for `scan`."""
        with self.reading():
            return self.scan(name, whole).collect()

    def _table_file(self, name: str) -> Path:
        path = self.directory.path
        # The manifest's reader refuses a folder that is no run, or that holds links or FIFOs.
        _ = self.manifest
        if name not in self.tables:
            # A run that was not analysed has no summary either, and its error says what to do.
            _ = self.summary
            listed = ", ".join(self.tables) or "none"
            raise InputError(
                f"{path}: no {name}.parquet; its tables: {listed}; `outcast analyze {path}` writes "
                f"those of the analysis"
            )
        return path / f"{name}.parquet"

    def reading(self, remedy: str | None = None) -> AbstractContextManager[None]:
        """Turns errors from tables into InputError, within a `with` block.

        A table may be broken. It may also be whole and lack a column, because another program or
        version wrote it. `remedy` says what writes it again, if the analysis does not.
        """
        path = self.directory.path
        if remedy is None:
            remedy = f"`outcast analyze {path}` writes them again"
        return refusing(f"{path}: its tables cannot be read", f"; {remedy}")

    def reading_events(self) -> AbstractContextManager[None]:
        """As `reading`, for the tables of the kernel's events."""
        path = self.directory.path
        return self.reading(
            f"remove {self.directory.trace}, then `outcast trace {path}` records them again"
        )

    @property
    def hops(self) -> list[int]:
        """The distinct hop counts of the flows, in ascending order; none in joined captures."""
        return sorted({flow.hops for flow in self.manifest.compared_flows if flow.hops is not None})

    @cached_property
    def groups(self) -> tuple[FlowsOfGroup, ...]:
        """The groups of the grouping that tables and figures show (`analysis.group_by`).

        There are none without flows.
        """
        kind = self.summary.group_by
        summaries = self.summary.grouped(kind)
        planned = self.manifest.groups.get(kind, {})
        return tuple(
            FlowsOfGroup(
                label,
                grouping.controls(records),
                tuple(record.flow for record in records),
                summaries[label],
            )
            for label, records in planned.items()
        )

    def counts(self, t_ns: pl.Expr) -> pl.Expr:
        """Whether the summary counts packets that came at these times after the traffic's start.

        Joined captures have one interval alone, and their clocks may have been corrected.
        """
        low, high = self.summary.start_s * 1e9, self.summary.end_s * 1e9
        return t_ns.is_between(low, high, closed="left") | (self.captured is not None)

    @cached_property
    def group_of(self) -> dict[int, str]:
        """The label of each flow's group, by the flow's number."""
        return {flow: group.label for group in self.groups for flow in group.flows}

    @property
    def marked(self) -> str | None:
        """The group that figures bring out: the one that may be starved.

        It is the class with the fewest hops, or the second group of `analysis.compare`. None if it
        is not among the groups shown.
        """
        compare = self.summary.compare
        if compare is None:  # one class
            by_class = self.summary.group_by == "hops" and len(self.groups) > 1
            return self.groups[0].label if by_class else None
        is_compared = (
            compare.by == self.summary.group_by and compare.groups[1] in self.group_of.values()
        )
        return compare.groups[1] if is_compared else None

    def port_groups(self, port: str) -> list[str]:
        """The labels of the groups whose flows come in by a port.

        A port that feeds two bottlenecks has two entries in the summary's drops. The second is
        `s1-eth2>s1-eth1`.
        """
        mine = {self.group_of.get(flow.flow) for flow in self._by_port(port)}
        return [group.label for group in self.groups if group.label in mine]

    def port_flows(self, port: str) -> str:
        """The groups of the flows that come in by a port, and their congestion controls.

        For example `2-hop, cubic`; empty if no flow of the configuration comes in there.
        """
        labels = [label for label in self.port_groups(port) if label != port.partition(">")[0]]
        if len(labels) > _MOST_IN_LABEL:
            labels = [f"{len(labels)} groups"]
        return ", ".join(dict.fromkeys([*labels, *grouping.controls(self._by_port(port))]))

    def _by_port(self, port: str) -> list[FlowRecord]:
        """The flows of one entry of the summary's drops: `s1-eth2`, or `s1-eth2>s1-eth1`."""
        name, _, output = port.partition(">")
        return [
            flow
            for flow in self.manifest.flows
            for bottleneck in self.manifest.bottlenecks
            if name in bottleneck.ingress
            and bottleneck.egress == (output or self._outputs[name])
            and (flow.ingress == name or self._enters_by(flow, bottleneck.egress, name))
            and flow.dst_ip in bottleneck.destinations
        ]

    def _enters_by(self, flow: FlowRecord, egress: str, port: str) -> bool:
        """Whether a subflow comes in by a port, perhaps by another one than its flow."""
        if not flow.subflows or (plan := self.plan) is None:
            return False
        ends = (FiveTuple(*each, TCP) for each in flow.connections)
        ways = (plan.path(plan.host_of[each.src], flow.dst, each) for each in ends)
        return any(ingress_port(plan.graph, way, egress) == port for way in ways)

    @cached_property
    def _outputs(self) -> dict[str, str]:
        """The output of each input port's first entry in the summary's drops."""
        outputs: dict[str, str] = {}
        for bottleneck in self.manifest.bottlenecks:
            for name in bottleneck.ingress:
                outputs.setdefault(name, bottleneck.egress)
        return outputs

    @cached_property
    def ways(self) -> dict[str, Way]:
        """The input and output of each entry of the summary's drops.

        If all outputs of a hop are known and there are several, an entry's label has its output,
        and entries without a drop are left out if others have some.
        """
        every = [(port, r.egress) for r in self.manifest.bottlenecks for port in r.ingress]
        with_output = self.manifest.has_all_outputs and len(self.manifest.bottlenecks) > 1
        entries = self.summary.drops
        lossy = {key for key, part in entries.items() if part.dropped}
        return {
            key: Way(port, egress, f"{port} to {egress}" if with_output else self.port_label(key))
            for key, (port, egress) in zip(entries, every, strict=True)
            if not with_output or not lossy or key in lossy
        }

    def port_label(self, port: str) -> str:
        """Returns an input port's name with what `port_flows` says: `s1-eth2 (2-hop, cubic)`."""
        flows = self.port_flows(port)
        return f"{port} ({flows})" if flows else port

    @cached_property
    def rates(self) -> Rates:
        """The rates that the traces of links set."""
        return self.directory.read_rates()

    def link_rate(self, record: BottleneckRecord) -> LinkRate | None:
        """The rate of an output's link over time; None if it has no rate."""
        first_bps = record.queue.rate_bps
        if not first_bps:
            return None
        return link_rate(self.manifest, self.rates, record.egress, first_bps)

    @property
    def frame_ns(self) -> int:
        """The transmission time of a full frame at the first bottleneck; see `frame_ns_at`."""
        return self.frame_ns_at(self.manifest.bottlenecks[0])

    def frame_ns_at(self, record: BottleneckRecord) -> int:
        """The transmission time of a full frame at an output, at its mean rate.

        If the queue has no rate, this is the packet time that the analysis measured there.
        """
        rate = self.link_rate(record)
        if rate is not None:
            whole = np.array([0, self.manifest.traffic.duration_ns], np.int64)
            mean_bps = int(rate.mean_bps(whole)[0])
            if mean_bps:
                queue = record.queue
                return queue.framing.wire_bytes(queue.frame_bytes) * 8 * 10**9 // mean_bps
        phase = self.summary.phase.get(record.egress)
        return max(1, round(phase.packet_time_us * 1e3)) if phase else MTU_FRAME_BYTES * 8
