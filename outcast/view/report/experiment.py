"""Sentences on what was built and run."""

import re
import shlex
from collections.abc import Sequence
from typing import Any

from outcast.errors import InputError, shortened
from outcast.experiment import Limit
from outcast.experiment.queues import WITH_CLASSES
from outcast.plan import link_words, ports
from outcast.plan.grouping import UDP, control_of, title
from outcast.records.flows import BottleneckRecord, FlowRecord, ProgramRecord
from outcast.records.run import Run
from outcast.records.run_directory import Manifest
from outcast.units import counted, format_size, format_time, round_rate
from outcast.view.events import moments, trace_sentences

_COMMAND_CHARACTERS = 60


def sentences(run: Run) -> list[str]:
    manifest = run.directory.read_manifest()
    texts = [_built(run, manifest), *(_port(run, record) for record in manifest.bottlenecks)]
    if manifest.blackout is not None:
        blackout = manifest.blackout
        texts.append(
            f"A synthetic blackout sits before {blackout.port}. In {blackout.periods} ON periods "
            f"it dropped {blackout.dropped:,} of the {blackout.packets:,} packets that came in "
            "there."
        )
    happened = moments(run)
    if happened:
        listed = "; ".join(f"at {moment.t_s:.4g} s {moment.text}" for moment in happened)
        texts.append(f"During the run links and queues changed: {listed}.")
    texts += [f"{sentence}." for sentence in trace_sentences(run)]
    engine = {
        "virtual": "the virtual engine: real Linux TCP and queues in a guest kernel with an exact "
        "clock, where the same seed gives the same packets",
        "realtime": "the realtime engine: this kernel and the wall clock",
    }[manifest.engine]
    kernel = manifest.kernel.get("release")
    texts.append(
        f"It ran on {engine} ({f'Linux {kernel}, ' if kernel else ''}seed {manifest.seed})."
    )
    return texts


def _built(run: Run, manifest: Manifest) -> str:
    requested, flows = run.manifest.requested, manifest.planned_flows
    groups = [
        *_groups(flows),
        *(
            f"{counted(load.flows, 'UDP flow' if load.streams else 'generated flow')} ({load.kind})"
            for load in (run.summary.completions or {}).values()
        ),
        *(_program(manifest, program) for program in manifest.programs),
    ]
    if probes := len(run.summary.probes or {}):
        groups.append(counted(probes, "latency probe"))
    starts = {flow.start_ns for flow in flows}
    when = "together" if len(starts) <= 1 else f"over {spaced(format_time(max(starts) or 1))}"
    begin = f" They start {when}." if len(flows) > 1 else ""
    others = ""
    if requested.get("links.overrides") or requested.get("links.layers"):
        others = " where nothing else stands (see Links)"
    return (
        f"On a {requested.get('topology.kind', 'given')} topology with links of "
        f"{spaced(requested.get('links.rate', 'unlimited rate'))}"
        f"{_delay(requested)}{others}{_overhead(requested)}: {'; '.join(groups)}.{begin} "
        f"The run lasts {spaced(format_time(manifest.traffic.duration_ns))}."
        f"{_noise(requested)}"
    )


def _groups(flows: Sequence[FlowRecord]) -> list[str]:
    receivers: dict[tuple[str | None, int | None, str], list[str]] = {}
    names = list(dict.fromkeys(flow.name for flow in flows))
    for flow in flows:
        receivers.setdefault((flow.name, flow.hops, control_of(flow)), []).append(flow.dst)
    return [
        f"{counted(len(ends), 'flow' if control == UDP else 'TCP flow')} "
        f"({control if name is None else title(name, [control])}) to "
        f"{ends[0] if len(set(ends)) == 1 else f'{len(set(ends))} hosts'} over {hops} links"
        for (name, hops, control), ends in sorted(
            receivers.items(),
            key=lambda item: (names.index(item[0][0]), item[0][1] or 0, item[0][2]),
        )
    ]


def _port(run: Run, record: BottleneckRecord) -> str:
    inputs = ", ".join(run.port_label(port) for port in record.ingress)
    meet = "They meet" if len(run.manifest.planned_flows) > 1 else "It is measured"
    return (
        f"{meet} at the output {record.egress} of {record.switch}, which is fed by "
        f"{inputs}. Its queue ({record.queue.kind}) {_queue(run, record)}.{_link(run, record)}"
    )


def _program(manifest: Manifest, program: ProgramRecord) -> str:
    what = f"the server {program.name} at {program.host}"
    if not program.server:
        times = counted(len(program.executions), "time")
        what = f"the program {program.name} at {program.host}, {times}"
    count = sum(flow.of_program and flow.name == program.name for flow in manifest.flows)
    command = shortened(shlex.join(program.command), _COMMAND_CHARACTERS)
    return f"{what} ({command})" + (f" with {counted(count, 'flow')}" if count else "")


def spaced(text: object) -> str:
    """Writes a setting's quantity for readers: `5us` as `5 µs`, `1gbit` as `1 Gbps`."""
    quantity = re.fullmatch(r"([0-9.]+)([A-Za-z]+)", str(text))
    if quantity is None:
        return str(text)
    number, unit = quantity.groups()
    if unit == "ns" and float(number) >= 1000:
        return f"{float(number) / 1000:g} µs"
    units = {"us": "µs", "gbit": "Gbps", "mbit": "Mbps", "kbit": "kbps", "bit": "bps"}
    return f"{number} {units.get(unit, unit)}"


def _delay(requested: dict[str, Any]) -> str:
    no_delay = (None, "0ns")
    delay, jitter = requested.get("links.delay"), requested.get("links.jitter")
    if delay in no_delay:
        return ""
    more = f" (give or take up to {spaced(jitter)})" if jitter not in no_delay else ""
    return f", {spaced(delay)} of delay each{more}"


def _noise(requested: dict[str, Any]) -> str:
    profile = requested.get("noise.profile")
    return f" Its noise is that of {profile}." if profile else ""


def _overhead(requested: dict[str, Any]) -> str:
    if requested.get("links.overhead") != "ethernet":
        return ""
    return ", on which preamble, check sequence and gap take time too"


def _requested_limit(run: Run, port: str) -> Limit | None:
    """The limit of a port's queue in the configuration's words, where the folder has them."""
    if run.plan is None:
        return None
    try:
        return ports.switch_queue(run.experiment, run.plan, port).asked
    except InputError:
        return None


def _link(run: Run, record: BottleneckRecord) -> str:
    plan = run.plan
    link = None if plan is None else plan.links.get(plan.ends.get(record.egress, ("", "")))
    return "" if link is None else f" Its link has {link_words.settings(link)}."


def _queue(run: Run, record: BottleneckRecord) -> str:
    queue = record.queue
    parts = ["holds what comes"]
    if queue.kind in WITH_CLASSES:
        parts = ["parts packets by their DSCP into classes, each with a limit of its own"]
    if queue.limit_bytes is not None:
        parts = [f"holds at most {spaced(format_size(queue.limit_bytes))}"]
    elif queue.limit_packets is not None:
        parts = [f"holds at most {queue.limit_packets} packets"]
    limit = _requested_limit(run, record.egress)
    if limit is not None:
        parts[0] += f" ({limit})"
    if queue.rate_bps is not None:
        rate = run.link_rate(record)
        at_first = ""
        if rate is not None and not rate.is_constant:
            is_trace = any(trace.port == record.egress for trace in run.rates.ports)
            at_first = " on average, by a trace" if is_trace else " at first"
        parts.append(f"drains at {round_rate(queue.rate_bps)}{at_first}")
    return " and ".join(parts)
