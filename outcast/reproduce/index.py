"""index.html: the results of many recipes on one page."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from outcast.reproduce import together
from outcast.reproduce.pictures import curves as band_picture
from outcast.reproduce.recipe import load_all
from outcast.reproduce.reproduce import folder_of
from outcast.reproduce.result import ClaimRecord, Result, number
from outcast.reproduce.together import Row, ShownClaim
from outcast.reproduce.verdict import Verdict, verdict_text
from outcast.sweep.points import as_text
from outcast.view.figures import style
from outcast.view.report import page
from outcast.view.report.page import (
    Element,
    Part,
    bullets,
    code,
    details,
    element,
    picture,
    section,
    table,
)

MEASURED = "measured, 95 % interval"
_BADGES = {
    Verdict.REPRODUCED: ("✓", "good"),
    Verdict.UNCONTROLLED: ("~", "doubtful"),
    Verdict.OTHER_SIZE: ("≈", "doubtful"),
    Verdict.INCONCLUSIVE: ("?", "doubtful"),
    Verdict.VACUOUS: ("∅", "doubtful"),
    Verdict.CONTRADICTED: ("✗", "bad"),
    None: ("–", "none"),
}


def interval_text(mean: float | None, low: float | None, high: float | None) -> str:
    """A mean with its 95 % interval."""
    if mean is None:
        return "-"
    if low is None or high is None:
        return f"{number(mean)} (no interval)"
    return f"{number(mean)} [{number(low)}, {number(high)}]"


def measured_text(claim: ClaimRecord) -> str:
    """The mean of a claim's measure with its interval, and how many runs were stationary."""
    text = interval_text(claim.mean, claim.low, claim.high)
    if claim.mean is None or claim.stationary is None:
        return text
    text += f"; stationary: {claim.stationary[0]} of {claim.stationary[1]} runs"
    return (
        f"{text} ({claim.starved} more but for flows that got nothing)" if claim.starved else text
    )


def claim_text(claim: ShownClaim) -> str:
    """A claim's verdict, with what stands against it."""
    note = claim.record.note
    return verdict_text(claim.verdict) + (f"; {note}" if note else "")


def p_text(p: float | None) -> str:
    """A p-value, corrected for all claims of a row."""
    return "-" if p is None else "< 0.001" if p < 0.001 else f"{p:.2g}"


def remarks(result: Result) -> list[tuple[str, str]]:
    """The recipe's remarks on the comparison: a title and a text for each."""
    known = (
        ("Differs from the source", result.differs),
        ("Why", result.reason),
        ("Not judged", result.unjudged),
    )
    return [(title, text) for title, text in known if text]


def made_text(result: Result) -> str:
    """Which state, noise and engine made a result's runs."""
    return f"{result.state}; noise {result.noise}; {result.engine} engine"


def seeds_text(result: Result) -> str:
    """The number of runs and the range of their seeds."""
    runs = sum(len(point.seeds) for point in result.points)
    seeds = sorted({seed for point in result.points for seed in point.seeds})
    span = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0]) if seeds else "none"
    return f"{runs} runs, seeds {span}"


def write_index(folder: Path, all_rows: Sequence[Row]) -> Path:
    """Writes index.html beside the recipes' folders. The page has all figures inside it."""
    own = together.with_sections(all_rows)
    results = [row.result for row in own]
    rows: list[list[Part]] = []
    for row in own:
        main = row.result.claims[0]
        name = element("a", full_name(row.result), href=f"#{anchor(row.result)}")
        badge = _badge(row.verdict, row.verdict_text)
        value = "-" if main.mean is None else repr(main.mean)
        claim = element("span", f"{main.text}: ", class_="soft")
        measured = element("data", claim, measured_text(main), value=value)
        reported = _long(row.result.reported)
        rows.append([name, badge, row.tally, row.result.title, reported, measured])
    head = ["id", "verdict", "claims", "experiment", "reported", "main claim, measured"]
    about = (
        "Each row has the source's statement, the measured value of its main claim (mean and "
        "95 % interval over the seeds), and the verdicts on all its claims. A click on a "
        "heading sorts."
    )
    verdicts = section(
        "verdicts",
        "Verdicts",
        element("p", about),
        element("p", together.control_text(all_rows)),
        _sortable("All rows", head, rows),
    )
    bands = _over_noise(all_rows, folder)
    contents = [
        ("verdicts", "Verdicts"),
        *(("noise", "Over noise") for _ in bands),
        *((anchor(result), full_name(result)) for result in results),
    ]
    whole = page.document(
        "Reproduction",
        _header(all_rows),
        [verdicts, *bands, *(_row(row, folder) for row in own), _again(folder, results)],
        scripts=["sort.js"],
        contents=[*contents, ("again", "Run it again")],
    )
    return page.write(folder / "index.html", whole)


def full_name(result: Result) -> str:
    """A row's name: its figure, and the profile if one was requested."""
    return result.id if result.profile is None else f"{result.id}, {result.profile}"


def anchor(result: Result) -> str:
    """The name of a row's section in links."""
    return result.id if result.profile is None else f"{result.id}-{result.profile}"


def burst_text(result: Result) -> str:
    """The burst ratio of the flows with the fewest hops, with its interval."""
    burst = result.burst
    if burst is None or burst.mean is None:
        return "-"
    return f"{interval_text(burst.mean, burst.low, burst.high)} ({burst.hops}-hop)"


BAND = ["id", "noise", "main claim, measured", "burst ratio", "verdict", "claims"]
ABOUT_BAND = (
    "The same rows under several profiles of noise. The burst ratio compares chains of drops, of "
    "the flows with the fewest hops, with those of chance at the same loss rate: at 1 drops have "
    "no memory. Rows may have other numbers of seeds than the table above, so the same profile can "
    "have another verdict here."
)
ABOUT_PICTURE = (
    "Each figure under each profile of noise: its main claim's measure with the 95 % interval, by "
    "that claim's verdict, and the burst ratio. The grey line is where each would be without it"
)


def _sortable(caption: str, head: list[str], rows: list[list[Part]]) -> Element:
    return element("div", table(caption, head, rows, 9), class_="prose sortable")


def _over_noise(all_rows: Sequence[Row], folder: Path) -> list[Element]:
    """The section with recipes under several profiles; none if there is no such recipe."""
    bands = together.over_noise(all_rows)
    if not bands:
        return []
    drawn = folder / band_picture.FILE
    band_picture.draw_band(bands, load_all(), drawn)
    rows: list[list[Part]] = []
    for result, row in ((row.result, row) for band in bands.values() for row in band):
        measured, burst = measured_text(result.claims[0]), burst_text(result)
        rows.append(
            [result.id, result.noise, measured, burst, _badge(row.verdict, row.word), row.tally]
        )
    figure = picture("By figure and profile", ABOUT_PICTURE, style.lighter(drawn), "image/png", 900)
    told = bullets([f"{name}: {together.band_text(band)}" for name, band in bands.items()])
    table_of_rows = _sortable("Rows by noise", BAND, rows)
    about = element("p", ABOUT_BAND)
    return [section("noise", "Over noise", about, figure, told, table_of_rows)]


def _header(all_rows: Sequence[Row]) -> list[Element]:
    results = [row.result for row in all_rows]
    count = Counter(row.verdict for row in all_rows)
    modes = sorted({result.mode for result in results})
    lines = [f"{result.id}: {line}" for result in results for line in _left_out(result)]
    lead = f"{len(results)} of the sources' figures, tables and statements, in "
    lead += f"{' and '.join(modes) or 'no'} mode."
    return [
        element("h1", "The sources' figures, run again"),
        element("p", lead, class_="lead"),
        page.main_numbers((_badge(verdict), str(count[verdict])) for verdict in _BADGES),
        page.trust(
            f"✗ {len(lines)} runs are left out: not run, failed, in disagreement, equal to others, "
            "or without a value"
            if lines
            else "✓ Every run finished, and its captures and counters agree",
            "bad" if lines else "good",
            details("Which, and why", bullets(lines)) if lines else None,
        ),
    ]


def _left_out(result: Result) -> list[str]:
    return [
        f"{failure.label}, seed {failure.seed}: {failure.reason}" for failure in result.failures
    ]


def _badge(verdict: Verdict | None, text: str | None = None) -> Element:
    mark, kind = _BADGES[verdict]
    return element("span", f"{mark} {text or verdict_text(verdict)}", class_=f"badge {kind}")


def _long(text: str) -> Element:
    """Long text, which gets a wide column because it would make the table too tall otherwise."""
    return element("span", text, class_="long")


def _row(row: Row, folder: Path) -> Element:
    result, made = row.result, f"; {made_text(row.result)}"
    told = f"{seeds_text(result)}, {result.mode} mode"
    claims: list[list[Part]] = [
        [
            element("span", claim.record.text, class_="name"),
            _badge(claim.verdict, claim_text(claim)),
            measured_text(claim.record),
            p_text(claim.p),
            _long(claim.record.rule),
        ]
        for claim in row.claims
    ]
    return section(
        anchor(result),
        f"{full_name(result)}: {result.title}",
        element("p", _badge(row.verdict, row.verdict_text), f" {row.tally}; {told}."),
        element("p", f"{result.source}. Reported: {result.reported}."),
        _figure(result, folder),
        element(
            "div",
            table("Claims", ["claim", "verdict", MEASURED, "p, corrected", "rule"], claims, 9),
            class_="prose",
        ),
        *(element("p", element("strong", f"{title}: "), text) for title, text in remarks(result)),
        element("p", "Runs left out:") if result.failures else None,
        bullets(_left_out(result)),
        _points(result),
        element("p", "Again: ", element("code", result.command), made, class_="note"),
    )


def _figure(result: Result, folder: Path) -> Element:
    path = folder_of(folder, result.id, result.profile) / result.figure
    if not path.exists():
        return element("p", "No figure, because no run has a result.")
    return picture(
        "Drawn like the source's, from these runs",
        f"The figure of {result.title}; the table below has the numbers behind the verdict.",
        style.lighter(path),
        "image/png",
        1000,
    )


def _points(result: Result) -> Element:
    """Every seed's values, in a folded table."""
    rows: list[list[Part]] = []
    for point in result.points:
        settings = ", ".join(f"{key}={as_text(value)}" for key, value in point.set.items())
        for measure, values in (point.values or {"-": []}).items():
            listed = ", ".join("-" if value is None else f"{value:.4g}" for value in values)
            seeds = ", ".join(str(seed) for seed in point.seeds)
            config = " with ".join(part for part in (point.config, settings) if part)
            rows.append([point.label, measure, listed or "-", seeds or "-", config or "computed"])
    head = ["point", "measure", "values", "of the seeds", "configuration"]
    by_seed = element("div", table("By seed", head, rows, 9), class_="prose")
    return details("Every point's values", by_seed)


def _again(folder: Path, results: Sequence[Result]) -> Element:
    output = shlex.quote(folder.absolute().name)
    modes = sorted({result.mode for result in results if result.profile is None})
    commands = [f"outcast reproduce all --{mode}" for mode in modes]
    commands += [result.command for result in results if result.profile is not None]
    return section(
        "again",
        "Run it again",
        element("p", "In the folder above this one. Finished runs are not repeated:"),
        *(code(f"{command} -o {output}") for command in commands),
        page.note(
            "This page holds the figures in fewer colours. ID/figure.png is the original, "
            "ID/result.json has its numbers, and runs/ has the runs."
        ),
    )
