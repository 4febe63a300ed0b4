"""What the noise meter says beside how far seeds disagree: the table of docs/noise.md.

    outcast reproduce F1 --full -o DIR
    outcast reproduce P3 --quick --noise all -o DIR
    .venv/bin/python -m benchmarks.meter DIR [--write]

DIR has the runs of the first command, and of the second if the profiles are to be in the table.
Ratios are those of the results. `--write` puts the table into docs/results/measured.json, from
which `python -m scripts.fill_numbers` fills the page.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import stored
from outcast.experiment.noise import PROFILES
from outcast.records.run import Run
from outcast.reproduce import reproduce, runs, together
from outcast.reproduce.recipe import load_all
from outcast.reproduce.result import FILE, Result, describe, number, read_result
from outcast.sweep.store import SweepDirectory

NAME = "noise meter"
TWELVE = "twelve 6-hop flows"
"""The point of P3 that F1 varies."""
HEAD = ("noise", "kept", "regimes of the runs", "least ratio", "greatest", "greatest over least")


@dataclass(frozen=True)
class Seen:
    """The runs of one noise.

    Attributes:
        title: the kind of noise and its size, or the profile.
        made: the runs.
        ratios: their outcast ratios.
    """

    title: str
    made: Sequence[Run]
    ratios: Sequence[float]

    @property
    def apart(self) -> float:
        """The greatest ratio over the least one."""
        return max(self.ratios) / min(self.ratios)

    @property
    def cells(self) -> list[str]:
        """The row of the table."""
        ends = [number(value) for value in (min(self.ratios), max(self.ratios), self.apart)]
        return [self.title, kept(self.made), regimes(self.made), *ends]

    def is_all(self, regime: str) -> bool:
        """Whether all runs have this regime."""
        return {part.regime for run in self.made for part in run.summary.noise.values()} == {regime}


def rows(folder: Path) -> Iterator[tuple[Result, Seen]]:
    """The runs of each kind and size of noise, and of each profile that has a result."""
    first = read_result(folder / "F1")
    # A point that the recipe has no longer has no runs either.
    known = {point.label for point in load_all()["F1"].points}
    for point in (point for point in first.points if point.label in known):
        yield first, seen(point.label, first, point.label, folder)
    for profile in PROFILES:
        under = reproduce.folder_of(folder, "P3", profile)
        if (under / FILE).exists():
            result = read_result(under)
            yield result, seen(f"profile `{profile}`", result, TWELVE, folder)


def seen(title: str, result: Result, label: str, folder: Path) -> Seen:
    """The runs of a point of a result."""
    recipe = load_all()[result.id]
    planned = runs.planned_runs(recipe, result.mode, result.profile)
    (point,) = (point for point in result.points if point.label == label)
    store = SweepDirectory(folder)
    made = [
        run
        for plan in planned
        if plan.point.label == label and plan.seed in point.seeds
        if (run := runs.finished(plan, store))
    ]
    values = point.values[describe(recipe.claims[0].measure)]
    ratios = [value for value in values if value is not None and math.isfinite(value)]
    return Seen(title, made, ratios)


def apart(every: Sequence[Seen], regime: str) -> str:
    """How far seeds disagree at least and at most, where all runs have a regime."""
    factors = sorted(row.apart for row in every if row.is_all(regime))
    return f"{number(factors[0])} to {number(factors[-1])}" if factors else "-"


def kept(made: Sequence[Run]) -> str:
    """The least and the greatest share of a phase that runs kept; `-` where none is known."""
    known = [part.kept for run in made for part in run.summary.noise.values()]
    shares = [share for share in known if share is not None]
    return f"{min(shares):.2f} to {max(shares):.2f}" if shares else "-"


def regimes(made: Sequence[Run]) -> str:
    """How many runs had which regime."""
    count = Counter(part.regime for run in made for part in run.summary.noise.values())
    return ", ".join(f"{regime}: {times}" for regime, times in sorted(count.items()))


def main() -> None:
    """Prints the table, and stores it."""
    parser = stored.parser(__doc__)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    results, every = zip(*rows(arguments.folder), strict=True)
    together.require_one_state(results)
    entry = stored.Entry(
        "outcast reproduce F1 --full -o DIR; outcast reproduce P3 --quick --noise all -o DIR; "
        "python -m benchmarks.meter DIR --write",
        str(results[0].state),
        [HEAD, *(row.cells for row in every)],
        {
            "mixed apart": apart(every, "mixed"),
            "locked apart": apart(every, "phase-locked"),
            "seeds": str(len(every[0].made)),
        },
    )
    stored.tell(NAME, entry, write=arguments.write)


if __name__ == "__main__":
    main()
