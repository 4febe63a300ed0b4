"""index.html: a sweep as one page that opens offline in any browser."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from outcast.errors import OutcastError
from outcast.sweep import figures, groups, overview, state
from outcast.sweep.groups import Cell, Group
from outcast.sweep.labels import Labels, amount
from outcast.sweep.render import heading, interval_texts, scale, stationary
from outcast.sweep.state import State
from outcast.sweep.store import SweepDirectory
from outcast.units import counted
from outcast.view import report
from outcast.view.report.markup import Element, Part, element, table
from outcast.view.report.page import bullets, details, document, section, write
from outcast.view.report.pictures import picture

NAME = "index.html"
SCRIPT = "sort.js"

_MOST_UNFOLDED = 24
_MOST_FIGURES = 4


def write_index(directory: SweepDirectory, no_report: Mapping[str, str] | None = None) -> Path:
    """Writes the page of a sweep into its folder. Returns the file's path.

    `no_report` says by run name why the run's report could not be written.

    Raises InputError if the folder does not hold a sweep, a result cannot be read, or the page
    cannot be written.
    """
    text = page_text(state.read_state(directory), no_report or {})
    return write(directory.path / NAME, text)


def write_reports(
    directory: SweepDirectory, names: Sequence[str], on_done: Callable[[str], None]
) -> dict[str, str]:
    """Writes these runs' reports. Returns, by run name, why a report could not be written.

    `on_done` is called with each name once its report is written or refused.
    """
    refused = {}
    for name in names:
        try:
            report.write(directory.run(name))
        except OutcastError as error:
            refused[name] = str(error)
        on_done(name)
    return refused


def without_report(directory: SweepDirectory) -> list[str]:
    """Names of the finished runs without a report."""
    runs = (manifest.parent for manifest in sorted(directory.runs.glob("*/manifest.json")))
    return [run.name for run in runs if not (run / report.NAME).exists()]


def page_text(sweep: State, no_report: Mapping[str, str]) -> str:
    """The page as text; `no_report` is that of `write_index`."""
    summed, values = _summed(sweep)
    labels = Labels(sweep.experiment)
    parts = [
        overview.swept(sweep, labels),
        _results(sweep, summed, values, labels),
        *_drawn(sweep, summed, values, labels),
        _runs(sweep, values, no_report),
        overview.again(sweep),
    ]
    title = f"{sweep.experiment.name}: sweep"
    return document(title, overview.header(sweep, summed, labels), parts, scripts=[SCRIPT])


def _summed(sweep: State) -> tuple[list[Group], list[str]]:
    """Every point's means over its agreeing runs, and the names of the values that exist."""
    if not sweep.results.runs.height:
        return [], []
    rows = groups.agreeing(sweep.results.runs)
    by = [key for key in sweep.results.keys if key != "seed"]
    summed = groups.summarize(rows, by, groups.default_values(rows), "mean")
    cells = [cell for group in summed for cell in group.cells]
    known = {cell.value for cell in cells if cell.interval.value is not None}
    return summed, [name for name in groups.default_values(rows) if name in known]


def _results(
    sweep: State, summed: Sequence[Group], values: Sequence[str], labels: Labels
) -> Element:
    if not summed or not values:
        text = "No run whose captures and counters agree has a result yet."
        return section("results", "Results", element("p", text))
    keys = list(summed[0].at)
    head = [*(map(labels.key, keys) if keys else ["point"]), *map(heading, values), "runs"]
    head.append("stationary")
    rows: list[list[Part]] = []
    for group in summed:
        at: list[Part] = [_setting(labels, key, value) for key, value in group.at.items()]
        cells = [_interval(group.cell(value), group) for value in values]
        rows.append([*(at or ["all"]), *cells, str(group.runs), stationary(group)])
    settings = {
        tuple(overview.setting_text(settings.get(key)) for key in keys)
        for settings in sweep.settings
    }
    missing = len(settings) - len(summed)
    text = "Means over the runs of each point, with 95 % intervals (Student's t). With few runs "
    text += "they are wide."
    if max(group.runs for group in summed) == 1:
        text = (
            "Each point has one run, so chance is in every number, and no interval says how much."
        )
    lacking = f"{counted(missing, 'point')} of {len(settings)} without a finished run whose "
    lacking += "captures and counters agree."
    return section(
        "results",
        "Results",
        element("p", f"{text} A click on a heading sorts."),
        element("p", lacking) if missing else None,
        bullets([*groups.remarks_on_trends(summed), *groups.without_value(summed)]),
        element("div", table("Points", head, rows, max(1, len(keys))), class_="sortable"),
    )


def _setting(labels: Labels, key: str, value: object) -> Element:
    known = amount(value)
    text = labels.value(key, value)
    return element("data", text, value=text if known is None else repr(known[1]))


def _interval(cell: Cell, group: Group) -> Element:
    center, bounds = interval_texts(cell, group)
    value = cell.interval.value
    return element(
        "data",
        center if bounds == "-" else f"{center} {bounds}",
        value="-" if value is None else repr(value),
    )


def _drawn(
    sweep: State, summed: Sequence[Group], values: Sequence[str], labels: Labels
) -> list[Element]:
    """The section with the figures; empty if there is nothing to draw."""
    # The total goodput comes last because it says least about fairness.
    ordered = sorted(values, key=lambda value: (value == "total_goodput_bps", value[:4] == "jain"))
    rows = groups.agreeing(sweep.results.runs) if summed else sweep.results.runs
    drawn = [figures.drawn(rows, summed, value, labels) for value in ordered[:_MOST_FIGURES]]
    pictures = [
        picture(heading(value), figure.description, figure.svg, "image/svg+xml", 560)
        for value, figure in zip(ordered, drawn, strict=False)
        if figure is not None
    ]
    if not pictures:
        return []
    has_bands = summed[0].at and max(group.runs for group in summed) > 1
    note = element("p", "Bands and bars are the 95 % intervals of the table above.")
    gallery = element("div", *pictures, class_="figures")
    return [section("figures", "Figures", note if has_bands else None, gallery)]


def _runs(sweep: State, values: Sequence[str], no_report: Mapping[str, str]) -> Element:
    head = [
        "run",
        "captures and counters",
        *(heading(value) for value in values),
        "repetition",
        "seed",
    ]
    rows: list[list[Part]] = []
    for row in sweep.results.runs.iter_rows(named=True):
        name = row["run"]
        has_report = (sweep.directory.run(name).path / report.NAME).exists()
        link = quote(f"runs/{name}/{report.NAME}")
        tag, href = ("a", link) if has_report else ("span", None)
        text, how = ("agree", "good") if row.get("trusted") else ("do not agree", "bad")
        badge = element("span", text, class_=f"badge {how}")
        numbers = [_number(value, row[value]) for value in values]
        name_cell = element(tag, name, class_="name", href=href)
        rows.append([name_cell, badge, *numbers, str(row["repetition"]), str(row["seed"])])
    if not rows:
        return section("runs", "Runs", element("p", "No run has finished yet."))
    listed = element("div", table("Finished runs", head, rows, 2), class_="sortable")
    command = element("code", f"outcast report {overview.shown(sweep)}")
    begin, end = "A name that is a link leads to the run's report; ", " writes the missing reports."
    refused = f"{counted(len(no_report), 'report')} could not be written"
    reasons = bullets([f"{name}: {why}" for name, why in sorted(no_report.items())])
    count, opened = counted(len(rows), "finished run"), len(rows) <= _MOST_UNFOLDED
    return section(
        "runs",
        "Runs",
        element("p", begin, command, end),
        details(refused, reasons) if no_report else None,
        details(count, listed, opened=opened),
    )


def _number(value: str, number: float | None) -> Element:
    if number is None:
        return element("data", "-", value="-")
    factor, _ = scale(value)
    return element("data", f"{number / factor:.4g}", value=repr(float(number)))
