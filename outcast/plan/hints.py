"""What makes a run answer another question than its configuration asks; told before the run.

Pure: a plan and its experiment say it all. Each line names the key to change.
"""

from __future__ import annotations

from itertools import pairwise

from outcast.experiment import Experiment, Queue
from outcast.experiment.engine import EngineChoice
from outcast.experiment.queues.classes import HasClasses, HtbClasses
from outcast.plan import ports
from outcast.plan.envelope import envelope_warnings
from outcast.plan.flows import Flow
from outcast.plan.model import Plan
from outcast.plan.moved import moved, states
from outcast.plan.needs import buffer_warnings
from outcast.plan.round_trips import base_rtt_ns
from outcast.plan.sender_ports import held_at_senders
from outcast.plan.trace_frames import smaller_frames
from outcast.units import format_rate, format_size, format_time, round_rate, round_time

FEWEST_ROUND_TRIPS = 10
"""Slow start alone takes so many from the initial window to a window of thousands of packets."""
_AQM = "the kind red, codel or fq_codel with ecn: true"
_MARKING = {"dctcp": "the kind ecn_threshold"}


def beforehand(experiment: Experiment, plan: Plan, engine: EngineChoice) -> list[str]:
    """What is told before a run, and is in its warnings: hints, and bounds that it lies beyond."""
    return [*hints(experiment, plan), *envelope_warnings(experiment, plan, engine)]


def hints(experiment: Experiment, plan: Plan) -> list[str]:
    """A line on each such thing: another bottleneck, small buffers, no marks, too short a run."""
    return [
        *held_at_senders(experiment, plan),
        *moved(experiment, plan),
        *buffer_warnings(experiment, plan),
        *_unmarked(experiment, plan),
        *_of_links(experiment, plan),
        *_of_one_class(experiment, plan),
        *_beyond_the_link(experiment, plan),
        *smaller_frames(experiment, plan),
        *_short(experiment, plan),
        *_of_small_bursts(plan),
    ]


def _of_links(experiment: Experiment, plan: Plan) -> list[str]:
    """A line on each entry of `queues` without effect at the bottleneck or a port that it names."""
    found: dict[int, list[str]] = {}
    for port in plan.switch_ports():
        own, number = plan.links[plan.ends[port]].queue, ports.exception_at(experiment, plan, port)
        if own is None or number is None or own == experiment.queues[number].queue:
            continue
        if port in (plan.bottleneck.egress, *ports.places(experiment.queues[number])):
            found.setdefault(number, []).append(port)
    return [
        f"queues.{number} has no effect at {at[0]}{_more(len(at))}, because its link has a queue "
        "of its own; for this queue set it as the link's (queue in links.overrides, or in the "
        "topology's file)"
        for number, at in found.items()
    ]


def _of_one_class(experiment: Experiment, plan: Plan) -> list[str]:
    """A line where the bottleneck has classes of service, and all that is sent is of one."""
    port = plan.bottleneck.egress
    queue = ports.switch_queue(experiment, plan, port).queue
    if not isinstance(queue, HasClasses) or plan.programs or plan.command is not None:
        return []
    senders = (*plan.flows, *experiment.workloads, *plan.probes)
    sent = {each.dscp for each in senders}
    used = {queue.told_by.get(point, queue.rest) for point in sent}
    if len(used) != 1:
        return []
    name = queue.classes[used.pop() - 1].name
    points = ", ".join(map(str, queue.told_by))
    return [
        f"all that is sent is of class {name} of {port} ({queue.kind}), so no class shows against "
        f"another; give flows, workloads or probes dscp ({points} have classes of their own)"
    ]


def _beyond_the_link(experiment: Experiment, plan: Plan) -> list[str]:
    """A line on classes whose rates are more than their link has later on.

    HTB goes on with them, because it does not know the shaper above it. A class within its rate may
    always send, so priority decides which does (htb_dequeue).
    """
    queues = {}
    for port in plan.switch_ports():
        key, queue = ports.asked_of_switch(experiment, plan, port)
        if isinstance(queue, HtbClasses):
            queues[(*plan.ends[port], "port")] = (port, key, queue.rates_bps)
    lines: dict[str, str] = {}
    for state in states(experiment, plan, queues):
        for hop, (port, key, asked_bps) in queues.items():
            # An oscillator of a port takes less.
            if 0 < state.capacity[hop] < 0.999 * asked_bps:
                lines.setdefault(
                    key,
                    f"{key}: the classes of {port} have {format_rate(asked_bps)} in all, but its "
                    f"link has {round_rate(state.capacity[hop])} at {format_time(state.since_ns)} "
                    f"({state.why}); their priority then decides, and not their rates; allowed "
                    "for rates that hold is up to the link's",
                )
    return [*lines.values()]


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


def _short(experiment: Experiment, plan: Plan) -> list[str]:
    """A line on flows that end before ten round trips."""
    found: list[tuple[float, Flow, int, int]] = []
    for flow in plan.flows:
        if flow.duration_ns is None:
            continue
        rtt_ns = base_rtt_ns(plan, flow.path, flow.return_path)
        lasts_ns = min(flow.duration_ns, experiment.duration_ns - flow.start_ns)
        if lasts_ns < FEWEST_ROUND_TRIPS * rtt_ns:
            found.append((lasts_ns / rtt_ns, flow, lasts_ns, rtt_ns))
    if not found:
        return []
    trips, flow, lasts_ns, rtt_ns = min(found, key=lambda item: item[0])
    needed_ms = -(-FEWEST_ROUND_TRIPS * rtt_ns // 10**6)
    return [
        f"flow {flow.flow}{_more(len(found))} lasts {format_time(lasts_ns)}, which are {trips:.2g} "
        f"base round trips of {round_time(rtt_ns)}, so the run shows its start alone; for "
        f"{FEWEST_ROUND_TRIPS} of them set duration to {needed_ms}ms or more"
    ]


def _of_small_bursts(plan: Plan) -> list[str]:
    """A line on policers whose burst is less than what a TCP flow sends in a round trip."""
    found = []
    for flow in plan.flows:
        rtt_ns = base_rtt_ns(plan, flow.path, flow.return_path)
        for node, neighbour in pairwise(flow.path):
            policer = plan.links[node, neighbour].policer
            if policer and 8 * 10**9 * policer.burst_bytes < policer.rate_bps * rtt_ns:
                full = policer.rate_bps * rtt_ns // (8 * 10**9)
                found.append((full, flow, f"{node} to {neighbour}", policer))
    if not found:
        return []
    full, flow, way, policer = max(found, key=lambda item: item[0])
    return [
        f"the policer from {way} has a burst of {format_size(policer.burst_bytes)}, and flow "
        f"{flow.flow}{_more(len(found))} at its rate of {round_rate(policer.rate_bps)} has "
        f"{full:,} B under way; TCP sends these in bursts and gets less than the rate, so set the "
        "policer's burst to that or more"
    ]


def _more(flows: int) -> str:
    return f" (and {flows - 1} more)" if flows > 1 else ""
