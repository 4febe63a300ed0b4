"""The verdicts that a page shows: each row's claims taken together.

A row's family is what its source claims there. Several intervals of a row can leave out the truth
by chance, so p is corrected within the row by Holm's procedure (Scandinavian Journal of Statistics
6, 1979): the chance that a row has any conclusive verdict by chance is at most 5 %, however its
claims depend on one another. A claim whose corrected p is above 0.05 is inconclusive. Rows do not
change one another's verdicts; a page says once how many rows can be wrong by chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from outcast.errors import ConfigError
from outcast.experiment import PROFILES
from outcast.uses.papers.result import ClaimRecord, Result, number
from outcast.uses.papers.verdict import Verdict, overall, verdict_text

RATE = 0.05
"""The chance of a conclusive verdict by chance that a row may have, as the intervals' level."""


AGREEING = frozenset({Verdict.REPRODUCED, Verdict.UNCONTROLLED})


@dataclass(frozen=True)
class ShownClaim:
    """A claim with the verdict that a page shows; `p` is corrected for all claims of the row."""

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
        return overall([claim.verdict for claim in self.claims])

    @property
    def word(self) -> str:
        """The verdict; `mixed` where some claims agree with the source and others contradict it."""
        found = {claim.verdict for claim in self.claims}
        is_mixed = bool(found & AGREEING) and Verdict.CONTRADICTED in found
        return "mixed" if is_mixed else verdict_text(self.verdict)

    @property
    def verdict_text(self) -> str:
        """The verdict with the profile of noise under which it holds."""
        return (
            self.word if self.result.noise == "none" else f"{self.word} under {self.result.noise}"
        )

    @property
    def tally(self) -> str:
        """How many claims have which verdict, as `3 reproduced, 1 contradicted`."""
        count = Counter(claim.verdict for claim in self.claims)
        kinds: tuple[Verdict | None, ...] = (*Verdict, None)
        return ", ".join(f"{count[kind]} {verdict_text(kind)}" for kind in kinds if count[kind])


def require_one_state(results: Sequence[Result]) -> None:
    """Raises ConfigError unless one state made all results.

    The line names two results that differ, and the commands that make them again.
    """
    for other in results:
        for first in results:
            if not first.state.is_same(other.state):
                raise ConfigError(
                    f"{first.id} is of {first.state}; {other.id} is of {other.state}: a page has "
                    f"results of one state; allowed is to make both again in one folder: "
                    f"{first.again} and {other.again}"
                )


def with_sections(rows: Sequence[Row]) -> list[Row]:
    """The rows that have a section of their own on a page.

    A row of a named profile has one only where its recipe has no row without a name.
    """
    by_default = {row.result.id for row in rows if row.result.profile is None}
    return [row for row in rows if row.result.profile is None or row.result.id not in by_default]


def over_noise(rows: Sequence[Row], least: int = 2) -> dict[str, list[Row]]:
    """By recipe, its rows under each profile of noise; only recipes with `least` profiles."""
    bands: dict[str, dict[str, Row]] = {}
    # A row for which the profile was asked wins over one that has it by default.
    for row in sorted(rows, key=lambda row: row.result.profile is not None):
        bands.setdefault(row.result.id, {})[row.result.noise] = row
    return {
        name: [band[noise] for noise in in_order(band)]
        for name, band in bands.items()
        if len(band) >= least
    }


def in_order(noises: Collection[str]) -> list[str]:
    """Names of noise in the order of the profiles, then others by name."""
    others = sorted(noise for noise in noises if noise not in PROFILES)
    return [*(name for name in PROFILES if name in noises), *others]


def band_text(band: Sequence[Row]) -> str:
    """Under which profiles a recipe has which verdict, as `reproduced under exact, jitter`."""
    words = [*Verdict, "mixed", verdict_text(None)]
    under = {word: [row.result.noise for row in band if row.word == word] for word in words}
    return "; ".join(f"{word} under {', '.join(names)}" for word, names in under.items() if names)


def rows(results: Sequence[Result]) -> list[Row]:
    """The results with the verdicts of a page that shows all of them.

    Raises ConfigError: they are of different states.
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
        else _judged(claim, next(corrected))
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


def _judged(record: ClaimRecord, p: float) -> ShownClaim:
    return ShownClaim(record, p, record.verdict if p <= RATE else Verdict.INCONCLUSIVE)


def control_text(rows: Sequence[Row]) -> str:
    judged = [row for row in rows if any(claim.p is not None for claim in row.claims)]
    if not judged:
        return "No claim has a p, so no verdict is corrected for chance."
    lost = sum(claim.verdict is not claim.record.verdict for row in rows for claim in row.claims)
    return (
        f"p is corrected within each row by Holm's procedure: a row has a conclusive verdict by "
        f"chance with at most {100 * RATE:g} %. So among the {len(judged)} rows that are judged, "
        f"{number(RATE * len(judged))} are expected at most to have a wrong one. By their own "
        f"intervals {lost} claims would be conclusive; here they are inconclusive.{_lacking(rows)}"
    )


def _lacking(rows: Sequence[Row]) -> str:
    """Which rows have claims without five runs of their control."""
    counts = Counter(
        row.result.id
        for row in rows
        for claim in row.claims
        if row.result.profile is None and claim.verdict is Verdict.UNCONTROLLED
    )
    if not counts:
        return ""
    names = ", ".join(counts)
    return (
        f"\n\nA control shows a claim without its effect. {counts.total()} claims agree with their "
        f"source, and fewer than five runs show their control, so they are not reproduced: {names}."
    )
