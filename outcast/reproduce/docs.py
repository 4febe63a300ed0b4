"""Writes docs/reproduction.md from folders of results: `python -m outcast.reproduce.docs DIR...`.

Run it in a checkout. If several folders hold a recipe, the last folder counts. The figures go to
docs/images/reproduction.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from outcast.files import write_text
from outcast.reproduce import recipe, reproduce, together
from outcast.reproduce.index import (
    ABOUT_BAND,
    BAND,
    MEASURED,
    burst_text,
    made_text,
    measured_text,
    p_text,
    remarks,
    seeds_text,
)
from outcast.reproduce.result import Result
from outcast.reproduce.verdict import verdict_text

DOCS = Path("docs")
PREFACE = """# The sources' figures, run again

`python -m outcast.reproduce.docs` writes this page from the results of `outcast reproduce`. That
verb's page ([verbs/reproduce.md](verbs/reproduce.md)) states the rule of the verdicts.
[findings.md](findings.md) says what follows from them, and why sources contradict one another. P is
"The TCP Outcast Problem" (NSDI 2012), T is TCPRand, W is "Exploring Outcast", H is "Life's not
fair, neither is TCP".

"""
IMAGES = "images/reproduction"


def markdown(results: Sequence[Result]) -> str:
    """The results as Markdown: a table of all, and a section for each."""
    shown = together.rows(results)
    lines = [
        together.control_text(shown),
        "",
        "| id | experiment | reported | main claim, measured | verdict | claims | mode |",
        "|" + "---|" * 7,
    ]
    own = [row for row in shown if row.result.profile is None]
    bands = together.over_noise(shown)
    for row in own:
        result, main = row.result, row.result.claims[0]
        lines.append(
            f"| [{result.id}](#{result.id.lower()}) | {result.title} | {result.reported} "
            f"| {main.text}: {measured_text(main)} | {verdict_text(row.verdict)} "
            f"| {row.tally} | {result.mode} |"
        )
    if bands:
        lines += ["", "## Over noise", "", ABOUT_BAND, ""]
        lines += [f"- {name}: {together.band_text(band)}" for name, band in bands.items()]
        lines += ["", f"| {' | '.join(BAND)} |", "|" + "---|" * len(BAND)]
        lines += [
            f"| {row.result.id} | {row.result.noise} | {measured_text(row.result.claims[0])} "
            f"| {burst_text(row.result)} | {verdict_text(row.verdict)} | {row.tally} |"
            for band in bands.values()
            for row in band
        ]
    for row in own:
        result = row.result
        lines += ["", f"## {result.id}", "", f"{result.title}. {result.source}.", ""]
        lines.append(
            f"Verdict: **{verdict_text(row.verdict)}** ({row.tally}; {seeds_text(result)})."
        )
        lines += ["", f"![{result.title}]({IMAGES}/{result.id}.png)"]
        lines += ["", f"| claim | rule | {MEASURED} | p, adjusted | verdict |", "|" + "---|" * 5]
        lines += [
            f"| {claim.record.text} | {claim.record.rule} | {measured_text(claim.record)} "
            f"| {p_text(claim.p)} | {verdict_text(claim.verdict)} |"
            for claim in row.claims
        ]
        for title, text in remarks(result):
            lines += ["", f"{title}: {' '.join(text.split())}"]
        for failure in result.failures:
            lines += ["", f"Left out: {failure.label}, seed {failure.seed}: {failure.reason}"]
        lines += [
            "",
            f"`{result.command}`; {made_text(result)}.",
        ]
    return "\n".join(lines) + "\n"


def write(folders: Sequence[Path], docs: Path = DOCS) -> Path:
    """Writes the page and copies the figures. Raises InputError if a result cannot be read."""
    recipes = list(recipe.load_all().values())
    stored: dict[str, tuple[Path, Result]] = {}
    for folder in folders:
        for result in reproduce.stored(folder, recipes):
            stored[result.id] = (folder, result)
    images = docs / IMAGES
    images.mkdir(parents=True, exist_ok=True)
    results = [stored[known.id][1] for known in recipes if known.id in stored]
    for result in results:
        figure = stored[result.id][0] / result.id / result.figure
        shutil.copyfile(figure, images / f"{result.id}.png")
    path = docs / "reproduction.md"
    write_text(path, f"{PREFACE}{markdown(results)}")
    return path


if __name__ == "__main__":
    print(write([Path(argument) for argument in sys.argv[1:]]))
