"""Writes the reproduction's pages from results: `python -m scripts.reproduction_docs [DIR...]`.

Run it in a checkout. The results of the folders go to docs/results/reproduction.parquet, where they
replace those of the same recipes, and their figures to docs/images/reproduction. If several folders
hold a recipe, the last folder counts. docs/reproduction.md has the verdicts on families and a row
for each figure, and a page for each source has its claims. All are written from that table alone.
Results of another state than most (outcast/uses/papers/state.py) have a section, and count in no
family.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import polars as pl

from outcast.errors import OutcastError
from outcast.files import write_text
from outcast.uses.papers import conclusion as reproduce
from outcast.uses.papers import families
from outcast.uses.papers.families import Family
from outcast.uses.papers.index import (
    MEASURED,
    NO_NOISE,
    claim_text,
    full_name,
    made_text,
    measured_text,
    p_text,
    remarks,
    seeds_text,
)
from outcast.uses.papers.recipe import load_all
from outcast.uses.papers.result import Result, judged_anew
from outcast.uses.papers.runs import NOISES
from outcast.uses.papers.verdict import Verdict, verdict_text
from scripts import reproduction_settings as settings

DOCS = Path("docs")
TITLE = "# The sources' figures, run again\n\n"
PREFACE = """
`python -m scripts.reproduction_docs` writes this page from the results of `outcast reproduce`.
[findings.md](findings.md) says what follows from them. P is "The TCP Outcast Problem" (NSDI 2012),
T is TCPRand, W is "Exploring Outcast", H is "Life's not fair, neither is TCP". F are questions of
our own.

Out of scope are TCPRand's table 1, the CPU time of a kernel patch that is not published, and a term
report on the Outcast problem (2017), whose figures are those of P, H and W.

## The rule

All seeds count. A direction is judged by the exact two-sided sign test over seeds, a size by
whether the exact interval of the median lies within the recipe's factor of the source's number. A
claim about one point must lie beyond its control, by the same test. Of two modes each share stands
with its exact interval. Claims of one sentence are a family, reproduced if each of them is; its p,
the greatest, is corrected by Holm's procedure ([more](verbs/reproduce.md#the-verdict)).
"""
ABOUT_FAMILIES = (
    "After the verdict stands how many of its claims have which one by themselves. All of them "
    "can be reproduced in an inconclusive family: nine of ten seeds have a p of 0.02, which the "
    "correction for so many families makes too great."
)
CHANGED = """
## How verdicts changed

The same runs were judged before by means, Student's t and ranks, claim by claim, with Holm's
procedure within a figure: 157 of the sources' 241 claims reproduced, 12 of another size, 49
inconclusive, 3 that say nothing, 20 contradicted. By this rule, before families, 23 have another
verdict:

| before | now | claims |
|---|---|---|
| reproduced | inconclusive | T10.1, T11.6 |
| reproduced | same direction, other size | T8b.4: 0.010 is lost, and not 0.064 |
| inconclusive | reproduced | P-era.2, T9.7, T9.11 |
| inconclusive | contradicted | P14-P15.5 |
| contradicted | inconclusive | T9.3 |
| says nothing, other size | inconclusive | T10.11, H3.3 |
| any | no verdict | T14 (11 claims: its testbed has 200 ms), T16 (2 claims: five seeds) |

34 claims count no more, and 2 are new: that buffers have no significant effect. Results of five
seeds or fewer (`exact`, `oscillators`, most of `hosts-modern`) have no verdict now, because five
seeds that agree have a p of 0.06.

The rule and the families were made when these results were known. So they confirm nothing new; runs
of other seeds will. The pictures are of the runs, and show means.
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


def pages(docs: Path = DOCS) -> dict[str, str]:
    """The pages' texts by their names, from the results that are stored with the documentation.

    Raises:
        InputError: a result cannot be read.
    """
    results = stored(docs)
    shown = with_sections(results)
    verdicts = families.over_noise(of_one_state(results))
    text = f"{TITLE}{_glance(verdicts, shown)}{PREFACE}{_families(verdicts)}{CHANGED}"
    return {MAIN: f"{text}{_figures(shown)}{_apart(shown)}", **_pages_of_sources(shown)}


def of_one_state(results: Sequence[Result]) -> list[Result]:
    """The results of the state that made most of them."""
    counts = Counter(one.state.code for one in results).most_common(1)
    return [one for one in results for code, _ in counts if one.state.code == code]


def with_sections(results: Sequence[Result]) -> list[Result]:
    """Those that have a section: of a named profile only where its figure has no other result."""
    known = {result.id for result in results if result.profile is None}
    return [one for one in results if one.profile is None or one.id not in known]


def _glance(verdicts: Mapping[str, Mapping[str, Family]], shown: Sequence[Result]) -> str:
    """What holds and what does not, a line each, and the headline."""
    names: dict[str, list[str]] = {}
    of_sources = [verdicts[name] for name in families.load()["sources"] if name in verdicts]
    for rows in of_sources:
        one = next(iter(rows.values()))
        names.setdefault(verdict_text(one.verdict), []).append(one.name)
    order = [*map(str, Verdict), verdict_text(None)]
    lines = [
        f"- **{word[0].upper()}{word[1:]}** ({len(names[word])}): {', '.join(names[word])}."
        for word in order
        if word in names
    ]
    main = next((one for one in shown if one.id == "P3"), None)
    if main is not None:
        claim = main.claims[0]
        lines.append(
            f"- **The headline**, by [P3](reproduction-p.md#p3) under {main.noise}: {claim.text}; "
            f"median: {measured_text(claim)}."
        )
    first = f"{len(of_sources)} families hold what the sources say, under the noise of the recipes:"
    return "\n".join([first, "", *lines]) + "\n"


def _families(verdicts: Mapping[str, Mapping[str, Family]]) -> str:
    """A table of all families, with a column for each noise under which one has a verdict."""
    every = [(noise, one) for rows in verdicts.values() for noise, one in rows.items()]
    first = {name: next(iter(rows.values())) for name, rows in verdicts.items()}
    # The first noise of a figure without its own stands there already.
    told = {noise for noise, one in every if one.verdict and one.claims != first[one.name].claims}
    noises = ["", *(noise for noise in NOISES if noise in told)]
    head = ["family", "figures", *(f"`{noise}`" if noise else NO_NOISE for noise in noises)]
    lines = ["", "## Families", "", ABOUT_FAMILIES, ""]
    lines += [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for rows in verdicts.values():
        one = next(iter(rows.values()))
        cells = [_verdict(rows.get(noise), shown=not noise) for noise in noises]
        lines.append(f"| {one.sentence} ({one.name}) | {one.figures} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _verdict(family: Family | None, *, shown: bool) -> str:
    """A family's verdict, and how many of its claims have it; without one only where `shown`."""
    if family is None or not (family.verdict or shown):
        return ""
    return f"**{verdict_text(family.verdict)}**: {family.tally}"


def _figures(shown: Sequence[Result]) -> str:
    lines = ["", "## Figures", "", "| id | experiment | reported | main claim, median |"]
    lines.append("|" + "---|" * 4)
    lines += [
        f"| [{full_name(one)}]({link(one)}) | {one.title} | {one.reported} "
        f"| {one.claims[0].text}: {measured_text(one.claims[0])} |"
        for one in shown
    ]
    return "\n".join(lines) + "\n"


def _apart(shown: Sequence[Result]) -> str:
    """The claims that do not count, by the reason."""
    reasons: dict[str, list[str]] = {}
    for one in shown:
        for number, claim in enumerate(one.claims, 1):
            if claim.apart:
                reasons.setdefault(claim.apart, []).append(f"{one.id}.{number}")
    lines = ["", "## Claims that do not count", ""]
    lines += [f"- {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return "\n".join(lines) + "\n"


def link(result: Result) -> str:
    """The link from docs/reproduction.md to a figure's claims."""
    return f"{PAGES[result.id[0]][0]}#{_anchor(result).lower()}"


def _anchor(result: Result) -> str:
    return full_name(result).replace("@", "-")


def _pages_of_sources(shown: Sequence[Result]) -> dict[str, str]:
    """A page for each source that has results."""
    made: dict[str, str] = {}
    for name, title in dict.fromkeys(PAGES.values()):
        own = [one for one in shown if PAGES[one.id[0]][0] == name]
        if own:
            back = (
                f"[The verdicts]({MAIN}) are on families of these claims, each here with its own p."
            )
            sections = "".join(_section(one) for one in own)
            made[name] = f"# {title}, run again\n\n{back}{ABOUT.get(name, '')}\n{sections}"
    return made


def _section(one: Result) -> str:
    lines = ["", f"## {_anchor(one)}", "", f"{one.title}. {one.source}. Reported: {one.reported}."]
    lines += ["", f"![{one.title}]({IMAGES}/{full_name(one)}.png)", ""]
    lines += [f"| claim | rule | {MEASURED} | p | by itself | family |", "|" + "---|" * 6]
    lines += [
        f"| {claim.text} | {claim.rule} | {measured_text(claim)} | {p_text(claim.p)} "
        f"| {claim_text(claim)} | {'' if claim.apart else claim.family} |"
        for claim in one.claims
    ]
    if settled := settings.lines(load_all()[one.id]):
        lines += ["", "Settings that are not the source's:", "", *(f"- {x}" for x in settled)]
    for title, text in remarks(one):
        lines += ["", f"{title}: {' '.join(text.split())}"]
    for failure in one.failures:
        lines += ["", f"Left out: {failure.label}, seed {failure.seed}: {failure.reason}"]
    lines += ["", f"`{one.command}`; {seeds_text(one)}; {made_text(one)}."]
    return "\n".join(lines) + "\n"


def stored(docs: Path = DOCS) -> list[Result]:
    """The results that are stored with the documentation, in the order of the recipes."""
    recipes = load_all()
    path = docs / RESULTS
    records = dict(pl.read_parquet(path, glob=False).iter_rows()) if path.exists() else {}
    names = [
        known if profile is None else f"{known}@{profile}"
        for profile in (None, *NOISES)
        for known in recipes
    ]
    results = [Result.model_validate_json(records[name]) for name in names if name in records]
    return [judged_anew(recipes[result.id], result) for result in results]


def store(results: Iterable[Result], docs: Path = DOCS) -> None:
    """Writes the table of results."""
    records = {full_name(result): result.model_dump_json() for result in results}
    path = docs / RESULTS
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pl.DataFrame({"name": [*records], "record": [*records.values()]})
    table.write_parquet(path, compression="zstd", compression_level=19)


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
        families.require_one_state(results)
        for one in results:
            new[full_name(one)] = (folder, judged_anew(recipes[one.id], one))
    staying = [one for one in stored(docs) if full_name(one) not in new]
    everything = [*(one for _, one in new.values()), *staying]
    images = docs / IMAGES
    images.mkdir(parents=True, exist_ok=True)
    store(everything, docs)
    for name in {full_name(one) for one in with_sections(everything)} & new.keys():
        folder, one = new[name]
        figure = reproduce.folder_of(folder, one.id, one.profile) / one.figure
        shutil.copyfile(figure, images / f"{name}.png")
    for name, text in pages(docs).items():
        write_text(docs / name, text)
    return docs / MAIN


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
