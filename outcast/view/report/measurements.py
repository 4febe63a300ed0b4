"""The values of what was measured of queues, links and senders; some runs lack some of it."""

import polars as pl
import polars.selectors as cs

from outcast.plan import link_words
from outcast.records.run import Run
from outcast.view import listings
from outcast.view import summary_words as words
from outcast.view.figures.drops import CHAIN_LENGTHS, chain_counts
from outcast.view.figures.phase import contests_by_port, ports_shown
from outcast.view.report.page import Table, listed

MOST_ROWS = 60
"""The most rows of a table that are shown. The Parquet file has all of them."""
_TABLES = (
    *("fairness", "probes", "streams", "completions", "programs", "workloads", "sockets", "rtt"),
    *("ports", "links"),
)
_LISTINGS = (
    *(listings.groups, listings.flows, listings.inputs, listings.outputs, listings.lossy_ports),
    *(listings.limits, listings.streams, listings.workloads, listings.programs, listings.probes),
    listings.service_classes,
)


def values(run: Run) -> dict[str, object]:
    """The values of report.html's sections on measurements.

    `listings` has the tables that the terminal has too, by name; `has` the names of the run's
    tables with rows.
    """
    there = set(_TABLES).intersection(run.tables)
    has = {name for name in there if run.scan(name).select(pl.len()).collect().item()}
    of_own = {"sockets": sockets, "rtt": round_trips, "ports": ports, "links": links}
    sized = "completions" in has and run.table("completions")["size_bytes"].count()
    return {
        "has": has if sized else has - {"completions"},
        "listings": {made.__name__: listed(made(run, "report")) for made in _LISTINGS},
        "chains": _chains(run),
        "phase": _phase(run),
        "capacity": _capacity(run),
        "noise": _noise(run),
        **{name: table(run) if name in has else None for name, table in of_own.items()},
    }


def _number(value: object, form: str = ",.6g") -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return format(value, form) if isinstance(value, float) else str(value)


def _table(caption: str, head: list[str], frame: pl.DataFrame, name: str, texts: int = 1) -> Table:
    """A table of a frame's first rows; `name` is the file that has all of them."""
    rows = [[_number(value) for value in row] for row in frame.head(MOST_ROWS).iter_rows()]
    left_out = f"The first {MOST_ROWS} of {frame.height:,}; {name}.parquet has them all."
    return Table(caption, head, rows, texts, [left_out] if frame.height > MOST_ROWS else [])


def _chains(run: Run) -> Table | None:
    longest = max((part.longest_chain for part in run.summary.drops.values()), default=0)
    if not longest:
        return None
    rows = []
    for port, way in run.ways.items():
        counts = chain_counts(run.summary.drops[port].chains)[:longest]
        rows.append([way.label, *(f"{count:,}" for count in counts)])
    head = ["drops in a row", *CHAIN_LENGTHS[:longest]]
    return Table("Number of chains by length: packets of a port dropped in a row", head, rows)


def _capacity(run: Run) -> Table | None:
    rows = []
    for port, part in run.summary.queue.items():
        if (limit := part.capacity) is None:
            continue
        most = "-" if limit.below is None else f"{limit.below:,} {limit.unit}"
        agrees = "-" if limit.agrees is None else _number(limit.agrees)
        explained = f"{limit.confidence:.1%}"
        least = f"{limit.at_least:,} {limit.unit}"
        rows.append([port, least, most, explained, _number(limit.configured), agrees])
    caption = "Limit of each queue, estimated from the packets that it took and dropped"
    head = ["output", "at least", "less than", "explains", "configured", "agrees"]
    return (
        Table(caption, head, rows, remarks=["A limit that explains 50 % of them explains nothing."])
        if rows
        else None
    )


def _noise(run: Run) -> Table | None:
    rows = [
        (
            port,
            f"{seen.packet_time_us:.6g}",
            words.number(seen.of_nominal, ".4f"),
            f"{seen.back_to_back:,}",
            f"{seen.gap_spread:.2%}",
        )
        for port, seen in run.summary.noise.items()
        if seen.packet_time_us is not None and seen.gap_spread is not None
    ]
    head = ["output", "gap (µs)", "of the link's own", "gaps", "within which nine of ten lie"]
    return Table("Gaps between full frames that left in a row", head, rows) if rows else None


def _phase(run: Run) -> Table | None:
    found = [contests_by_port(run, record) for record in run.manifest.bottlenecks]
    rows = []
    for port, seen in (pair for those in found if ports_shown(those) for pair in those.items()):
        lost = [words.number(seen.lost_share(second), ".1%") for second in (False, True)]
        rows.append([run.port_label(port), f"{seen.second.mean():.1%}", *lost])
    head = ["input", "came second", "lost, of those that came first", "lost, of those second"]
    caption = "Full frames that reached the nearly full queue"
    return Table(caption, head, rows) if rows else None


def sockets(run: Run) -> Table:
    frame = run.table("sockets")
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
    return _table(caption, head, last, "flows", 2)


def round_trips(run: Run) -> Table:
    summary = run.summary
    at_s = (pl.col("t") - run.manifest.traffic.t_start_ns) / 1e9
    group = pl.col("flow").replace_strict(run.group_of, default=None, return_dtype=pl.String)
    rtt_us = pl.col("rtt_ns") / 1e3
    quantiles = (
        run.table("rtt")
        .filter(at_s >= summary.start_s, at_s < summary.end_s)
        .with_columns(group=group)
        .drop_nulls("group")
        .group_by("group")
        .agg(
            pl.len(),
            rtt_us.mean().alias("mean"),
            *(rtt_us.quantile(q).alias(str(q)) for q in (0.5, 0.9, 0.99)),
            rtt_us.max().alias("most"),
        )
    )
    of_group = {row[0]: row[1:] for row in quantiles.iter_rows()}
    rows = [
        [
            *(group.title, f"{row[0]:,}", *(f"{value:,.1f}" for value in row[1:])),
            _number(group.summary.rtt_untimed, ".1%"),
        ]
        for group in run.groups
        if (row := of_group.get(group.label)) is not None
    ]
    head = [words.noun(run), "segments", "mean", "median", "90 %", "99 %", "most", "not known"]
    return Table("From a segment's arrival to its acknowledgement, in µs", head, rows)


def ports(run: Run) -> Table:
    """The kernel's own statistics of all sampled queues."""
    frame = run.table("ports")
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
    return _table(caption, summed.columns, summed, "ports")


def links(run: Run) -> Table:
    """The traffic of each direction of a link, with its own settings."""
    # The section on losses has the causes, in words.
    frame = run.table("links").select(~(cs.nested() | cs.starts_with("lost_")))
    texts = sum(kind == pl.String for kind in frame.dtypes)
    all_rows = len(frame)
    if {"bytes", "lost"} <= set(frame.columns):
        carried = pl.col("bytes") + pl.col("lost") > 0
        frame = frame.filter(carried).sort("bytes", descending=True)
    if "utilisation" in frame.columns:
        percent = pl.col("utilisation").map_elements("{:.1%}".format, pl.String)
        frame = frame.with_columns(percent)
    plan = run.plan
    if plan is not None and {"node", "neighbour"} <= set(frame.columns):
        common = link_words.usual(plan.links)
        own = [
            link_words.settings(plan.links[direction], common) if direction in plan.links else ""
            for direction in frame.select("node", "neighbour").iter_rows()
        ]
        if any(own):
            frame = frame.with_columns(pl.Series("settings", own))
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
    if idle := all_rows - len(frame):
        caption += f". {idle:,} that carried nothing are left out"
    return _table(caption, [heads.get(name, name) for name in frame.columns], frame, "links", texts)
