"""The verdicts on all claims of a page, taken together.

Many claims are tested at once, so some of their intervals leave out the truth by chance. The false
discovery rate, the expected share of wrong ones among the conclusive verdicts, is held at 5 % by
the procedure of Benjamini and Yekutieli (The Annals of Statistics 29, 2001). It holds however the
tests depend on one another. These do, because claims share runs, and shares of a link add up to 1.
A claim whose adjusted p is above 0.05 is inconclusive on this page, whatever its own interval says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from outcast.errors import ConfigError
from outcast.experiment.noise import PROFILES
from outcast.reproduce.result import ClaimRecord, Result
from outcast.reproduce.verdict import Verdict, overall, verdict_text

RATE = 0.05
"""The false discovery rate that is allowed, as the intervals' level."""


@dataclass(frozen=True)
class ShownClaim:
    """A claim with the verdict that a page shows.

    Attributes:
        p: adjusted for all claims of the page; None without a verdict.
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
    """The results with the verdicts of a page that shows all of them, in tables of one state each.

    A false discovery is one whatever the state, so all claims are judged together.
    """
    known = [claim.p for result in results for claim in result.claims if claim.p is not None]
    adjusted = iter(adjust(known))
    return [
        Row(
            result,
            tuple(
                _shown(claim, None if claim.p is None else next(adjusted))
                for claim in result.claims
            ),
        )
        for result in results
    ]


def adjust(p_values: Sequence[float]) -> list[float]:
    """The p-values adjusted for one another."""
    from scipy import stats

    if not p_values:
        return []
    return [float(p) for p in stats.false_discovery_control(p_values, method="by")]


def _shown(record: ClaimRecord, p: float | None) -> ShownClaim:
    if p is None:
        # Without p: fewer than five runs, or a result of before p was recorded.
        return ShownClaim(record, None, record.verdict)
    return ShownClaim(record, p, record.verdict if p <= RATE else Verdict.INCONCLUSIVE)


def control_text(shown: Sequence[Row]) -> str:
    """What a page says of the control, with its numbers."""
    claims = [claim for row in shown for claim in row.claims]
    judged = [claim for claim in claims if claim.p is not None]
    lost = [
        claim
        for claim in judged
        if claim.verdict is Verdict.INCONCLUSIVE
        and claim.record.verdict is not Verdict.INCONCLUSIVE
    ]
    if not judged:
        return "No claim has a p, so the verdicts are not controlled for false discoveries."
    among = (
        ", those under every profile of noise among them"
        if any(row.result.profile is not None for row in shown)
        else ""
    )
    return (
        f"{len(judged)} of {len(claims)} claims are judged together{among}. The false discovery "
        f"rate is held at {100 * RATE:g} % by the procedure of Benjamini and Yekutieli. By their "
        f"own intervals {len(lost)} of them would have another verdict; they count as "
        "inconclusive."
    )
