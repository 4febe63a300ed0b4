"""The values of an intervention: what was changed, and what came of it."""

from outcast.records.interventions import ComparedFlows
from outcast.records.run import Run
from outcast.view.listings import MOST_ROWS
from outcast.view.report.page import Table
from outcast.view.terminal import whatif as terminal

_COMPARED = ("goodput", "drops", "timeouts")


def values(run: Run) -> dict[str, object]:
    """Returns what whatif.html shows; `changes` and `decision` are None where a run has none."""
    changes, record = run.manifest.interventions, run.directory.read_whatif()
    decision = run.directory.read_decision()
    made: dict[str, object] = {"changes": changes, "record": record, "decision": decision}
    if changes is not None:
        made["changed"] = [*terminal.told(changes)]
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
        made["instants"] = Table(decision.outcome, terminal.HEADS, [*terminal.rows(decision)], 0)
        made["future"] = terminal.again(decision, "DIR")
    return made


def _table(caption: str, compared: list[ComparedFlows]) -> Table:
    completes = any(flows.completion_ns.factual is not None for flows in compared)
    names = [*_COMPARED, *(["completion"] if completes else [])]
    head = ["", *(f"{name} {when}" for name in names for when in ("before", "after"))]
    rows = []
    for flows in compared:
        both = terminal.quantities(flows, completes)
        rows.append([flows.name, *(cell for each in both for cell in terminal.written(*each))])
    return Table(caption, head, rows)
