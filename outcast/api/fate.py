"""From when on an outcome of a run was decided, and many fates of packets at once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from outcast import files
from outcast.api import archives, debugging
from outcast.api import guest as provision
from outcast.api import progress as shown
from outcast.api.making import absolute_search_paths
from outcast.errors import ConfigError, InputError, RunError
from outcast.experiment import Experiment, dump
from outcast.records import replay as comparing
from outcast.records.interventions import Decision, Interventions
from outcast.records.run import Run as Record
from outcast.records.run_directory import Manifest
from outcast.sweep import captures, scheduler, store
from outcast.sweep.pool import LocalPool
from outcast.sweep.scheduler import Limits
from outcast.sweep.store import SweepDirectory
from outcast.sweep.task import Task
from outcast.view import figures, report
from outcast.whatif import compare, fates, futures
from outcast.whatif import outcome as outcomes


def fate(
    directory: str | os.PathLike[str],
    at_ns: Sequence[int],
    futures_each: int,
    outcome: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    jobs: int | None = None,
    resume: bool = False,
    allow_programs: bool = False,
    progress: bool | None = None,
) -> Decision:
    """Asks from when on an outcome was decided: futures from several instants on.

    In a future, the run's noise is drawn from another seed from that instant on. All before is the
    same run, which is verified. What is found is also written to fate.json in the run's directory.

    Args:
        directory: a run directory of the virtual engine.
        at_ns: the instants, in nanoseconds after the traffic's start.
        futures_each: how many futures each instant has.
        outcome: as `share(lone) < 0.5`; see docs/whatif.md.
        folder: where the futures are made; None is the run's directory with `-futures` behind.
        jobs: how many runs go on at a time; None is as many as there are cores.
        resume: go on with the futures in the folder; what is finished there is not repeated.
        allow_programs: as in `replay`.
        progress: whether to show it on standard error; None shows it on a terminal and in a
            notebook.

    Raises:
        ConfigError: the outcome, an instant or the folder is refused.
        InputError: the run cannot be made again, or has no noise that is drawn.
        RunError: a future failed, or is another run before its instant.
    """
    path, asked = files.nameable(Path(directory)), outcomes.parse(outcome)
    if not 1 <= futures_each <= futures.MOST_FUTURES:
        raise ConfigError(f"--futures {futures_each}: allowed are 1 to {futures.MOST_FUTURES}")
    experiment, manifest = _experiment(path, allow_programs)
    futures.require_random(experiment, str(path))
    end_ns = manifest.traffic.t_end_ns - manifest.traffic.t_start_ns
    futures.require_within(at_ns, end_ns, "--at")
    factual = Record(path)
    happened = asked.of(factual)
    planned = list(futures.plan(at_ns, futures_each, experiment.seed, debugging.guest_ns(manifest)))
    changes = {
        one.name: futures.interventions(manifest.interventions, path.name, one.noise)
        for one in planned
    }
    from_ns = {one.name: one.noise.t_ns for one in planned}
    target = path.with_name(f"{path.name}-futures") if folder is None else Path(folder)
    _make(factual, experiment, changes, from_ns, target, jobs, resume, progress)
    found: dict[int, dict[int, bool]] = {}
    for one in planned:
        made = Record(SweepDirectory(target).run(one.name))
        found.setdefault(one.noise.t_ns, {})[one.noise.seed] = asked.of(made)
    instants = [futures.instant(t_ns, of_instant) for t_ns, of_instant in found.items()]
    decision = Decision(
        outcome=asked.words,
        happened=happened,
        futures=str(target),
        instants=instants,
        decided_ns=futures.decided_ns(instants),
    )
    factual.directory.write_decision(decision)
    figures.draw_one(Record(path), "fate")
    report.write(factual.directory)
    return decision


def _experiment(path: Path, allow_programs: bool) -> tuple[Experiment, Manifest]:
    """What a run was made from, if it can be made again here. Raises InputError."""
    if not path.is_dir():
        raise InputError(f"{path}: is no run directory; outcast replay -o makes one")
    with archives.opened(path) as unpacked:
        experiment = archives.replayable(unpacked, str(path), allow_programs)
        manifest = unpacked.run.read_manifest()
    if different := archives.other_guest(manifest):
        raise InputError(f"{path}: {different}; make the run anew: outcast run")
    return experiment, manifest


def _make(
    factual: Record,
    experiment: Experiment,
    changes: Mapping[str, Interventions],
    from_ns: Mapping[str, int],
    target: Path,
    jobs: int | None,
    resume: bool,
    progress: bool | None,
) -> None:
    """Makes runs with interventions, as a sweep does, and compares each with the run before it.

    Args:
        factual: the run in which they intervene.
        experiment: what that was made from.
        changes: what is changed in each, by the name of its folder.
        from_ns: up to when each has to be equal, after the traffic's start.
        target: the folder of all.
        jobs: how many go on at a time; None is as many as there are cores.
        resume: whether to go on with what is in the folder.
        progress: whether to show it.

    Raises:
        ConfigError: the folder cannot be used.
        RunError: one failed.
        UntrustedError: one is another run before its intervention.
    """
    jobs = jobs or os.cpu_count() or 1
    provision.provide(experiment, progress)
    asked = dict.fromkeys(changes, experiment)

    def check(directory: SweepDirectory, name: str) -> None:
        made = directory.run(name)
        explanation = comparing.explain(factual.directory, made)
        compare.require_prefix(explanation, from_ns[name], name)
        captures.reduce(made, "drop")

    with absolute_search_paths(), store.opened(target, experiment, resume) as directory:
        pool = LocalPool(jobs, threads=max(1, (os.cpu_count() or 1) // jobs))
        with shown.of_sweep(progress) as observer:
            finished = store.take_stock(directory, asked, observer.note)
            for name in sorted(finished):
                if why := _why_another(directory.run(name).read_manifest(), changes[name]):
                    directory.set_aside(name, why)
                    observer.note(f"set aside and made again: {why}")
                    finished.discard(name)
            tasks = [
                Task(
                    name,
                    dump(experiment),
                    "keep",
                    exclusive=False,
                    interventions=change.model_dump_json(),
                )
                for name, change in changes.items()
                if name not in finished
            ]
            report = scheduler.run(
                *(tasks, len(finished), directory, pool, Limits(), observer),
                on_result=lambda name, wall_s, disk_bytes: check(directory, name),
            )
    if report.failures:
        name, failure = next(iter(report.failures.items()))
        raise RunError(f"{len(report.failures)} runs failed; {name}: {failure.message}")
    if report.left:
        raise RunError(f"{len(report.left)} runs are left: {report.stopped}; --resume goes on")


def _why_another(made: Manifest, change: Interventions) -> str | None:
    """Why a finished run is not the one asked for; None if it is."""
    before = made.interventions
    if before is None or [*before.arguments()] != [*change.arguments()]:
        return "made from a run with other fates of packets"
    # Its captures are dropped once it was compared with the run before it.
    return None if made.dropped else "not compared with the run that it was made from"


def whatif_each(
    run: str | os.PathLike[str] | Record,
    packets: Sequence[int],
    fate: str,
    jobs: int | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = False,
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
        allow_programs: as in `replay`.
        progress: as in `outcast.run`.

    Returns:
        A row for each packet: `packet`, `flow`, `t_in` (ns after the start), `changed`,
        `only_factual`, `only_counterfactual` and `packets` as in whatif.json, the `ratio`, and a
        column for the goodput of each group (bit/s).

    Raises as `Run.whatif`.
    """
    factual = run if isinstance(run, Record) else Record(Path(run))
    path = factual.directory.path
    experiment, manifest = _experiment(path, allow_programs)
    boot_ns = debugging.guest_ns(manifest)
    changes, own = {}, {}
    for packet in packets:
        wanted = fates.asked(packet, fate)
        name = f"{wanted.fate}-{wanted.delay_ns}ns-{packet}"
        if name in changes:
            raise ConfigError(f"packet {packet} is named twice")
        changes[name], (own[name],) = fates.interventions(factual, path.name, [wanted], boot_ns)
    target = path.with_name(f"{path.name}-each") if folder is None else Path(folder)
    from_ns = {name: changed.t_in_ns for name, changed in own.items()}
    _make(factual, experiment, changes, from_ns, target, jobs, resume, progress)
    rows = []
    for name, changed in own.items():
        made = Record(SweepDirectory(target).run(name))
        compare.require_fates(made, [changed])
        record = compare.of(factual, made, None, compare.blast(factual, made))
        rows.append(
            {
                "packet": changed.packet,
                "flow": changed.flow,
                "t_in": changed.t_in_ns,
                **{key: getattr(record, key) for key in _COUNTS},
                "ratio": record.ratio.counterfactual,
                **{group.name: group.goodput_bps.counterfactual for group in record.groups},
            }
        )
    return pl.DataFrame(rows)


_COUNTS = ("changed", "only_factual", "only_counterfactual", "packets")
