"""A comparison of two experiments: its runs, a look after each fifth of them, and what it found."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import outcast
from outcast.errors import ConfigError, RunError, UntrustedError, did_you_mean
from outcast.experiment import Experiment
from outcast.files import write_json
from outcast.uses.comparison.sequential_test import (
    LEAST_PAIRS,
    Difference,
    Verdict,
    difference,
    looks,
)

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

_VALUES = ("total_goodput_bps", "jain_index", "outcast_ratio")
MOST_SEEDS = 10_000
_NOT_COMPARED = ("name", "seed", "repetitions", "sweep")


@dataclass(frozen=True)
class Comparison:
    """What a comparison found.

    Attributes:
        directory: the folder, with the runs in it as a sweep has them, and compare.json.
        settings: each key in which the experiments differ, with A's and B's value.
        seeds: the seeds that were run, the same for A and B.
        differences: of each quantity over the pairs; the first decides.
        left_out: the pairs that count for nothing, because captures and counters of a run of
            theirs do not agree.
        values: the quantities of both runs of each pair, by name.
    """

    directory: Path
    settings: Mapping[str, tuple[Any, Any]]
    seeds: Sequence[int]
    most_seeds: int
    differences: Sequence[Difference]
    left_out: int
    values: Mapping[str, Sequence[tuple[float, float]]]

    @property
    def verdict(self) -> Verdict:
        """`no worse`, `worse` or `not settled`: B against A, by the first quantity."""
        return self.differences[0].verdict

    def figure(self) -> Figure:
        """Draws each pair as a line from A to B, a panel for each quantity."""
        from outcast.view import GREY, VERMILION, heading, new

        figure = new((2.6 * len(self.differences) + 1, 3.6))
        panels = figure.subplots(1, len(self.differences), squeeze=False)[0]
        for axes, found in zip(panels, self.differences, strict=True):
            for pair in self.values[found.name]:
                axes.plot((0, 1), pair, color=GREY, lw=0.8, marker="o", ms=2.5)
            means = (found.mean_a, found.mean_b)
            axes.plot((0, 1), means, color=VERMILION, lw=2, marker="o", label="mean")
            axes.set(xticks=(0, 1), xticklabels=("A", "B"), xlim=(-0.2, 1.2), title=found.name)
        panels[0].legend()
        by = f"{self.verdict} by {self.differences[0].name}"
        heading(figure, f"{len(self.seeds)} seeds, each under A and under B: {by}")
        return figure


def compare(
    a: Experiment,
    b: Experiment,
    *,
    seeds: int = 30,
    values: Sequence[str] = (),
    margin: float = 0.0,
    less_is_better: bool = False,
    jobs: int | None = None,
    scheduler: str | None = None,
    directory: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool | None = None,
) -> Comparison:
    """Runs two experiments over the same seeds, until it is settled whether B is worse than A.

    Args:
        a: what `load` returned.
        b: the other one.
        seeds: the most seeds; they follow A's.
        values: columns of the sweep's table; the first one decides. None given are goodput, Jain's
            index and the ratio of the classes.
        margin: the share of A's mean by which B may be worse and still count as no worse.
        less_is_better: whether less of the first quantity is better.
        directory: the folder; None is results/NAME-compare.
        jobs: as in `run_sweep`.
        scheduler: as in `run_sweep`.
        resume: go on with the comparison in the folder, also with more seeds.
        progress: as in `run_sweep`.

    Raises:
        ConfigError: the experiments are the same, one cannot be run, or there is no such column.
        RunError: a run failed.
        UntrustedError: captures and counters agree in too few pairs.
    """
    if not isinstance(seeds, int) or not LEAST_PAIRS <= seeds <= MOST_SEEDS:
        raise ConfigError(f"seeds: {seeds!r}; allowed are {LEAST_PAIRS} to {MOST_SEEDS:,}")
    settings = dict(_settings(_tree(a), _tree(b)))
    if not settings:
        raise ConfigError("A and B are the same experiment; allowed are two that differ")
    _require_reachable(a, b, settings)
    target = Path(directory or Path("results") / f"{a.name}-compare")
    points = [{"name": "A"}, {"name": "B"} | {key: of_b for key, (_, of_b) in settings.items()}]
    base = a.model_copy(update={"sweep": None, "repetitions": 1})
    for count in looks(seeds):
        chosen = list(range(a.seed, a.seed + count))
        swept = {"points": points, "seed": chosen, "order": "random"}
        runs: dict[str, Any] = {"jobs": jobs, "scheduler": scheduler, "progress": progress}
        sweep = outcast.run_sweep(base, swept, directory=target, resume=resume, **runs)
        resume = True
        if sweep.failures:
            name, failure = next(iter(sweep.failures.items()))
            raise RunError(f"{target}: {name}: {failure.message}")
        pairs = _pairs(sweep.table(), values)
        found = _found(
            *(pairs, seeds),
            margin=margin,
            less_is_better=less_is_better,
            copies=_are_copies(sweep.table()),
        )
        comparison = Comparison(
            *(target, settings, chosen, seeds, found, count - pairs.height),
            {each.name: pairs.select(each.name, f"{each.name}_b").rows() for each in found},
        )
        if comparison.verdict != "not settled":
            break
    _write(comparison)
    return comparison


def _require_reachable(a: Experiment, b: Experiment, keys: Iterable[str]) -> None:
    """Raises ConfigError where B has a network in a file that is not found from A's folder."""
    of_a, of_b = (getattr(each.topology, "origin", None) for each in (a, b))
    same_folder = of_a is not None and of_b is not None and of_a.folder == of_b.folder
    if of_b is not None and not same_folder and any(key.startswith("topology") for key in keys):
        raise ConfigError(
            f"{b.name}: topology.path: B's network is in a file beside B; allowed is A with its "
            "network in a file of the same folder, or B in A's place"
        )


def _found(
    pairs: pl.DataFrame, seeds: int, *, margin: float, less_is_better: bool, copies: bool
) -> list[Difference]:
    names = [name for name in pairs.columns if f"{name}_b" in pairs.columns]
    return [
        difference(
            name,
            *(pairs[name].to_list(), pairs[f"{name}_b"].to_list(), seeds),
            margin_share=margin if place == 0 else 0.0,
            less_is_better=less_is_better and place == 0,
            copies=copies,
        )
        for place, name in enumerate(names)
    ]


def _are_copies(table: pl.DataFrame) -> bool:
    """Whether the seed changes nothing in the runs of A."""
    of_runs = [name for name in table.columns if name == "jain_index" or name.endswith("_bps")]
    return table.filter(table["name"] == "A").select(of_runs).n_unique() == 1


def _pairs(table: pl.DataFrame, values: Sequence[str]) -> pl.DataFrame:
    """A row for each seed whose two runs can be believed: the quantities of A, and those of B."""
    import polars as pl

    numbers = [name for name in table.columns if table[name].dtype.is_numeric()]
    names = list(values) or [name for name in _VALUES if name in numbers]
    for name in names:
        if name not in numbers:
            raise ConfigError(
                f"--value: no number {name!r} in these runs{did_you_mean(name, numbers)}; allowed "
                "are columns of `outcast results DIR --columns`"
            )
    agreeing = table.filter(pl.col("trusted"))
    sides = [agreeing.filter(pl.col("name") == side).select("seed", *names) for side in "AB"]
    pairs = sides[0].join(sides[1], on="seed", suffix="_b").sort("seed")
    # A quantity without a value in a pair, as a ratio without classes, is no quantity of it.
    kept = [
        name for name in names if not pairs[name].null_count() + pairs[f"{name}_b"].null_count()
    ]
    if names[0] not in kept or pairs.height < LEAST_PAIRS:
        raise UntrustedError(
            f"{names[0]}: captures and counters agree, and the quantity is known, in too few pairs "
            f"({pairs.height}); {LEAST_PAIRS} are needed"
        )
    return pairs.select("seed", *kept, *(f"{name}_b" for name in kept))


def _tree(experiment: Experiment) -> dict[str, Any]:
    if experiment.sweep is not None or experiment.repetitions != 1:
        raise ConfigError(
            f"{experiment.name}: has a sweep or repetitions; allowed is one experiment, because "
            "`compare` chooses the seeds"
        )
    tree = experiment.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {key: value for key, value in tree.items() if key not in _NOT_COMPARED}


def _settings(
    a: Mapping[str, Any], b: Mapping[str, Any], above: str = ""
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Each key in which two trees differ, with both values. Parts of other kinds differ as one."""
    for key in dict.fromkeys([*a, *b]):
        of_a, of_b = a.get(key), b.get(key)
        if isinstance(of_a, dict) and isinstance(of_b, dict) and _alike(of_a, of_b):
            yield from _settings(of_a, of_b, f"{above}{key}.")
        elif of_a != of_b:
            yield f"{above}{key}", (of_a, of_b)


def _alike(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a.keys() == b.keys() and a.get("kind") == b.get("kind")


def _write(comparison: Comparison) -> None:
    record = asdict(comparison) | {
        "format": 1,
        "directory": comparison.directory.name,
        "verdict": comparison.verdict,
        "settings": {key: {"a": a, "b": b} for key, (a, b) in comparison.settings.items()},
    }
    write_json(comparison.directory / "compare.json", record)
    comparison.figure().savefig(comparison.directory / "compare.png", dpi=150)


def words(comparison: Comparison) -> list[str]:
    """What a comparison found, in a line for each thought."""
    keys = [
        f"{key} {_short(a)} (A) and {_short(b)} (B)" for key, (a, b) in comparison.settings.items()
    ]
    more = f", and {len(keys) - 3} more keys" if len(keys) > 3 else ""
    first = comparison.differences[0]
    lines = [f"compared: {'; '.join(keys[:3])}{more}"]
    for found in comparison.differences:
        interval = "all pairs alike, and no interval"
        if found.low is not None and found.high is not None:
            interval = f"[{found.low:.4g}, {found.high:.4g}]"
        share = f", {found.mean / found.mean_a:+.2%}" if found.mean_a else ""
        lines.append(
            f"{found.name}: A {found.mean_a:.5g}, B {found.mean_b:.5g}, B less A {found.mean:.4g} "
            f"{interval}{share}; B has more in {found.above} pairs and less in {found.below}"
        )
    if first.variance_ratio is not None:
        helps = "pairs help" if first.variance_ratio < 0.8 else "pairs hardly help"
        lines.append(
            f"{helps}: the differences have {first.variance_ratio:.2f} of the variance that they "
            "would have without a common seed"
        )
    if first.pairs_for_half is not None:
        lines.append(
            f"a difference half as large needs some {first.pairs_for_half:,} pairs "
            "(found in 80 of 100 comparisons)"
        )
    margin = f" by more than {first.margin:.4g}" if first.margin else ""
    said = {
        "no worse": f"B is not worse than A{margin}",
        "worse": f"B is worse than A{margin}",
        "not settled": f"not settled whether B is worse than A{margin}",
    }[first.verdict]
    left_out = f"; {comparison.left_out} more pairs left out" if comparison.left_out else ""
    lines.append(
        f"{said}: {first.pairs} of at most {comparison.most_seeds} pairs{left_out}; without any "
        "difference one comparison in 20 is settled all the same"
    )
    return lines


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
