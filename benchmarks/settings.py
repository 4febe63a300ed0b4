"""What becomes of flows under other settings: tables of docs/queues.md, transports.md, findings.md.

    .venv/bin/python -m benchmarks.settings queues|dctcp|lots [--seeds 5] [-o DIR] [--write]

Makes the runs in the virtual engine that DIR does not have yet, and prints a table with
geometric means of ratios, other means, and their 95 % intervals over the seeds. `--write` puts the
table into docs/results/measured.json, from which `python -m scripts.fill_numbers` fills the pages.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import polars as pl

from benchmarks import stored
from outcast.analysis.run_measures import drop_measures
from outcast.analysis.statistics import Kind, central
from outcast.records.run import Run
from outcast.uses.papers.index import interval_text

ROOT = Path(__file__).parents[1]
COMMON = {"engine": "virtual", "duration": "300ms", "analysis.windows": []}
SETTLED_NS = 50_000_000
"""Sockets are looked at from here on."""


@dataclass(frozen=True)
class Column:
    """A column of a table: its head, what a run gives for it, and how runs are averaged."""

    head: str
    take: Callable[[Run], float | None]
    center: Kind = "mean"


@dataclass(frozen=True)
class Study:
    """A table: the first cell and the settings of each row, and the columns."""

    about: str
    config: str
    rows: Mapping[str, Mapping[str, object]]
    columns: Sequence[Column]


def _ratio(run: Run) -> float | None:
    return run.summary.outcast_ratio


def _jain(run: Run) -> float | None:
    return run.summary.jain_index


def _sojourn_ms(run: Run) -> float | None:
    (queue,) = run.summary.queue.values()
    return queue.sojourn_ms.p50 if queue.sojourn_ms else None


def _goodput(hops: int) -> Column:
    def mbps(run: Run) -> float | None:
        known = run.summary.classes.get(str(hops))
        return known.mean_goodput_bps / 1e6 if known else None

    return Column(f"{hops}-hop flow, Mbps", mbps)


def _socket(head: str, column: str, hops: int) -> Column:
    """The mean of a column of sockets.parquet over the flows of a class."""

    def mean(run: Run) -> float | None:
        flows = [flow.flow for flow in run.manifest.compared_flows if flow.hops == hops]
        seen = run.table("sockets").filter(
            pl.col("t") > SETTLED_NS, pl.col("flow").is_in(flows), pl.col(column).is_not_null()
        )
        return fmean(seen[column].to_list()) if seen.height else None

    return Column(head, mean)


def _queue(kind: str, **keys: object) -> dict[str, object]:
    return {"queue": {"kind": kind, **keys}}


def _chains(lot_packets: int | None) -> Column:
    """The lone flow's chains of drops over those by lots of `lot_packets` packet times."""

    def over_lots(run: Run) -> float | None:
        value = drop_measures.chains_over_lots(run, 2, lot_packets)
        return None if math.isnan(value) else value

    return Column(f"{lot_packets} packets" if lot_packets else "the run", over_lots, "geometric")


def _noise(**parts: object) -> dict[str, object]:
    """The settings of F2's point with this noise, which replaces those of COMMON."""
    return {"duration": "500ms", "noise": {"profile": "exact", **parts}}


_DCTCP = {"transport.congestion_control": "dctcp", "transport.ecn": True}
_FAST = {"target": "100us", "interval": "1ms"}
STUDIES: Mapping[str, Study] = {
    "queues": Study(
        "queue",
        "configs/fig3c.yaml",
        {
            "`{kind: tbf, limit: 16KB}`": _queue("tbf", limit="16KB"),
            "`{kind: red, limit: 64KB}`": _queue("red", limit="64KB"),
            "`{kind: ecn_threshold, limit: 100 packets, threshold: 20 packets}`, DCTCP": {
                **_queue("ecn_threshold", limit="100 packets", threshold="20 packets"),
                **_DCTCP,
            },
            "`{kind: sfq, limit: 20 packets}` (4 buckets)": _queue("sfq", limit="20 packets"),
            "`{kind: fq, limit: 40 packets}`": _queue("fq", limit="40 packets"),
            "`{kind: codel, limit: 200 packets, target: 100us, interval: 1ms}`": _queue(
                "codel", limit="200 packets", **_FAST
            ),
            "`{kind: fq_codel, limit: 200 packets, target: 100us, interval: 1ms}`": _queue(
                "fq_codel", limit="200 packets", **_FAST
            ),
            "`{kind: pie, limit: 200 packets, target: 200us, update: 1ms}`": _queue(
                "pie", limit="200 packets", target="200us", update="1ms"
            ),
            "`{kind: cake, limit: 4MB, rtt: 2ms}`": _queue("cake", limit="4MB", rtt="2ms"),
        },
        (
            Column("ratio", _ratio, "geometric"),
            Column("Jain's index", _jain),
            Column("median sojourn time, ms", _sojourn_ms),
        ),
    ),
    "lots": Study(
        "noise, and the lot's window",
        "configs/paper/p3c-12-rivals.yaml",
        {
            "switch 1 us": _noise(switch_latency="1us"),
            "switch 2 us": _noise(switch_latency="2us"),
            "switch 5 us": _noise(switch_latency="5us"),
            "sender 25 us": _noise(sender={"least": "0us", "most": "25us"}),
            "interrupts 50 us": _noise(interrupts={"least": "0us", "most": "50us"}),
            "oscillators 100 ppm": _noise(oscillators=100),
        },
        tuple(_chains(packets) for packets in (4, 16, drop_measures.LOT_PACKETS, 256, None)),
    ),
    "dctcp": Study(
        "setting",
        "configs/paper/t8-dctcp-20.yaml",
        {
            "DCTCP": {},
            "DCTCP, links of 1 us": {"links.delay": "1us"},
            "DCTCP, three flows": {
                "flows": [{"from": "2-hop", "hosts": 1}, {"from": "6-hop", "hosts": 2}]
            },
            "DCTCP, Qmax 100, threshold 20": _queue(
                "ecn_threshold", limit="100 packets", threshold="20 packets"
            ),
            "DCTCP, Qmax 400, threshold 60": _queue(
                "ecn_threshold", limit="400 packets", threshold="60 packets"
            ),
            "DCTCP, Qmax 400, threshold 200": _queue(
                "ecn_threshold", limit="400 packets", threshold="200 packets"
            ),
            "CUBIC, drop-tail": {
                **_queue("tbf", limit="20 packets"),
                "transport.congestion_control": "cubic",
                "transport.ecn": False,
            },
        },
        (
            Column("Jain's index", _jain),
            *(_goodput(hops) for hops in (2, 4, 6)),
            *(_socket(f"window, packets, {hops}-hop", "cwnd", hops) for hops in (2, 6)),
            *(_socket(f"round trip, us, {hops}-hop", "srtt_us", hops) for hops in (2, 6)),
        ),
    ),
}


def cell(column: Column, runs: Sequence[Run]) -> str:
    """A column's mean over runs with its interval; `-` if a run has no value."""
    values = [column.take(run) for run in runs]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return "-"
    interval = central(known, column.center)
    return interval_text(interval.value, interval.low, interval.high)


def main() -> None:
    """Makes what is missing and prints the table."""
    parser = stored.parser(__doc__)
    parser.add_argument("name", choices=STUDIES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("-o", type=Path, default=ROOT / "results/settings", dest="folder")
    arguments = parser.parse_args()
    study = STUDIES[arguments.name]
    table: list[list[str]] = [[study.about, *(column.head for column in study.columns)]]
    every: list[Run] = []
    for number, (label, settings) in enumerate(study.rows.items(), 1):
        runs = [
            stored.made(
                study.config,
                {**COMMON, **settings, "seed": seed},
                arguments.folder / f"{arguments.name}-{number}-s{seed}",
            )
            for seed in range(1, arguments.seeds + 1)
        ]
        every += runs
        table.append([label, *(cell(column, runs) for column in study.columns)])
        print(json.dumps(table[-1], ensure_ascii=False), flush=True)
    entry = stored.Entry(
        f"python -m benchmarks.settings {arguments.name} --seeds {arguments.seeds} --write",
        stored.state_of(every),
        table,
        {
            "seeds": str(arguments.seeds),
            "noise": ", ".join(sorted({str(run.experiment.noise.profile) for run in every})),
        },
    )
    stored.tell(arguments.name, entry, write=arguments.write)


if __name__ == "__main__":
    main()
