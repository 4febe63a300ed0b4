"""Why figure 3(c)'s senders sent again and stood still, by the kernel's own events.

    .venv/bin/python -m benchmarks.causes [--seeds 10] [--control bic cubic reno] [-o DIR] [--write]

Makes the runs (configs/fig3c.yaml in the virtual engine, with the events of TCP) that DIR does not
have yet, and prints tables in Markdown:

- the sums of the events and the kernel's counters;
- the causes of what was sent again;
- timeouts as the captures alone show them, against the kernel's;
- how long the senders stood still until a timer went off, and what had been lost before;
- how long the first acknowledgement after a timeout took.

`--write` puts the tables into docs/results/measured.json (`waits` and what begins so), from which
`python -m scripts.fill_numbers` fills the pages.

Exit status 1 if a sum differs from its counter at any host, or a retransmission has no cause.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from benchmarks import stored
from benchmarks.seen import after_timeouts, held_against
from outcast.records.run import Run
from outcast.uses.why import overview, senders
from outcast.uses.why.causes import CAUSES
from outcast.uses.why.overview import wait_table, within
from outcast.uses.why.recorded_events import EVENTS

ROOT = Path(__file__).parents[1]
NAME = "waits"


def make(control: str, seed: int, folder: Path) -> Run:
    """Makes a run if it is not there yet."""
    settings = {
        "engine": "virtual",
        "seed": seed,
        "transport.congestion_control": control,
        "trace.events": list(EVENTS),
    }
    return stored.made("configs/fig3c.yaml", settings, folder / f"{control}-{seed}")


def of_run(run: Run, control: str, seed: int) -> dict[str, pl.DataFrame]:
    """The tables of one run, with its control and seed, and the flows' group."""
    traced = senders.read_traced(run.directory)
    waits = wait_table(
        *(traced.senders, traced.again, traced.drops),
        *(run.table("packets", whole=True), run.table("blackouts", whole=True)),
    )
    group = pl.col("flow").replace_strict(run.group_of, default="other", return_dtype=pl.String)
    tables = {
        "sums": overview.compare(traced.every, run.counters),
        "again": traced.again.filter(pl.col("segments") > 0).with_columns(group=group),
        "waits": within(waits, 0, run.manifest.traffic.duration_ns).with_columns(group=group),
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


def cells(table: pl.DataFrame) -> list[list[str]]:
    """A table as text; its first row has the columns' names."""
    return [table.columns, *([str(cell) for cell in row] for row in table.iter_rows())]


def of_lone(waits: pl.DataFrame, controls: Sequence[str]) -> dict[str, str]:
    """What pages say of the waits: by control in their order, of the 2-hop and the 6-hop flows."""

    def each(group: str, value: pl.Expr, digits: int = 0) -> str:
        rows = [waits.filter(control=control, group=group) for control in controls]
        values = [row.select(value).item() or 0 for row in rows]
        return _listed([f"{value:.{digits}f}" for value in values])

    def share(lost: str) -> pl.Expr:
        return pl.col("share_percent").filter(pl.col("lost") == lost).sum()

    total = pl.col("ms_per_flow").sum()
    return {
        "controls": _listed([_written(control) for control in controls]),
        "lone": each("2-hop", total),
        "lone blackout": f"{each('2-hop', share('blackout'))} %",
        "lone alone": f"{each('2-hop', share('hole'))} %",
        "lone tail": f"{each('2-hop', share('tail loss'), 1)} %",
        "lone probes": f"{each('2-hop', 100 * pl.col('tlp').sum() / total)} %",
        "rivals": each("6-hop", total),
        "rivals before": f"{each('6-hop', share('lost elsewhere'))} %",
    }


def _written(control: str) -> str:
    """A congestion control's name as papers write it."""
    return "Reno" if control == "reno" else control.upper()


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def main(arguments: Sequence[str]) -> int:
    """Makes what is missing and prints the tables. Returns the exit status."""
    parser = stored.parser(__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--control", nargs="+", default=["bic", "cubic", "reno"])
    parser.add_argument("-o", type=Path, default=ROOT / "results/causes", dest="folder")
    options = parser.parse_args(arguments)
    parts: dict[str, list[pl.DataFrame]] = {}
    flow_runs: list[dict[str, object]] = []
    made: list[Run] = []
    for control in options.control:
        for seed in range(1, options.seeds + 1):
            run = make(control, seed, options.folder)
            made.append(run)
            for name, table in of_run(run, control, seed).items():
                parts.setdefault(name, []).append(table)
            flow_runs += [
                {"control": control, "group": group.label, "flow_runs": len(group.flows)}
                for group in run.groups
            ]
            print(f"{control}, seed {seed}: read", file=sys.stderr)
    tables = {name: pl.concat(part, how="vertical_relaxed") for name, part in parts.items()}
    runs = pl.DataFrame(flow_runs).group_by("control", "group").agg(pl.col("flow_runs").sum())
    waits = waits_table(tables["waits"], runs)
    command = f"python -m benchmarks.causes --seeds {options.seeds} --control"
    entry = stored.Entry(
        f"{command} {' '.join(options.control)} --write",
        stored.state_of(made),
        cells(waits),
        {**of_lone(waits, options.control), "seeds": str(options.seeds)},
    )
    entries = {
        NAME: entry,
        f"{NAME}, after": replace(entry, table=cells(after_table(tables["after"])), values={}),
        f"{NAME}, causes": replace(entry, table=cells(causes_table(tables["again"])), values={}),
        f"{NAME}, sums": replace(entry, table=cells(sums_table(tables["sums"])), values={}),
        f"{NAME}, seen": replace(entry, table=cells(seen_table(tables["seen"])), values={}),
        f"{NAME}, errors": replace(entry, table=cells(worst_run(tables["seen"])), values={}),
    }
    for name, known in entries.items():
        print(f"\n{name}\n\n{known.markdown()}")
        if options.write:
            stored.store(name, known)
    differing = tables["sums"].filter(pl.col("kernel") != pl.col("events"))
    without = tables["again"].filter(pl.col("cause").is_null())
    return 1 if differing.height or without.height else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
