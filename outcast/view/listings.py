"""Every table of a run once; the terminal and the report show them.

The columns come from outcast/quantities.py. A column without any value is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from outcast import quantities
from outcast.plan.addresses import with_port
from outcast.plan.grouping import controls, title
from outcast.quantities import Quantity
from outcast.records.port_summaries import PortLosses
from outcast.records.run import Run
from outcast.view import summary_words as words
from outcast.view.events import behind_the_capture

MOST_ROWS = {"run": 40, "show": 40, "report": 200}
"""The most rows of a table on each screen."""


@dataclass(frozen=True)
class Listing:
    """A table of written values, with remarks below it.

    Attributes:
        marked: the rows that stand out.
        total: the number of rows, with those that are left out.
    """

    title: str
    columns: tuple[Quantity, ...]
    rows: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...] = ()
    marked: frozenset[int] = frozenset()
    total: int = 0

    def cut(self, most: int) -> Listing:
        """The table with at most this many rows; the last one counts those left out."""
        if self.total <= most:
            return self
        kept, width = self.rows[: most - 1], len(self.columns) - 1
        last = (f"and {self.total - len(kept)} more", *("",) * width)
        return replace(self, rows=(*kept, last))

    @property
    def head_lines(self) -> int:
        return max(column.head.count("\n") for column in self.columns) + 1


def _listing(
    heading: str,
    level: str,
    screen: str,
    rows: Iterable[Mapping[str, Any]],
    *,
    remarks: Iterable[str] = (),
    where: str = "summary.json",
    marked: Callable[[Mapping[str, Any]], bool] = lambda _row: False,
    named: str = "",
) -> Listing | None:
    """A table of rows of a level; None without rows. `named` is the head over groups."""
    all_rows = [*rows]
    if not all_rows:
        return None
    shown = all_rows[: MOST_ROWS[screen]]
    head = named.replace(" ", "\n")
    columns = [
        replace(column, head=head, label=named) if named and column.key == "group" else column
        for column in quantities.of(level, screen)
        if any(quantities.at(row, column.key) is not None for row in shown)
    ]
    more = len(all_rows) - len(shown)
    remarks = [text for text in remarks if text]
    return Listing(
        heading,
        tuple(columns),
        tuple(
            tuple(column.write(quantities.at(row, column.key)) for column in columns)
            for row in shown
        ),
        (*remarks, *([f"{more:,} more rows are in {where}"] if more else [])),
        frozenset(place for place, row in enumerate(shown) if marked(row)),
        len(all_rows),
    )


def groups(run: Run, screen: str) -> Listing | None:
    """The groups of flows that the run shows: goodput, share, losses, timeouts, times."""
    table = run.table("flows")
    rows = []
    for group in run.groups:
        part = group.summary
        shares = table.filter(pl.col("flow").is_in(list(group.flows)))["share"].drop_nulls()
        round_trips = part.srtt_ms or part.rtt_ms
        rows.append(
            {
                **dict(part),
                "group": group.title,
                "label": group.label,
                "share": shares.sum() if len(shares) else None,
                "halted_share": words.rto_share(run.summary, part),
                "rtt_p50_ms": None if round_trips is None else round_trips.p50,
                **_of_senders(run, part.retransmissions_seen),
            }
        )
    return _listing(
        f"By {words.noun(run)}",
        "class",
        screen,
        rows,
        named=words.noun(run),
        remarks=[words.counted_at(run)] if screen == "report" else (),
        marked=lambda row: len(run.groups) > 1 and row["label"] == run.marked,
    )


def _of_senders(run: Run, seen: int | None) -> dict[str, Any]:
    """Retransmissions at the bottleneck, and shares before timeouts, by who can know them.

    The senders' counters are better where there are any. Joined captures have none.
    """
    if run.manifest.tells_senders:
        return {"retransmissions_seen": None}
    return {"retransmissions_seen": seen, "halted_share": None}


def flows(run: Run, screen: str) -> Listing | None:
    """Every flow, in the order of the groups."""
    by_sender = run.summary.group_by == "sender"
    order = {flow: place for place, flow in enumerate(run.group_of)}
    known = {flow.flow: flow for flow in run.manifest.flows}
    table = run.table("flows").sort(pl.col("flow").replace_strict(order, default=len(order)))
    rows = []
    for row in table.iter_rows(named=True):
        label = run.group_of.get(row["flow"], "-")
        used = controls([known[row["flow"]]]) if row["flow"] in known else ()
        seen = _of_senders(run, row.get("retransmissions_seen"))
        group = ", ".join(used) or "-" if by_sender else title(label, used)
        if run.captured is not None:
            ends = with_port(row["src"], row["sport"]), with_port(row["dst"], row["dport"])
            row["src"] = "\nto ".join(ends)
        rows.append({**row, "flow": str(row["flow"]), "group": group, "label": label, **seen})
    return _listing(
        "Every flow",
        "flow",
        screen,
        rows,
        named="control" if by_sender else words.noun(run),
        remarks=[words.counted_at(run)],
        where="flows.parquet",
        marked=lambda row: row["label"] == run.marked,
    )


def inputs(run: Run, screen: str) -> Listing | None:
    several, has_senders = len(run.manifest.bottlenecks) > 1, run.manifest.tells_senders
    rows = []
    for key, way in run.ways.items():
        part = run.summary.drops[key]
        noise = run.summary.noise.get(way.egress)
        seen = None if noise is None else noise.inputs.get(way.ingress)
        rows.append(
            {
                **dict(part),
                "ingress": way.ingress,
                "egress": way.egress if several else None,
                "flows_of": (run.port_flows(key) or "-") if has_senders else None,
                "drop_rate": part.dropped / part.packets if part.packets else None,
                "kept": None if seen is None else seen.kept,
            }
        )
    left_out = len(run.ways) < len(run.summary.drops)
    return _listing(
        "By input port",
        "input",
        screen,
        rows,
        remarks=["ports without a drop are left out; summary.json has them" * left_out],
    )


def outputs(run: Run, screen: str) -> Listing | None:
    rows = [
        {**dict(part), "output": port, "empty_ms": part.switch_latency_us / 1e3 or None}
        for port, part in run.summary.queue.items()
    ]
    later = any(part.counted == "forwarded" for part in run.summary.queue.values())
    remarks = ["lengths are of packets forwarded, because the queue also drops queued ones" * later]
    return _listing("The queue", "output", screen, rows, remarks=remarks)


def lossy_ports(run: Run, screen: str) -> Listing | None:
    """The ports that lost packets, those with the most first."""
    losses = run.summary.losses
    if losses is None:
        return None

    def lost(part: PortLosses) -> int:
        return sum(part.lost.values())

    rows = [
        {
            **dict(part),
            "port": port,
            "cause": ", ".join(
                f"{cause} {count:,}" if len(part.lost) > 1 else cause
                for cause, count in part.lost.items()
            ),
            "lost_packets": lost(part),
            "loss_rate": words.loss_rate(part),
        }
        for port, part in sorted(losses.ports.items(), key=lambda item: -lost(item[1]))
        if part.lost
    ]
    return _listing(f"Ports that lost packets{run.summary.whole_run}", "port", screen, rows)


def limits(run: Run, screen: str) -> Listing | None:
    senders = {flow.flow: flow.src for flow in run.manifest.flows}
    rows = [
        {
            **dict(part),
            "flow": f"flow {flow}",
            "src": senders.get(int(flow), "-"),
            "receiver": "unknown" if part.receiver is None else part.receiver,
            "send_buffer": _send_buffer(part.send_buffer, part.at_least),
        }
        for flow, part in run.summary.limited.items()
    ]
    heading = "What limited each flow, as shares of its time"
    if len(rows) > MOST_ROWS[screen]:
        rows.sort(key=lambda row: row["network"])
        heading += "; those that the network limited least come first"
    return _listing(heading, "limit", screen, rows)


def _send_buffer(share: float | None, at_least: bool) -> str:
    return "unknown" if share is None else f"{'>= ' if at_least else ''}{share:.1%}"


def streams(run: Run, screen: str) -> Listing | None:
    """The UDP flows; of many, those that lost the largest share come first."""
    if "streams" not in run.tables:
        return None
    table = run.table("streams")
    remarks = ["delays are of the captured queue and its link" + behind_the_capture(run)]
    if table.height > MOST_ROWS[screen]:
        table = table.sort("loss_share", descending=True, nulls_last=True)
        remarks.append("those that lost the largest share come first")
    rows = (
        {**row, "flow": str(row["flow"]), "sending": words.sending(row)}
        for row in table.iter_rows(named=True)
    )
    heading = f"UDP; losses and delays{run.summary.whole_run or ' of the whole run'}"
    return _listing(heading, "stream", screen, rows, remarks=remarks, where="streams.parquet")


def workloads(run: Run, screen: str) -> Listing | None:
    """The generated flows, by workload; beyond the end of a run also by size."""
    rows: list[dict[str, Any]] = []
    for index, part in (run.summary.completions or {}).items():
        total = part.times.get("all")
        unfinished = total.flows - total.finished if total else 0
        ended = f"{part.flows - unfinished} of {part.flows}" if unfinished else f"{part.flows}"
        row = {**dict(part), "workload": f"{index} {part.kind}", "ended": ended}
        if screen == "run" or len(part.times) < 2:
            rows.append(row)
            continue
        for place, (size, times) in enumerate(part.times.items()):
            of_size = {
                "workload": row["workload"],
                "size": size,
                "ended": f"{times.finished} of {times.flows}",
                "times": {"all": times},
            }
            rows.append({**row, **of_size} if not place else of_size)
    return _listing(f"Generated flows{run.summary.whole_run}", "workload", screen, rows)


def programs(run: Run, screen: str) -> Listing | None:
    rows = [
        {
            **dict(part),
            "program": name,
            "times": "server" if part.server else f"{part.executions:,} of {part.asked:,}",
            "failures": None if part.server else part.failures,
        }
        for name, part in (run.summary.programs or {}).items()
    ]
    return _listing(f"Programs{run.summary.whole_run}", "program", screen, rows)


def probes(run: Run, screen: str) -> Listing | None:
    rows = [{**dict(part), "probe": part.title} for part in (run.summary.probes or {}).values()]
    return _listing("Round trips of probes", "probe", screen, rows)


def service_classes(run: Run, screen: str) -> Listing | None:
    rows = [
        {
            **dict(part),
            "output": port,
            "class": name,
            "points": "others" if part.dscp is None else ", ".join(map(str, part.dscp)),
        }
        for port, queue in run.summary.queue.items()
        for name, part in (queue.classes or {}).items()
    ]
    remarks = [words.counted_by_class(run.summary)]
    return _listing("Classes of service", "service", screen, rows, remarks=remarks)


SCREEN = (groups, workloads, programs, probes)
"""The tables of a run's first screen."""


def shown(
    run: Run, screen: str, tables: Sequence[Callable[[Run, str], Listing | None]]
) -> list[Listing]:
    return [made for table in tables if (made := table(run, screen)) is not None]
