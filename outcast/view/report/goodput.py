"""The report's parts on goodput and fairness."""

import polars as pl

from outcast.plan.addresses import with_port
from outcast.plan.grouping import control_of
from outcast.records.run import Run
from outcast.records.summary import GroupSummary
from outcast.units import format_bps
from outcast.view import summary_words as words
from outcast.view.report import pictures
from outcast.view.report.markup import Element, Part, element, table
from outcast.view.report.page import note, section

MOST_FLOWS = 200
"""The most flows that are listed. flows.parquet has all of them."""
MOST_COLUMNS = 8
"""The most groups with a column in the table of windows."""


def goodput(run: Run) -> Element:
    """Returns the section on goodput: of each flow over time, and of each group on average."""
    fair_bps, told = run.fair_bps, words.counted_at(run)
    share = "The flows do not share one output, so they have no equal share."
    if fair_bps is not None:
        share = f"If all flows had shared equally, each would have got {format_bps(fair_bps)}."
    return section(
        *("goodput", "Goodput"),
        _groups(run),
        element("p", share) if len(run.manifest.flows) > 1 else None,
        note(told) if told else None,
        pictures.drawn(run, "goodput"),
    )


def detail(run: Run) -> Element:
    """Returns the section on the goodput of each window and of each flow."""
    return section("flows", "Every flow", _windows(run), _flows(run))


def _groups(run: Run) -> Element:
    """Returns a table of the groups: goodput, losses, and of a run controls and timeouts."""
    told = run.manifest.tells_senders
    sized = any(group.summary.times for group in run.groups)
    rows: list[list[Part]] = []
    for group in run.groups[:MOST_FLOWS]:
        part = group.summary
        counts = [part.packets, part.dropped]
        counts += [part.retransmits, part.timeouts] if told else [part.retransmissions_seen]
        rows.append(
            [
                *(group.label, *([", ".join(group.controls)] if told else []), str(part.flows)),
                *(format_bps(part.mean_goodput_bps), format_bps(part.min_goodput_bps)),
                *(words.number(count, ",d") for count in counts),
                *([words.awaiting_rto(run.summary, part)] if told else []),
                *([_completions(part)] if sized else []),
            ]
        )
    head = [words.noun(run), *(["congestion control"] if told else []), "flows", "mean goodput"]
    head += ["least", "packets", "drops"]
    head += ["retransmits", "timeouts", "waiting for timeouts"] if told else ["retransmissions"]
    if sized:
        head.append("completion, median and longest")
    where = "at the bottleneck" if told else "and retransmissions that came in"
    caption = f"By {words.noun(run)}; packets{' and' if told else ','} drops {where}"
    return table(caption, head, rows, numbers_from=1 + told)


def _completions(part: GroupSummary) -> str:
    times = part.times
    if times is None:
        return "-"
    unfinished = times.flows - times.finished
    known = [words.format_ms(time) for time in (times.p50_ms, times.max_ms) if time is not None]
    return ", ".join([*known, *([f"{unfinished} unfinished"] if unfinished else [])])


def _windows(run: Run) -> Element | None:
    if not run.summary.windows:
        return None
    rows: list[list[Part]] = []
    groups = run.groups[:MOST_COLUMNS]
    for name, window in run.summary.windows.items():
        where = f"{window.start_s:g}-{window.end_s:g} s"
        row: list[Part] = [f"{name} ({where})", words.number(window.jain_index, ".3f")]
        row.append(words.format_ratio(words.main_ratio(window)))
        parts = window.grouped(run.summary.group_by)
        row += [format_bps(parts[group.label].mean_goodput_bps) for group in groups]
        rows.append(row)
    head = ["window", "Jain's index", words.ratio_name(run.summary)]
    head += [f"{group.title} mean" for group in groups]
    is_start = run.summary.windows_from == "start"
    begins = "the traffic's start" if is_start else "when all flows are active"
    return table(f"The same over windows from {begins}", head, rows)


def _flows(run: Run) -> Element:
    named = run.summary.group_by not in ("hops", "sender")
    order = {flow: place for place, flow in enumerate(run.group_of)}
    known = {flow.flow: flow for flow in run.manifest.flows}
    told = run.manifest.tells_senders
    rows: list[list[Part]] = []
    frame = run.table("flows").sort(pl.col("flow").replace_strict(order, default=len(order)))
    for row in frame.head(MOST_FLOWS).iter_rows(named=True):
        flow = known.get(row["flow"])
        of_run: list[Part] = ["-" if flow is None else control_of(flow), str(row["hops"])]
        counts: list[Part] = [words.number(row[name], "d") for name in ("retransmits", "timeouts")]
        if not told:
            of_run = [with_port(row["dst"], row["dport"])]
            counts = [str(row["retransmissions_seen"])]
        source = row["src"] if told else with_port(row["src"], row["sport"])
        rows.append(
            [
                f"{row['flow']}: {source}",
                *([run.group_of.get(row["flow"], "-")] if named else []),
                *of_run,
                format_bps(row["goodput_bps"]),
                words.number(row["share"], ".1%"),
                f"{row['dropped']:,}",
                str(row["longest_chain"]),
                *counts,
            ]
        )
    head = ["flow", *([words.noun(run)] if named else [])]
    head += ["congestion control", "hops"] if told else ["to"]
    head += ["goodput", "share", "drops", "longest chain"]
    head += ["retransmits", "timeouts"] if told else ["retransmissions"]
    listed = table("Every flow", head, rows, 2 + named)
    if frame.height > MOST_FLOWS:
        text = f"The first {MOST_FLOWS} of {frame.height} flows; flows.parquet has them all."
        listed = element("div", listed, note(text))
    return listed


def fairness(run: Run) -> Element:
    """Returns the section on Jain's index over time, in the windows of the analysis."""
    text = f"Over the whole interval Jain's index is {words.number(run.summary.jain_index, '.3f')}"
    compare = run.summary.compare
    if compare is not None and compare.ratio is not None:
        first, second = compare.groups
        name = words.ratio_name(run.summary)
        article = "the " if name == "outcast ratio" else ""
        text += (
            f" and {article}{name} is {compare.ratio:.2f}: the mean goodput of {first} over that "
            f"of {second}"
        )
    chart: Element | None = element("p", "No two flows were active at the same time.")
    if "fairness" in run.tables:
        chart = pictures.drawn(run, "fairness")
    return section("fairness", "Fairness over time", element("p", f"{text}."), chart)
