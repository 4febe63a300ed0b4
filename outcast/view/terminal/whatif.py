"""Shows on the terminal what came of an intervention."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.table import Table

from outcast.records.interventions import Compared, ComparedFlows, Interventions, WhatIf
from outcast.view.terminal import forms
from outcast.view.terminal.tables import MOST_ROWS, format_bps, format_ratio


def told(changes: Interventions) -> Iterator[str]:
    """What was changed, a line for each packet and for the seed of noise."""
    for fate in changes.fates:
        yield f"{fate.words}: {fate.name}, came in {fate.t_in_ns / 1e6:.6f} ms after the start"
    for lost in changes.lost:
        yield f"lost: {lost.name}, seen {lost.t_ns / 1e6:.6f} ms after the start"
    if changes.noise is not None:
        yield (
            f"noise from another seed, {changes.noise.seed}, from "
            f"{changes.noise.t_ns / 1e6:.6f} ms after the start on"
        )


def blast_words(record: WhatIf) -> str:
    """How many packets have another fate, in one sentence."""
    if not (record.changed or record.only_factual or record.only_counterfactual):
        return f"no other packet has another fate, of {record.packets:,}"
    return (
        f"{record.changed:,} packets have another fate, {record.only_factual:,} were sent in the "
        f"first run alone, and {record.only_counterfactual:,} in the second, of {record.packets:,}"
    )


def first_lines(record: WhatIf) -> Iterator[str]:
    """The first packets with another fate, a line for each."""
    for packet in record.first:
        again = f", transmission {packet.transmission + 1}" if packet.transmission else ""
        yield (
            f"{packet.t_in_ns / 1e6:.6f} ms: flow {packet.flow}, {packet.seq}, "
            f"{packet.payload} B{again}: {packet.factual or 'not sent'} became "
            f"{packet.counterfactual or 'not sent'}"
        )


def table(compared: list[ComparedFlows], what: str) -> Table:
    """Goodput, drops and timeouts in both runs; time of completion where flows complete."""
    rows = compared[:MOST_ROWS]
    completes = any(flows.completion_ns.factual is not None for flows in rows)
    names = ["goodput", "drops", "timeouts", *(["completion"] if completes else [])]
    heads = (head for name in names for head in (name, ""))
    made = forms.table(what, *heads, left=(what,), wrapped=None)
    for flows in rows:
        made.add_row(
            flows.name,
            *_cells(flows.goodput_bps, format_bps),
            *_cells(flows.drops, "{:.0f}".format),
            *_cells(flows.timeouts, "{:.0f}".format),
            *(_cells(flows.completion_ns, _milliseconds) if completes else ()),
        )
    return made


def ratio_words(record: WhatIf) -> str:
    """The ratio in both runs, in one sentence."""
    return (
        f"the ratio was {format_ratio(record.ratio.factual)} and is "
        f"{format_ratio(record.ratio.counterfactual)}"
    )


def _cells(values: Compared, form: Callable[[float], str]) -> tuple[str, str]:
    one, other = (
        "-" if value is None else form(value) for value in (values.factual, values.counterfactual)
    )
    return one, f"-> {other}" if other != one else ""


def _milliseconds(value: float) -> str:
    return f"{value / 1e6:.3f} ms"
