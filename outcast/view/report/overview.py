"""The report's sections on the whole run: summary, checks, settings, goodput, running it again."""

from __future__ import annotations

import shlex
from typing import Any

from outcast import quantities
from outcast.errors import InputError
from outcast.experiment.engine import properties
from outcast.quantities import format_ratio
from outcast.records.run import Run
from outcast.records.run_directory import Manifest
from outcast.units import format_bps
from outcast.view import listings
from outcast.view import summary_words as words
from outcast.view.report import captured, page
from outcast.view.report.page import (
    Element,
    Part,
    bullets,
    code,
    details,
    element,
    listed,
    main_numbers,
    section,
    table,
    trust,
)

_MOST_KEYS = 4


def header(run: Run) -> list[Element]:
    """Returns the heading, the result in a sentence, four numbers, and what was checked."""
    summary = run.summary
    covered = "all of the captures" if run.captured is not None else COVERED[summary.interval]
    lead = f"{words.begun(covered)}, {summary.start_s:g} to {summary.end_s:g} s: "
    return [
        element("h1", summary.name),
        element("p", f"{lead}{words.headline(run)}.", class_="lead"),
        main_numbers(_main_numbers(run)[:_MOST_KEYS]),
        captured.verdict(run) if summary.capture.qdisc_drops is None else _trust(run),
    ]


def _main_numbers(run: Run) -> list[tuple[str, str]]:
    """The run's own numbers; without flows those of its first workload, program or probe."""
    summary = run.summary
    drops = ("drops", f"{sum(part.dropped for part in summary.drops.values()):,}")
    if run.manifest.flows:
        ratio = words.ratio_name(summary) if words.has_ratio(summary) else ""
        names = {"outcast_ratio": ratio or None}
        values = {**dict(summary), "outcast_ratio": words.main_ratio(summary)}
        return [
            *(
                (
                    names.get(quantity.key, quantity.label) or "",
                    quantity.write(values[quantity.key]),
                )
                for quantity in quantities.of("run", "report")
                if names.get(quantity.key, quantity.label)
            ),
            drops,
        ]
    tables = (listings.workloads, listings.programs, listings.probes)
    of_first = [
        (column.label, cell)
        for made in listings.shown(run, "run", tables)[:1]
        for column, cell in zip(made.columns, made.rows[0], strict=True)
        if not column.is_text and cell != "-"
    ]
    return [*of_first[: _MOST_KEYS - 1], drops]


COVERED = {
    "whole": "the whole run",
    "all active": "the time all flows were active",
    "asked": "the interval that the configuration asks for",
}
"""What numbers cover, by the summary's `interval`."""


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
    lines += [words.begun(text) for text in words.doubts(run)]
    lines += [f"Warning: {text}" for text in run.summary.warnings]
    marks = words.checks(run)
    how = (
        "good" if not run.summary.warnings and {mark for mark, _ in marks} == {"✓"} else "doubtful"
    )
    verdict = "; ".join(f"{mark} {text}" for mark, text in marks)
    return trust(verdict, how if capture.trusted else "bad", bullets(lines))


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


MOST_COLUMNS = 8
"""The most groups with a column in the table of windows."""


def goodput(run: Run) -> Element:
    """Returns the section on goodput: of each flow over time, and of each group on average."""
    fair_bps = run.fair_bps
    share = "The flows do not share one output, so they have no equal share."
    if fair_bps is not None:
        share = f"If all flows had shared equally, each would have got {format_bps(fair_bps)}."
    return section(
        *("goodput", "Goodput"),
        listed(listings.groups(run, "report")),
        element("p", share) if len(run.manifest.flows) > 1 else None,
        page.drawn(run, "goodput"),
    )


def detail(run: Run) -> Element:
    """Returns the section on the goodput of each window and of each flow."""
    return section("flows", "Every flow", _windows(run), listed(listings.flows(run, "report")))


def _windows(run: Run) -> Element | None:
    if not run.summary.windows:
        return None
    rows: list[list[Part]] = []
    groups = run.groups[:MOST_COLUMNS]
    for name, window in run.summary.windows.items():
        where = f"{window.start_s:g}-{window.end_s:g} s"
        row: list[Part] = [f"{name} ({where})", words.number(window.jain_index, ".3f")]
        row.append(format_ratio(words.main_ratio(window)))
        parts = window.grouped(run.summary.group_by)
        row += [format_bps(parts[group.label].mean_goodput_bps) for group in groups]
        rows.append(row)
    head = ["window", "Jain's index", words.ratio_name(run.summary)]
    head += [f"{group.title} mean" for group in groups]
    is_start = run.summary.windows_from == "start"
    begins = "the traffic's start" if is_start else "when all flows are active"
    return table(f"The same over windows from {begins}", head, rows)


def fairness(run: Run) -> Element:
    """Returns the section on Jain's index over time, in the windows of the analysis."""
    text = f"Over the whole interval Jain's index is {words.number(run.summary.jain_index, '.3f')}"
    compare = run.summary.compare
    if compare is not None and compare.ratio is not None:
        first, second = compare.groups
        name = words.ratio_name(run.summary)
        article = "the " if name == "outcast ratio" else ""
        text += (
            f" and {article}{name} is {compare.ratio:.2f}: the mean goodput of {first} over that "
            f"of {second}"
        )
    chart: Element | None = element("p", "No two flows were active at the same time.")
    if "fairness" in run.tables:
        chart = page.drawn(run, "fairness")
    return section("fairness", "Fairness over time", element("p", f"{text}."), chart)
