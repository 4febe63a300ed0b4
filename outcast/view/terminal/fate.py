"""Shows on the terminal from when on an outcome was decided."""

import math
from collections.abc import Iterator

from rich.table import Table

from outcast.records.interventions import Decision
from outcast.units import format_time
from outcast.view.terminal import forms

HEADS = ("noise anew from", "futures", "with the outcome", "probability, 95 %")


def rows(decision: Decision) -> Iterator[tuple[str, ...]]:
    """A row for each instant: how many futures had the outcome, and the probability."""
    for instant in decision.instants:
        yield (
            f"{instant.t_ns / 1e6:g} ms",
            str(len(instant.happened)),
            str(sum(instant.happened)),
            f"{instant.probability:.2f} [{instant.low:.2f}, {instant.high:.2f}]",
        )


def table(decision: Decision) -> Table:
    """The rows for the terminal."""
    made = forms.table(*HEADS, left=(), wrapped=None)
    for row in rows(decision):
        made.add_row(*row)
    return made


def sentences(decision: Decision) -> Iterator[str]:
    """Whether the run had the outcome, and from when on that was decided."""
    yield f"{decision.outcome}: {'yes' if decision.happened else 'no'}, in the run itself"
    for words in decision.causes:
        yield f"other programs made the futures, which can decide packets too: {words}"
    over = [instant.t_ns for instant in decision.instants if instant.same == len(instant.seeds)]
    for t_ns in over[:1]:
        yield f"all futures from {t_ns / 1e6:g} ms on are the run itself: nothing is drawn later"
    if decision.decided_ns is None:
        yield "not decided at any of these instants: the futures still differ at the last one"
        return
    agree = [instant for instant in decision.instants if instant.t_ns >= decision.decided_ns]
    yield (
        f"decided from {decision.decided_ns / 1e6:g} ms on, by the shares: more than 95 % of the "
        "futures agree at each instant from then on"
    )
    # What the intervals leave of that share, whichever way the futures agree.
    surely = min(max(instant.low, 1 - instant.high) for instant in agree)
    if surely < 0.95:
        yield (
            f"so few futures only show that more than {math.floor(surely * 1000) / 10:g} % agree; "
            "for 95 %, 72 futures suffice where all agree, and more where some do not"
        )


def again(decision: Decision, run: str) -> str:
    """The command that makes the first future of the last instant again."""
    last = decision.instants[-1]
    return f"outcast whatif {run} --noise {format_time(last.t_ns)}:{last.seeds[0]}"
