"""What makes a run answer another question than its configuration asks; shown before the run.

Pure: a plan and its experiment say it all. Each line names the key to change.
"""

from __future__ import annotations

from outcast.experiment import Experiment, Queue
from outcast.experiment.engine import EngineChoice
from outcast.plan import ports
from outcast.plan.envelope import envelope_warnings
from outcast.plan.flows import Flow
from outcast.plan.model import Plan
from outcast.plan.needs import buffer_warnings
from outcast.plan.sender_ports import held_at_senders

_AQM = "the kind red, codel or fq_codel with ecn: true"
_MARKING = {"dctcp": "the kind ecn_threshold"}


def beforehand(experiment: Experiment, plan: Plan, engine: EngineChoice) -> list[str]:
    """A run's lines before it begins, and in its warnings: hints, and bounds that it exceeds."""
    return [*hints(experiment, plan), *envelope_warnings(experiment, plan, engine)]


def hints(experiment: Experiment, plan: Plan) -> list[str]:
    """A line on each such thing: an unused queue, small buffers, and marks that never come."""
    return [
        *held_at_senders(experiment, plan),
        *buffer_warnings(experiment, plan),
        *_unmarked(experiment, plan),
    ]


def _unmarked(experiment: Experiment, plan: Plan) -> list[str]:
    """A line on flows that react to ECN, and whose queue never marks."""
    found: list[tuple[Flow, str, Queue]] = []
    measured = {port.egress for port in (plan.bottleneck, *plan.others)}
    for flow in plan.flows:
        if not flow.transport.negotiates_ecn:
            continue
        on_path = plan.ports_on(flow.path)
        queues = {
            port: ports.switch_queue(experiment, plan, port).queue
            for port in [port for port in on_path if port in measured] or on_path
        }
        if not any(queue.marks for queue in queues.values()):
            found.append((flow, *next(iter(queues.items()))))
    if not found:
        return []
    flow, port, queue = found[0]
    control = flow.transport.congestion_control
    marks = "ecn: true" if "ecn" in type(queue).model_fields else _MARKING.get(control, _AQM)
    return [
        f"flow {flow.flow}{_more(len(found))} has ECN ({control}), but the queue of {port} "
        f"({queue.kind}) never marks, so losses alone tell it of congestion; for marks give it "
        f"{marks}"
    ]


def _more(flows: int) -> str:
    return f" (and {flows - 1} more)" if flows > 1 else ""
