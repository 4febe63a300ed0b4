"""Makes a run again once for each of several other fates of its packets, and compares.

A point with `fates` requests it. Each of its runs keeps its captures until that is done. What came
of the fates is a table beside the runs, and measures take their numbers from it.
"""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from outcast.api import SweepDirectory
from outcast.records import Interventions, Run, write_table
from outcast.uses.papers.recipe import Fates
from outcast.uses.whatif import compare, fates, futures
from outcast.uses.whatif.fates import WantedFate

FOLDER = "fates"
WITHIN_MS = (5, 20, 100)
"""The times after a blackout's first drop over which its effects are measured."""
STARVED_SHARE = 0.5
"""A flow with less than that of the mean is starved, as an outcome calls it."""
TIMEOUT_WITHIN_NS = 20_000_000
"""A timeout that comes of a blackout begins within this time after its last drop."""
NUDGE = "delay=1us"
LONGEST_NS = 100_000
"""Longer chains are left out: before their end an undone drop could be answered."""


@dataclass(frozen=True)
class Blackout:
    """A chain of drops of one input. Packets are rows of the table."""

    drops: tuple[int, ...]
    next_packet: int  # of another input, which got through
    flows: tuple[int, ...]
    start_ns: int
    end_ns: int
    timeout: bool  # whether one of the flows then paused for at least the least timeout


@dataclass(frozen=True)
class Other:
    """A run that is made again."""

    name: str
    group: int  # the number of the flip or blackout
    wanted: tuple[WantedFate, ...] = ()
    blackout: Blackout | None = None
    undone: int | None = None  # the number of a blackout's drop; None for all of them
    is_last: bool = False


def table_of(store: SweepDirectory, name: str, requested: Fates) -> Path:
    digest = hashlib.sha256(requested.model_dump_json().encode()).hexdigest()[:8]
    return store.path / FOLDER / f"{name}-{digest}.parquet"


def make(store: SweepDirectory, name: str, requested: Fates, jobs: int) -> None:
    """Makes a run again with every fate that is requested, and writes the table of what came of it.

    What is finished is not repeated.

    Raises OutcastError: as `outcast.whatif_each`.
    """
    # Imported here, because `outcast reproduce --help` needs none of it.
    from outcast.api import many

    factual = Run(store.run(name))
    experiment, manifest = many.experiment_of(factual.directory.path, allow_programs=True)
    boot_ns = manifest.traffic.guest_ns
    others = {other.name: other for other in _others(factual, requested)}
    changes: dict[str, Interventions] = {}
    from_ns: dict[str, int] = {}
    for key, other in others.items():
        if other.wanted:
            changes[key], own = fates.interventions(factual, name, other.wanted, boot_ns)
            from_ns[key] = min(fate.t_in_ns for fate in own)
        else:
            (future,) = futures.plan([0], 1, other.group + 1, boot_ns)
            changes[key] = Interventions(of=name, noise=future.noise)
            from_ns[key] = 0
    target = table_of(store, name, requested).with_suffix("")
    place = many.Place(target, jobs, resume=target.exists())
    many.make_each(factual, experiment, changes, from_ns, place)
    made = SweepDirectory(target)
    rows = [_row(factual, Run(made.run(key)), other) for key, other in others.items()]
    write_table(pl.DataFrame(rows, infer_schema_length=None), table_of(store, name, requested))
    shutil.rmtree(target)


def _others(run: Run, requested: Fates) -> Iterator[Other]:
    draw = random.Random(f"{run.experiment.seed} {requested.kind}")
    if requested.kind == "noise":
        for number in range(requested.each):
            yield Other(f"noise-{number}", number)
    elif requested.kind in ("flip", "keep"):
        for number, (row, verdict) in enumerate(_drawn(run, requested.each, draw)):
            other = "drop" if verdict == "forwarded" else "forward"
            fate = "keep" if requested.kind == "keep" else other
            yield Other(f"{fate}-{row}", number, (fates.parse_fate(row, fate),))
    else:
        for number, blackout in enumerate(blackouts(run, requested, draw)):
            yield from _of_blackout(number, blackout, requested)


def _of_blackout(number: int, blackout: Blackout, requested: Fates) -> Iterator[Other]:
    if requested.kind == "nudge":
        held = (fates.parse_fate(blackout.next_packet, NUDGE),)
        yield Other(f"b{number}-nudge", number, held, blackout)
        return
    every = [fates.parse_fate(row, "forward") for row in blackout.drops]
    yield Other(f"b{number}-all", number, tuple(every), blackout)
    for place, intervention in enumerate(every):
        is_last = place == len(every) - 1
        yield Other(f"b{number}-{place}", number, (intervention,), blackout, place, is_last)


def _data(run: Run) -> pl.DataFrame:
    """Packets with payload that came in after the start: their rows are in `index`."""
    return (
        run.table("packets", whole=True)
        .with_row_index()
        .with_columns(pl.col("ingress", "verdict").cast(pl.String))
        .filter(pl.col("t_in") >= run.manifest.traffic.t_start_ns, pl.col("payload") > 0)
    )


def _drawn(run: Run, count: int, draw: random.Random) -> list[tuple[int, str]]:
    """Packets by lot, half of them dropped ones, with their verdicts."""
    data = _data(run)
    found: list[tuple[int, str]] = []
    for verdict, some in (("dropped", count // 2), ("forwarded", count - count // 2)):
        rows = data.filter(pl.col("verdict") == verdict)["index"].to_list()
        found += [(row, verdict) for row in draw.sample(rows, min(some, len(rows)))]
    return found


def blackouts(run: Run, requested: Fates, draw: random.Random) -> list[Blackout]:
    """Chains of at least two drops by lot, of the inputs of a class, in time for their effects."""
    ports = [name for name, port in run.summary.drops.items() if port.hops == [requested.hops]]
    traffic = run.manifest.traffic
    latest_ns = traffic.t_end_ns - max(WITHIN_MS) * 10**6
    chains = (
        run.table("blackouts")
        .with_columns(pl.col("ingress").cast(pl.String))
        .filter(
            pl.col("ingress").is_in(ports),
            pl.col("drops") > 1,
            pl.col("t_end") - pl.col("t_start") <= LONGEST_NS,
            pl.col("t_start").is_between(traffic.t_start_ns, latest_ns),
        )
        .sort("t_start")
    )
    chosen = draw.sample(range(chains.height), min(requested.each, chains.height))
    data = _data(run)
    return [_blackout(run, data, chains.row(place, named=True)) for place in sorted(chosen)]


def _blackout(run: Run, data: pl.DataFrame, chain: Mapping[str, Any]) -> Blackout:
    start_ns, end_ns = chain["t_start"], chain["t_end"]
    is_own = pl.col("ingress") == chain["ingress"]
    lost = data.filter(
        is_own, pl.col("verdict") == "dropped", pl.col("t_in").is_between(start_ns, end_ns)
    )
    later = data.filter(~is_own, pl.col("verdict") == "forwarded", pl.col("t_in") > end_ns)
    flows = tuple(lost["flow"].unique().sort().to_list())
    return Blackout(
        drops=tuple(lost["index"].to_list()),
        next_packet=int(later["index"][0]),
        flows=flows,
        start_ns=start_ns,
        end_ns=end_ns,
        timeout=any(
            _pauses(data, flow, end_ns, run.experiment.transport.min_rto_ns) for flow in flows
        ),
    )


def _pauses(data: pl.DataFrame, flow: int, from_ns: int, least_ns: int) -> bool:
    """Whether a flow's packets stop coming in for `least_ns`, soon after an instant."""
    times = data.filter(
        pl.col("flow") == flow,
        pl.col("t_in").is_between(from_ns, from_ns + TIMEOUT_WITHIN_NS + least_ns),
    )["t_in"].to_list()
    every = [from_ns, *times, from_ns + TIMEOUT_WITHIN_NS + least_ns]
    return any(after - before >= least_ns for before, after in pairwise(every))


def _row(factual: Run, made: Run, other: Other) -> dict[str, object]:
    changes = made.directory.read_manifest().interventions
    assert changes is not None
    compare.require_fates(made, changes.fates)
    row: dict[str, object] = {
        "group": other.group,
        "undone": other.undone,
        "is_last": other.is_last,
        "other_starved": starved(made) != starved(factual),
        "other_side": len({(run.summary.outcast_ratio or 0.0) > 1 for run in (made, factual)}) > 1,
    }
    if (blackout := other.blackout) is not None:
        gains = zip(
            WITHIN_MS,
            delivered(made, blackout.flows, blackout.start_ns, WITHIN_MS),
            delivered(factual, blackout.flows, blackout.start_ns, WITHIN_MS),
            strict=True,
        )
        return {
            **row,
            "drops": len(blackout.drops),
            "timeout": blackout.timeout,
            **{f"gain_{ms}ms_bps": (after - before) * 8e3 / ms for ms, after, before in gains},
        }
    packets = compare.blast(factual, made)
    changed = packets.filter("other")
    flows = factual.table("packets", whole=True)["flow"]
    own = {flows[fate.packet] for fate in other.wanted}
    return {
        **row,
        "changed": changed.height / packets.height,
        "spread": not set(changed["flow"].to_list()) <= own,
    }


def starved(run: Run) -> set[int]:
    """The flows that got less than half of the mean."""
    flows = run.table("flows").select("flow", "goodput_bps")
    less = flows.filter(pl.col("goodput_bps") < STARVED_SHARE * pl.col("goodput_bps").mean())
    return set(less["flow"].to_list())


def delivered(run: Run, flows: Sequence[int], from_ns: int, within_ms: Sequence[int]) -> list[int]:
    """The bytes of some flows that left the bottleneck for the first time within some times."""
    firsts = (
        run.table("packets", whole=True)
        .filter(pl.col("flow").is_in(list(flows)), pl.col("t_out").is_not_null())
        .group_by("flow", "seq")
        .agg(pl.col("t_out").min(), pl.col("payload").max())
    )
    since = firsts.with_columns(pl.col("t_out") - from_ns)
    return [
        int(since.filter(pl.col("t_out").is_between(0, ms * 10**6))["payload"].sum())
        for ms in within_ms
    ]
