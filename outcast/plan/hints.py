"""Lines before a run: what makes it answer another question, and what no known answer covers.

Pure: a plan and its experiment say it all. `tests/unit/test_envelope.py` holds every bound of the
envelope to the cases of tests/physics: some case reaches it, and none lies beyond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from outcast import units
from outcast.experiment import Experiment, Queue
from outcast.experiment.engine import EngineChoice, candidates, properties
from outcast.plan import ports, traces
from outcast.plan.flows import Flow
from outcast.plan.model import Plan
from outcast.plan.needs import buffer_warnings
from outcast.plan.round_trips import base_rtt_ns, rate_bps
from outcast.plan.sender_ports import held_at_senders

PAGE = "docs/envelope.md"


@dataclass(frozen=True, slots=True)
class Bound:
    """The least and the most that was tried, and the words for such a number."""

    least: int
    most: int
    words: Callable[[int], str]


BOUNDS = {
    "rate": Bound(100_000, 10**10, units.format_rate),
    "delay": Bound(0, 600 * 10**6, units.format_time),
    "base RTT": Bound(2_604, 1_203_030_848, units.round_time),
    "number of flows": Bound(1, 500, str),
    "MTU": Bound(576, 9000, str),
    "limit": Bound(2, 20_000, lambda packets: f"{packets} packet{'s' * (packets != 1)}"),
    "full queue": Bound(24_608, 12_304_000_000, lambda ns: f"{units.round_time(ns)} to drain"),
    "duration": Bound(100 * 10**6, 120 * 10**9, units.format_time),
}
"""Rates in bit/s, times in ns, the MTU in bytes, limits in full frames."""

REAL_TIME_RATE_BPS = 10**8
"""What two free cores carried in real time (docs/limits.md)."""


def extents(experiment: Experiment, plan: Plan) -> Iterator[tuple[str, int, str]]:
    """Every number of a run that has a bound: the bound's name, the number, and whose it is.

    Limits and queues are those on the paths of flows; of the bottleneck where there is no flow.
    """
    for (near, far), link in plan.links.items():
        where = f" of the link from {near} to {far}"
        if (near, far) not in plan.traced:
            yield "rate", link.rate_bps, where
        yield "delay", link.delay_ns or 0, where
        yield "MTU", link.mtu_bytes, where
    for trace in plan.traces:
        for rate in traces.lasting_bps(trace.t_ns, trace.rate_bps):
            if rate:
                yield "rate", rate, f" in {trace.file}"
    for number, event in enumerate(experiment.events):
        if event.rate_bps is not None:
            yield "rate", event.rate_bps, f" of events.{number}"
        if event.delay_ns is not None:
            yield "delay", event.delay_ns, f" of events.{number}"
    for flow in plan.flows:
        yield "base RTT", base_rtt_ns(plan, flow.path, flow.return_path), f" of flow {flow.flow}"
    if plan.flows:
        yield "number of flows", len(plan.flows), ""
    crossed = {port for flow in plan.flows for port in plan.ports_on(flow.path)}
    for port in sorted(crossed or {plan.bottleneck.egress}):
        queue = ports.switch_queue(experiment, plan, port)
        if queue.limit_packets:
            yield "limit", queue.limit_packets, f" of the queue at {port}"
            yield "full queue", queue.full_ns, f" at {port}"
    yield "duration", experiment.duration_ns, ""


def envelope_warnings(experiment: Experiment, plan: Plan, engine: EngineChoice) -> list[str]:
    """A line on each bound that a run lies beyond, with the number that is farthest from it."""
    farthest: dict[tuple[str, bool], tuple[int, str]] = {}
    for name, number, where in extents(experiment, plan):
        bound = BOUNDS[name]
        if bound.least <= number <= bound.most:
            continue
        is_above = number > bound.most
        known = farthest.get((name, is_above))
        if known is None or (number > known[0] if is_above else number < known[0]):
            farthest[name, is_above] = (number, where)
    lines = [
        f"the {name}{where}, {BOUNDS[name].words(number)}, is outside the tested envelope "
        f"({BOUNDS[name].words(BOUNDS[name].least)} to {BOUNDS[name].words(BOUNDS[name].most)}; "
        f"{PAGE})"
        for (name, _), (number, where) in farthest.items()
    ]
    fastest_bps = max((rate_bps(plan, flow) for flow in plan.flows), default=0)
    if not properties(candidates(engine)[0]).virtual_clock and fastest_bps > REAL_TIME_RATE_BPS:
        lines.append(
            f"a path of {units.format_rate(fastest_bps)} is faster than what two free cores "
            f"carried in real time ({units.format_rate(REAL_TIME_RATE_BPS)}; docs/limits.md)"
        )
    return lines


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
