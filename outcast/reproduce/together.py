"""The verdicts that a page shows: each row's claims taken together.

A row's family is what its source claims there. Several intervals of a row can leave out the truth
by chance, so p is corrected within the row by Holm's procedure (Scandinavian Journal of Statistics
6, 1979): the chance that a row has any conclusive verdict by chance is at most 5 %, however its
claims depend on one another. A claim whose corrected p is above 0.05 is inconclusive. Rows do not
change one another's verdicts; a page says once how many rows can be wrong by chance.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from outcast.errors import ConfigError
from outcast.experiment.noise import PROFILES
from outcast.reproduce import measures
from outcast.reproduce.recipe import LEAST_RUNS, load_all
from outcast.reproduce.result import LOCKED, MIXED, ClaimRecord, Result, describe, number
from outcast.reproduce.verdict import Verdict, overall, verdict_text

RATE = 0.05
"""The chance of a conclusive verdict by chance that a row may have, as the intervals' level."""


AGREEING = frozenset({Verdict.REPRODUCED, Verdict.UNCONTROLLED})


@dataclass(frozen=True)
class ShownClaim:
    """A claim with the verdict that a page shows.

    Attributes:
        p: corrected for all claims of the row; None without a verdict.
    """

    record: ClaimRecord
    p: float | None
    verdict: Verdict | None


@dataclass(frozen=True)
class Row:
    """A recipe's result with the verdicts that a page shows."""

    result: Result
    claims: tuple[ShownClaim, ...]

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the recipe."""
        return overall([claim.verdict for claim in self.claims])

    @property
    def verdict_text(self) -> str:
        """The verdict with the profile of noise under which it holds.

        `mixed` where some claims agree with the source and others contradict it.
        """
        under = "" if self.result.noise == "none" else f" under {self.result.noise}"
        found = {claim.verdict for claim in self.claims}
        is_mixed = bool(found & AGREEING) and Verdict.CONTRADICTED in found
        return f"{'mixed' if is_mixed else verdict_text(self.verdict)}{under}"

    @property
    def tally(self) -> str:
        """How many claims have which verdict, as `3 reproduced, 1 contradicted`."""
        count = Counter(claim.verdict for claim in self.claims)
        kinds: tuple[Verdict | None, ...] = (*Verdict, None)
        return ", ".join(f"{count[kind]} {verdict_text(kind)}" for kind in kinds if count[kind])


def require_one_state(results: Sequence[Result]) -> None:
    """Raises ConfigError unless one state made all results.

    The line names two results that differ, and the commands that make them anew.
    """
    for other in results:
        for first in results:
            if not first.state.is_same(other.state):
                raise ConfigError(
                    f"{first.id} is of {first.state}; {other.id} is of {other.state}: a page has "
                    f"results of one state; allowed is to make both anew in one folder: "
                    f"{first.again} and {other.again}"
                )


def by_state(shown: Sequence[Row]) -> list[list[Row]]:
    """The rows by what made their runs; the largest group comes first.

    A computation has no kernel, so it joins a group that has one.
    """
    groups: list[list[Row]] = []
    order = {id(row): place for place, row in enumerate(shown)}
    for row in sorted(shown, key=lambda row: row.result.state.kernel is None):
        for group in groups:
            if all(other.result.state.is_same(row.result.state) for other in group):
                group.append(row)
                break
        else:
            groups.append([row])
    groups = [sorted(group, key=lambda row: order[id(row)]) for group in groups]
    return sorted(groups, key=lambda group: (-len(group), str(group[0].result.state)))


def with_sections(shown: Sequence[Row]) -> list[Row]:
    """The rows that have a section of their own on a page.

    A row of a named profile has one only where its recipe has no row without a name.
    """
    by_default = {row.result.id for row in shown if row.result.profile is None}
    return [row for row in shown if row.result.profile is None or row.result.id not in by_default]


def over_noise(shown: Sequence[Row], least: int = 2) -> dict[str, list[Row]]:
    """By recipe, its rows under each profile of noise; only recipes with `least` profiles."""
    order = list(PROFILES)
    bands: dict[str, dict[str, Row]] = {}
    # A row for which the profile was asked wins over one that has it by default.
    for row in sorted(shown, key=lambda row: row.result.profile is not None):
        bands.setdefault(row.result.id, {})[row.result.noise] = row
    return {
        name: [band[noise] for noise in sorted(band, key=lambda noise: _place(order, noise))]
        for name, band in bands.items()
        if len(band) >= least
    }


def _place(order: Sequence[str], noise: str) -> int:
    return order.index(noise) if noise in order else len(order)


def band_text(band: Sequence[Row]) -> str:
    """Under which profiles a recipe has which verdict, as `reproduced under exact, jitter`."""
    kinds: tuple[Verdict | None, ...] = (*Verdict, None)
    under = {kind: [row.result.noise for row in band if row.verdict is kind] for kind in kinds}
    return "; ".join(
        f"{verdict_text(kind)} under {', '.join(names)}" for kind, names in under.items() if names
    )


def rows(results: Sequence[Result]) -> list[Row]:
    """The results with the verdicts of a page that shows all of them.

    Raises:
        ConfigError: they are of different states.
    """
    require_one_state(results)
    return judge(results)


def judge(results: Sequence[Result]) -> list[Row]:
    """The results with the verdicts of a page; they can be of different states."""
    return [_row(result) for result in results]


def _row(result: Result) -> Row:
    known = [claim.p for claim in result.claims if claim.p is not None]
    corrected = iter(correct(known))
    claims = [
        ShownClaim(claim, None, claim.verdict)
        if claim.p is None
        else _shown(claim, next(corrected))
        for claim in result.claims
    ]
    return Row(result, tuple(claims))


def correct(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected for one another by Holm's procedure."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    corrected, so_far = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        so_far = max(so_far, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = so_far
    return corrected


def _shown(record: ClaimRecord, p: float) -> ShownClaim:
    return ShownClaim(record, p, record.verdict if p <= RATE else Verdict.INCONCLUSIVE)


def glance(shown: Sequence[Row], older: Collection[str] = ()) -> list[str]:
    """What holds, what does not and what is open, a line each: rows of sources, by default noise.

    A row is where its worst claim is: contradicted, then of another size, then open. `older` are
    ids of rows whose runs had other settings than their recipes have now. They are open.
    """
    groups: dict[str, list[str]] = {"holds": [], "size": [], "fails": [], "open": []}
    own = [row for row in shown if row.result.profile is None and row.result.id[0] != "F"]
    for row in own:
        found = {claim.verdict for claim in row.claims}
        if Verdict.CONTRADICTED in found:
            groups["fails"].append(row.result.id)
        elif Verdict.OTHER_SIZE in found:
            groups["size"].append(row.result.id)
        else:
            holds = found <= AGREEING and row.result.id not in older
            groups["holds" if holds else "open"].append(row.result.id)
    count = Counter(claim.verdict for row in own for claim in row.claims)
    words = {
        "holds": "**Holds**: every claim agrees with its source",
        "size": "**Holds at another size**: the direction is the source's, a number is not",
        "fails": "**Does not hold**: a claim or more is contradicted",
        "open": "**Open**: no claim is contradicted, and not every one is decided",
    }
    return [
        f"{len(own)} rows of sources have {count.total()} claims: "
        + ", ".join(
            f"{count[kind]} {verdict_text(kind)}" for kind in (*Verdict, None) if count[kind]
        ),
        *(f"{words[kind]} ({len(ids)}): {', '.join(ids)}" for kind, ids in groups.items() if ids),
    ]


def control_text(shown: Sequence[Row]) -> str:
    """What a page says of chance, with its numbers."""
    judged = [row for row in shown if any(claim.p is not None for claim in row.claims)]
    if not judged:
        return "No claim has a p, so no verdict is corrected for chance."
    lost = sum(claim.verdict is not claim.record.verdict for row in shown for claim in row.claims)
    return (
        f"p is corrected within each row by Holm's procedure: a row has a conclusive verdict by "
        f"chance with at most {100 * RATE:g} %. So among the {len(judged)} rows that are judged, "
        f"{number(RATE * len(judged))} are expected at most to have a wrong one. By their own "
        f"intervals {lost} claims would be conclusive; here they are inconclusive.{_lacking(shown)}"
    )


def _lacking(shown: Sequence[Row]) -> str:
    """Which rows have claims whose control has not been run."""
    counts = Counter(
        row.result.id
        for row in shown
        for claim in row.claims
        if row.result.profile is None and claim.verdict is Verdict.UNCONTROLLED
    )
    if not counts:
        return ""
    names = ", ".join(counts)
    return (
        f"\n\nA control shows a claim without its effect. {counts.total()} claims agree with their "
        f"source, and their control has not been run, so they are not called reproduced: {names}."
    )


def meter_text(shown: Sequence[Row]) -> str:
    """Whether the noise meter's word tells how far seeds lie apart, where it gates verdicts.

    By points whose runs all have one word: the standard deviation of the main claim's logarithm
    over the seeds. Points that rows share count once.
    """
    from scipy.stats import mannwhitneyu

    spreads: dict[str, dict[str, float]] = {}
    for result in (row.result for row in shown):
        main = load_all()[result.id].claims[0].measure
        if not measures.is_logarithmic(main):
            continue
        for point in result.points:
            words = point.regimes or result.regimes
            values = [value for value in point.values.get(describe(main), ()) if value]
            if len(words) == 1 and len(values) >= LEAST_RUNS:
                key = f"{result.noise} {point.config} {point.set} {describe(main)}"
                spread = statistics.stdev(math.log(value) for value in values)
                spreads.setdefault(next(iter(words)), {})[key] = spread
    if not {MIXED, LOCKED} <= spreads.keys():
        return ""
    mixed, locked = (sorted(spreads[word].values()) for word in (MIXED, LOCKED))
    p = float(mannwhitneyu(mixed, locked).pvalue)
    texts = [
        f"{number(statistics.median(known))} at {len(known)} points whose runs are all {word} "
        f"({number(known[0])} to {number(known[-1])})"
        for word, known in ((MIXED, mixed), (LOCKED, locked))
    ]
    return (
        "Runs that the noise meter calls phase-locked are one draw and no result, so no verdict "
        "rests on them. Does its word tell how far seeds lie apart? The standard deviation of the "
        f"main ratio's logarithm has the median {texts[0]}, and {texts[1]}; p = {number(p)} by the "
        "test of Mann and Whitney. So it tells in most cases and not in each: the ranges overlap."
    )
