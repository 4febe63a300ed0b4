"""The numbers in the documentation are those of the stored results."""

from __future__ import annotations

from pathlib import Path

import pytest

from outcast.errors import ConfigError
from scripts import fill_numbers as numbers


def test_every_number_in_the_docs_is_what_the_results_give() -> None:
    known = numbers.values()
    for page in numbers.pages():
        name = str(page.relative_to(numbers.ROOT))
        text = page.read_text(encoding="utf-8")
        assert numbers.filled(text, known, name) == text, "run: python -m scripts.fill_numbers"


def test_a_number_that_is_not_what_the_results_give_is_replaced() -> None:
    known = {"P3.1": lambda: "4.5 [3.9, 5.2]", "table": lambda: "| a |\n|---|"}
    text = "the gap is <!--=P3.1-->9.9<!--/-->; 3 of 5\n<!--=table--><!--/-->\n"
    assert numbers.filled(text, known, "page.md") == (
        "the gap is <!--=P3.1-->4.5 [3.9, 5.2]<!--/-->; 3 of 5\n"
        "<!--=table-->\n| a |\n|---|\n<!--/-->\n"
    )


def test_a_mark_that_names_no_result_is_refused_with_the_page() -> None:
    with pytest.raises(ConfigError, match=r"page.md: no result gives 'P33'.*P3"):
        numbers.filled("<!--=P33-->1<!--/-->", {"P3": lambda: "1"}, "page.md")


def test_results_are_read_from_the_folder(tmp_path: Path) -> None:
    (tmp_path / "coverage.json").write_text('{"table": {"normal": {"3": {"ours": 0.951}}}}')
    assert "| normal | 3 |  |  |  |  | 0.951 |" in numbers.values(tmp_path)["coverage"]()
