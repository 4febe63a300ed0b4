"""Why figure 3(c)'s senders sent again and stood still, by the kernel's own events.

    .venv/bin/python benchmarks/causes.py [--seeds 10] [--control bic cubic reno] [-o DIR]

Makes the runs (configs/fig3c.yaml in the virtual engine, with the events of TCP) that DIR does not
have yet, and prints tables in Markdown:

- the sums of the events and the kernel's counters;
- the causes of what was sent again;
- timeouts as the captures alone show them, against the kernel's;
- how long the senders stood still until a timer went off, and what had been lost before;
- how long the first acknowledgement after a timeout took.

Exit status 1 if a sum differs from its counter at any host, or a retransmission has no cause.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from outcast.analysis.trace import senders, sums
from outcast.analysis.trace.causes import CAUSES
from outcast.analysis.trace.events import EVENTS
from outcast.analysis.trace.seen import held_against
from outcast.analysis.trace.waits import after_timeouts, wait_table, within
from outcast.records.run import Run

ROOT = Path(__file__).parents[1]


def make(control: str, seed: int, folder: Path) -> Run:
    """Makes a run if it is not there yet."""
    import outcast
    from outcast.api.runs import execute

    target = folder / f"{control}-{seed}"
    if not target.exists():
        experiment = outcast.load(
            ROOT / "configs/fig3c.yaml",
            {
                "engine": "virtual",
                "seed": seed,
                "transport.congestion_control": control,
                "trace.events": list(EVENTS),
            },
        )
        execute(experiment, target, draw=False)
    return Run(target)


def of_run(run: Run, control: str, seed: int) -> dict[str, pl.DataFrame]:
    """The tables of one run, with its control and seed, and the flows' group."""
    traced = senders.read_traced(run.directory)
    waits = wait_table(
        *(traced.senders, traced.again, traced.drops),
        *(run.table("packets"), run.table("blackouts")),
    )
    group = pl.col("flow").replace_strict(run.group_of, default="other", return_dtype=pl.String)
    tables = {
        "sums": sums.compare(traced.every, run.counters),
        "again": traced.again.filter(pl.col("segments") > 0).with_columns(group=group),
        "waits": within(waits, run.manifest.traffic.duration_ns).with_columns(group=group),
        "after": after_timeouts(traced.every, traced.senders).with_columns(group=group),
        "seen": held_against(run.directory, traced).with_columns(group=group),
    }
    of = {"control": pl.lit(control), "seed": pl.lit(seed)}
    return {name: table.with_columns(**of) for name, table in tables.items()}


def sums_table(table: pl.DataFrame) -> pl.DataFrame:
    """Counters and sums over all hosts and runs, and at how many hosts of runs they differ."""
    return table.group_by("counter", maintain_order=True).agg(
        pl.col("kernel").sum(),
        pl.col("events").sum(),
        differing=(pl.col("kernel") != pl.col("events")).sum(),
    )


def causes_table(table: pl.DataFrame) -> pl.DataFrame:
    """Segments sent again by cause, for each control and group."""
    counts = table.group_by("control", "group", "cause").len()
    wide = counts.pivot("cause", index=["control", "group"], values="len").fill_null(0)
    named = [cause for cause in CAUSES if cause in wide.columns]
    return wide.select("control", "group", *named).sort("control", "group")


def seen_table(table: pl.DataFrame) -> pl.DataFrame:
    """Timeouts that the kernel counted, and what the captures make of them."""
    return (
        table.group_by("control", "group")
        .agg(
            kernel=pl.col("timeout").sum(),
            came_in=(pl.col("timeout") & pl.col("came_in")).sum(),
            inferred=pl.col("inferred").sum(),
            right=(pl.col("inferred") & pl.col("timeout")).sum(),
            reordering_timer=(pl.col("inferred") & (pl.col("cause") == "reordering_timer")).sum(),
        )
        .sort("control", "group")
    )


def worst_run(table: pl.DataFrame) -> pl.DataFrame:
    """The relative error of a run's count, over all its flows: the mean and the worst."""
    runs = table.group_by("control", "seed").agg(
        kernel=pl.col("timeout").sum(), inferred=pl.col("inferred").sum()
    )
    error = (pl.col("inferred") - pl.col("kernel").cast(pl.Int64)) / pl.col("kernel")
    return (
        runs.with_columns(error=error)
        .group_by("control")
        .agg(
            mean_percent=(100 * pl.col("error").abs().mean()).round(1),
            worst_percent=(100 * pl.col("error").abs().max()).round(1),
        )
        .sort("control")
    )


def waits_table(table: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """The time that flows stood still, in ms of a flow and run, by what was lost and by timer."""
    per_flow = table.join(runs, on=["control", "group"]).with_columns(
        ms=pl.col("waited_ns") / 1e6 / pl.col("flow_runs")
    )
    by_timer = [
        pl.col("ms").filter(pl.col("timer") == timer).sum().round(1).alias(timer)
        for timer in ("rto", "tlp", "reordering_timer")
    ]
    spent = per_flow.group_by("control", "group", "lost").agg(
        *by_timer,
        waits_per_flow=(pl.len() / pl.col("flow_runs").first()).round(1),
        ms_per_flow=pl.col("ms").sum(),
    )
    total = pl.col("ms_per_flow").sum().over("control", "group")
    return spent.select(
        "control",
        "group",
        "lost",
        "waits_per_flow",
        pl.col("ms_per_flow").round(1),
        (100 * pl.col("ms_per_flow") / total).round(1).alias("share_percent"),
        "rto",
        "tlp",
        "reordering_timer",
    ).sort("control", "group", "ms_per_flow", descending=[False, False, True])


def after_table(table: pl.DataFrame) -> pl.DataFrame:
    """How long the first acknowledgement after a timeout took, and how often it was delayed."""
    heard = table.drop_nulls("heard_ns")
    return (
        heard.group_by("control", "group")
        .agg(
            timeouts=pl.len(),
            delayed_percent=(100 * pl.col("delayed").mean()).round(1),
            mean_ms=(pl.col("heard_ns").mean() / 1e6).round(2),
            mean_delayed_ms=(pl.col("heard_ns").filter("delayed").mean() / 1e6).round(2),
        )
        .sort("control", "group")
    )


def markdown(table: pl.DataFrame) -> str:
    """A table as lines of Markdown."""
    rows = [table.columns, ["---"] * table.width, *table.iter_rows()]
    return "\n".join(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows)


def main(arguments: Sequence[str]) -> int:
    """Makes what is missing and prints the tables. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--control", nargs="+", default=["bic", "cubic", "reno"])
    parser.add_argument("-o", type=Path, default=ROOT / "results/causes", dest="folder")
    asked = parser.parse_args(arguments)
    parts: dict[str, list[pl.DataFrame]] = {}
    flow_runs: list[dict[str, object]] = []
    for control in asked.control:
        for seed in range(1, asked.seeds + 1):
            run = make(control, seed, asked.folder)
            for name, table in of_run(run, control, seed).items():
                parts.setdefault(name, []).append(table)
            flow_runs += [
                {"control": control, "group": group.label, "flow_runs": len(group.flows)}
                for group in run.groups
            ]
            print(f"{control}, seed {seed}: read", file=sys.stderr)
    tables = {name: pl.concat(part, how="vertical_relaxed") for name, part in parts.items()}
    runs = pl.DataFrame(flow_runs).group_by("control", "group").agg(pl.col("flow_runs").sum())
    shown: dict[str, Callable[[], pl.DataFrame]] = {
        "Counters and sums of events": lambda: sums_table(tables["sums"]),
        "Segments sent again, by cause": lambda: causes_table(tables["again"]),
        "Timeouts, from captures alone": lambda: seen_table(tables["seen"]),
        "Error of a run's count": lambda: worst_run(tables["seen"]),
        "Time stood still, by what was lost": lambda: waits_table(tables["waits"], runs),
        "The first acknowledgement after a timeout": lambda: after_table(tables["after"]),
    }
    for title, table in shown.items():
        print(f"\n{title}\n\n{markdown(table())}")
    differing = tables["sums"].filter(pl.col("kernel") != pl.col("events"))
    without = tables["again"].filter(pl.col("cause").is_null())
    return 1 if differing.height or without.height else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
