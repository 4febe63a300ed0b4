"""The flows of two runs side by side, one of which had an intervention."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from outcast.records.interventions import (
    Compared,
    ComparedFlows,
)
from outcast.records.run import Run

_UNKNOWN = Compared(factual=None, counterfactual=None)


def tables(
    factual: Run, counterfactual: Run, numbers: dict[int, int]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both tables of flows, with the numbers of the first run and of its interval."""
    first, second = factual.table("flows"), counterfactual.table("flows")
    spans = {(run.summary.start_s, run.summary.end_s) for run in (factual, counterfactual)}
    if len(spans) > 1:
        second = _of_interval(counterfactual, second, factual)
        first = first.with_columns(timeouts=None, timeouts_seen=None)
    return first, second.with_columns(pl.col("flow").replace(numbers))


def _of_interval(run: Run, flows: pl.DataFrame, factual: Run) -> pl.DataFrame:
    """A table of flows with the goodput and drops of another run's interval.

    Timeouts, which sockets count, are not known of it.
    """
    summary, start_ns = factual.summary, run.manifest.traffic.t_start_ns
    from_ns, to_ns = (start_ns + round(at * 1e9) for at in (summary.start_s, summary.end_s))
    with run.reading():
        packets = run.table("packets", whole=True).filter(pl.col("payload") > 0)
    packets = packets.with_row_index()
    # A datagram has no sequence number, and is sent once.
    segment = pl.when(pl.col("flags") == 0).then("index").otherwise("seq")
    firsts = packets.group_by("flow", segment.alias("segment")).agg(
        pl.col("t_out").min(), pl.col("payload").max()
    )
    got = firsts.filter(pl.col("t_out").is_between(from_ns, to_ns)).group_by("flow").agg(
        pl.col("payload").sum()
    )  # fmt: skip
    lost = packets.filter(pl.col("t_in").is_between(from_ns, to_ns), verdict="dropped")
    bits = pl.col("payload").fill_null(0) * 8e9 / (to_ns - from_ns)
    return (
        flows.drop("dropped")
        .join(got, on="flow", how="left", maintain_order="left")
        .join(lost.group_by("flow").agg(pl.len().alias("dropped")), on="flow", how="left")
        .with_columns(
            pl.col("dropped").fill_null(0), goodput_bps=bits, timeouts=None, timeouts_seen=None
        )
    )


def compared(
    tables: tuple[pl.DataFrame, pl.DataFrame], named: dict[str, list[int]]
) -> list[ComparedFlows]:
    """Each of these groups of flows, by its name."""
    return [_of_flows(name, flows, tables) for name, flows in named.items()]


def _of_flows(
    name: str, flows: list[int], tables: tuple[pl.DataFrame, pl.DataFrame]
) -> ComparedFlows:
    first, second = (table.filter(pl.col("flow").is_in(flows)) for table in tables)

    def compared(value: pl.Expr) -> Compared:
        both = (rows.select(value).item() if rows.height else None for rows in (first, second))
        return Compared(**dict(zip(("factual", "counterfactual"), both, strict=True)))

    # The kernel's counts where it has each flow's in both runs, else those that captures show.
    kinds = ("timeouts", "timeouts_seen")
    known = [kind for kind in kinds if not first[kind].null_count() + second[kind].null_count()]
    return ComparedFlows(
        name=name,
        flows=len(flows),
        goodput_bps=compared(pl.col("goodput_bps").mean()),
        drops=compared(pl.col("dropped").sum()),
        timeouts=compared(pl.col(known[0]).sum()) if known else _UNKNOWN,
        completion_ns=compared(pl.col("completion_ns").mean()),
    )


def transfers(factual: Run, counterfactual: Run) -> Iterator[ComparedFlows]:
    """The TCP flows of each workload together. Drops are not known by workload."""
    summaries = [run.summary.completions or {} for run in (factual, counterfactual)]
    for number in sorted(summaries[0].keys() & summaries[1].keys()):
        first, second = (summary[number] for summary in summaries)
        if first.streams is None and "all" in first.times and "all" in second.times:
            means = [each.times["all"].mean_ms for each in (first, second)]
            mean_ns = [None if mean is None else mean * 1e6 for mean in means]
            yield ComparedFlows(
                name=f"workload {number} ({first.kind})",
                flows=first.flows,
                goodput_bps=Compared(factual=first.goodput_bps, counterfactual=second.goodput_bps),
                drops=_UNKNOWN,
                timeouts=Compared(factual=first.timeouts, counterfactual=second.timeouts),
                completion_ns=Compared(factual=mean_ns[0], counterfactual=mean_ns[1]),
            )


def streams(factual: Run, counterfactual: Run) -> Iterator[ComparedFlows]:
    """The UDP flows of workloads, which have the same addresses and ports in both runs."""
    keys = ["workload", "src", "sport", "dst"]
    if not all("streams" in run.tables for run in (factual, counterfactual)):
        return
    first, second = (
        run.table("streams").select(*keys, "received_bps", "dropped")
        for run in (factual, counterfactual)
    )
    both = first.join(second, on=keys, how="full", coalesce=True, suffix="_other").sort(keys)
    for row in both.iter_rows(named=True):
        goodput, drops = (
            Compared(factual=row[name], counterfactual=row[f"{name}_other"])
            for name in ("received_bps", "dropped")
        )
        yield ComparedFlows(
            name=f"UDP of workload {row['workload']} ({row['src']})",
            flows=1,
            goodput_bps=goodput,
            drops=drops,
            timeouts=_UNKNOWN,
            completion_ns=_UNKNOWN,
        )
