"""The numbers in the documentation are those of the stored results."""

import pytest

from outcast.errors import ConfigError
from scripts import fill_numbers as numbers
from scripts import reproduction_docs as docs

HINT = "run: python -m scripts.fill_numbers"


@pytest.fixture(scope="module")
def known() -> numbers.Values:
    return numbers.values()


def test_every_number_in_the_docs_is_what_the_results_give(known):
    for page in numbers.pages():
        name = str(page.relative_to(numbers.ROOT))
        text = page.read_text(encoding="utf-8")
        assert numbers.filled(text, known, name) == text, HINT


def test_a_number_that_is_not_what_the_results_give_is_replaced():
    known = {"P3.1": "4.5 [3.9, 5.2]", "table": "| a |\n|---|"}
    text = "the gap is <!--=P3.1-->9.9<!--/-->; 3 of 5\n<!--=table--><!--/-->\n"
    assert numbers.filled(text, known, "page.md") == (
        "the gap is <!--=P3.1-->4.5 [3.9, 5.2]<!--/-->; 3 of 5\n"
        "<!--=table-->\n\n| a |\n|---|\n\n<!--/-->\n"
    )


def test_a_mark_that_names_no_result_is_refused_with_the_page():
    with pytest.raises(ConfigError, match=r"page.md: no result gives 'P33'.*P3"):
        numbers.filled("<!--=P33-->1<!--/-->", {"P3": "1"}, "page.md")


def test_the_page_of_the_reproduction_is_what_the_stored_results_give():
    for name, text in docs.pages(numbers.ROOT / "docs").items():
        assert (numbers.ROOT / "docs" / name).read_text(encoding="utf-8") == text, HINT
