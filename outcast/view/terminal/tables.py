"""Shows a run's result on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from outcast.analysis.measure.losses import BEFORE_SENDING, where
from outcast.analysis.measure.stationarity import change, fairness_change, rates_in
from outcast.analysis.run_analysis import Interval
from outcast.plan.grouping import GROUPINGS, controls, title
from outcast.plan.hints import beforehand
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.records.summary import (
    ClassSummary,
    CompletionSummary,
    LimitSummary,
    LossSummary,
    PortLosses,
    ProbeSummary,
    ProgramSummary,
    Summary,
    Window,
)
from outcast.units import format_bps
from outcast.view.events import behind_the_capture, moments, rates_within, trace_sentences
from outcast.view.terminal import forms

_MOST_LIMITED = 5
"""The most flows told of what limited them, if there are too many for a row each."""
MOST_ROWS = 40
"""The most flows with a row each. If there are more, only groups have rows; see flows.parquet."""


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def format_ratio(value: float | None) -> str:
    """Writes a ratio or an index: `0.123`, `7.042`, `98.7`."""
    return "-" if value is None else f"{value:.3f}" if value < 10 else f"{value:.1f}"


def noun(run: Run) -> str:
    """What one of the groups shown is called: class, group, input port ..."""
    return GROUPINGS[run.summary.group_by].noun


def ratio_name(summary: Summary) -> str:
    """What the run's main ratio is: `outcast ratio`, or `bbr over cubic` where groups are named."""
    compare = summary.compare
    if compare is None or compare.groups == _outcast_classes(summary):
        return "outcast ratio"
    return " over ".join(compare.groups)


def main_ratio(summary: Summary | Window) -> float | None:
    """The ratio of the two groups compared, in a run or window of any version."""
    return summary.outcast_ratio if summary.compare is None else summary.compare.ratio


def has_ratio(summary: Summary) -> bool:
    """Whether the headline has a ratio: not of one class, or of groups that are not compared."""
    return summary.compare is not None or (summary.group_by == "hops" and len(summary.classes) > 1)


def _outcast_classes(summary: Summary) -> tuple[str, str] | None:
    """The labels of the classes that the outcast ratio compares; None if there is only one."""
    classes = [*summary.classes]
    return (f"{classes[-1]}-hop", f"{classes[0]}-hop") if len(classes) > 1 else None


def render(directory: RunDirectory, *, notes_shown: bool = False) -> RenderableType:
    """Renders flows, their groups, input ports, and whether the result can be trusted.

    With `notes_shown` it only counts the warnings that the run told before its traffic.

    Raises InputError if the analysis has not been stored.
    """
    # Imported here, because it writes numbers as this module does.
    from outcast.view.terminal import service_classes

    run = Run(directory)
    summary, flows = run.summary, run.table("flows")
    parts: list[RenderableType] = [_heading(summary)]
    if run.captured is None:
        if summary.classes:
            parts.append(Text(stationarity_sentence(run)))
        parts.append(_losses(summary))
        parts += [Text(marks)] if (marks := marks_sentence(summary)) else []
        parts += [Text(used)] if (used := utilisation_sentence(summary)) else []
    if 0 < flows.height <= MOST_ROWS:
        parts += ["", _flow_table(run, flows)]
    if summary.limited:
        parts += ["", _limit_table(run)]
    if "streams" in run.tables:
        parts += ["", _stream_table(run, run.table("streams"))]
    transfers = {
        name: part for name, part in (summary.completions or {}).items() if not part.streams
    }
    if transfers:
        parts += ["", _titled("workloads", _completion_table(transfers), summary)]
    if summary.programs:
        parts += ["", _titled("programs", _program_table(summary.programs), summary)]
    if summary.probes:
        parts += ["", _titled("probes", _probe_table(summary.probes), summary)]
    if run.groups:
        parts += ["", _group_table(run, flows)]
    parts += ["", _port_table(run)]
    if (of_classes := service_classes.table(summary)) is not None:
        parts += ["", of_classes]
    if phases := [line for line in noise_lines(run) if line not in summary.warnings]:
        parts += ["", *map(Text, phases)]
    if summary.losses is not None and summary.losses.elsewhere:
        parts += ["", _titled("losses of every port", _loss_table(summary.losses), summary)]
    happened = [f"at {moment.t_s:.7g} s {moment.text}" for moment in moments(run)]
    if happened or run.rates.ports:
        parts += ["", *(Text(line) for line in (*happened[:MOST_ROWS], *trace_sentences(run)))]
    parts += ["", _trust(summary)]
    parts += _warnings(run, notes_shown=notes_shown)
    return Group(*parts)


def _warnings(run: Run, *, notes_shown: bool) -> Iterator[Text]:
    """A line each; those of the notes before the traffic are only counted."""
    told: list[str] = []
    if notes_shown and (plan := run.plan) is not None:
        told = beforehand(run.experiment, plan, run.summary.engine or "virtual")
    lines = [warning for warning in run.summary.warnings if warning not in told]
    yield from (Text(f"warning: {warning}", style="yellow") for warning in lines)
    if known := len(run.summary.warnings) - len(lines):
        yield Text(
            f"{known} of the notes above, told before the traffic, still hold{'s' * (known == 1)}"
        )


def _titled(what: str, table: Table, summary: Summary) -> Table:
    """The table, with the time that it covers where that is not the summary's interval."""
    if summary.whole_run:
        table.caption = f"{what}{summary.whole_run}"
    return table


def noise_lines(run: Run) -> list[str]:
    """What the noise meter says of each output that several inputs feed.

    Of joined captures, outputs without a drop are left out if others have some: most of their
    queues were never full.
    """
    drops = run.summary.drops
    lossy = {way.egress for key, way in run.ways.items() if drops[key].dropped}
    return [
        f"phases at {egress}: {seen.sentence}"
        for egress, seen in run.summary.noise.items()
        if (run.captured is None or egress in lossy or not lossy)
        and sum(bool(way.arrivals) for way in seen.inputs.values()) > 1
    ]


def _heading(summary: Summary) -> Text:
    covered = f"{summary.start_s:g} to {summary.end_s:g} s"
    whys = {"whole": "", "all active": " (all flows active)", "asked": " (analysis.from and to)"}
    why = whys[summary.interval]
    results = [
        workload_result(part, summary.whole_run) for part in (summary.completions or {}).values()
    ]
    among = " of the TCP flows" if results else " in all"
    total = f"{format_bps(summary.total_goodput_bps)}{among}"
    what = "joined captures" if summary.engine is None else f"{summary.engine} engine"
    if summary.classes or summary.engine is None:
        parts = [total, f"Jain's index {format_ratio(summary.jain_index)}"]
        if has_ratio(summary):
            parts.append(f"{ratio_name(summary)} {format_ratio(main_ratio(summary))}")
        results.insert(0, ", ".join(parts))
    elif summary.total_goodput_bps or not results:
        results.insert(0, total)
    return Text(
        f"{summary.name}: {what}, {covered}{why}; {'; '.join(results)}",
        style="bold",
    )


def stationarity_sentence(run: Run) -> str:
    """Whether the division of the link changed over the interval, in words.

    It names the rates that changed meanwhile, because means then are over several regimes.
    """
    summary = run.summary
    interval = f"from {summary.start_s:g} to {summary.end_s:g} s"
    if summary.stationary is None:
        return (
            f"steady state {interval}: not known, because the test needs ten bins (analysis.bin) "
            "and goodput in each tenth"
        )
    span = Interval(round(summary.start_s * 1e9), round(summary.end_s * 1e9))
    rates = rates_in(run.table("throughput"), round(summary.duration_s * 1e9), span)
    if not summary.stationary:
        steady = "not in steady state"
        found = change(rates, run.manifest.compared_flows) or "the division of the link changes"
    elif found := fairness_change(rates):
        steady = "steady state doubtful"
    else:
        steady, found = "steady state", _no_trend(run)
    more = (
        "" if summary.stationary or summary.interval == "asked" else "; analysis.from cuts a start"
    )
    changed = rates_within(run)
    mixed = f"; but rates changed meanwhile, so means mix several: {changed}" if changed else ""
    return f"{steady} {interval}: {found} (docs/steady-state.md{more}){mixed}"


def _no_trend(run: Run) -> str:
    if len(run.manifest.compared_flows) == 1:
        return "no trend found in the goodput"
    if len(run.summary.classes) > 1:
        return "no trend found in any flow's share of the goodput"
    return "no trend found in the goodput or in any flow's share of it"


def workload_result(part: CompletionSummary, when: str = "") -> str:
    """Returns what a workload reached, in a phrase.

    `when` stands beside what is of the whole run. Rates of UDP flows are of their own time.
    """
    flows = f"{part.flows:,} flow{'' if part.flows == 1 else 's'}"
    streams = part.streams
    if streams is None:
        unfinished = f", {part.unfinished:,} unfinished" if part.unfinished else ""
        return f"{flows} ({part.kind}) at {format_bps(part.goodput_bps)}{unfinished}{when}"
    lost = "" if streams.loss_share is None else f", {streams.loss_share:.2%} lost{when}"
    return (
        f"{flows} (UDP) sent {format_bps(streams.sent_bps)} and received "
        f"{format_bps(streams.received_bps)} while sending{lost}"
    )


def _losses(summary: Summary) -> Text:
    """Says where packets were lost, before any table, because the other tables show one port."""
    losses = summary.losses
    if losses is None:
        return Text("losses of the other ports: not recorded")
    return Text(
        loss_sentence(summary, losses),
        style="yellow" if losses.elsewhere > losses.bottleneck else "",
    )


def loss_sentence(summary: Summary, losses: LossSummary) -> str:
    """Returns how many packets the whole network lost, and where if not at the bottleneck.

    Kernels count for the whole duration, so it is named where all else is of an interval of it.
    """
    when = summary.whole_run
    if summary.capture.qdisc_drops != losses.bottleneck:
        # Queues drop before the interval and after it too, and the line of trust counts that.
        when = f" from 0 to {summary.duration_s:g} s"
    if not losses.total:
        return f"no packet was lost in the whole network{when}"
    count = f"lost in the whole network{when}: {losses.total:,} packets"
    several = len(summary.queue) > 1
    if any(part.counted == "forwarded" for part in summary.queue.values()):
        count += ", by the kernel's counters (tables count a drop at its packet's arrival)"
    if not losses.elsewhere:
        where_all = (
            f"in the queues of {', '.join(summary.queue)}" if several else "at the bottleneck"
        )
        return f"{count}, all {where_all}"
    queues = f"the {len(summary.queue)} queues studied" if several else "the bottleneck's queue"
    return f"{count}, {losses.elsewhere:,} of them elsewhere than in {queues}: {where(losses)}"


def marks_sentence(summary: Summary) -> str:
    """Returns how many packets each output marked with ECN; empty if none was marked."""
    marked = [f"{port} {part.marks:,}" for port, part in summary.queue.items() if part.marks]
    return f"marked with ECN: {', '.join(marked)} packets" if marked else ""


def utilisation_sentence(summary: Summary) -> str:
    """How much of the rate each studied output used in the interval; empty without a rate."""
    when = f"from {summary.start_s:g} to {summary.end_s:g} s"
    used = [
        f"{part.utilisation:.1%} of {port}'s rate"
        for port, part in summary.queue.items()
        if part.utilisation is not None
    ]
    return f"used {when}: {', '.join(used)}" if used else ""


def _loss_table(losses: LossSummary) -> Table:
    """Returns a table of the ports that lost packets, those with the most first."""
    table = _table(
        "port", "from", "to", "sent", "lost", "rate", "cause", left=("port", "from", "to", "cause")
    )
    ordered = sorted(losses.ports.items(), key=lambda item: -sum(item[1].lost.values()))
    lossy = [(port, part) for port, part in ordered if part.lost]
    for port, part in lossy[:MOST_ROWS]:
        lost = sum(part.lost.values())
        table.add_row(
            *(port, part.node, part.neighbour, str(part.packets), str(lost)),
            loss_rate(part),
            ", ".join(f"{cause} {n:,}" for cause, n in part.lost.items())
            if len(part.lost) > 1
            else "".join(part.lost),
        )
    return table


def loss_rate(part: PortLosses) -> str:
    """Returns the share of a port's packets that were lost.

    A packet that the queue refused is not among those sent.
    """
    before = sum(part.lost.get(cause, 0) for cause in BEFORE_SENDING)
    offered = part.packets + before
    return f"{sum(part.lost.values()) / offered:.2%}" if offered else "-"


def _table(*columns: str, left: Iterable[str], wrapped: Iterable[str] = ()) -> Table:
    """Returns a table with these headings. Some have two lines, because 80 columns are narrow."""
    return forms.table(*columns, left=left, wrapped=wrapped, style="bold")


def _flow_table(run: Run, flows: pl.DataFrame) -> Table:
    by_sender = run.summary.group_by == "sender"
    ended = "completion_ns" in flows.columns and flows["completion_ns"].count() > 0
    table = _table(
        *("flow", "from", "control" if by_sender else noun(run), "goodput", "share", "drops"),
        *("long-\nest\nchain" if ended else "longest\nchain", "re-\ntrans-\nmits"),
        *(("time-\nouts",) if run.captured is None else ()),
        "median\nqueue-\ning\n(ms)",
        *(("took\n(ms)",) if ended else ()),
        left=("from", "control", noun(run)),
        wrapped=(noun(run),),
    )
    known = {flow.flow: flow for flow in run.manifest.flows}
    for row in flows.iter_rows(named=True):
        share, label = row["share"], run.group_of.get(row["flow"], "-")
        used = controls([known[row["flow"]]]) if row["flow"] in known else ("-",)
        counts = [_number(row["retransmits"]), _number(row["timeouts"])]
        if run.captured is not None:
            counts = [_number(row["retransmissions_seen"])]
        table.add_row(
            str(row["flow"]),
            str(row["src"]),
            ", ".join(used) if by_sender else title(label, used),
            format_bps(row["goodput_bps"]),
            "-" if share is None else f"{share:.1%}",
            str(row["dropped"]),
            str(row["longest_chain"]),
            *counts,
            _digits(None if (waited := row.get("queueing_p50_ns")) is None else waited / 1e6),
            *(
                (_digits(None if (ns := row["completion_ns"]) is None else ns / 1e6),)
                if ended
                else ()
            ),
            style="yellow" if label == run.marked else None,
        )
    return table


def _digits(time_ms: float | None) -> str:
    """Three digits or more, and `-` for None."""
    if time_ms is not None and 0 < time_ms < 0.001:
        return "<0.001"
    return "-" if time_ms is None else f"{time_ms:,.0f}" if time_ms >= 99.95 else f"{time_ms:.3g}"


def _limit_table(run: Run) -> Table:
    """Returns a table of what kept each flow from sending more, in shares of its time."""
    table = _table(
        *("limited by", "from", "network", "receiver", "send\nbuffer"),
        *("application", "timeout", "pacing"),
        left=("limited by", "from"),
    )
    senders = {flow.flow: flow.src for flow in run.manifest.flows}
    limited = [*run.summary.limited.items()]
    if len(limited) > MOST_ROWS:
        table.caption = f"of {len(limited)} flows those that the network limited least"
        limited = sorted(limited, key=lambda item: item[1].network)[:_MOST_LIMITED]
    for flow, part in limited:
        table.add_row(f"flow {flow}", senders.get(int(flow), "-"), *shares_of(part).values())
    return table


def shares_of(part: LimitSummary) -> dict[str, str]:
    """What limited a flow, by cause, as people read it."""
    at_least = ">= " if part.at_least else ""
    return {
        cause: "not told"
        if share is None
        else f"{at_least if cause == 'send_buffer' else ''}{share:.1%}"
        for cause, share in part.model_dump(exclude={"at_least"}).items()
    }


def _group_table(run: Run, flows: pl.DataFrame) -> Table:
    summary = run.summary
    table = _table(
        *(noun(run), "flows", "mean\ngoodput", "least", "share", "re-\ntrans-\nmits"),
        *(("time-\nouts", "RTO\nwait", "RTT\n(ms)") if run.captured is None else ()),
        "median\nqueue-\ning\n(ms)",
        left=(noun(run),),
        wrapped=(noun(run),),
    )
    if any(group.summary.srtt_ms for group in run.groups):
        table.caption = "RTT is a median too: of smoothed round trips over time"
        if len(summary.queue) > 1:
            table.caption += "; queueing is that of packets at all studied ports together"
    for group in run.groups[:MOST_ROWS]:
        part = group.summary
        waits = part.queueing_ms
        share = _share_of(flows, group.flows)
        told = [_number(part.retransmits), _number(part.timeouts)]
        told += [awaiting_rto(summary, part), _round_trip(part)]
        if run.captured is not None:
            told = [_number(part.retransmissions_seen)]
        table.add_row(
            group.title,
            str(part.flows),
            format_bps(part.mean_goodput_bps),
            format_bps(part.min_goodput_bps),
            share,
            *told,
            _digits(None if waits is None else waits.p50),
            style="yellow" if group.label == run.marked and len(run.groups) > 1 else None,
        )
    if len(run.groups) > MOST_ROWS:
        table.add_row(f"and {len(run.groups) - MOST_ROWS} more in summary.json")
    return table


def _share_of(table: pl.DataFrame, flows: Sequence[int]) -> str:
    """The share of all goodput that these flows got."""
    share = table.filter(pl.col("flow").is_in(list(flows)))["share"].drop_nulls()
    return f"{share.sum():.1%}" if len(share) else "-"


def awaiting_rto(summary: Summary, part: ClassSummary) -> str:
    """Returns the share of a flow's time that it spent waiting for timeouts."""
    share = rto_share(summary, part)
    return "-" if share is None else f"{share:.1%}"


def rto_share(summary: Summary, part: ClassSummary) -> float | None:
    """The share of the time in which flows were active that they spent waiting for timeouts."""
    if part.halted_s is None:
        return None
    whole_s = part.flows * (summary.end_s - summary.start_s)
    return min(1.0, part.halted_s / (part.active_s or whole_s))


def _round_trip(part: ClassSummary) -> str:
    """Returns the median of senders' smoothed round trips, or of captured ones without samples."""
    round_trip_ms = part.srtt_ms or part.rtt_ms
    return _digits(None if round_trip_ms is None else round_trip_ms.p50)


def _port_table(run: Run) -> Table:
    # A port can feed several outputs, and has a row for each.
    is_told = len(run.manifest.bottlenecks) > 1
    of_flows = () if run.captured is not None else ("flows of",)
    table = _table(
        *("input port", *(("output",) if is_told else ()), *of_flows),
        *("packets", "dropped", "rate", "longest\nchain", "blackouts"),
        left=("input port", "output", "flows of"),
        wrapped=of_flows,
    )
    for key, way in run.ways.items():
        part = run.summary.drops[key]
        table.add_row(
            way.ingress,
            *((way.egress,) if is_told else ()),
            *((run.port_flows(key) or "-",) if of_flows else ()),
            str(part.packets),
            str(part.dropped),
            f"{part.dropped / part.packets:.2%}" if part.packets else "-",
            str(part.longest_chain),
            str(part.blackouts),
        )
    if len(run.ways) < len(run.summary.drops):
        table.caption = "rows without a drop are left out; summary.json has them"
    return table


def _stream_table(run: Run, streams: pl.DataFrame) -> Table:
    """Returns a table of the UDP flows; of many, those that lost the largest share."""
    table = _table(
        *("UDP\nflow", "from", "to", "time\n(s)", "sent", "received", "lost"),
        *("mean\ndelay", "99 %", "jitter"),
        left=("from", "to"),
        wrapped=("time\n(s)",),
    )
    table.caption = "rates are of that time, delays of the captured queue and its link"
    table.caption += behind_the_capture(run)
    if run.summary.whole_run:
        table.caption += f"; losses and delays{run.summary.whole_run}"
    if streams.height > MOST_ROWS:
        streams = streams.sort("loss_share", descending=True, nulls_last=True).head(MOST_ROWS)
        table.caption += "; those that lost the largest share, streams.parquet has them all"
    for row in streams.iter_rows(named=True):
        lost = row["loss_share"]
        table.add_row(
            *(str(row["flow"]), row["src"], row["dst"], sending(row)),
            *(format_bps(row["sent_bps"]), format_bps(row["received_bps"])),
            "-" if lost is None else f"{lost:.2%}",
            *(format_ns(row[name]) for name in ("delay_mean", "delay_p99", "jitter")),
        )
    return table


def sending(row: Mapping[str, Any]) -> str:
    """From when to when in seconds a UDP flow was to send, which its rates are over."""
    start_ns = row.get("start_ns")
    if start_ns is None:
        return "-"
    start_s, end_s = start_ns / 1e9, (start_ns + row["sending_ns"]) / 1e9
    return f"{round(start_s, 2):g} to {round(end_s, 2):g}"


def format_ns(time_ns: float | None) -> str:
    """Writes a time with three digits in milliseconds, or in seconds from one on; `-` for None."""
    return "-" if time_ns is None else format_ms(time_ns / 1e6)


def format_ms(time_ms: float) -> str:
    """Writes a time with three digits in milliseconds, or in seconds from one on."""
    return f"{time_ms:.3g} ms" if abs(time_ms) < 999.5 else f"{time_ms / 1000:#.3g} s"


def _completion_table(completions: Mapping[str, CompletionSummary]) -> Table:
    """Returns a table of the generated flows by size."""
    table = _table(
        *("workload", "size", "flows", "unfinished", "mean", "median", "95 %", "99 %", "goodput"),
        left=("workload", "size"),
    )
    for index, part in completions.items():
        name, goodput = f"{index} {part.kind}", format_bps(part.goodput_bps)
        if part.datagrams_sent is not None:
            lost = "-" if part.datagrams_lost is None else part.datagrams_lost
            note = f"{lost} of {part.datagrams_sent} datagrams lost"
            table.add_row(name, note, str(part.flows), *("-",) * 5, goodput)
        for size, times in part.times.items():
            spread = (times.mean_ms, times.p50_ms, times.p95_ms, times.p99_ms)
            table.add_row(
                *(name, size, str(times.flows), str(times.flows - times.finished)),
                *("-" if value is None else format_ms(value) for value in spread),
                goodput,
            )
            name = goodput = ""
    return table


def _program_table(programs: Mapping[str, ProgramSummary]) -> Table:
    """Returns a table of the programs, with the times that a client's executions took."""
    table = _table(
        *("program", "host", "execu-\ntions", "failed", "mean", "median", "90 %", "most"),
        left=("program", "host"),
    )
    for name, part in programs.items():
        times = part.time_ms
        spread = () if times is None else (times.mean, times.p50, times.p90, times.max)
        table.add_row(
            *(name, part.host),
            "server" if part.server else f"{part.executions} of {part.asked}",
            "-" if part.server else str(part.failures),
            *(format_ms(value) for value in spread),
            *("-",) * (4 - len(spread)),
        )
    return table


def _probe_table(probes: Mapping[str, ProbeSummary]) -> Table:
    """Returns a table of the probes, with the distribution of their round trips."""
    table = _table(
        *("probe", "sent", "lost", "without\nqueues", "median", "90 %", "99 %", "most"),
        left=("probe",),
    )
    for part in [*probes.values()][:MOST_ROWS]:
        rtt = part.rtt_ms
        spread = () if rtt is None else (rtt.p50, rtt.p90, rtt.p99, rtt.max)
        table.add_row(
            *(part.title, f"{part.sent:,}", f"{part.lost:,}", format_ms(part.base_rtt_ms)),
            *(format_ms(value) for value in spread),
            *("-",) * (4 - len(spread)),
        )
    if len(probes) > MOST_ROWS:
        table.add_row(f"and {len(probes) - MOST_ROWS} more in summary.json")
    return table


def _trust(summary: Summary) -> Text:
    capture = summary.capture
    if not capture.trusted:
        return Text("not to be trusted: " + "; ".join(capture.reasons), style="red")
    if summary.engine is None:
        text = f"{capture.inferred_drops} drops inferred; no counter of the queue is known to "
        return Text(f"{text}compare with", style="green")
    text = f"trusted: {capture.inferred_drops} drops inferred in the whole captures, the queue "
    text += f"counted {capture.qdisc_drops}"
    if capture.blackout_drops:
        text += f" and the blackout's switch {capture.blackout_drops}"
    if capture.link_down_drops:
        text += f", {capture.link_down_drops} were lost while the link was down"
    return Text(f"{text}; tcpdump lost none", style="green")


def link_table(frame: pl.DataFrame) -> RenderableType:
    """A table of the directions that sent or were to send. Its caption counts the others."""
    used = frame.filter(
        (pl.col("packets") > 0) | (pl.col("flows") > 0) | (pl.col("acknowledged") > 0)
    )
    counted = [name for name in ("packets", "bytes", "lost") if name in frame.columns]
    numbers = ("flows", "acknowledged", *counted)
    table = forms.table("port", "to", *numbers, "utilisation", left=("port", "to"), wrapped=None)
    table.caption = f"{frame.height - used.height} more directions sent nothing"
    for row in used.iter_rows(named=True):
        cells = (str(row[name]) for name in numbers)
        table.add_row(row["port"], row["neighbour"], *cells, f"{100 * row['utilisation']:.1f}%")
    return table
