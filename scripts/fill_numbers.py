"""Fills the numbers of the documentation from stored results: `python -m scripts.fill_numbers`.

A page marks what it takes from docs/results/:

    the gap is <!--=P3.1-->4.54 [3.9, 5.2]<!--/--> times

What stands between the marks is replaced by the value of that name. A test fails if a page has
other text there than the stored results give. Nothing else of a page is touched.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks import coverage
from outcast.errors import ConfigError, did_you_mean
from outcast.files import write_text
from outcast.reproduce import docs, measures, together
from outcast.reproduce.index import interval_text, measured_text
from outcast.reproduce.recipe import load_all
from outcast.reproduce.result import Result, describe
from outcast.reproduce.result import number as show
from outcast.reproduce.verdict import central, verdict_text

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results"
_MARK = re.compile(r"<!--=(?P<name>[^>]+?)-->(?P<text>.*?)<!--/-->", re.DOTALL)

Values = Mapping[str, str]
"""The text of a value, by its name."""


def values(folder: Path = RESULTS) -> Values:
    """The values that pages can name.

    Raises:
        InputError: a file of results cannot be read.
    """
    return {**_coverage(folder), **_reproduced(folder), **_measured(folder)}


def _reproduced(folder: Path) -> dict[str, str]:
    """Of every row: `P3.verdict`, and of its first claim `P3.1`, `P3.1.value` and `P3.1.verdict`.

    `P3.1` is the value with its interval. A row that was made under a profile of noise which was
    asked for is `P3@exact`. `P3.state` says what made it.
    """
    known: dict[str, str] = {}
    for row in together.rows(docs.stored(folder.parent)):
        result = row.result
        name = result.id if result.profile is None else f"{result.id}@{result.profile}"
        known[f"{name}.verdict"] = verdict_text(row.verdict)
        known[f"{name}.state"] = str(result.state)
        for number, claim in enumerate(row.claims, 1):
            # How many runs were stationary stands on the reproduction's own page.
            record = claim.record.model_copy(update={"stationary": None})
            known[f"{name}.{number}"] = measured_text(record)
            known[f"{name}.{number}.value"] = "-" if record.mean is None else show(record.mean)
            known[f"{name}.{number}.verdict"] = verdict_text(claim.verdict)
        known |= of_points(name, result)
    return known


def of_points(name: str, result: Result) -> dict[str, str]:
    """Of every point the main claim's measure: `F4:LABEL`, its `.least` and its `.greatest` run.

    `F4.points` is the table of them all.
    """
    main = next(iter(load_all()[result.id].claims)).measure
    known: dict[str, str] = {}
    lines = [f"| | {describe(main)} |", "|---|---|"]
    for point in result.points:
        seeds = point.values.get(describe(main), [])
        values = [math.nan if value is None else value for value in seeds]
        interval = central(
            values, logarithmic=measures.is_logarithmic(main), limits=measures.limits(main)
        )
        shown = interval_text(interval.value, interval.low, interval.high)
        lines.append(f"| {point.label} | {shown} |")
        known[f"{name}:{point.label}"] = shown
        finite = [value for value in values if math.isfinite(value)]
        if finite:
            known[f"{name}:{point.label}.least"] = show(min(finite))
            known[f"{name}:{point.label}.greatest"] = show(max(finite))
    return {**known, f"{name}.points": "\n".join(lines)}


def _measured(folder: Path) -> dict[str, str]:
    """What other commands measured: `NAME` is its table, `NAME.KEY` one of its values.

    `NAME.state` says what made it, and `NAME.command` what makes it anew.
    """
    known: dict[str, str] = {}
    for name, entry in json.loads((folder / "measured.json").read_text(encoding="utf-8")).items():
        known[f"{name}.command"] = entry["command"]
        known[f"{name}.state"] = entry["state"]
        if "table" in entry:
            head, *rows = entry["table"]
            lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
            known[name] = "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])
        known |= {f"{name}.{key}": text for key, text in entry.get("values", {}).items()}
    return known


def _coverage(folder: Path) -> dict[str, str]:
    """The table of benchmarks/coverage.py, and of each row how often our intervals hold."""
    content = json.loads((folder / "coverage.json").read_text(encoding="utf-8"))
    table: dict[str, dict[str, dict[str, float]]] = content["table"]
    known = {"coverage": coverage.markdown(table)}
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
    begin = name.partition(".")[0]
    state = f"{begin}.state"
    return state if state in known and name != state else None


_REPORTED = "<!--reported-->"
"""Stands after a number of a source's, or of the configuration, which no result of ours gives."""
_NUMBER = re.compile(rf"\d+\.\d+(?!\.?\d)(?!{_REPORTED})|\d+ %(?!{_REPORTED})")
_NO_RESULT = re.compile(r"`[^`]*`|\]\([^)]*\)|[Ss]ections? \d[\d.]*")


def by_hand(text: str) -> list[str]:
    """Decimal numbers and shares of a page that no mark has, outside code, links and sections."""
    free = _NO_RESULT.sub("", _MARK.sub("", text))
    return _NUMBER.findall(free)


def pages() -> list[Path]:
    """The pages that may have marks."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> int:
    """Writes the pages that have other numbers than the results. Returns the exit status."""
    write_text(ROOT / "docs/reproduction.md", docs.page(ROOT / "docs"))
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
