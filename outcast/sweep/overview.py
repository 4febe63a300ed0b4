"""The parts of a sweep's page about the whole sweep: its runs, its keys, how to continue."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence

from outcast.experiment import Experiment
from outcast.sweep.dataset import is_compared
from outcast.sweep.groups import Group
from outcast.sweep.labels import Labels
from outcast.sweep.points import as_text
from outcast.sweep.state import State
from outcast.units import counted, format_rate, format_time
from outcast.view.report.experiment import spaced
from outcast.view.report.markup import Element, Part, element, table
from outcast.view.report.page import bullets, code, details, main_numbers, note, section, trust

_MOST_LISTED = 12
_TABLES = (
    "runs.parquet has a row for every run with every single value of its summary. "
    "run_flows.parquet has a row for every flow."
)


def shown(sweep: State) -> str:
    """The folder's name, quoted for a command."""
    return shlex.quote(sweep.directory.path.absolute().name)


def header(sweep: State, summed: Sequence[Group], labels: Labels) -> list[Element]:
    """The heading, the sweep in one line, the number of runs of each kind, and the reasons."""
    key = [
        ("runs", sweep.planned),
        ("finished", sweep.finished),
        ("failed", sweep.failures),
        ("captures and counters do not agree", sweep.disagreeing),
        ("not run yet", sweep.left),
    ]
    return [
        element("h1", f"{sweep.experiment.name}: sweep"),
        element("p", " ".join([_plan(sweep, labels), *_range(summed, labels)]), class_="lead"),
        main_numbers((name, f"{len(runs):,}") for name, runs in key),
        _trust(sweep),
    ]


def _plan(sweep: State, labels: Labels) -> str:
    keys, repetitions = sweep.results.keys, sweep.experiment.repetitions
    names = [labels.key(key) for key in keys]
    times = f"{repetitions} times each, with a seed of its own every time"
    if not keys:
        return f"{counted(len(sweep.planned), 'run')} of one experiment, each with its own seed."
    points = len(sweep.settings)
    how = f", {times}" if repetitions > 1 else ", once each"
    over = ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else names[0]
    return f"{counted(points, 'point')} over {over}{how}."


def _range(summed: Sequence[Group], labels: Labels) -> list[str]:
    """A sentence with the least and the greatest value of the main ratio."""
    names = [cell.value for group in summed[:1] for cell in group.cells]
    main = next((name for name in names if is_compared(name)), "outcast_ratio")
    cells = [(cell, group.at) for group in summed for cell in group.cells if cell.value == main]
    known = [(cell.interval.value, at) for cell, at in cells if cell.interval.value is not None]
    if len(known) < 2:
        return []
    known.sort(key=lambda row: row[0])
    (least, here), (most, there) = known[0], known[-1]
    ratio = main if is_compared(main) else "The outcast ratio"
    return [
        f"{ratio}, on average over a point's runs, goes from {least:.2f} ({_at(here, labels)}) to "
        f"{most:.2f} ({_at(there, labels)})."
    ]


def _at(at: Mapping[str, object], labels: Labels) -> str:
    return ", ".join(f"{labels.key(key)}: {labels.value(key, value)}" for key, value in at.items())


def _trust(sweep: State) -> Element:
    kinds = (
        (sweep.failures, "failed"),
        (sweep.disagreeing, "with captures and counters that do not agree"),
        (sweep.left, "not run yet"),
    )
    wrong = [f"{len(runs):,} {text}" for runs, text in kinds if runs]
    bad = bool(sweep.failures or sweep.disagreeing)
    total = counted(len(sweep.planned), "run")
    verdict = f"✓ {total} finished; captures and counters agree"
    if wrong:
        verdict = f"{'✗' if bad else '…'} Of {total}: {', '.join(wrong)}"
    warnings = [f"Warning in {_named(runs)}: {text}" for text, runs in sweep.warnings.items()]
    if warnings:
        verdict += f"; {counted(len(warnings), 'warning')}"
    begin = "Captures and counters do not agree, so it is in none of the means"
    lines = [
        *(f"Failed: {name}: {why.kind}: {why.message}" for name, why in sweep.failures.items()),
        *(f"{begin}: {name}: {reason}" for name, reason in sweep.disagreeing.items()),
        *warnings,
    ]
    if remaining := len(sweep.left):
        lines.append(f"Not run yet: {remaining:,}. The end of this page says how to continue.")
    first, rest = lines[:_MOST_LISTED], lines[_MOST_LISTED:]
    how = "bad" if bad else "doubtful" if wrong or warnings else "good"
    more = details(f"{len(rest)} more", bullets(rest)) if rest else None
    return trust(verdict, how, bullets(first), more)


def _named(runs: Sequence[str]) -> str:
    """`1 run (NAME)`, `7 runs (FIRST, ...)`."""
    return f"{counted(len(runs), 'run')} ({runs[0]}{', ...' if len(runs) > 1 else ''})"


def swept(sweep: State, labels: Labels) -> Element:
    """The section with the swept keys and their values, and what all runs have in common."""
    rows: list[list[Part]] = []
    for key in sweep.results.keys:
        values = dict.fromkeys(labels.value(key, settings.get(key)) for settings in sweep.settings)
        row: list[Part] = [labels.key(key), element("code", key)]
        rows.append([*row, "; ".join(values), str(len(values))])
    product, points = math.prod(int(str(row[3])) for row in rows), len(sweep.settings)
    which = "every combination" if product == points else f"{points} of the {product} combinations"
    text = f"The sweep has {which} of these values, "
    text += f"{counted(sweep.experiment.repetitions, 'run')} of each."
    if not rows:
        text = "No key: all runs have the same settings and differ in their seeds."
    keys = table("Swept keys", ["what", "key", "values", "number"], rows, 3)
    return section(
        "swept",
        "What was swept",
        element("p", text),
        element("div", keys, class_="prose") if rows else None,
        element("p", f"All runs have in common: {', '.join(_common(sweep))}."),
    )


def _common(sweep: State) -> list[str]:
    """The most important settings, without those that are swept."""
    whole, keys = sweep.experiment, sweep.results.keys
    runs = sweep.results.runs
    engines: list[str] = runs["engine"].unique().to_list() if runs.height else []
    described = [
        ("topology.kind", f"a {whole.topology.kind} topology"),
        ("links.rate", f"links of {spaced(format_rate(whole.links.rate_bps))}"),
        ("queue.kind", f"{whole.queue.kind} queues"),
        ("routing.kind", f"{whole.routing.kind.replace('_', ' ')} routing"),
        ("transport.congestion_control", _controls(whole, keys)),
        ("duration", f"{spaced(format_time(whole.duration_ns))} of traffic"),
        ("engine", f"the {engines[0]} engine" if len(engines) == 1 else ""),
    ]
    return [
        text
        for path, text in described
        if text and not any(path == key or path.startswith(f"{key}.") for key in keys)
    ]


def _controls(whole: Experiment, keys: Sequence[str]) -> str:
    """The congestion controls of all runs; empty if groups of flows are swept, or nothing is TCP.

    Groups of flows can differ from `transport`.
    """
    if any(key.partition(".")[0] in ("flows", "workloads", "programs") for key in keys):
        return ""
    used = [whole.group_transport(group).congestion_control for group in range(len(whole.flows))]
    if whole.programs or any(workload.kind != "constant_rate" for workload in whole.workloads):
        used.append(whole.transport.congestion_control)
    return " and ".join(dict.fromkeys(used))


def setting_text(value: object) -> str:
    """A swept key's value as text; a point that does not set the key leaves it as configured."""
    return "as configured" if value is None else as_text(value)


def again(sweep: State) -> Element:
    """The section with commands that repeat, continue and explore the sweep, and its sweep.yaml."""
    folder = shown(sweep)
    again = shlex.quote(f"{sweep.directory.path.absolute().name}-again")
    why = "Continue, if runs are missing or failed, or if values or repetitions were added"
    commands = [
        ("The same sweep in another folder", f"outcast sweep {folder}/sweep.yaml -o {again}"),
        (why, f"outcast sweep {folder}/sweep.yaml --resume -o {folder}"),
        ("Other groups, values and figures", f"outcast results {folder} --columns"),
    ]
    makers = "; ".join(f"{counted(n, 'run')} by {maker}" for maker, n in sweep.makers.items())
    config = sweep.directory.config.read_text(encoding="utf-8")
    return section(
        "again",
        "Run it again",
        element("p", "In the folder above this sweep's folder:"),
        *(part for text, command in commands for part in (element("p", f"{text}:"), code(command))),
        details("sweep.yaml", code(config, tabindex="0")),
        note(f"{f'Made: {makers}. ' if makers else ''}{_TABLES}"),
    )
