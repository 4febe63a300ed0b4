"""The report's sections on quantities that only some runs measure."""

from collections.abc import Callable

import polars as pl
import polars.selectors as cs

from outcast.plan import link_words
from outcast.records.run import Run
from outcast.view import listings
from outcast.view import summary_words as words
from outcast.view.report import page
from outcast.view.report.page import Element, Part, element, listed, note, section, table

MOST_ROWS = 60
"""The most rows of a table that are shown. The Parquet file has all of them."""


def sections(run: Run) -> list[Element]:
    """Returns the sections for which the run has a table."""
    parts: tuple[tuple[str, Callable[[Run, pl.DataFrame], Element | None]], ...] = (
        ("probes", probes),
        ("streams", streams),
        ("completions", completions),
        ("programs", programs),
        ("workloads", workloads),
        ("sockets", sockets),
        ("rtt", round_trips),
        ("bins", utilisation),
        ("ports", ports),
        ("links", links),
    )
    tables = ((section_of, run.table(name)) for name, section_of in parts if name in run.tables)
    made = (section_of(run, frame) for section_of, frame in tables if frame.height)
    return [part for part in made if part is not None]


def _number(value: object, form: str = ",.6g") -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return format(value, form) if isinstance(value, float) else str(value)


def _rows(frame: pl.DataFrame) -> list[list[Part]]:
    return [[_number(value) for value in row] for row in frame.head(MOST_ROWS).iter_rows()]


def _more(frame: pl.DataFrame, name: str) -> Element | None:
    if frame.height <= MOST_ROWS:
        return None
    return note(f"The first {MOST_ROWS} of {frame.height:,}; {name}.parquet has them all.")


def probes(run: Run, _frame: pl.DataFrame) -> Element:
    """Returns the section on probes: the percentiles of their round trips, and a chart."""
    chart = page.drawn(run, "probes")
    text = (
        "A probe is small packets that are each answered. Without queues a round trip takes the "
        "links' delays and the times of both frames."
    )
    table_of = listed(listings.probes(run, "report"))
    return section("probes", "Latency under load", element("p", text), table_of, chart)


def streams(run: Run, _frame: pl.DataFrame) -> Element:
    """Returns the section on UDP flows: what each sent, received and lost, and its delays."""
    return section("streams", "UDP", listed(listings.streams(run, "report")))


def workloads(run: Run, _frame: pl.DataFrame) -> Element:
    """Returns the section on the rate of generated traffic over time, a curve for each UDP flow."""
    return section("workloads", "Generated traffic over time", page.drawn(run, "workloads"))


def sockets(run: Run, frame: pl.DataFrame) -> Element:
    """Returns the section on the senders' sockets: mean cwnd and smoothed RTT of each group."""
    parts: list[Part] = [page.drawn(run, "cwnd")]
    counters = {
        "retransmits": "retransmits",
        "timeouts": "timeouts",
        "delivered": "segments delivered",
        "delivered_ce": "of them marked (CE)",
        "bytes_acked": "bytes acknowledged",
    }
    columns = [name for name in counters if name in frame.columns]
    last_s = frame["t"].to_numpy().max() / 1e9
    last = frame.sort("t").group_by("flow", "host").agg(pl.col(columns).last()).sort("flow")
    caption = f"The sockets' own counts at the last sample, at {last_s:.4g} s"
    head = ["flow", "host", *(counters[name] for name in columns)]
    parts.append(table(caption, head, _rows(last), numbers_from=2))
    parts.append(listed(listings.limits(run, "report")))
    return section("sockets", "Sockets", *parts, _more(last, "flows"))


def round_trips(run: Run, frame: pl.DataFrame) -> Element:
    """Returns the section on round trips between the bottleneck and the receivers, by group."""
    summary = run.summary
    at_s = (pl.col("t") - run.manifest.traffic.t_start_ns) / 1e9
    group = pl.col("flow").replace_strict(run.group_of, default=None, return_dtype=pl.String)
    quantiles = (
        frame.filter(at_s >= summary.start_s, at_s < summary.end_s)
        .with_columns(group=group)
        .drop_nulls("group")
        .group_by("group")
        .agg(
            pl.len(),
            (pl.col("rtt_ns").mean() / 1e3).alias("mean"),
            *((pl.col("rtt_ns").quantile(q) / 1e3).alias(str(q)) for q in (0.5, 0.9, 0.99)),
            (pl.col("rtt_ns").max() / 1e3).alias("most"),
        )
    )
    of_group = {row[0]: row[1:] for row in quantiles.iter_rows()}
    rows: list[list[Part]] = [
        [
            *(group.title, f"{row[0]:,}", *(f"{value:,.1f}" for value in row[1:])),
            _number(group.summary.rtt_untimed, ".1%"),
        ]
        for group in run.groups
        if (row := of_group.get(group.label)) is not None
    ]
    head = [words.noun(run), "segments", "mean", "median", "90 %", "99 %", "most", "not known"]
    untimed = element(
        "p",
        "A segment that was sent twice tells no round trip (Karn's rule), nor does an "
        "acknowledgement that fills a hole. So they are not known in a part of the flows' time, "
        "which the last column has. There the curve is broken.",
    )
    caption = "From a segment's arrival to its acknowledgement, in µs"
    table_of, chart = table(caption, head, rows), page.drawn(run, "rtt")
    return section("round-trips", "Round trips", table_of, untimed, chart)


def utilisation(run: Run, frame: pl.DataFrame) -> Element:
    """Returns the section on how much of the bottleneck's rate was used."""
    told: tuple[str | Element, ...] = ("The bottleneck has no rate of its own to compare with.",)
    if used := words.utilisation_sentence(run.summary):
        told = (f"{words.begun(used)}.",)
    elif run.captured is not None:
        verb = element("code", "outcast join --rate")
        told = ("It is left out, because the link's rate was only estimated; ", verb, " takes it.")
    return section("utilisation", "Utilisation", element("p", *told))


def ports(run: Run, frame: pl.DataFrame) -> Element:
    """Returns the section on the kernel's own statistics of all sampled queues."""
    counters = [
        name for name in ("drops", "marks", "sent_packets", "sent_bytes") if name in frame.columns
    ]
    summed = (
        frame.sort("t")
        .group_by("port")
        .agg(
            pl.col("backlog_bytes").mean().alias("mean backlog (B)"),
            pl.col("backlog_bytes").max().alias("most (B)"),
            *(
                (pl.col(name).last() - pl.col(name).first()).alias(name.replace("_", " "))
                for name in counters
            ),
        )
        .sort(["drops" if "drops" in counters else "most (B)", "port"], descending=[True, False])
    )
    caption = "Every sampled queue, from the first sample to the last"
    table_of = table(caption, summed.columns, _rows(summed))
    return section("ports", "Queues by the kernel's count", table_of, _more(summed, "ports"))


def links(run: Run, frame: pl.DataFrame) -> Element:
    """Returns the section on what each link carried, by direction."""
    # The section on losses has the causes, in words.
    ordered = frame.select(~(cs.nested() | cs.starts_with("lost_")))
    names = ordered.columns
    if "bytes" in names:
        ordered = ordered.sort("bytes", descending=True)
    texts = sum(1 for name in names if ordered[name].dtype == pl.String)
    if "utilisation" in names:
        percent = pl.col("utilisation").map_elements("{:.1%}".format, pl.String)
        ordered = ordered.with_columns(percent)
    usual = None
    plan = run.plan
    if plan is not None and {"node", "neighbour"} <= set(names):
        common = link_words.usual(plan.links)
        text = f"Every link has {link_words.settings(common)}, where no others stand."
        usual = element("p", text)
        own = [
            link_words.settings(plan.links[direction], common) if direction in plan.links else ""
            for direction in ordered.select("node", "neighbour").iter_rows()
        ]
        if any(own):
            ordered = ordered.with_columns(pl.Series("settings", own))
            names = [*names, "settings"]
    heads = {
        "port": "sent by",
        "neighbour": "to",
        "flows": "flows' data",
        "acknowledged": "flows' acknowledgements",
        "other": "generated traffic",
        "settings": "own settings",
    }
    traffic = run.manifest.traffic
    at_end = all(link.at_end is not None for link in run.counters.links)
    whole_s = (traffic.duration_ns if at_end else traffic.t_end_ns - traffic.t_start_ns) / 1e9
    until = "that the run lasts" if at_end else "until the last flow had ended"
    caption = (
        "What each link carried, and for how many flows; a row for each direction. Utilisation is "
        f"over the {whole_s:.3g} s {until}"
    )
    table_of = table(caption, [heads.get(name, name) for name in names], _rows(ordered), texts)
    return section("links", "Links", usual, table_of, _more(ordered, "links"))


def completions(run: Run, frame: pl.DataFrame) -> Element | None:
    """Returns the section on flow completion times of generated flows, if any is a transfer."""
    frame = frame.filter(pl.col("size_bytes").is_not_null())
    if frame.is_empty():
        return None
    chart, table_of = page.drawn(run, "completions"), listed(listings.workloads(run, "report"))
    return section("completions", "Flow completion times", table_of, chart)


def programs(run: Run, frame: pl.DataFrame) -> Element | None:
    """Returns the section on the executions of programs."""
    chart = page.drawn(run, "programs")
    kept = note("programs.parquet has every execution; programs/ has what each wrote.")
    table_of = listed(listings.programs(run, "report"))
    return section("programs", "Programs", table_of, kept, chart)
