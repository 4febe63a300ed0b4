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
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import against, stored
from outcast.analysis.run_measures import measures
from outcast.errors import ConfigError, did_you_mean
from outcast.files import write_text
from outcast.uses.papers import together
from outcast.uses.papers.index import burst_text, interval_text, measured_text
from outcast.uses.papers.recipe import Recipe, load_all
from outcast.uses.papers.result import Result, describe, values_of
from outcast.uses.papers.result import number as show
from outcast.uses.papers.runs import NOISES
from outcast.uses.papers.verdict import Verdict, central, two_modes, verdict_text
from scripts import reproduction_docs as docs
from scripts import reproduction_summary

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results"
_MARK = re.compile(r"<!--=(?P<name>[^>]+?)-->(?P<text>.*?)<!--/-->", re.DOTALL)

Values = Mapping[str, str]
"""The text of a value, by its name."""
OUR_OWN = "F"
"""The first letter of questions of our own; other recipes have a source's initial."""
MARK = r" \*"
"""What stands after a mean that is no summary of its seeds."""
WHOLE = 1000
"""A flow that gets this many times as much as the others has the whole link."""
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
    return [".verdict", ".state", ".band", *of_number]


def _of_points(recipe: Recipe) -> list[str]:
    kinds = ("", ".whole", ".least", ".greatest")
    return [".points", *(f":{point.label}{kind}" for point in recipe.points for kind in kinds)]


def _reproduced(folder: Path) -> dict[str, str]:
    """Of every row: `P3.verdict`, and of its first claim `P3.1`, `P3.1.value` and `P3.1.verdict`.

    `P3.1` is the value with its interval. A row that was made under a profile of noise which was
    asked for is `P3@exact`. `P3.state` says what made it. `P3.band` is the table of the row under
    all profiles that it was made under.
    `claims inconclusive`, or another verdict's name, is the table of all claims that have it, and
    `turned jitter` that of claims which are contradicted with one of two kinds of noise.
    """
    known: dict[str, str] = {}
    # Reading all recipes takes longer than all the rest.
    recipes = load_all()
    rows = docs.judged(folder.parent)
    for kind in Verdict:
        known[f"claims {verdict_text(kind).removeprefix('same direction, ')}"] = of_verdict(
            rows, kind
        )
    known |= {f"turned {profile}": turned(rows, profile) for profile in NOISES}
    for group in reversed(reproduction_summary.by_state(rows)):
        for name, band in together.over_noise(group).items():
            known[f"{name}.band"] = band_table(band)
            known[f"{name}.band.state"] = str(band[0].result.state)
    for row in rows:
        result = row.result
        name = result.id if result.profile is None else f"{result.id}@{result.profile}"
        known[f"{name}.verdict"] = row.word
        known[f"{name}.state"] = str(result.state)
        for number, claim in enumerate(row.claims, 1):
            record = claim.record
            known[f"{name}.{number}"] = _claim_text(claim)
            known[f"{name}.{number}.value"] = "-" if record.mean is None else show(record.mean)
            known[f"{name}.{number}.verdict"] = verdict_text(claim.verdict)
        known |= of_points(name, result, recipes[result.id])
    return known


def of_verdict(rows: Sequence[together.Row], kind: Verdict) -> str:
    """All claims of sources that have a verdict with the noise that is the configurations' own.

    Claims whose runs another commit made name that.
    """
    lines = ["| figure | claim | rule | measured |", "|" + "---|" * 4]
    most, *others = reproduction_summary.by_state(rows) or [[]]
    for row in (row for group in (most, *others) for row in group):
        result = row.result
        if result.profile is not None or result.id.startswith(OUR_OWN):
            continue
        link = f"[{result.id}]({docs.link(result)})"
        if row not in most:
            link += f" (commit {(result.state.commit or 'unknown')[:12]})"
        for claim in row.claims:
            if claim.verdict is kind:
                record = claim.record
                lines.append(f"| {link} | {record.text} | {record.rule} | {_claim_text(claim)} |")
    return "\n".join(lines)


def turned(rows: Sequence[together.Row], profile: str) -> str:
    """Claims of sources that their own noise contradicts or a profile does, but not both."""
    of_profile = {row.result.id: row for row in rows if row.result.profile == profile}
    lines = [f"| figure | claim | own noise | `{profile}` |", "|" + "---|" * 4]
    for row in rows:
        result, other = row.result, of_profile.get(row.result.id)
        if result.profile is not None or other is None or result.id.startswith(OUR_OWN):
            continue
        link = f"[{result.id}]({docs.link(result)})"
        for pair in zip(row.claims, other.claims, strict=True):
            if sum(claim.verdict is Verdict.CONTRADICTED for claim in pair) == 1:
                cells = [f"{verdict_text(each.verdict)}: {_claim_text(each)}" for each in pair]
                lines.append(f"| {link} | {pair[0].record.text} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _claim_text(claim: together.ShownClaim) -> str:
    # How many runs were stationary stands on the reproduction's own page.
    return measured_text(claim.record.model_copy(update={"stationary": None}))


def band_table(band: Sequence[together.Row]) -> str:
    """A row under each profile of noise: its first claim and its chains of drops."""
    main = band[0].result.claims[0]
    lines = [f"| noise | {main.text} | burst ratio |", "|" + "---|" * 3]
    for row in band:
        result = row.result
        record = result.claims[0].model_copy(update={"stationary": None})
        cells = [f"`{result.noise}`", measured_text(record), burst_text(result)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def of_points(name: str, result: Result, recipe: Recipe) -> dict[str, str]:
    """Of every point the main claim's measure: `F4:LABEL`, its `.least` and its `.greatest` run.

    `F4:LABEL.whole` of a ratio is an asterisk if one side had the WHOLE link in a seed.
    `F4.points` is the table of them all.
    """
    main = next(iter(recipe.claims)).measure
    known: dict[str, str] = {}
    lines = [f"| | {describe(main)} |", "|---|---|"]
    for point in result.points:
        seeds = point.values.get(describe(main), [])
        values = [math.nan if value is None else value for value in seeds]
        interval = central(
            values_of(point, main),
            logarithmic=measures.is_logarithmic(main),
            limits=measures.limits(main),
        )
        text = interval_text(interval.value, interval.low, interval.high)
        known[f"{name}:{point.label}"] = text
        finite = [value for value in values if math.isfinite(value)]
        is_whole = measures.is_logarithmic(main) and any(
            value >= WHOLE or value <= 1 / WHOLE for value in finite
        )
        known[f"{name}:{point.label}.whole"] = r"\*" if is_whole else ""
        is_summary = not is_whole and (
            not measures.is_logarithmic(main) or two_modes(finite) is None
        )
        lines.append(f"| {point.label} | {text}{'' if is_summary else MARK} |")
        if finite:
            known[f"{name}:{point.label}.least"] = show(min(finite))
            known[f"{name}:{point.label}.greatest"] = show(max(finite))
    if any(MARK in line for line in lines):
        lines += [
            "",
            r"\* No summary: one side had the whole link in a seed, or there are two modes.",
        ]
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


def state_of(name: str, known: Values) -> str | None:
    """The name of the value that says what made another value; None if nothing does."""
    # A row under all profiles can be of another state than the row with its own noise.
    of_band = f"{name}.state" if name.endswith(".band") else ""
    state = of_band if of_band in known else f"{re.split('[.:]', name)[0]}.state"
    return state if state in known and name != state else None


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
