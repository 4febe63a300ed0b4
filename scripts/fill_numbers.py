"""Fills the numbers of the documentation from stored results: `python -m scripts.fill_numbers`.

A page marks what it takes from docs/results/:

    the gap is <!--=P3.1-->4.54 [3.9, 5.2]<!--/--> times

What stands between the marks is replaced by the value of that name. A test fails if a page has
other text there than the stored results give. Nothing else of a page is touched.

A recipe without a stored result gives `no result yet` for all its values. So no number of an
earlier state stays where a result is missing.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import against, stored
from outcast.analysis.run_measures import measures
from outcast.errors import ConfigError, did_you_mean
from outcast.files import write_text
from outcast.uses.papers import families
from outcast.uses.papers.index import full_name, interval_text, measured_text
from outcast.uses.papers.recipe import Recipe, load_all
from outcast.uses.papers.result import Result, describe
from outcast.uses.papers.runs import NOISES
from outcast.uses.papers.verdict import median, two_modes, verdict_text
from outcast.uses.papers.verdict import number as show
from scripts import reproduction_docs as docs

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results"
_MARK = re.compile(r"<!--=(?P<name>[^>]+?)-->(?P<text>.*?)<!--/-->", re.DOTALL)

Values = Mapping[str, str]
"""The text of a value, by its name."""
STATES = "docs/numbers.md"
"""The page that says what made the numbers of all pages."""
MISSING = "no result yet"
"""The text of a value whose recipe has no stored result."""


def values(folder: Path = RESULTS) -> Values:
    """The values that pages can name.

    Raises:
        InputError: a file of results cannot be read.
    """
    return {**_missing(), **_coverage(folder), **_reproduced(folder), **_measured(folder)}


def _missing() -> dict[str, str]:
    """The names of all values that recipes can give, and benchmarks/against.py."""
    of_cost = {f"{against.NAME}{value}": MISSING for value in against.VALUES}
    return of_cost | {
        f"{name}{value}": MISSING
        for recipe in load_all().values()
        for name in (recipe.id, *(f"{recipe.id}@{profile}" for profile in NOISES))
        for value in (*_of_claims(recipe), *_of_points(recipe))
    }


def _of_claims(recipe: Recipe) -> list[str]:
    numbers = range(1, len(recipe.claims) + 1)
    of_number = [f".{number}{value}" for number in numbers for value in ("", ".value", ".verdict")]
    return [".state", ".band", *of_number]


def _of_points(recipe: Recipe) -> list[str]:
    kinds = ("", ".least", ".greatest")
    return [".points", *(f":{point.label}{kind}" for point in recipe.points for kind in kinds)]


def _reproduced(folder: Path) -> dict[str, str]:
    """Of every figure its first claim: `P3.1`, `P3.1.value` and `P3.1.verdict`, by its own p.

    `P3.1` is the median with its interval. A figure that was made under a profile of noise which
    was asked for is `P3@exact`. `P3.state` says what made it. `P3.band` is the table of its first
    claim under all profiles. `family size` is a family's verdict under the recipes' own noise, and
    `family size@jitter` under another.
    """
    known: dict[str, str] = {}
    # Reading all recipes takes longer than all the rest.
    recipes = load_all()
    results = docs.stored(folder.parent)
    for name, rows in families.over_noise(docs.of_one_state(results)).items():
        for noise, family in rows.items():
            key = f"family {name}@{noise}" if noise else f"family {name}"
            known[key] = verdict_text(family.verdict)
    for name in recipes:
        known[f"{name}.band"] = band_table([one for one in results if one.id == name])
    for result in results:
        name = full_name(result)
        known[f"{name}.state"] = str(result.state)
        for number, claim in enumerate(result.claims, 1):
            known[f"{name}.{number}"] = measured_text(claim)
            known[f"{name}.{number}.value"] = "-" if claim.median is None else show(claim.median)
            known[f"{name}.{number}.verdict"] = verdict_text(claim.verdict)
        known |= of_points(name, result, recipes[result.id])
    return known


def band_table(results: Sequence[Result]) -> str:
    """A figure's first claim under each profile of noise."""
    by_noise = {result.noise: result.claims[0] for result in results}
    lines = [f"| noise | {claim.text} |" for claim in [*by_noise.values()][:1]] + ["|---|---|"]
    ordered = [noise for noise in NOISES if noise in by_noise]
    lines += [f"| `{noise}` | {measured_text(by_noise[noise])} |" for noise in ordered]
    return "\n".join(lines)


def of_points(name: str, result: Result, recipe: Recipe) -> dict[str, str]:
    """Of every point the main claim's measure: `F4:LABEL`, its `.least` and its `.greatest` run.

    `F4.points` is the table of them all.
    """
    main = next(iter(recipe.claims)).measure
    known: dict[str, str] = {}
    lines = [f"| | {describe(main)} |", "|---|---|"]
    for point in result.points:
        values = [value for value in point.values.get(describe(main), []) if value is not None]
        middle = median(values)
        modes = two_modes(values) if measures.is_logarithmic(main) else ""
        text = modes or interval_text(middle.value, middle.low, middle.high)
        known[f"{name}:{point.label}"] = text
        lines.append(f"| {point.label} | {text} |")
        if values:
            known[f"{name}:{point.label}.least"] = show(min(values))
            known[f"{name}:{point.label}.greatest"] = show(max(values))
    return {**known, f"{name}.points": "\n".join(lines)}


def _measured(folder: Path) -> dict[str, str]:
    """What other commands measured: `NAME` is its table, `NAME.KEY` one of its values.

    `NAME.state` says what made it, and `NAME.command` what makes it again. `states` is the table of
    both, which stands on STATES.
    """
    known: dict[str, str] = {}
    entries = stored.read(folder / "measured.json")
    for name, entry in entries.items():
        known[f"{name}.command"] = entry.command
        known[f"{name}.state"] = entry.state
        if entry.table:
            known[name] = entry.markdown()
        known |= {f"{name}.{key}": text for key, text in entry.values.items()}
    return {**known, "states": _states(entries)}


def _states(entries: Mapping[str, stored.Entry]) -> str:
    """A table of what made each entry; those of one command and one state share a row."""
    made: dict[tuple[str, str], list[str]] = {}
    for name, entry in entries.items():
        made.setdefault((entry.command, entry.state), []).append(name)
    lines = ["| numbers | command | made by |", "|---|---|---|"]
    lines += [
        f"| {'; '.join(names)} | `{command}` | {state} |"
        for (command, state), names in made.items()
    ]
    return "\n".join(lines)


def _coverage(folder: Path) -> dict[str, str]:
    """How often our intervals hold, by the rows of benchmarks/coverage.py."""
    content = json.loads((folder / "coverage.json").read_text(encoding="utf-8"))
    table: dict[str, dict[str, dict[str, float]]] = content["table"]
    known: dict[str, str] = {}
    for name, sizes in table.items():
        shares = sorted(shares["ours"] for shares in sizes.values())
        known[f"coverage of {name}"] = f"{shares[0]:.2f} to {shares[-1]:.2f}"
    return known


def filled(text: str, known: Values, page: str) -> str:
    """The page's text with the present value between each pair of marks.

    Raises:
        ConfigError: a mark names no value.
    """

    def replaced(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in known:
            raise ConfigError(f"{page}: no result gives {name!r}{did_you_mean(name, known)}")
        value = known[name]
        # A table needs empty lines around it, or it is read as text.
        inside = f"\n\n{value}\n\n" if "\n" in value else value
        return f"<!--={name}-->{inside}<!--/-->"

    return _MARK.sub(replaced, text)


def named(text: str) -> list[str]:
    """The names of the values that a page takes."""
    return [match["name"] for match in _MARK.finditer(text)]


def pages() -> list[Path]:
    """The pages that may have marks."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> int:
    """Writes the pages that have other numbers than the results. Returns the exit status."""
    for name, text in docs.pages(ROOT / "docs").items():
        write_text(ROOT / "docs" / name, text)
    known = values()
    for page in pages():
        text = page.read_text(encoding="utf-8")
        new = filled(text, known, str(page.relative_to(ROOT)))
        if new != text:
            write_text(page, new)
            print(page.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
