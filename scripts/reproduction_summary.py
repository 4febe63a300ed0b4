"""What the page of the reproduction says of all rows together, before its tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from outcast.uses.papers.together import AGREEING, Row
from outcast.uses.papers.verdict import Verdict, verdict_text


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
