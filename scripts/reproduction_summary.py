"""What the page of the reproduction says of all rows together, before its tables."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Sequence

from outcast.reproduce import measures
from outcast.reproduce.claims import LEAST_RUNS
from outcast.reproduce.recipe import load_all
from outcast.reproduce.result import LOCKED, MIXED, UNKNOWN, describe, number
from outcast.reproduce.together import AGREEING, Row
from outcast.reproduce.verdict import Verdict, verdict_text


def by_state(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows by what made their runs; the largest group comes first.

    A computation has no kernel, so it joins a group that has one.
    """
    groups: list[list[Row]] = []
    order = {id(row): place for place, row in enumerate(rows)}
    for row in sorted(rows, key=lambda row: row.result.state.kernel is None):
        for group in groups:
            if all(other.result.state.is_same(row.result.state) for other in group):
                group.append(row)
                break
        else:
            groups.append([row])
    groups = [sorted(group, key=lambda row: order[id(row)]) for group in groups]
    return sorted(groups, key=lambda group: (-len(group), str(group[0].result.state)))


def glance(rows: Sequence[Row], older: Collection[str] = ()) -> list[str]:
    """What holds, what does not and what is open, a line each: rows of sources, by default noise.

    A row is where its worst claim is: contradicted, then undecided, then of another size. `older`
    are ids of rows whose runs had other settings than their recipes have now. They are open.
    """
    groups: dict[str, list[str]] = {"holds": [], "size": [], "fails": [], "open": []}
    own = [row for row in rows if row.result.profile is None and row.result.id[0] != "F"]
    for row in own:
        found = {claim.verdict for claim in row.claims}
        if Verdict.CONTRADICTED in found:
            groups["fails"].append(row.result.id)
        elif row.result.id in older or not found <= AGREEING | {Verdict.OTHER_SIZE}:
            groups["open"].append(row.result.id)
        else:
            groups["size" if Verdict.OTHER_SIZE in found else "holds"].append(row.result.id)
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


def meter_text(rows: Sequence[Row]) -> str:
    """Whether the noise meter's word tells how far seeds lie apart, where it gates verdicts.

    By points whose runs all have one word: the standard deviation of the main claim's logarithm
    over the seeds. Points that rows share count once.
    """
    from scipy.stats import mannwhitneyu

    spreads: dict[str, dict[str, float]] = {}
    for result in (row.result for row in rows):
        main = load_all()[result.id].claims[0].measure
        if not measures.is_logarithmic(main):
            continue
        for point in result.points:
            values = [value for value in point.values.get(describe(main), ()) if value]
            if len(point.regimes) == 1 and len(values) >= LEAST_RUNS:
                key = f"{result.noise} {point.config} {point.set} {describe(main)}"
                spread = statistics.stdev(math.log(value) for value in values)
                spreads.setdefault(next(iter(point.regimes)), {})[key] = spread
    if not {MIXED, LOCKED} <= spreads.keys():
        return ""
    mixed, locked = (sorted(spreads[word].values()) for word in (MIXED, LOCKED))
    p = float(mannwhitneyu(mixed, locked).pvalue)
    texts = [
        f"{number(statistics.median(known))} at {len(known)} points whose runs are all {word} "
        f"({number(known[0])} to {number(known[-1])})"
        for word in (MIXED, LOCKED, UNKNOWN)
        if (known := sorted(spreads.get(word, {}).values()))
    ]
    return (
        "Runs that the noise meter calls phase-locked are one draw and no result, so no verdict "
        "rests on them. Does its word tell how far seeds lie apart? The standard deviation of the "
        f"main ratio's logarithm has the median {texts[0]}, and {texts[1]}; p = {number(p)} by the "
        "test of Mann and Whitney. So it tells in most cases and not in each: the ranges overlap. "
        "Where it knows nothing, verdicts count all the same: the median is "
        f"{'not known' if texts[2:] == [] else texts[2]}."
    )
