"""The values of the first screen, of every flow, and of the settings."""

from __future__ import annotations

from collections.abc import Iterator
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
from outcast.view.report.page import Table, listed

_MOST_KEYS = 4
_MOST_ROWS = 12
"""The most rows of a table on the first screen."""
_MOST_SETTINGS = 2000
MOST_COLUMNS = 8
"""The most groups with a column in the table of windows."""
_HOW = {"✓": "good", "?": "doubtful", "!": "doubtful", "✗": "bad", "": "none"}
COVERED = {
    "whole": "the whole run",
    "all active": "the time all flows were active",
    "asked": "the interval that the configuration asks for",
}
"""The interval of the numbers, by the summary's `interval`."""


def values(run: Run) -> dict[str, object]:
    summary = run.summary
    covered = "all of the captures" if run.captured is not None else COVERED[summary.interval]
    fair_bps = run.fair_bps
    return {
        "covered": f"{words.begun(covered)}, {summary.start_s:g} to {summary.end_s:g} s",
        "headline": words.headline(run),
        "numbers_shown": _main_numbers(run)[:_MOST_KEYS],
        "marks": [(mark, text, _HOW[mark]) for mark, text in _marks(run)],
        "explained": [*_explained(run), *_counts(run)],
        "first_tables": [
            listed(made.cut(_MOST_ROWS), as_on_terminal=True)
            for made in listings.shown(run, "run", listings.SCREEN)
        ],
        "fair_share": None if fair_bps is None else format_bps(fair_bps),
        "windows": _windows(run),
        "used": any(part.utilisation is not None for part in summary.queue.values()),
        "words": _meanings(run),
        "losses": summary.losses and words.loss_sentence(summary, summary.losses),
    }


def _main_numbers(run: Run) -> list[tuple[str, str]]:
    summary = run.summary
    drops = ("drops", f"{sum(part.dropped for part in summary.drops.values()):,}")
    if run.manifest.flows:
        ratio = words.ratio_name(summary) if words.has_ratio(summary) else ""
        values = {**dict(summary), "outcast_ratio": words.main_ratio(summary)}
        named = (
            (ratio if quantity.key == "outcast_ratio" else quantity.label, quantity)
            for quantity in quantities.of("run", "report")
        )
        return [*((name, part.write(values[part.key])) for name, part in named if name), drops]
    of_first = [
        (column.label, cell)
        for made in listings.shown(run, "run", listings.SCREEN)[:1]
        for row in (min(made.rows, key=lambda row: row.count("-")),)
        for column, cell in zip(made.columns, row, strict=True)
        if not column.is_text and cell != "-"
    ]
    return [*of_first[: _MOST_KEYS - 1], drops]


def _marks(run: Run) -> Iterator[tuple[str, str]]:
    """The checks in a few words, and the words of warnings that docs/warnings.md explains."""
    yield from ((mark, text) for mark, text, _ in words.checks(run))
    for word in dict.fromkeys(map(words.word_of, run.summary.warnings)):
        losses = run.summary.losses if word == "elsewhere" else None
        yield "!", word if losses is None else f"{losses.elsewhere:,} lost elsewhere"
    if run.captured is None:
        yield "", f"one draw of seed {run.directory.read_manifest().seed}"


def _counts(run: Run) -> Iterator[str]:
    capture = run.summary.capture
    came = run.scan("packets", whole=True).select("t_in").collect()["t_in"]
    if capture.qdisc_drops is not None:
        yield f"Captures: tcpdump lost {capture.tcpdump_kernel_drops:,} packets."
    counted = {
        "counted by the queue": capture.qdisc_drops,
        "by the blackout's switch": capture.blackout_drops,
        "lost while the link was down": capture.link_down_drops,
    }
    others = "".join(f", {count:,} {what}" for what, count in counted.items() if count)
    yield f"Drops: {capture.inferred_drops:,} inferred from the whole captures{others}."
    early = (came < run.manifest.traffic.t_start_ns).sum()
    yield (
        f"Conservation: {len(came):,} packets came in, in the whole captures"
        f"{f', {early:,} of them before time 0' if early else ''}. The fate of "
        f"{capture.in_flight:,} was undecided at their end. {capture.unmatched:,} left and no "
        "capture saw them come in."
    )


def _explained(run: Run) -> Iterator[str]:
    yield from (f"✗ They do not agree: {reason}" for reason in run.summary.capture.reasons)
    yield from (words.begun(text) for text in words.doubts(run))
    yield from (f"! {words.word_of(text)}: {text}" for text in run.summary.warnings)


def _windows(run: Run) -> Table | None:
    summary = run.summary
    if not summary.windows:
        return None
    rows = []
    groups = run.groups[:MOST_COLUMNS]
    for name, window in summary.windows.items():
        parts = window.grouped(summary.group_by)
        rows.append(
            [
                f"{name} ({window.start_s:g}-{window.end_s:g} s)",
                words.number(window.jain_index, ".3f"),
                format_ratio(words.main_ratio(window)),
                *(format_bps(parts[group.label].mean_goodput_bps) for group in groups),
            ]
        )
    head = ["window", "Jain's index", words.ratio_name(summary)]
    head += [f"{group.title} mean" for group in groups]
    is_start = summary.windows_from == "start"
    begins = "the traffic's start" if is_start else "when all flows are active"
    return Table(f"The same over windows from {begins}", head, rows)


def _meanings(run: Run) -> dict[str, str]:
    """The quantities of the first screen and of the tables of ports, with their definitions."""
    levels = (*(("run", "class") if run.manifest.flows else ()), "input", "output")
    return {
        quantity.label: quantity.definition
        for level in levels
        for quantity in quantities.of(level, "report")
        if quantity.definition and (quantity.key != "outcast_ratio" or words.has_ratio(run.summary))
    }


def settings(run: Run) -> dict[str, object]:
    manifest = run.directory.read_manifest()

    def listed(caption: str, values: dict[str, Any]) -> Table | None:
        shown = list(values.items())[:_MOST_SETTINGS]
        rows = [(name, _text(value)) for name, value in shown]
        if len(values) > len(rows):
            caption += f". The first {len(rows):,} of {len(values):,}; manifest.json has all"
        return Table(caption, ("setting", "value"), rows, 9) if rows else None

    of_ports = {name: value for name, value in manifest.effective.items() if name[:6] == "ports."}
    general = {name: value for name, value in manifest.effective.items() if name not in of_ports}
    kernel = {f"kernel {name}": value for name, value in manifest.kernel.items()}
    return {
        "requested": listed("Requested", _requested(run, manifest)),
        "effective": listed("Effective, as read back", general),
        "of_ports": listed("Ports with the same settings are listed together", of_ports),
        "versions": listed("Programs and kernel", {**manifest.versions, **kernel}),
        "config": _config(run),
        "replays": properties(manifest.engine).virtual_clock,
        "took": ", ".join(
            f"{phase.replace('_', ' ')} {value:g} s" for phase, value in manifest.wall_s.items()
        ),
    }


def _requested(run: Run, manifest: Manifest) -> dict[str, Any]:
    """The manifest's requested settings, with the configuration's duration, probes, analysis."""
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


def _config(run: Run) -> str:
    try:
        return run.directory.config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return "config.yaml cannot be read"
