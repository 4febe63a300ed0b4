"""The report's parts on goodput and fairness."""

from outcast.quantities import format_ratio
from outcast.records.run import Run
from outcast.units import format_bps
from outcast.view import listings
from outcast.view import summary_words as words
from outcast.view.report import pictures
from outcast.view.report.markup import Element, Part, element, table
from outcast.view.report.page import listed, section

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
        pictures.drawn(run, "goodput"),
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
        chart = pictures.drawn(run, "fairness")
    return section("fairness", "Fairness over time", element("p", f"{text}."), chart)
