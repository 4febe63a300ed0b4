"""Shows what came of an intervention, and from when on an outcome was decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.table import Table

from outcast.records import Interventions
from outcast.units import format_bps, format_time
from outcast.uses.whatif.compared import Compared, ComparedFlows, Decision, WhatIf
from outcast.view import MOST_ROWS, format_ratio, forms

_Form = Callable[[float], str]


def change_lines(changes: Interventions) -> Iterator[str]:
    """What was changed, a line for each packet and for the seed of noise."""
    for fate in changes.fates:
        queued = "" if fate.queued_ns is None else f", at its queue {fate.queued_ns / 1e6:.6f} ms"
        came = f"came in {fate.t_in_ns / 1e6:.6f} ms after the start"
        yield f"{fate.words}: {fate.name}, {came}{queued}"
    if changes.noise is not None:
        yield (
            f"noise from another seed, {changes.noise.seed}, from "
            f"{changes.noise.t_ns / 1e6:.6f} ms after the start on"
        )


def draw_words(seed: int) -> str:
    """A reminder that two runs of one seed are a single draw."""
    return (
        f"both runs are one draw of seed {seed}; only runs of other seeds tell how much the effect "
        "of such a change differs"
    )


def blast_words(record: WhatIf) -> str:
    """How many packets have another fate, in one sentence."""
    other = record.changed + record.only_factual + record.only_counterfactual
    if not other:
        return f"no other packet has another fate, of {record.packets:,}"
    return (
        f"{other:,} packets of {record.packets:,} have another fate: {record.changed:,} in both "
        f"runs, {record.only_factual:,} in the first alone, {record.only_counterfactual:,} in the "
        "second alone"
    )


def first_lines(record: WhatIf) -> Iterator[str]:
    """The first packets with another fate, a line for each."""
    for packet in record.first:
        again = f", transmission {packet.transmission + 1}" if packet.transmission else ""
        yield (
            f"{packet.t_in_ns / 1e6:.6f} ms: flow {packet.flow}, {packet.seq}, "
            f"{packet.payload} B{again}: {packet.factual or 'not seen'} became "
            f"{packet.counterfactual or 'not seen'}"
        )


def table(compared: list[ComparedFlows], what: str) -> Table:
    rows = compared[: MOST_ROWS["show"]]
    completes = any(flows.completion_ns.factual is not None for flows in rows)
    names = ["goodput", "drops", "timeouts", *(["completion"] if completes else [])]
    heads = (head for name in names for head in (name, ""))
    made = forms.table(what, *heads, left=(what,), wrapped=None)
    for flows in rows:
        both = (_cells(values, form) for values, form in quantities(flows, completes))
        made.add_row(flows.name, *(cell for cells in both for cell in cells))
    return made


def ratio_words(record: WhatIf) -> str:
    """The ratio in both runs, in one sentence; empty where neither has one."""
    if record.ratio.factual is None and record.ratio.counterfactual is None:
        return ""
    return (
        f"the ratio was {format_ratio(record.ratio.factual)} and is "
        f"{format_ratio(record.ratio.counterfactual)}"
    )


def quantities(flows: ComparedFlows, completes: bool) -> Iterator[tuple[Compared, _Form]]:
    """Each quantity of some flows in both runs, and how a value of it is written."""
    yield flows.goodput_bps, format_bps
    yield from ((values, "{:.0f}".format) for values in (flows.drops, flows.timeouts))
    if completes:
        yield flows.completion_ns, _milliseconds


def written(values: Compared, form: _Form) -> list[str]:
    """A quantity in the first and in the second run."""
    both = (values.factual, values.counterfactual)
    return ["-" if value is None else form(value) for value in both]


def _cells(values: Compared, form: _Form) -> tuple[str, str]:
    before, after = written(values, form)
    return before, f"-> {after}" if after != before else "="


def _milliseconds(value: float) -> str:
    return f"{value / 1e6:.3f} ms"


HEADS = ("new noise from", "futures", "with the outcome", "probability, 95 %")


def rows(decision: Decision) -> Iterator[tuple[str, ...]]:
    for instant in decision.instants:
        yield (
            f"{instant.t_ns / 1e6:g} ms",
            str(len(instant.happened)),
            str(sum(instant.happened)),
            f"{instant.probability:.2f} [{instant.low:.2f}, {instant.high:.2f}]",
        )


def decision_table(decision: Decision) -> Table:
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
