"""Shows a run's result on the terminal."""

import textwrap
from collections.abc import Iterator, Mapping
from functools import partial

import polars as pl
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from outcast.plan.grouping import controls, title
from outcast.plan.hints import beforehand
from outcast.records.port_summaries import LossSummary
from outcast.records.run import Run, Way
from outcast.records.run_directory import RunDirectory
from outcast.records.summary import CompletionSummary, ProbeSummary, ProgramSummary, Summary
from outcast.units import format_bps
from outcast.view import summary_words as words
from outcast.view.events import behind_the_capture, moments, trace_sentences
from outcast.view.terminal import forms, service_classes

_MOST_LIMITED = 5
"""The most flows told of what limited them, if there are too many for a row each."""
MOST_ROWS = 40
"""The most flows with a row each. If there are more, only groups have rows; see flows.parquet."""


def render(directory: RunDirectory, *, notes_shown: bool = False) -> RenderableType:
    """Renders flows, their groups, input ports, and whether captures and counters agree.

    With `notes_shown` it only names the warnings told before the traffic. Raises InputError.
    """
    run = Run(directory)
    summary, flows = run.summary, run.table("flows")
    parts: list[RenderableType] = [_heading(summary)]
    if summary.classes:
        parts.append(Text(words.stationarity_sentence(run)))
    if summary.losses is not None:
        parts.append(_losses(summary, summary.losses))
    sentences = (words.marks_sentence(summary), words.utilisation_sentence(summary))
    parts += [Text(text) for text in sentences if text]
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
        parts += ["", _probe_table(summary.probes)]
    if run.groups:
        parts += ["", _group_table(run, flows)]
    parts += ["", _port_table(run)]
    if (of_classes := service_classes.table(summary)) is not None:
        parts += ["", of_classes]
    if summary.losses is not None and summary.losses.elsewhere:
        parts += ["", _titled("losses of every port", _loss_table(summary.losses), summary)]
    happened = [f"at {moment.t_s:.7g} s {moment.text}" for moment in moments(run)]
    if happened or run.rates.ports:
        parts += ["", *(Text(line) for line in (*happened[:MOST_ROWS], *trace_sentences(run)))]
    parts += ["", _trust(summary)]
    if draw := words.draw_sentence(run):
        parts.append(Text(draw))
    parts += _warnings(run, notes_shown=notes_shown)
    return Group(*parts)


def _warnings(run: Run, *, notes_shown: bool) -> Iterator[Text]:
    """A line each; of the notes before the traffic, one names those that still hold."""
    told: list[str] = []
    if notes_shown and (plan := run.plan) is not None:
        told = beforehand(run.experiment, plan, run.summary.engine or "virtual")
    known = [warning for warning in run.summary.warnings if warning in told]
    for warning in run.summary.warnings:
        if warning not in known:
            yield Text(f"warning: {warning}", style="yellow")
    if known:
        starts = "; ".join(textwrap.shorten(note, 60, placeholder=" ...") for note in known)
        still = "note still holds" if len(known) == 1 else "notes still hold"
        yield Text(f"{len(known)} {still} of those above, told before the traffic: {starts}")


def _titled(what: str, table: Table, summary: Summary) -> Table:
    """The table, with the time that it covers where that is not the summary's interval."""
    if summary.whole_run:
        table.caption = f"{what}{summary.whole_run}"
    return table


def _heading(summary: Summary) -> Text:
    covered = f"{summary.start_s:g} to {summary.end_s:g} s"
    whys = {"whole": "", "all active": " (all flows active)", "asked": " (analysis.from and to)"}
    why = whys[summary.interval]
    results = [
        words.workload_result(part, summary.whole_run)
        for part in (summary.completions or {}).values()
    ]
    among = " of the TCP flows" if results else " in all"
    total = f"{format_bps(summary.total_goodput_bps)}{among}"
    what = "joined captures" if summary.engine is None else f"{summary.engine} engine"
    if summary.classes or summary.engine is None:
        parts = [total, f"Jain's index {words.format_ratio(summary.jain_index)}"]
        if words.has_ratio(summary):
            parts.append(
                f"{words.ratio_name(summary)} {words.format_ratio(words.main_ratio(summary))}"
            )
        results.insert(0, ", ".join(parts))
    elif summary.total_goodput_bps or not results:
        results.insert(0, total)
    return Text(f"{summary.name}: {what}, {covered}{why}; {'; '.join(results)}", style="bold")


def _losses(summary: Summary, losses: LossSummary) -> Text:
    """Says where packets were lost, before any table, because the other tables show one port."""
    style = "yellow" if losses.elsewhere > losses.bottleneck else ""
    return Text(words.loss_sentence(summary, losses), style=style)


def _loss_table(losses: LossSummary) -> Table:
    """Returns a table of the ports that lost packets, those with the most first."""
    table = _table(
        "port", "from", "to", "sent", "lost", "rate", "cause", left=("port", "from", "to", "cause")
    )
    ordered = sorted(losses.ports.items(), key=lambda item: -sum(item[1].lost.values()))
    lossy = [(port, part) for port, part in ordered if part.lost]
    for port, part in lossy[:MOST_ROWS]:
        several = len(part.lost) > 1
        causes = (f"{cause} {n:,}" if several else cause for cause, n in part.lost.items())
        table.add_row(
            port,
            part.node,
            part.neighbour,
            str(part.packets),
            str(sum(part.lost.values())),
            words.loss_rate(part),
            ", ".join(causes),
        )
    return table


_table = partial(forms.table, style="bold")
"""A table with headings, of which some have two lines, because 80 columns are narrow."""


def _flow_table(run: Run, flows: pl.DataFrame) -> Table:
    by_sender = run.summary.group_by == "sender"
    ended = "completion_ns" in flows.columns and flows["completion_ns"].count() > 0
    table = _table(
        "flow",
        "from",
        "control" if by_sender else words.noun(run),
        "goodput",
        "share",
        "drops",
        "long-\nest\nchain" if ended else "longest\nchain",
        "re-\ntrans-\nmits",
        *(("time-\nouts",) if run.manifest.tells_senders else ()),
        "median\nqueue-\ning\n(ms)",
        *(("took\n(ms)",) if ended else ()),
        left=("from", "control", words.noun(run)),
        wrapped=(words.noun(run),),
    )
    table.caption = words.counted_at(run) or None
    known = {flow.flow: flow for flow in run.manifest.flows}
    for row in flows.iter_rows(named=True):
        share, label = row["share"], run.group_of.get(row["flow"], "-")
        used = controls([known[row["flow"]]]) if row["flow"] in known else ("-",)
        counts = [words.number(row["retransmits"]), words.number(row["timeouts"])]
        if not run.manifest.tells_senders:
            counts = [words.number(row["retransmissions_seen"])]
        table.add_row(
            str(row["flow"]),
            str(row["src"]),
            ", ".join(used) if by_sender else title(label, used),
            format_bps(row["goodput_bps"]),
            words.number(share, ".1%"),
            str(row["dropped"]),
            str(row["longest_chain"]),
            *counts,
            _digits(_ms(row.get("queueing_p50_ns"))),
            *((_digits(_ms(row["completion_ns"])),) if ended else ()),
            style="yellow" if label == run.marked else None,
        )
    return table


def _ms(time_ns: float | None) -> float | None:
    return None if time_ns is None else time_ns / 1e6


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
        table.add_row(f"flow {flow}", senders.get(int(flow), "-"), *words.shares_of(part).values())
    return table


def _group_table(run: Run, flows: pl.DataFrame) -> Table:
    summary = run.summary
    table = _table(
        words.noun(run),
        "flows",
        "mean\ngoodput",
        "least",
        "share",
        "re-\ntrans-\nmits",
        *(("time-\nouts", "RTO\nwait", "RTT\n(ms)") if run.manifest.tells_senders else ()),
        "median\nqueue-\ning\n(ms)",
        left=(words.noun(run),),
        wrapped=(words.noun(run),),
    )
    if any(group.summary.srtt_ms for group in run.groups):
        table.caption = "RTT is a median too: of smoothed round trips over time"
        if words.counted_at(run):
            table.caption += "; queueing is that at the first studied port that each flow crosses"
    for group in run.groups[:MOST_ROWS]:
        part = group.summary
        shares = flows.filter(pl.col("flow").is_in(list(group.flows)))["share"].drop_nulls()
        told = [words.number(part.retransmits), words.number(part.timeouts)]
        rtt_ms = part.srtt_ms or part.rtt_ms
        told += [words.awaiting_rto(summary, part), _digits(rtt_ms.p50 if rtt_ms else None)]
        if not run.manifest.tells_senders:
            told = [words.number(part.retransmissions_seen)]
        table.add_row(
            group.title,
            str(part.flows),
            format_bps(part.mean_goodput_bps),
            format_bps(part.min_goodput_bps),
            f"{shares.sum():.1%}" if len(shares) else "-",
            *told,
            _digits(part.queueing_ms.p50 if part.queueing_ms else None),
            style="yellow" if group.label == run.marked and len(run.groups) > 1 else None,
        )
    if len(run.groups) > MOST_ROWS:
        table.add_row(f"and {len(run.groups) - MOST_ROWS} more in summary.json")
    return table


def _port_table(run: Run) -> Table:
    # A port can feed several outputs, and has a row for each.
    summary = run.summary
    is_told = len(run.manifest.bottlenecks) > 1
    of_flows = ("flows of",) if run.manifest.tells_senders else ()
    kept = {key: _phase_kept(summary, way) for key, way in run.ways.items()}
    of_phase = ("phase\nkept",) if any(share is not None for share in kept.values()) else ()
    table = _table(
        *("input port", *(("output",) if is_told else ()), *of_flows),
        *("packets", "dropped", "rate", "longest\nchain", "blackouts", *of_phase),
        left=("input port", "output", "flows of"),
        wrapped=of_flows,
    )
    for key, way in run.ways.items():
        part = run.summary.drops[key]
        table.add_row(
            *(way.ingress, *((way.egress,) if is_told else ())),
            *((run.port_flows(key) or "-",) if of_flows else ()),
            str(part.packets),
            str(part.dropped),
            words.share(part.dropped, part.packets),
            str(part.longest_chain),
            str(part.blackouts),
            *((words.number(kept[key], ".0%"),) if of_phase else ()),
        )
    captions = [words.PHASE_KEPT] if of_phase else []
    if len(run.ways) < len(run.summary.drops):
        captions.append("rows without a drop are left out; summary.json has them")
    table.caption = "; ".join(captions) or None
    return table


def _phase_kept(summary: Summary, way: Way) -> float | None:
    noise = summary.noise.get(way.egress)
    seen = None if noise is None else noise.inputs.get(way.ingress)
    return None if seen is None else seen.kept


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
        table.add_row(
            str(row["flow"]),
            row["src"],
            row["dst"],
            words.sending(row),
            format_bps(row["sent_bps"]),
            format_bps(row["received_bps"]),
            words.number(row["loss_share"], ".2%"),
            *(words.format_ns(row[name]) for name in ("delay_mean", "delay_p99", "jitter")),
        )
    return table


def _completion_table(completions: Mapping[str, CompletionSummary]) -> Table:
    """Returns a table of the generated flows by size."""
    table = _table(
        *("workload", "size", "flows\nended", "mean", "median", "99 %", "longest"),
        *("time-\nouts", "goodput"),
        left=("workload", "size"),
    )
    for index, part in completions.items():
        name, goodput = f"{index} {part.kind}", format_bps(part.goodput_bps)
        timeouts = words.number(part.timeouts)
        if part.datagrams_sent is not None:
            lost = "-" if part.datagrams_lost is None else part.datagrams_lost
            note = f"{lost} of {part.datagrams_sent} datagrams lost"
            table.add_row(name, note, str(part.flows), *("-",) * 5, goodput)
        for size, times in part.times.items():
            ended = f"{times.finished} of " if times.finished < times.flows else ""
            table.add_row(
                name,
                size,
                f"{ended}{times.flows}",
                *words.spread(times, ("mean_ms", "p50_ms", "p99_ms", "max_ms")),
                *(timeouts, goodput),
            )
            name = timeouts = goodput = ""
    return table


def _program_table(programs: Mapping[str, ProgramSummary]) -> Table:
    """Returns a table of the programs, with the times that a client's executions took."""
    table = _table(
        *("program", "host", "execu-\ntions", "failed", "mean", "median", "90 %", "most"),
        left=("program", "host"),
    )
    for name, part in programs.items():
        table.add_row(
            name,
            part.host,
            "server" if part.server else f"{part.executions} of {part.asked}",
            "-" if part.server else str(part.failures),
            *words.spread(part.time_ms, ("mean", "p50", "p90", "max")),
        )
    return table


def _probe_table(probes: Mapping[str, ProbeSummary]) -> Table:
    """Returns a table of the probes, with the distribution of their round trips."""
    table = _table(
        *("probe", "sent", "lost", "without\nqueues", "median", "90 %", "99 %", "most"),
        left=("probe",),
    )
    for part in [*probes.values()][:MOST_ROWS]:
        table.add_row(
            part.title,
            f"{part.sent:,}",
            f"{part.lost:,}",
            words.format_ms(part.base_rtt_ms),
            *words.spread(part.rtt_ms, ("p50", "p90", "p99", "max")),
        )
    if len(probes) > MOST_ROWS:
        table.add_row(f"and {len(probes) - MOST_ROWS} more in summary.json")
    return table


def _trust(summary: Summary) -> Text:
    capture = summary.capture
    if not capture.trusted:
        return Text(
            "captures and counters do not agree: " + "; ".join(capture.reasons), style="red"
        )
    if capture.qdisc_drops is None:
        text = f"{capture.inferred_drops} drops inferred; no counter of the queue is known to "
        return Text(f"{text}compare with", style="green")
    text = f"captures and counters agree: {capture.inferred_drops} drops inferred in the whole "
    text += f"captures, the queue counted {capture.qdisc_drops}"
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
