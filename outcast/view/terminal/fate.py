"""Shows on the terminal from when on an outcome was decided."""

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
    last = decision.instants[-1]
    if decision.decided_ns is not None:
        where = "above 0.95" if last.low > 0.5 else "below 0.05"
        yield (
            f"decided from {decision.decided_ns / 1e6:g} ms on: the whole interval lies {where} at "
            "each instant from then on"
        )
        return
    yield (
        f"not shown to be decided: from {last.t_ns / 1e6:g} ms on the probability lies somewhere "
        f"from {last.low:.2f} to {last.high:.2f}; decided is above 0.95 or below 0.05, which takes "
        "72 futures an instant where all agree"
    )


def again(decision: Decision, run: str) -> str:
    """The command that makes the first future of the last instant again."""
    last = decision.instants[-1]
    return f"outcast whatif {run} --noise {format_time(last.t_ns)}:{last.seeds[0]}"
