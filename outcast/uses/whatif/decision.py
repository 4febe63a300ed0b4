"""From when on an outcome of a run was decided, and many fates of packets at once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import polars as pl

import outcast
from outcast import files
from outcast.api import Place, SweepDirectory, causes, experiment_of, make_each, note
from outcast.errors import ConfigError, InputError
from outcast.records import Interventions, PacketFate, digests, write_record
from outcast.records import Run as Record
from outcast.uses.whatif import compare, fates, futures
from outcast.uses.whatif import outcome as outcomes
from outcast.uses.whatif.compared import Decision, Instant
from outcast.uses.whatif.futures import Future
from outcast.uses.whatif.outcome import Outcome
from outcast.view import draw_one


def fate(
    directory: str | os.PathLike[str] | Record,
    at_ns: Sequence[int],
    futures_each: int,
    outcome: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    jobs: int | None = None,
    resume: bool = False,
    scheduler: str | None = None,
    allow_programs: bool = False,
    progress: bool | None = None,
) -> Decision:
    """Asks from when on an outcome was decided: futures from several instants on.

    In a future, the run's noise is drawn from another seed from that instant on. All before is the
    same run, which is verified. What is found is also written to fate.json in the run's directory.

    Args:
        directory: a run directory of the virtual engine, or a run.
        at_ns: the instants, in nanoseconds after the traffic's start.
        futures_each: how many futures each instant has.
        outcome: as `share(lone) < 0.5`; see docs/verbs/fate.md.
        folder: where the futures are made; None is the run's directory with `-futures` behind.
        jobs: how many runs go on at a time; None is as many as there are cores.
        resume: go on with the futures in the folder; what is finished there is not repeated.
        scheduler: the address of a Dask scheduler, whose workers make the futures instead.
        allow_programs: as in `replay`.
        progress: as in `outcast.run`.

    Returns:
        What was found.

    Raises:
        ConfigError: the outcome, an instant or the folder is refused.
        InputError: the run cannot be made again, or its noise draws nothing.
        RunError: a future failed, or is another run before its instant.
    """
    given = directory.directory.path if isinstance(directory, Record) else Path(directory)
    path = files.nameable(given)
    target = path.with_name(f"{path.name}-futures") if folder is None else Path(folder)
    place = Place(target, jobs, resume, scheduler, allow_programs, progress)
    return _decide(path, at_ns, futures_each, outcomes.parse(outcome), place)


def _decide(
    path: Path, at_ns: Sequence[int], futures_each: int, wanted: Outcome, place: Place
) -> Decision:
    if not 1 <= futures_each <= futures.MOST_FUTURES:
        raise ConfigError(f"--futures {futures_each}: allowed are 1 to {futures.MOST_FUTURES}")
    experiment, manifest = experiment_of(path, place.allow_programs)
    futures.require_random(experiment, str(path))
    futures.require_within(at_ns, manifest.traffic.duration_ns, "--at")
    factual = Record(path)
    wanted.require_planned(factual)
    happened = wanted.known(factual)
    if happened is None:
        raise ConfigError(
            f"--outcome {wanted.words!a}: is not known of this run (docs/verbs/fate.md)"
        )
    planned = list(
        futures.plan(sorted({*at_ns}), futures_each, experiment.seed, manifest.traffic.guest_ns)
    )
    changes = {
        future.name: futures.interventions(manifest.interventions, path.name, future.noise)
        for future in planned
    }
    from_ns = {future.name: future.noise.t_ns for future in planned}
    make_each(factual, experiment, changes, from_ns, place)
    runs = SweepDirectory(place.folder)
    instants = _instants(factual, planned, runs, wanted)
    decision = Decision(
        outcome=wanted.words,
        happened=happened,
        futures=str(place.folder),
        instants=instants,
        causes=causes(factual, (runs.run(future.name) for future in planned)),
        decided_ns=futures.decided_ns(instants),
    )
    write_record(factual.directory.decision, decision)
    draw_one(Record(path), "fate")
    outcast.open_run(path).write_report()
    return decision


def _instants(
    factual: Record, planned: Sequence[Future], runs: SweepDirectory, wanted: Outcome
) -> list[Instant]:
    """What came of the futures from each instant on. Raises InputError if nothing was drawn."""
    captures = digests(factual.directory)
    found: dict[int, dict[int, bool]] = {}
    same: Counter[int] = Counter()
    for future in planned:
        made = Record(runs.run(future.name))
        found.setdefault(future.noise.t_ns, {})[future.noise.seed] = wanted.of(made)
        same[future.noise.t_ns] += digests(made.directory) == captures
    if same.total() == len(planned):
        raise InputError(
            f"{factual.directory.path}: all futures are the run itself, so its noise draws nothing"
        )
    return [futures.instant(t_ns, each, same[t_ns]) for t_ns, each in found.items()]


def whatif_each(
    run: str | os.PathLike[str] | Record,
    packets: Sequence[int],
    fate: str,
    jobs: int | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = False,
    scheduler: str | None = None,
    allow_programs: bool = False,
    progress: bool | None = None,
) -> pl.DataFrame:
    """Makes a run again once for each of some packets, each time with another fate of that packet.

    Args:
        run: a run directory of the virtual engine, or a run.
        packets: rows of packets.parquet, from 0.
        fate: as in `Run.whatif`.
        jobs: how many runs go on at a time; None is as many as there are cores.
        folder: where the runs are made; None is the run's directory with `-each` behind.
        resume: go on with the runs in the folder; what is finished there is not repeated.
        scheduler: the address of a Dask scheduler, as in `fate`.
        allow_programs: as in `replay`.
        progress: as in `outcast.run`.

    Returns:
        A row for each packet: `packet`, `flow`, `t_in` (ns after the start),
        `changed`, `only_factual`, `only_counterfactual` and `packets` as in whatif.json, `ratio`, a
        column for the goodput of each group (bit/s); a group of a name above is `group NAME`.

    Raises as `Run.whatif`.
    """
    factual = run if isinstance(run, Record) else Record(Path(run))
    path = factual.directory.path
    target = path.with_name(f"{path.name}-each") if folder is None else Path(folder)
    place = Place(target, jobs, resume, scheduler, allow_programs, progress)
    experiment, manifest = experiment_of(path, allow_programs)
    if not packets:
        raise ConfigError("no packet is named; allowed are rows of packets.parquet")
    changes, own = _changes(factual, packets, fate, manifest.traffic.guest_ns)
    from_ns = {name: changed.t_in_ns for name, changed in own.items()}
    rows, others = [], list[str]()
    make_each(factual, experiment, changes, from_ns, place)
    for name in changes:
        made = Record(SweepDirectory(target).run(name))
        others += [words for words in causes(factual, [made.directory]) if words not in others]
        rows.append(_row(factual, made, own[name]))
    for words in others:
        note(progress, f"other programs made them, which can decide packets too: {words}")
    return pl.DataFrame(rows)


def _changes(
    factual: Record, packets: Sequence[int], fate: str, boot_ns: int
) -> tuple[dict[str, Interventions], dict[str, PacketFate]]:
    """What is changed in each run, and which packet's fate that is, by the runs' names."""
    changes: dict[str, Interventions] = {}
    own: dict[str, PacketFate] = {}
    named = factual.directory.path.name
    for packet in packets:
        wanted = fates.parse_fate(packet, fate)
        name = f"{wanted.fate}-{wanted.delay_ns}ns-{packet}"
        if name in changes:
            raise ConfigError(f"packet {packet} is named twice")
        changes[name], (own[name],) = fates.interventions(factual, named, [wanted], boot_ns)
    return changes, own


def _row(factual: Record, made: Record, changed: PacketFate) -> dict[str, object]:
    compare.require_fates(made, [changed])
    numbers = compare.flow_numbers(factual, made)
    record = compare.of(factual, made, None, compare.blast(factual, made), numbers)
    row: dict[str, object] = {
        "packet": changed.packet,
        "flow": changed.flow,
        "t_in": changed.t_in_ns,
        "changed": record.changed,
        "only_factual": record.only_factual,
        "only_counterfactual": record.only_counterfactual,
        "packets": record.packets,
        "ratio": record.ratio.counterfactual,
    }
    of_groups = {
        f"group {group.name}" if group.name in row else group.name: group.goodput_bps
        for group in record.groups
    }
    return row | {name: both.counterfactual for name, both in of_groups.items()}
