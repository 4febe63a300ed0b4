"""The report's sections on the whole run: a summary, trust, settings, how to run it again."""

import shlex
from typing import Any

from outcast.analysis.measure.losses import where
from outcast.errors import InputError
from outcast.experiment.engine import properties
from outcast.records.run import Run
from outcast.records.run_directory import Manifest
from outcast.records.summary import Summary
from outcast.units import counted, format_bps
from outcast.view import summary_words as words
from outcast.view.report import captured
from outcast.view.report.markup import Element, Part, element, table
from outcast.view.report.page import bullets, code, details, main_numbers, section, trust

_MOST_PROBES = 2
MOST_KEYS = 8
"""The most groups among the main numbers."""


def header(run: Run) -> list[Element]:
    """Returns the heading, the result in a sentence, and whether captures and counters agree."""
    summary = run.summary
    key: list[tuple[str, str]] = []
    if run.manifest.flows:
        key.append(("goodput in all", format_bps(summary.total_goodput_bps)))
        for group in run.groups[:MOST_KEYS]:
            of_what = f"{group.title}, mean of a flow"
            key.append((of_what, format_bps(group.summary.mean_goodput_bps)))
        if words.has_ratio(summary):
            key.append((words.ratio_name(summary), words.format_ratio(words.main_ratio(summary))))
        key.append(("Jain's index", words.number(summary.jain_index, ".3f")))
    when = summary.whole_run
    for workload in (summary.completions or {}).values():
        streams = workload.streams
        if streams is not None:
            key.append(("UDP received while sending", format_bps(streams.received_bps)))
            if streams.loss_share is not None:
                key.append((f"UDP lost{when}", f"{streams.loss_share:.2%}"))
            if streams.delay_ms is not None:
                key.append((f"UDP delay, mean{when}", words.format_ms(streams.delay_ms.mean)))
            continue
        times = workload.times.get("all")
        if times is not None and times.p50_ms is not None:
            both = ", ".join(words.spread(times, ("p50_ms", "max_ms")))
            key.append((f"{workload.kind}, median and longest time{when}", both))
        key.append((f"{workload.kind}, goodput{when}", format_bps(workload.goodput_bps)))
    for probe in [*(summary.probes or {}).values()][:_MOST_PROBES]:
        if probe.rtt_ms is not None:
            both = f"{words.format_ms(probe.rtt_ms.p50)}, {words.format_ms(probe.rtt_ms.p99)}"
            key.append((f"latency {probe.src} to {probe.dst}, median and 99 %", both))
    key.append(("drops", f"{sum(part.dropped for part in summary.drops.values()):,}"))
    if summary.losses is not None and summary.losses.elsewhere:
        key.append((f"lost elsewhere{when}", f"{summary.losses.elsewhere:,}"))
    key.append(("blackouts", f"{sum(part.blackouts for part in summary.drops.values()):,}"))
    return [
        element("h1", summary.name),
        element("p", _result(run), class_="lead"),
        main_numbers(key),
        captured.verdict(run) if summary.capture.qdisc_drops is None else _trust(run),
    ]


COVERED = {
    "whole": "the whole run",
    "all active": "the time all flows were active",
    "asked": "the interval that the configuration asks for",
}
"""What numbers cover, by the summary's `interval`."""


def _result(run: Run) -> str:
    summary = run.summary
    is_joined = run.captured is not None
    covered = "all of the captures" if is_joined else COVERED[summary.interval]
    texts = []
    if run.manifest.flows:
        texts.append(
            f"Over {covered} ({summary.start_s:g} to {summary.end_s:g} s), "
            f"{counted(len(run.manifest.flows), 'flow')} got "
            f"{format_bps(summary.total_goodput_bps)}"
            f"{' together' if len(run.manifest.flows) > 1 else ''}."
        )
        if summary.classes:
            texts.append(f"{words.begun(words.stationarity_sentence(run))}.")
    for workload in (summary.completions or {}).values():
        if workload.streams is not None:
            texts.append(f"{words.workload_result(workload, summary.whole_run)}.")
            continue
        unfinished = f", {workload.unfinished} did not finish" if workload.unfinished else ""
        flows = counted(workload.flows, "generated flow")
        texts.append(
            f"{flows} ({workload.kind}) ran{unfinished}, at "
            f"{format_bps(workload.goodput_bps)} together{summary.whole_run}."
        )
    return " ".join(texts) + _comparison(summary) + ("" if is_joined else _doubt(run))


def _doubt(run: Run) -> str:
    """How sure the result is: that it is one draw, and losses that the tables lack."""
    draw = words.draw_sentence(run)
    text = f" {words.begun(draw)}." if draw else ""
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
    if kind == "hops":
        return f"{article} flow over {label.removesuffix('-hop')} links"
    return f"{article} flow {'by' if kind == 'port' else 'of'} {label}"


def _trust(run: Run) -> Element:
    capture = run.summary.capture
    came = run.scan("packets", whole=True).select("t_in").collect()["t_in"]
    early = (came < run.manifest.traffic.t_start_ns).sum()
    counts = f"the queue itself counted {capture.qdisc_drops:,}"
    if capture.blackout_drops:
        counts += f", the blackout's switch {capture.blackout_drops:,}"
    if capture.link_down_drops:
        counts += f", {capture.link_down_drops:,} packets were lost while the link was down"
    before = f", {early:,} of them before time 0" if early else ""
    lines = [
        f"Captures: tcpdump lost {capture.tcpdump_kernel_drops:,} packets.",
        f"Counters: {capture.inferred_drops:,} drops were inferred from the whole captures, "
        f"{counts}.",
        f"Conservation: {len(came):,} packets came in, in the whole captures{before}. The fate of "
        f"{capture.in_flight:,} was undecided at their end. {capture.unmatched:,} left and no "
        "capture saw them come in.",
    ]
    lines += [f"They do not agree: {reason}" for reason in capture.reasons]
    lines += [f"Warning: {text}" for text in run.summary.warnings]
    number = len(run.summary.warnings)
    if not capture.trusted:
        return trust("✗ Captures and counters do not agree", "bad", bullets(lines))
    if not number:
        return trust("✓ Captures and counters agree", "good", bullets(lines))
    warned = counted(number, "warning")
    return trust(f"✓ Captures and counters agree, with {warned}", "doubtful", bullets(lines))


def settings(run: Run) -> Element:
    """Returns the section on settings: as requested, and as read back from the kernel."""
    manifest = run.directory.read_manifest()

    def listed(caption: str, values: dict[str, Any]) -> Element:
        rows: list[list[Part]] = [[name, _text(value)] for name, value in values.items()]
        return table(caption, ["setting", "value"], rows, numbers_from=9)

    of_ports = {name: value for name, value in manifest.effective.items() if name[:6] == "ports."}
    general = {name: value for name, value in manifest.effective.items() if name not in of_ports}
    kernel = {f"kernel {name}": value for name, value in manifest.kernel.items()}
    both = (
        listed("Requested", _requested(run, manifest)),
        listed("Effective, as read back", general),
    )
    alike = listed("Ports with the same settings are listed together", of_ports)
    return section(
        *("settings", "Settings"),
        element("div", *both, class_="side-by-side"),
        details("Every port's queue, as read back", alike) if of_ports else None,
        details("Versions", listed("Programs and kernel", {**manifest.versions, **kernel})),
    )


def _requested(run: Run, manifest: Manifest) -> dict[str, Any]:
    """What the configuration asks for: of the kernel, as the manifest has it, and of the run."""
    try:
        config = run.experiment.model_dump(mode="json", by_alias=True, exclude_none=True)
    except InputError:
        return manifest.requested
    probes = {f"probes.{number}": probe for number, probe in enumerate(config["probes"])}
    analysis = {f"analysis.{key}": value for key, value in config["analysis"].items()}
    return {**manifest.requested, **probes, "duration": config["duration"], **analysis}


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
    also = (
        "The virtual engine replays a run from its seed. Add ",
        element("code", "--replay-of DIR"),
        " with this run's folder to compare the captures byte by byte.",
    )
    is_virtual = properties(run.directory.read_manifest().engine).virtual_clock
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
        element("p", *also) if is_virtual else None,
        details(f"{name}.yaml", code(config), opened=True),
        element("p", f"It took, by the wall clock: {seconds}." if seconds else None),
        captured.made_by(run.manifest.outcast),
    )


OF_FLOWS = {
    "2-hop, 6-hop": "a class of flows: so many links are between sender and receiver",
    "group": "flows summed up together: by name, hop count, congestion control, input port or "
    "sender",
    "goodput": "application data, each byte counted once, when it leaves the bottleneck towards "
    "the receiver",
    "outcast ratio": "the mean goodput of the class with the most hops over that of the class with "
    "the fewest; above 1 the near flows are worse off",
    "Jain's index": "1 where all n flows get the same, 1/n where one gets all",
}
OF_ALL = {
    "bottleneck": "the output port of a switch where each flow's share of the rate is least",
    "chain": "consecutive packets of one input port that were all dropped",
    "blackout": "a chain during which packets of other input ports got through",
    "timeout": "the sender waited for an acknowledgement in vain, and began anew with one packet",
}
_OF_SENDERS = ("2-hop, 6-hop", "outcast ratio", "bottleneck", "timeout")


def glossary(with_flows: bool, tells_senders: bool) -> Element:
    """Returns the words with their meaning, as in docs/concepts.md.

    Without flows of the configuration, words on classes are left out. Generated flows have none.
    Words for what the manifest does not tell of senders are left out too.
    """
    parts: list[Element] = []
    for word, meaning in {**(OF_FLOWS if with_flows else {}), **OF_ALL}.items():
        if tells_senders or word not in _OF_SENDERS:
            parts += [element("dt", word), element("dd", meaning)]
    return section("words", "Words", element("dl", *parts, class_="words"))
