"""The section on an intervention: what was changed, and what came of it."""

from outcast.records.interventions import ComparedFlows
from outcast.records.run import Run
from outcast.view.listings import MOST_ROWS
from outcast.view.report.page import Element, Part, bullets, drawn, element, section, table
from outcast.view.summary_words import begun
from outcast.view.terminal import whatif as decided
from outcast.view.terminal import whatif as terminal

_COMPARED = ("goodput", "drops", "timeouts")


def what_if(run: Run) -> Element | None:
    """Returns the section on a run's interventions; None if it had none."""
    if run.manifest.interventions is None:
        return None
    changes = run.manifest.interventions
    parts: list[Element | None] = [
        element("p", f"This is the run {changes.of}, made again with these changes:"),
        bullets([*terminal.told(changes)]),
    ]
    record = run.directory.read_whatif()
    if record is not None:
        most = MOST_ROWS["show"]
        for title, compared in (("Groups", record.groups), ("Flows", record.flows[:most])):
            completes = any(flows.completion_ns.factual is not None for flows in compared)
            names = [*_COMPARED, *(["completion"] if completes else [])]
            head = ["", *(f"{name} {when}" for name in names for when in ("before", "after"))]
            parts.append(table(title, head, [_row(flows, completes) for flows in compared]))
        words = filter(None, (terminal.ratio_words(record), terminal.blast_words(record)))
        parts.append(element("p", f"{begun('; '.join(words))}."))
        draw = terminal.draw_words(run.directory.read_manifest().seed)
        parts.append(element("p", f"{begun(draw)}."))
        parts.append(drawn(run, "whatif"))
        parts.append(element("p", f"{begun('; '.join(record.parts))}."))
        if record.first:
            parts.append(element("p", "The first packets with another fate:"))
            lines = (element("li", line) for line in terminal.first_lines(record))
            parts.append(element("ol", *lines))
    return section("whatif", "What if", *parts)


def fate(run: Run) -> Element | None:
    """Returns the section on when an outcome was decided; None if nobody asked."""
    decision = run.directory.read_decision()
    if decision is None:
        return None
    rows: list[list[Part]] = [[*row] for row in decided.rows(decision)]
    return section(
        "fate",
        "Whether and when it was decided",
        *(element("p", f"{begun(text)}.") for text in decided.sentences(decision)),
        drawn(run, "fate"),
        table(decision.outcome, [*decided.HEADS], rows, numbers_from=0),
        element("p", f"A future again: {decided.again(decision, 'DIR')}"),
    )


def _row(flows: ComparedFlows, completes: bool) -> list[Part]:
    both = terminal.quantities(flows, completes)
    return [flows.name, *(cell for each in both for cell in terminal.written(*each))]
