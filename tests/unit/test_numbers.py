"""The numbers in the documentation are those of the stored results."""

import re

import pytest

from outcast.errors import ConfigError
from outcast.reproduce.recipe import load_all
from outcast.reproduce.result import describe
from outcast.reproduce.verdict import Verdict
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


def test_the_findings_name_every_claim_that_is_contradicted():
    rows = docs.judged(numbers.ROOT / "docs")
    page = (numbers.ROOT / "docs/findings.md").read_text(encoding="utf-8")
    names = {
        f"{row.result.id}.{number}.verdict"
        for row in rows
        for number, claim in enumerate(row.claims, 1)
        if row.result.profile is None and claim.verdict is Verdict.CONTRADICTED
    }
    # Claims of sources stand in a table that is made from the results.
    of_our_own = {name for name in names if name.startswith(numbers.OUR_OWN)}
    assert names - of_our_own
    assert {"claims contradicted", *of_our_own} <= set(numbers.named(page))


def test_every_point_of_a_row_has_its_value_and_the_range_of_its_runs():
    stored = docs.stored(numbers.ROOT / "docs")[0]
    measure = describe(load_all()[stored.id].claims[0].measure)
    (label, *_) = (point.label for point in stored.points)
    points = [
        point.model_copy(update={"values": {measure: [0.1, 0.2, 0.4, None]}, "rivals": {}})
        for point in stored.points
    ]
    known = numbers.of_points(
        "P", stored.model_copy(update={"points": points}), load_all()[stored.id]
    )
    assert known[f"P:{label}"].startswith("0.2 [")
    assert (known[f"P:{label}.least"], known[f"P:{label}.greatest"]) == ("0.1", "0.4")
    assert known[f"P:{label}.whole"] == ""
    assert f"| {label} | {known[f'P:{label}']} |" in known["P.points"]
    points[0].values[measure][0] = 0.0001
    known = numbers.of_points(
        "P", stored.model_copy(update={"points": points}), load_all()[stored.id]
    )
    assert known[f"P:{label}.whole"] == r"\*"


def test_the_page_of_the_reproduction_is_what_the_stored_results_give():
    for name, text in docs.pages(numbers.ROOT / "docs").items():
        assert (numbers.ROOT / "docs" / name).read_text(encoding="utf-8") == text, HINT


def test_the_state_of_every_number_stands_on_a_page(known):
    """On its own page, on that of states, or on those of the reproduction."""
    shown = [numbers.ROOT / numbers.STATES, *(numbers.ROOT / "docs").glob("reproduction*.md")]
    elsewhere = "\n".join(page.read_text(encoding="utf-8") for page in shown)
    for page in numbers.pages():
        text = page.read_text(encoding="utf-8")
        names = numbers.named(text)
        made = {known[state] for name in names if (state := numbers.state_of(name, known))}
        for state in made - {numbers.MISSING}:
            assert state in text + elsewhere, f"{page.name}: {state}"


def test_the_readme_says_the_headline_in_words(known):
    text = " ".join((numbers.ROOT / "README.md").read_text(encoding="utf-8").split())
    assert "some four times on average over ten seeds, by its interval over three and under" in text
    value, low, high = map(float, re.findall(r"[\d.]+", known["P3.1"]))
    assert round(value) == 4
    assert 3 < low < value < high < 5


def test_no_guide_shows_a_commit_or_a_missing_result(known):
    free = {page.name for page in (numbers.ROOT / "docs").glob("reproduction*.md")}
    free |= {"findings.md", "numbers.md", "CHANGELOG.md"}
    for page in (page for page in numbers.pages() if page.parent.name != "design"):
        if page.name not in free:
            text = page.read_text(encoding="utf-8")
            assert numbers.MISSING not in text, page.name
            assert "(commit " not in text, page.name
