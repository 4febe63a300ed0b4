"""The report's sections on the whole run: a summary, trust, settings, how to run it again."""

from __future__ import annotations

import re
import shlex
from typing import Any

from outcast.analysis.measure.losses import where
from outcast.errors import InputError, shortened
from outcast.experiment import Limit
from outcast.experiment.engine import properties
from outcast.experiment.queues import WITH_CLASSES
from outcast.plan import link_words, ports
from outcast.plan.grouping import UDP, control_of, title
from outcast.records.run import Run
from outcast.records.run_directory import BottleneckRecord, Manifest, ProgramRecord
from outcast.records.summary import Summary
from outcast.units import format_bps, format_size, format_time, round_rate
from outcast.view.events import moments, trace_sentences
from outcast.view.report import captured
from outcast.view.report.markup import Element, Part, element, table
from outcast.view.report.page import bullets, code, details, main_numbers, section, trust
from outcast.view.terminal.tables import (
    format_ms,
    format_ratio,
    has_ratio,
    main_ratio,
    noise_lines,
    ratio_name,
    stationarity_sentence,
    workload_result,
)

_COMMAND_CHARACTERS = 60
_MOST_PROBES = 2
MOST_KEYS = 8
"""The most groups among the main numbers."""


def header(run: Run) -> list[Element]:
    """Returns the page's heading, the result in a sentence, and whether it can be trusted."""
    summary = run.summary
    key: list[tuple[str, str]] = []
    if run.manifest.flows:
        key.append(("goodput in all", format_bps(summary.total_goodput_bps)))
        for group in run.groups[:MOST_KEYS]:
            of_what = f"{group.title}, mean of a flow"
            key.append((of_what, format_bps(group.summary.mean_goodput_bps)))
        jain = summary.jain_index
        if has_ratio(summary):
            key.append((ratio_name(summary), format_ratio(main_ratio(summary))))
        key.append(("Jain's index", "-" if jain is None else f"{jain:.3f}"))
    when = summary.whole_run
    for workload in (summary.completions or {}).values():
        streams = workload.streams
        if streams is not None:
            key.append(("UDP received while sending", format_bps(streams.received_bps)))
            if streams.loss_share is not None:
                key.append((f"UDP lost{when}", f"{streams.loss_share:.2%}"))
            if streams.delay_ms is not None:
                key.append((f"UDP delay, mean{when}", format_ms(streams.delay_ms.mean)))
            continue
        times = workload.times.get("all")
        if times is not None and times.p50_ms is not None:
            key.append((f"{workload.kind}, median time{when}", format_ms(times.p50_ms)))
        key.append((f"{workload.kind}, goodput{when}", format_bps(workload.goodput_bps)))
    for probe in [*(summary.probes or {}).values()][:_MOST_PROBES]:
        if probe.rtt_ms is not None:
            both = f"{format_ms(probe.rtt_ms.p50)}, {format_ms(probe.rtt_ms.p99)}"
            key.append((f"latency {probe.src} to {probe.dst}, median and 99 %{when}", both))
    key.append(("drops", f"{sum(part.dropped for part in summary.drops.values()):,}"))
    if summary.losses is None and run.captured is None:
        key.append(("lost elsewhere", "not recorded"))
    elif summary.losses is not None and summary.losses.elsewhere:
        key.append((f"lost elsewhere{when}", f"{summary.losses.elsewhere:,}"))
    key.append(("blackouts", f"{sum(part.blackouts for part in summary.drops.values()):,}"))
    return [
        element("h1", summary.name),
        element("p", _result(run), class_="lead"),
        main_numbers(key),
        _trust(run) if run.captured is None else captured.verdict(run),
    ]


COVERED = {
    "whole": "the whole run",
    "all active": "the time all flows were active",
    "asked": "the interval that the configuration asks for",
}
"""What numbers cover, by the summary's `interval`."""


def _result(run: Run) -> str:
    summary = run.summary
    covered = COVERED[summary.interval]
    if run.captured is not None:
        covered = "all of the captures"
    texts = []
    if run.manifest.flows:
        texts.append(
            f"Over {covered} ({summary.start_s:g} to {summary.end_s:g} s), "
            f"{_flows(len(run.manifest.flows))} got {format_bps(summary.total_goodput_bps)}"
            f"{' together' if len(run.manifest.flows) > 1 else ''}."
        )
        if run.captured is None and summary.classes:
            sentence = stationarity_sentence(run)
            texts.append(f"{sentence[0].upper()}{sentence[1:]}.")
    for workload in (summary.completions or {}).values():
        if workload.streams is not None:
            texts.append(f"{workload_result(workload, summary.whole_run)}.")
            continue
        unfinished = f", {workload.unfinished} did not finish" if workload.unfinished else ""
        texts.append(
            f"{_flows(workload.flows, 'generated ')} ({workload.kind}) ran{unfinished}, at "
            f"{format_bps(workload.goodput_bps)} together{summary.whole_run}."
        )
    return " ".join(texts) + _comparison(summary) + _doubt(run)


def _doubt(run: Run) -> str:
    """How sure the result is: what the noise meter says, and losses that the tables lack."""
    text = ""
    if run.captured is None and run.manifest.flows and (lines := noise_lines(run)):
        text += f" How sure that is: {lines[0].rstrip('.')}."
    losses = run.summary.losses
    if losses is not None and losses.elsewhere > losses.bottleneck:
        text += (
            f" {losses.elsewhere:,} of {losses.total:,} packets lost{run.summary.whole_run} were "
            f"lost elsewhere than in the bottleneck's queue: {where(losses)}."
        )
    return text


def _comparison(summary: Summary) -> str:
    compare = summary.compare
    if compare is None:
        return ""
    (first, second), (first_bps, second_bps) = compare.groups, compare.mean_goodput_bps
    if first_bps is None or second_bps is None:
        return ""
    text = (
        f" {_a_flow(compare.by, second, 'A')} got {format_bps(second_bps)} on average, "
        f"{_a_flow(compare.by, first, 'a')} {format_bps(first_bps)}"
    )
    if compare.ratio is not None:
        ratio = compare.ratio
        text += f", {ratio:.1f} times as much" if ratio >= 1 else f", {ratio:.2f} of that"
    return f"{text}."


def _a_flow(kind: str, label: str, article: str) -> str:
    match kind:
        case "hops":
            return f"{article} flow over {label.removesuffix('-hop')} links"
        case "port":
            return f"{article} flow by {label}"
        case _:
            return f"{article} flow of {label}"


def _trust(run: Run) -> Element:
    capture = run.summary.capture
    good = capture.trusted
    came = run.scan("packets").select("t_in").collect()["t_in"]
    early = (came < run.manifest.traffic.t_start_ns).sum()
    lines = [
        f"Captures: tcpdump lost {capture.tcpdump_kernel_drops:,} packets.",
        f"Counters: {capture.inferred_drops:,} drops were inferred from the whole captures, "
        f"the queue itself counted {capture.qdisc_drops:,}"
        + (f", the blackout's switch {capture.blackout_drops:,}" if capture.blackout_drops else "")
        + (
            f", {capture.link_down_drops:,} packets were lost while the link was down"
            if capture.link_down_drops
            else ""
        )
        + ".",
        f"Conservation: {len(came):,} packets came in, in the whole captures"
        + (f", {early:,} of them before time 0" if early else "")
        + ". The fate of "
        f"{capture.in_flight:,} was undecided at their end. {capture.unmatched:,} left and no "
        "capture saw them come in.",
    ]
    lines += [f"Not to be trusted: {reason}" for reason in capture.reasons]
    lines += [f"Warning: {text}" for text in run.summary.warnings]
    number = len(run.summary.warnings)
    if not good:
        return trust("✗ Captures and counters do not agree", "bad", bullets(lines))
    if not number:
        return trust("✓ Captures and counters agree", "good", bullets(lines))
    warned = f"{number} warning{'' if number == 1 else 's'}"
    return trust(f"✓ Captures and counters agree, with {warned}", "doubtful", bullets(lines))


def words(run: Run, *more: Part) -> Element:
    """Returns the section on the experiment: sentences, then `more`, as a drawing."""
    return section(
        "experiment",
        "The experiment",
        *(element("p", text) for text in sentences(run)),
        *more,
    )


def sentences(run: Run) -> list[str]:
    """Returns sentences on what was built and run, from the manifest."""
    manifest, requested = run.directory.read_manifest(), run.manifest.requested
    flows = manifest.planned_flows
    receivers: dict[tuple[str | None, int | None, str], list[str]] = {}
    names = list(dict.fromkeys(flow.name for flow in flows))
    for flow in flows:
        receivers.setdefault((flow.name, flow.hops, control_of(flow)), []).append(flow.dst)
    groups = [
        f"{_flows(len(ends), '' if control == UDP else 'TCP ')} "
        f"({control.upper() if name is None else title(name, [control])}) to "
        f"{ends[0] if len(set(ends)) == 1 else f'{len(set(ends))} hosts'} over {hops} links"
        for (name, hops, control), ends in sorted(
            receivers.items(),
            key=lambda item: (names.index(item[0][0]), item[0][1] or 0, item[0][2]),
        )
    ]
    groups += [
        f"{_flows(workload.flows, 'UDP ' if workload.streams else 'generated ')} ({workload.kind})"
        for workload in (run.summary.completions or {}).values()
    ]
    groups += [_program(manifest, program) for program in manifest.programs]
    if probes := len(run.summary.probes or {}):
        groups.append(f"{probes} latency probe{'' if probes == 1 else 's'}")
    starts = {flow.start_ns for flow in flows}
    when = "together" if len(starts) <= 1 else f"over {spaced(format_time(max(starts) or 1))}"
    begin = f" They start {when}." if len(flows) > 1 else ""
    others = ""
    if requested.get("links.overrides") or requested.get("links.layers"):
        others = " where nothing else stands (see Links)"
    first = (
        f"On a {requested.get('topology.kind', 'given')} topology with links of "
        f"{spaced(requested.get('links.rate', 'unlimited rate'))}"
        f"{_delay(requested)}{others}{_overhead(requested)}: {'; '.join(groups)}.{begin} "
        f"The run lasts {spaced(format_time(manifest.traffic.duration_ns))}."
        f"{_noise(requested, manifest.effective)}"
    )
    texts = [first]
    for record in manifest.bottlenecks:
        inputs = ", ".join(run.port_label(port) for port in record.ingress)
        meet = "They meet" if len(flows) > 1 else "It is measured"
        texts.append(
            f"{meet} at the output {record.egress} of {record.switch}, which is fed by "
            f"{inputs}. Its queue ({record.queue.kind}) {_queue(run, record)}.{_link(run, record)}"
        )
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


def _program(manifest: Manifest, program: ProgramRecord) -> str:
    """A program in words, with the number of flows that bear its name."""
    what = f"the server {program.name} at {program.host}"
    if not program.server:
        times = f"{len(program.executions):,} time{'' if len(program.executions) == 1 else 's'}"
        what = f"the program {program.name} at {program.host}, {times}"
    count = sum(flow.of_program and flow.name == program.name for flow in manifest.flows)
    command = shortened(shlex.join(program.command), _COMMAND_CHARACTERS)
    return f"{what} ({command}){f' with {_flows(count)}' if count else ''}"


def _flows(count: int, kind: str = "") -> str:
    return f"{count:,} {kind}flow{'' if count == 1 else 's'}"


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


def _noise(requested: dict[str, Any], effective: dict[str, Any]) -> str:
    """A sentence on the noise that was asked for; none where there is none, or was no such key."""
    parts = []
    # The manifest may come from somebody else.
    if isinstance(ppm := requested.get("noise.oscillators"), (int, float)) and ppm:
        parts.append(f"ports' clocks are off by up to {ppm:g} ppm")
    throttled = requested.get("noise.interrupts")
    if isinstance(throttled, dict) and isinstance(often := throttled.get("per_second"), int):
        parts.append(f"hosts get at most {often:,} interrupts a second")
    for key, words in (
        ("interrupts", "hosts get their arrivals in batches, {} after the first packet of each"),
        ("sender", "what hosts send leaves {} after they are woken"),
    ):
        span = requested.get(f"noise.{key}")
        most = span.get("most") if isinstance(span, dict) else None
        if isinstance(span, dict) and most not in (None, "0ns"):
            parts.append(words.format(f"{spaced(span.get('least', '0ns'))} to {spaced(most)}"))
    latency = requested.get("noise.switch_latency")
    if latency not in (None, "0ns"):
        jitter_ns = effective.get("bottleneck.jitter_ns")
        jitter = spaced(format_time(jitter_ns)) if isinstance(jitter_ns, int) else None
        # A link with less delay varies by that.
        less = f", at the bottleneck by {jitter}" if jitter not in (None, spaced(latency)) else ""
        parts.append(f"delays at switches vary by up to {spaced(latency)}{less}")
    if not parts:
        return ""
    return f" Its noise is that of {requested.get('noise.profile')}: {'; '.join(parts)}."


def _overhead(requested: dict[str, Any]) -> str:
    """What the links count besides frames, where they do."""
    if requested.get("links.overhead") != "ethernet":
        return ""
    return ", on which preamble, check sequence and gap take time too"


def _limit_asked(run: Run, port: str) -> Limit | None:
    """The limit of a port's queue in the configuration's words, where the folder has them."""
    if run.plan is None:
        return None
    try:
        return ports.switch_queue(run.experiment, run.plan, port).asked
    except InputError:
        return None


def _link(run: Run, record: BottleneckRecord) -> str:
    """A sentence on the bottleneck's link, with its losses and delays; empty if unknown."""
    plan = run.plan
    link = None if plan is None else plan.links.get(plan.ends.get(record.egress, ("", "")))
    return "" if link is None else f" Its link has {link_words.settings(link)}."


def _queue(run: Run, record: BottleneckRecord) -> str:
    queue = record.queue
    parts = ["holds what comes"]
    if queue.kind in WITH_CLASSES:
        parts = ["parts packets by their DSCP into classes, each with a limit of its own"]
    if queue.limit_bytes is not None:
        parts = [f"has room for {spaced(format_size(queue.limit_bytes))}"]
    elif queue.limit_packets is not None:
        parts = [f"has room for {queue.limit_packets} packets"]
    limit = _limit_asked(run, record.egress)
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


def settings(run: Run) -> Element:
    """Returns the section on settings: as requested, and as read back from the kernel."""
    manifest = run.directory.read_manifest()

    def listed(caption: str, values: dict[str, Any]) -> Element:
        rows: list[list[Part]] = [[name, _text(value)] for name, value in values.items()]
        return table(caption, ["setting", "value"], rows, numbers_from=9)

    of_ports = {name: value for name, value in manifest.effective.items() if name[:6] == "ports."}
    general = {name: value for name, value in manifest.effective.items() if name not in of_ports}
    kernel = {f"kernel {name}": value for name, value in manifest.kernel.items()}
    return section(
        "settings",
        "Settings",
        element(
            "div",
            listed("Requested", _requested(run, manifest)),
            listed("Effective, as read back", general),
            class_="side-by-side",
        ),
        details(
            "Every port's queue, as read back",
            listed("Ports with the same settings are listed together", of_ports),
        )
        if of_ports
        else None,
        details("Versions", listed("Programs and kernel", {**manifest.versions, **kernel})),
    )


def _requested(run: Run, manifest: Manifest) -> dict[str, Any]:
    """What the configuration asks for: of the kernel, as the manifest has it, and of the run."""
    try:
        asked = run.experiment.model_dump(mode="json", by_alias=True, exclude_none=True)
    except InputError:
        return manifest.requested
    probes = {f"probes.{number}": probe for number, probe in enumerate(asked["probes"])}
    analysis = {f"analysis.{key}": value for key, value in asked["analysis"].items()}
    return {**manifest.requested, **probes, "duration": asked["duration"], **analysis}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(item)}" for name, item in value.items())
    return str(value)


def again(run: Run) -> Element:
    """Returns the section with the commands for a second run, and the whole configuration."""
    name = run.summary.name
    place = shlex.quote(name)
    text = (
        "Save the configuration below as a file and run it. The run's folder has it as "
        "config.yaml, with every default filled in."
    )
    also: Part = None
    if properties(run.directory.read_manifest().engine).virtual_clock:
        also = element(
            "p",
            "The virtual engine replays a run from its seed. Add ",
            element("code", "--replay-of DIR"),
            " with this run's folder to compare the captures byte by byte.",
        )
    try:
        config = run.directory.config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        config = "config.yaml cannot be read"
    seconds = ", ".join(
        f"{phase.replace('_', ' ')} {value:g} s" for phase, value in run.manifest.wall_s.items()
    )
    return section(
        "again",
        "Run it again",
        element("p", text),
        code(f"outcast run {place}.yaml -o results/{place}-again"),
        also,
        details(f"{name}.yaml", code(config), opened=True),
        element("p", f"It took, by the wall clock: {seconds}." if seconds else None),
        captured.made_by(run.manifest.outcast),
    )
