"""Fills the numbers of the documentation from stored results: `python -m scripts.fill_numbers`.

A page marks what it takes from docs/results/:

    the gap is <!--=P3.1-->4.54 [3.9, 5.2]<!--/--> times

What stands between the marks is replaced by the value of that name. A test fails if a page has
other text there than the stored results give. Nothing else of a page is touched.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks import coverage
from outcast.errors import ConfigError, did_you_mean
from outcast.files import write_text

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results"
_MARK = re.compile(r"<!--=(?P<name>[^>]+?)-->(?P<text>.*?)<!--/-->", re.DOTALL)

Values = Mapping[str, Callable[[], str]]
"""What gives the text of a value, by its name."""


def values(folder: Path = RESULTS) -> Values:
    """The values that pages can name.

    Raises:
        InputError: a file of results cannot be read.
    """
    return _coverage(folder)


def _coverage(folder: Path) -> dict[str, Callable[[], str]]:
    """The table of benchmarks/coverage.py, and of each row how often our intervals hold."""
    content = json.loads((folder / "coverage.json").read_text(encoding="utf-8"))
    table: dict[str, dict[str, dict[str, float]]] = content["table"]
    known = {"coverage": lambda: coverage.markdown(table)}
    for name, sizes in table.items():
        shares = sorted(shares["ours"] for shares in sizes.values())
        span = f"{shares[0]:.2f} to {shares[-1]:.2f}"
        known[f"coverage of {name}"] = lambda span=span: span  # type: ignore[misc]
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
        value = known[name]()
        inside = f"\n{value}\n" if "\n" in value else value
        return f"<!--={name}-->{inside}<!--/-->"

    return _MARK.sub(replaced, text)


def pages() -> list[Path]:
    """The pages that may have marks."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> int:
    """Writes the pages that have other numbers than the results. Returns the exit status."""
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
