"""Makes a run again with other fates of packets, everything else the same."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

import outcast
from outcast import files
from outcast.api import make_again, opened, require_comparable
from outcast.errors import ConfigError, UntrustedError
from outcast.records import (
    Explanation,
    Interventions,
    Manifest,
    PacketFate,
    RunDirectory,
    explain,
    require_prefix,
    write_record,
    write_table,
)
from outcast.records import Run as Record
from outcast.units import MOST_SPAN_NS
from outcast.uses.whatif import compare, fates, futures
from outcast.uses.whatif.compared import WhatIf, read_whatif
from outcast.uses.whatif.fates import WantedFate


@dataclass(frozen=True)
class Counterfactual:
    """A run with an intervention, and what came of that.

    Attributes:
        run: the run with the intervention.
        record: what differs, a field for each key of whatif.json.
    """

    run: outcast.Run
    record: WhatIf

    @property
    def blast(self) -> pl.DataFrame:
        """The packets that have another fate; see docs/whatif.md."""
        return self.run.table(compare.TABLE).filter("other").drop("other")

    @property
    def flows(self) -> pl.DataFrame:
        """A row for each flow and quantity: `factual`, `counterfactual`, `difference`."""
        return _frame(self.record.flows)

    @property
    def groups(self) -> pl.DataFrame:
        """The same for each group of flows."""
        return _frame(self.record.groups)


_QUANTITIES = ("goodput_bps", "drops", "timeouts", "completion_ns")


def _frame(compared: Sequence[object]) -> pl.DataFrame:
    rows = [
        {
            "name": compared_flows.name,  # type: ignore[attr-defined]
            "quantity": quantity,
            "factual": values.factual,
            "counterfactual": values.counterfactual,
            "difference": values.difference,
        }
        for compared_flows in compared
        for quantity in _QUANTITIES
        for values in [getattr(compared_flows, quantity)]
    ]
    kinds = {"name": pl.String, "quantity": pl.String}
    numbers = dict.fromkeys(("factual", "counterfactual", "difference"), pl.Float64)
    return pl.DataFrame(rows, schema={**kinds, **numbers})


def what_if(
    source: str | os.PathLike[str],
    wanted: Sequence[WantedFate],
    directory: str | os.PathLike[str] | None = None,
    *,
    allow_programs: bool = False,
    progress: bool | None = None,
    noise: str | None = None,
) -> Counterfactual:
    """Makes a run again in which packets have other fates, and compares the two runs.

    Everything before the first of these packets has to be equal to the nanosecond. Arguments are
    as for `Run.whatif`, but `source` can be an archive too, and with `noise` the run's noise is
    drawn from another seed from then on, as `25ms:12345`; see `fate`.

    Raises:
        ConfigError: the run has no such packet, or the packet cannot have this fate.
        InputError: the run cannot be made again.
        RunError: the packet's fate became another one.
        UntrustedError: the runs part before the intervention, or captures and counters of the new
            run do not agree.
        OutcastError: the run failed, as in `run`.
    """
    path = files.nameable(Path(source))
    with opened(path) as earlier:
        factual = Record(earlier)
        require_comparable(earlier, str(source))
        changes, own, from_ns = _changes(factual, path.name, wanted, noise)
        target = _default_folder(path, changes, own) if directory is None else Path(directory)
        if path.resolve() in target.resolve().parents:
            raise ConfigError(f"{target}: is inside the run; allowed is another folder")
        make_again(
            earlier,
            str(source),
            target,
            kept=True,
            allow_programs=allow_programs,
            progress=progress,
            interventions=changes,
            on_analysed=lambda made: _compare(factual, made, changes, from_ns, str(source)),
        )
    made = outcast.open_run(target)
    record = read_whatif(made.directory)
    assert record is not None
    return Counterfactual(made, record)


def of_run(
    run: outcast.Run,
    packet: int | Sequence[int] | None,
    fate: str | Sequence[str],
    directory: str | os.PathLike[str] | None,
    allow_programs: bool,
    progress: bool | None,
) -> Counterfactual:
    """See `outcast.Run.whatif`."""
    return what_if(
        run.path,
        fates.parse_fates(packet, fate),
        directory,
        allow_programs=allow_programs,
        progress=progress,
    )


def _changes(
    factual: Record, named: str, wanted: Sequence[WantedFate], noise: str | None
) -> tuple[Interventions, list[PacketFate], int]:
    """What is changed, the fates of this run's own packets, and up to when the runs are equal."""
    manifest = factual.directory.read_manifest()
    boot_ns = manifest.traffic.guest_ns
    if noise is not None:
        changes = futures.single(factual, named, wanted, noise, boot_ns)
        assert changes.noise is not None
        return changes, [], changes.noise.t_ns
    changes, own = fates.interventions(factual, named, wanted, boot_ns)
    return changes, own, _since_ns(manifest, own)


def _since_ns(manifest: Manifest, own: Sequence[PacketFate]) -> int:
    """Up to when the runs have to be equal. If every packet keeps its fate, they never part."""
    before = manifest.interventions
    earlier = {fate.identity for fate in before.fates} if before else set()
    new = [fate for fate in own if fate.fate != "keep" or fate.identity in earlier]
    return min((fate.t_in_ns for fate in new), default=MOST_SPAN_NS)


def _default_folder(source: Path, changes: Interventions, own: Sequence[PacketFate]) -> Path:
    name = source.stem if source.is_file() else source.name
    if changes.noise is not None and not own:
        return source.with_name(f"{name}-future-{changes.noise.t_ns}ns-{changes.noise.seed}")
    words = own[0].words.replace("=", "-")
    return source.with_name(f"{name}-whatif-{own[0].packet}-{words}")


def _compare(
    factual: Record,
    made: RunDirectory,
    changes: Interventions,
    from_ns: int,
    named: str,
) -> None:
    """Checks the run with the intervention, and writes what differs into its folder."""
    # Comparing needs the captures' hashes, which a run has once it is sealed.
    made.seal()
    run = Record(made)
    explanation = explain(factual.directory, made)
    require_prefix(explanation, from_ns, named)
    compare.require_fates(run, changes.fates)
    if factual.trusted:
        compare.require_counted(run)
    write(factual, run, explanation)


def write(factual: Record, run: Record, explanation: Explanation) -> None:
    with factual.reading(), run.reading():
        packets, numbers = compare.blast(factual, run), compare.flow_numbers(factual, run)
        if explanation.equal and packets["other"].any():
            raise UntrustedError(
                f"{run.directory.path}: has the captures of {factual.directory.path} to the byte, "
                "and other tables; outcast analyze makes them again"
            )
        record = compare.of(factual, run, explanation, packets, numbers)
        write_record(run.directory.whatif, record)
        write_table(packets, run.directory.path / f"{compare.TABLE}.parquet")
        both = compare.goodput(factual, run, numbers)
        write_table(both, run.directory.path / f"{compare.GOODPUT}.parquet")
