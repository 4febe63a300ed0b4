"""The values of an intervention: what was changed, and what came of it."""

from functools import partial
from pathlib import Path

from outcast.records import Run
from outcast.uses.whatif import words as terminal
from outcast.uses.whatif.compared import ComparedFlows, read_decision, read_whatif
from outcast.view import MOST_ROWS, page

_COMPARED = ("goodput", "drops", "timeouts")


def section(run: Run) -> str:
    """The sections on the run's interventions, and on when an outcome of it was decided."""
    changes, record = run.manifest.interventions, read_whatif(run.directory)
    decision = read_decision(run.directory)
    drawn = partial(page.drawn, run)
    made: dict[str, object] = {
        "drawn": drawn,
        "changes": changes,
        "record": record,
        "decision": decision,
    }
    if changes is not None:
        made["changed"] = [*terminal.change_lines(changes)]
    if changes is not None and record is not None:
        flows = record.flows[: MOST_ROWS["show"]]
        made["compared"] = (_table("Groups", record.groups), _table("Flows", flows))
        made["effects"] = [
            *filter(None, (terminal.ratio_words(record), terminal.blast_words(record)))
        ]
        made["draw"] = terminal.draw_words(run.directory.read_manifest().seed)
        made["first"] = [*terminal.first_lines(record)]
    if decision is not None:
        made["decided"] = [*terminal.sentences(decision)]
        made["instants"] = page.Table(
            decision.outcome, terminal.HEADS, [*terminal.rows(decision)], 0
        )
        made["future"] = terminal.again(decision, "DIR")
    return page.render(Path(__file__).with_suffix(".html"), **made)


def _table(caption: str, compared: list[ComparedFlows]) -> page.Table:
    completes = any(flows.completion_ns.factual is not None for flows in compared)
    names = [*_COMPARED, *(["completion"] if completes else [])]
    head = ["", *(f"{name} {when}" for name in names for when in ("before", "after"))]
    rows = []
    for flows in compared:
        both = terminal.quantities(flows, completes)
        rows.append([flows.name, *(cell for each in both for cell in terminal.written(*each))])
    return page.Table(caption, head, rows)
