"""The guides stay short: a budget of words, as rooms have one of lines."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WRITTEN_BY_PROGRAMS = {
    "a-timeout-explained.md",
    "api.md",
    "config.md",
    "envelope.md",
    "findings.md",
    "numbers.md",
}
"""Pages that programs write, and the findings, whose length is that of the sources' claims."""
GENERATED = re.compile(
    r"<!--=[^>]+?-->.*?<!--/-->|<!-- profiles -->.*?<!-- end of profiles -->", re.DOTALL
)
MOST_WORDS = 45_000
MOST_WORDS_OF_A_GUIDE = 3_200
MOST_LINES_OF_README = 90


def words() -> dict[str, int]:
    """The number of words that people wrote, by page of docs/ and of the README."""
    pages = [
        page
        for page in sorted((ROOT / "docs").glob("*.md"))
        if page.name not in WRITTEN_BY_PROGRAMS and not page.name.startswith("reproduction")
    ]
    return {
        page.name: len(GENERATED.sub("", page.read_text(encoding="utf-8")).split())
        for page in (ROOT / "README.md", *pages)
    }


def test_the_guides_keep_to_their_words() -> None:
    # Whoever adds a page takes words away elsewhere, or raises the number and says why.
    assert sum(words().values()) <= MOST_WORDS


def test_no_guide_is_longer_than_a_person_reads_at_once() -> None:
    assert {name: count for name, count in words().items() if count > MOST_WORDS_OF_A_GUIDE} == {}


def test_the_readme_is_a_screen_and_a_half_without_marks() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES_OF_README
    assert "<!--" not in text
