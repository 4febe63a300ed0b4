"""The verdict on a family: what sources say together, with all its claims, and one p.

families.yaml has each family's sentence. A family is *reproduced*, or *contradicted*, if every
claim of it that counts is; *of another size* or *uncontrolled* if that is the worst of its claims.
Its p is the greatest of theirs (an intersection-union test). *Mixed* says that by their own p some
claims are contradicted and others not. Every other family is *inconclusive*.

The p of all families of a page are corrected by Holm's procedure (Scandinavian Journal of
Statistics 6, 1979). So the chance of any conclusive verdict by chance is at most 5 % on the page,
however families depend on one another. With ten seeds the least p is 0.00195, so a page holds at
most 25 families.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from outcast.errors import ConfigError
from outcast.uses.papers.result import ClaimRecord, Result
from outcast.uses.papers.verdict import RATE, Verdict, verdict_text

_AGREEING = (Verdict.REPRODUCED, Verdict.UNCONTROLLED, Verdict.OTHER_SIZE)


@functools.cache
def load() -> dict[str, dict[str, str]]:
    """The sentence of each family, by page."""
    path = Path(__file__).with_suffix(".yaml")
    pages: dict[str, dict[str, str]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return pages


@dataclass(frozen=True)
class Family:
    """A sentence of the sources with the claims that count, each with its figure.

    `p` is corrected for all families of the page, and None unless the claims agree.
    """

    name: str
    sentence: str
    claims: tuple[tuple[str, ClaimRecord], ...]
    verdict: Verdict | None
    p: float | None = None

    @property
    def tally(self) -> str:
        """How many claims have which verdict by themselves, as `3 reproduced, 1 contradicted`."""
        count = Counter(claim.verdict for _, claim in self.claims)
        kinds: tuple[Verdict | None, ...] = (*Verdict, None)
        return ", ".join(f"{count[kind]} {verdict_text(kind)}" for kind in kinds if count[kind])

    @property
    def figures(self) -> str:
        """The figures whose claims it has, each once."""
        return ", ".join(dict.fromkeys(figure for figure, _ in self.claims))


def judge(results: Iterable[Result], page: str) -> list[Family]:
    """The families of a page with their verdicts, from results under one kind of noise."""
    claims: dict[str, list[tuple[str, ClaimRecord]]] = {name: [] for name in load()[page]}
    for result in results:
        for claim in result.claims:
            if claim.family in claims and not claim.apart:
                claims[claim.family].append((result.id, claim))
    made = [
        Family(name, load()[page][name], tuple(own), *together([claim for _, claim in own]))
        for name, own in claims.items()
        if own
    ]
    corrected = iter(holm([1.0 if one.p is None else one.p for one in made if one.verdict]))
    return [_corrected(one, next(corrected)) if one.verdict else one for one in made]


def together(claims: Sequence[ClaimRecord]) -> tuple[Verdict | None, float | None]:
    """The verdict on a family before the correction, and its p."""
    found = {claim.verdict for claim in claims}
    if None in found:
        return None, None
    p = max(claim.p or 0.0 for claim in claims)
    if found <= set(_AGREEING):
        return max((one for one in found if one), key=_AGREEING.index), p
    if found == {Verdict.CONTRADICTED}:
        return Verdict.CONTRADICTED, p
    is_mixed = Verdict.CONTRADICTED in found and not found.isdisjoint(_AGREEING)
    return (Verdict.MIXED if is_mixed else Verdict.INCONCLUSIVE), None


def _corrected(family: Family, p: float) -> Family:
    if family.p is None:
        return family
    verdict = family.verdict if p <= RATE else Verdict.INCONCLUSIVE
    return Family(family.name, family.sentence, family.claims, verdict, p)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected for one another by Holm's procedure."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    corrected, so_far = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        so_far = max(so_far, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = so_far
    return corrected


def over_noise(results: Sequence[Result]) -> dict[str, dict[str, Family]]:
    """By family its verdict under each noise that was asked for; `` is the configurations' own.

    A figure that was made under named profiles alone stands with its first one there too.
    """
    groups: dict[str, list[Result]] = {"": [one for one in results if one.profile is None]}
    known = {one.id for one in groups[""]}
    for one in results:
        if one.profile is not None:
            groups.setdefault(one.profile, []).append(one)
            if one.id not in known:
                known.add(one.id)
                groups[""].append(one)
    found: dict[str, dict[str, Family]] = {name: {} for page in load().values() for name in page}
    for noise, group in groups.items():
        for family in (family for page in load() for family in judge(group, page)):
            found[family.name][noise] = family
    return {name: rows for name, rows in found.items() if rows}


def require_one_state(results: Sequence[Result]) -> None:
    """Raises ConfigError unless one state made all results.

    The line names two results that differ, and the commands that make them again.
    """
    for other in results:
        for first in results:
            if not first.state.is_same(other.state):
                raise ConfigError(
                    f"{first.id} is of {first.state}; {other.id} is of {other.state}: a page has "
                    "results of one state; allowed is to make both again in one folder: "
                    f"{first.command} -o NEW and {other.command} -o NEW"
                )
