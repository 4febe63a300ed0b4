"""Writes the reproduction's pages from results: `python -m scripts.reproduction_docs [DIR...]`.

Run it in a checkout. The results of the folders go to docs/results/reproduction.parquet, where they
replace those of the same recipes, and their figures to docs/images/reproduction. If several folders
hold a recipe, the last folder counts. docs/reproduction.md has a table of all rows, and a page for
each source has their claims. All are written from that table alone. Results of different states
(outcast/uses/papers/state.py) stand in different tables.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import polars as pl

from outcast.errors import OutcastError
from outcast.files import write_text
from outcast.uses.papers import conclusion as reproduce
from outcast.uses.papers import together
from outcast.uses.papers.index import (
    ABOUT_BAND,
    ABOUT_PICTURE,
    BAND,
    MEASURED,
    anchor,
    burst_text,
    claim_text,
    full_name,
    made_text,
    measured_text,
    p_text,
    remarks,
    seeds_text,
)
from outcast.uses.papers.pictures import curves as band_picture
from outcast.uses.papers.recipe import load_all
from outcast.uses.papers.result import Result, describe, judged_anew
from outcast.uses.papers.runs import NOISES
from outcast.uses.papers.state import State
from outcast.uses.papers.together import Row
from scripts import reproduction_modes as modes
from scripts import reproduction_settings as settings
from scripts import reproduction_summary

DOCS = Path("docs")
TITLE = "# The sources' figures, run again\n\n"
PREFACE = """`python -m scripts.reproduction_docs` writes this page from the results of
`outcast reproduce`. That verb's page ([verbs/reproduce.md](verbs/reproduce.md)) states the rule of
the verdicts.
[findings.md](findings.md) says what follows from them, and why sources contradict one another. P is
"The TCP Outcast Problem" (NSDI 2012), T is TCPRand, W is "Exploring Outcast", H is "Life's not
fair, neither is TCP". F are [questions of our own](findings.md).

Out of scope are TCPRand's table 1, the CPU time of a kernel patch that is not published, and a term
report on the Outcast problem (2017), whose figures are those of P and H.

"""
PAGES = {
    "P": ("reproduction-p.md", "The TCP Outcast Problem (NSDI 2012)"),
    "T": ("reproduction-t.md", "TCPRand (Computer Networks 2017)"),
    "W": ("reproduction-w-h.md", "Exploring Outcast, and Life's not fair, neither is TCP"),
    "H": ("reproduction-w-h.md", "Exploring Outcast, and Life's not fair, neither is TCP"),
    "F": ("reproduction-f.md", "Questions of our own"),
}
"""By the first letter of an id, the page that has its claims, and that page's title."""
ABOUT = {
    "reproduction-t.md": (
        " The source shows CUBIC with Nagle's algorithm and without ABC, and says that neither "
        "makes a difference. Its TCPRand is in the kernel. Here outcast's own sender hands over "
        "each payload, without Nagle's algorithm, because that would join payloads to full "
        "segments. Nagle and ABC were not tried."
    ),
}
"""What holds for all figures of a page."""
MAIN = "reproduction.md"
IMAGES = "images/reproduction"
RESULTS = "results/reproduction.parquet"
"""A row for each result: its `name`, as P3@jitter, and its `record`, a Result as JSON."""


def markdown(results: Sequence[Result]) -> str:
    """Results of one state as Markdown: a table of all, and a section for each.

    Raises:
        ConfigError: they are of different states.
    """
    rows = together.rows(results)
    with_sections = together.with_sections(rows)
    tables = _tables(rows, with_sections, 1)
    return f"{together.control_text(rows)}\n\n{tables}{_sections(with_sections)}"


def _tables(rows: Sequence[Row], with_sections: Sequence[Row], number: int) -> str:
    """Rows of one state as Markdown.

    Args:
        rows: those of the state.
        with_sections: the rows of all states that have a section of their own.
        number: the state's number; the largest group of rows has 1.
    """
    own, bands = _own(rows, with_sections), _bands(rows, with_sections)
    lines = []
    if own:
        lines = [
            "| id | experiment | reported | main claim, measured | verdict | claims | mode |",
            "|" + "---|" * 7,
        ]
    for row in own:
        result, main = row.result, row.result.claims[0]
        lines.append(
            f"| [{full_name(result)}]({link(result)}) "
            f"| {result.title} | {result.reported} "
            f"| {main.text}: {measured_text(main)} | {row.verdict_text} "
            f"| {row.tally} | {result.mode} |"
        )
    if bands:
        lines += [""] if lines else []
        lines += [f"## Over noise{_numbered(', another state', number)}", "", ABOUT_BAND, ""]
        files = _band_files(bands, number)
        lines += [f"![{ABOUT_PICTURE}]({IMAGES}/{file})" for file in files] + [""]
        lines += [f"- {name}: {together.band_text(band)}" for name, band in bands.items()]
        lines += ["", f"| {' | '.join(BAND)} |", "|" + "---|" * len(BAND)]
        lines += [
            f"| {row.result.id} | {row.result.noise} | {measured_text(row.result.claims[0])} "
            f"| {burst_text(row.result)} | {row.word} | {row.tally} |"
            for band in bands.values()
            for row in band
        ]
        left_out = [
            text for band in bands.values() for row in band for text in _missing(row.result)
        ]
        if left_out:
            lines += ["", "Left out:", "", *(f"- {text}" for text in left_out)]
    return "\n".join(lines) + "\n"


def link(result: Result) -> str:
    """The link from docs/reproduction.md to a row's claims."""
    return f"{PAGES[result.id[0]][0]}#{anchor(result).lower()}"


def _sections(rows: Sequence[Row]) -> str:
    """The claims of rows, a section for each."""
    lines: list[str] = []
    for row in rows:
        result = row.result
        lines += ["", f"## {anchor(result)}", "", f"{result.title}. {result.source}.", ""]
        lines.append(f"Verdict: **{row.verdict_text}** ({row.tally}; {seeds_text(result)}).")
        lines += ["", f"![{result.title}]({IMAGES}/{_name(result.id, result.profile)}.png)"]
        lines += ["", f"| claim | rule | {MEASURED} | p, corrected | verdict |", "|" + "---|" * 5]
        lines += [
            f"| {claim.record.text} | {claim.record.rule} | {measured_text(claim.record)} "
            f"| {p_text(claim.p)} | {claim_text(claim)} |"
            for claim in row.claims
        ]
        if settled := settings.lines(load_all()[result.id]):
            lines += ["", "Settings that are not the source's:", "", *(f"- {x}" for x in settled)]
        lines += _modes(result) + _older_settings(result)
        for title, text in remarks(result):
            lines += ["", f"{title}: {' '.join(text.split())}"]
        for failure in result.failures:
            lines += ["", f"Left out: {failure.label}, seed {failure.seed}: {failure.reason}"]
        lines += [
            "",
            f"`{result.command}`; {made_text(result)}.",
        ]
    return "\n".join(lines) + "\n"


def _missing(result: Result) -> list[str]:
    """A line for each point and reason for which runs of a row under a profile are left out."""
    seeds: dict[tuple[str, str], list[int]] = {}
    for failure in reproduce.missing_runs(result):
        seeds.setdefault((failure.label, failure.reason), []).append(failure.seed)
    return [
        f"{result.id}, {result.noise}: {label}, seeds {', '.join(map(str, listed))}: {reason}"
        for (label, reason), listed in seeds.items()
    ]


def pages(docs: Path = DOCS) -> dict[str, str]:
    """The pages' texts by their names, from the results that are stored with the documentation.

    Raises:
        InputError: a result cannot be read.
    """
    rows = judged(docs)
    with_sections = together.with_sections(rows)
    most, *others = reproduction_summary.by_state(rows) or [[]]
    about = _state_text(most, others)
    older = {row.result.id for row in rows if _older_settings(row.result)}
    first = "".join(
        f"- {line}.\n" for line in [*reproduction_summary.glance(rows, older), *_headline(rows)]
    )
    text = f"{TITLE}{first}\n{PREFACE}{about}\n{together.control_text(rows)}\n\n"
    text += _tables(most, with_sections, 1)
    for number, group in enumerate(others, 2):
        text += f"\n# {_apart_heading(number)}\n\n{_apart_text(group)}\n"
        text += _tables(group, with_sections, number)
    return {MAIN: text, **_pages_of_sources(with_sections)}


def _pages_of_sources(rows: Sequence[Row]) -> dict[str, str]:
    """A page for each source that has rows."""
    made: dict[str, str] = {}
    for name, title in dict.fromkeys(PAGES.values()):
        own = [row for row in rows if PAGES[row.result.id[0]][0] == name]
        if own:
            back = f"[All rows]({MAIN}) says what holds, and of which state results are."
            made[name] = f"# {title}, run again\n\n{back}{ABOUT.get(name, '')}\n{_sections(own)}"
    return made


def _own(rows: Sequence[Row], with_sections: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row in with_sections]


def _bands(rows: Sequence[Row], with_sections: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows over noise of one state, so that a row without a section is in a table too."""
    own = _own(rows, with_sections)
    return {
        name: band
        for name, band in together.over_noise(rows, least=1).items()
        if len(band) > 1 or band[0] not in own
    }


def _numbered(text: str, number: int) -> str:
    """What tells the headings of other states from those of the first."""
    return "" if number == 1 else text if number == 2 else f"{text}, {number}"


def _apart_heading(number: int) -> str:
    return f"Rows{_numbered(' of another state', number)}"


def _state_text(rows: Sequence[Row], others: Sequence[Sequence[Row]]) -> str:
    state = _state_of(rows)
    if state is None:
        return ""
    apart = []
    for number, group in enumerate(others, 2):
        heading = _apart_heading(number)
        link = f"#{heading.lower().replace(',', '').replace(' ', '-')}"
        apart.append(f"[{heading.lower()}]({link}): {_names(group)}")
    if not apart:
        return f"All results are of {state}.\n"
    lines = "".join(f"- {line}.\n" for line in apart)
    return f"All results are of {state}, except these:\n\n{lines}"


def _headline(rows: Sequence[Row]) -> list[str]:
    """The main claim of figure 3 under the noise of the paper's time."""
    return [
        f"**The headline**, by [P3](reproduction-p.md#p3) under hosts-2011: {claim.text}; "
        f"measured: {measured_text(claim)}"
        for row in rows
        if (row.result.id, row.result.profile) == ("P3", "hosts-2011")
        for claim in row.result.claims[:1]
    ]


def _older_settings(result: Result) -> list[str]:
    """A line if the runs had other settings than the recipe has now."""
    recipe = load_all()[result.id]
    mode = recipe.quick if result.mode == "quick" else recipe.full
    wanted = {point.label: recipe.settings(point, mode) for point in recipe.points}
    made = {point.label: dict(point.set) for point in result.points if point.label in wanted}
    if all(settings == wanted[label] for label, settings in made.items()):
        return []
    return ["", "The recipe has other settings now, so these runs are to be made again."]


def _modes(result: Result) -> list[str]:
    """A line for each point whose seeds have two modes of the main claim's ratio."""
    measure = load_all()[result.id].claims[0].measure
    if measure.kind != "outcast_ratio":
        return []
    lines = [
        modes.text(point.label, [x for x in point.values.get(describe(measure), ()) if x])
        for point in result.points
    ]
    return [part for line in lines if line for part in ("", f"{line}.")]


def _names(rows: Sequence[Row]) -> str:
    """What rows are called: their figures, with the profiles that were asked for."""
    profiles: dict[str, list[str | None]] = {}
    for row in rows:
        profiles.setdefault(row.result.id, []).append(row.result.profile)
    names = []
    for name, under in profiles.items():
        own = ["its own noise"] if None in under else []
        named = [profile for profile in under if profile is not None]
        names.append(f"{name} under {', '.join([*own, *named])}" if named else name)
    return "; ".join(names)


def _apart_text(rows: Sequence[Row]) -> str:
    return (
        f"These results are of {_state_of(rows)}. Do not compare their values with those above, "
        "because other code made them.\n"
    )


def _state_of(rows: Sequence[Row]) -> State | None:
    """What made the rows. A computation has no kernel, so it says less than a run.

    Files of measures are those of single rows.
    """
    states = [row.result.state.model_copy(update={"measures": None}) for row in rows]
    return next((state for state in states if state.kernel is not None), next(iter(states), None))


def _band_files(bands: Mapping[str, list[Row]], number: int) -> dict[str, dict[str, list[Row]]]:
    """The rows over noise of the states' NUMBERth group by their picture's file, one for a page."""
    name, files = Path(band_picture.FILE), dict[str, dict[str, list[Row]]]()
    for row_id, band in bands.items():
        page = PAGES[row_id[0]][0].removeprefix("reproduction-").removesuffix(".md")
        file = f"{name.stem}-{page}{'' if number == 1 else f'-{number}'}{name.suffix}"
        files.setdefault(file, {})[row_id] = band
    return files


def stored(docs: Path = DOCS) -> list[Result]:
    """The results that are stored with the documentation, in the order of the recipes."""
    recipes = load_all()
    path = docs / RESULTS
    records = dict(pl.read_parquet(path, glob=False).iter_rows()) if path.exists() else {}
    names = [_name(known, profile) for profile in (None, *NOISES) for known in recipes]
    results = [Result.model_validate_json(records[name]) for name in names if name in records]
    return [judged_anew(recipes[result.id], result) for result in results]


def store(results: Iterable[Result], docs: Path = DOCS) -> None:
    """Writes the table of results."""
    records = {_name(result.id, result.profile): result.model_dump_json() for result in results}
    path = docs / RESULTS
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pl.DataFrame({"name": [*records], "record": [*records.values()]})
    table.write_parquet(path, compression="zstd", compression_level=19)


def judged(docs: Path = DOCS) -> list[Row]:
    """The stored results with the verdicts that the page shows."""
    return together.judge(stored(docs))


def _name(recipe_id: str, profile: str | None) -> str:
    return recipe_id if profile is None else f"{recipe_id}@{profile}"


def write(folders: Sequence[Path], docs: Path = DOCS) -> Path:
    """Stores the folders' results and figures, and writes the page.

    Raises:
        InputError: a result cannot be read.
        ConfigError: a folder's results are of different states. Nothing is written.
    """
    recipes = load_all()
    new: dict[str, tuple[Path, Result]] = {}
    for folder in folders:
        results = reproduce.stored(folder, list(recipes.values()))
        together.require_one_state(results)
        for result in results:
            new[_name(result.id, result.profile)] = (
                folder,
                judged_anew(recipes[result.id], result),
            )
    staying = [result for result in stored(docs) if _name(result.id, result.profile) not in new]
    everything = [*(result for _, result in new.values()), *staying]
    rows = together.judge(everything)
    pictured = {_name(row.result.id, row.result.profile) for row in together.with_sections(rows)}
    images = docs / IMAGES
    images.mkdir(parents=True, exist_ok=True)
    store(everything, docs)
    for name, (folder, result) in new.items():
        if name in pictured:
            figure = reproduce.folder_of(folder, result.id, result.profile) / result.figure
            shutil.copyfile(figure, images / f"{name}.png")
    _draw_bands(docs)
    for name, text in pages(docs).items():
        write_text(docs / name, text)
    return docs / MAIN


def _draw_bands(docs: Path) -> None:
    """Draws the page's pictures over noise again, because states can come and go."""
    images = docs / IMAGES
    name = Path(band_picture.FILE)
    for old in images.glob(f"{name.stem}*{name.suffix}"):
        old.unlink()
    rows = judged(docs)
    with_sections = together.with_sections(rows)
    for number, group in enumerate(reproduction_summary.by_state(rows), 1):
        for file, bands in _band_files(_bands(group, with_sections), number).items():
            band_picture.draw_band(bands, load_all(), images / file)


def main(arguments: Sequence[str]) -> int:
    """Writes the page. Returns the exit status."""
    try:
        print(write([Path(argument) for argument in arguments]))
    except OutcastError as error:
        print(f"outcast: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
