"""The numbers in the documentation are those of the stored results."""

from __future__ import annotations

from pathlib import Path

import pytest

from outcast.errors import ConfigError
from outcast.reproduce import docs
from outcast.reproduce.recipe import load_all
from outcast.reproduce.result import describe
from scripts import fill_numbers as numbers

HINT = "run: python -m scripts.fill_numbers"


def test_every_number_in_the_docs_is_what_the_results_give() -> None:
    known = numbers.values()
    for page in numbers.pages():
        name = str(page.relative_to(numbers.ROOT))
        text = page.read_text(encoding="utf-8")
        assert numbers.filled(text, known, name) == text, HINT


def test_a_number_that_is_not_what_the_results_give_is_replaced() -> None:
    known = {"P3.1": "4.5 [3.9, 5.2]", "table": "| a |\n|---|"}
    text = "the gap is <!--=P3.1-->9.9<!--/-->; 3 of 5\n<!--=table--><!--/-->\n"
    assert numbers.filled(text, known, "page.md") == (
        "the gap is <!--=P3.1-->4.5 [3.9, 5.2]<!--/-->; 3 of 5\n"
        "<!--=table-->\n\n| a |\n|---|\n\n<!--/-->\n"
    )


def test_a_mark_that_names_no_result_is_refused_with_the_page() -> None:
    with pytest.raises(ConfigError, match=r"page.md: no result gives 'P33'.*P3"):
        numbers.filled("<!--=P33-->1<!--/-->", {"P3": "1"}, "page.md")


def test_results_are_read_from_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "coverage.json").write_text('{"table": {"normal": {"3": {"ours": 0.951}}}}')
    (folder / "measured.json").write_text(
        '{"h3": {"command": "c", "state": "s", "table": [["a", "b"], ["1", "2"]],'
        ' "values": {"x": "7"}}}'
    )
    known = numbers.values(folder)
    assert "| normal | 3 |  |  |  |  | 0.951 |" in known["coverage"]
    assert known["h3"] == "| a | b |\n|---|---|\n| 1 | 2 |"
    assert (known["h3.x"], known["h3.state"]) == ("7", "s")


def test_every_point_of_a_row_has_its_value_and_the_range_of_its_runs() -> None:
    stored = next(result for result in docs.stored(numbers.ROOT / "docs") if result.id == "W4")
    measure = describe(load_all()["W4"].claims[0].measure)
    points = [
        point.model_copy(update={"values": {measure: [0.1, 0.2, 0.4, None]}})
        for point in stored.points
    ]
    known = numbers.of_points("W4", stored.model_copy(update={"points": points}))
    assert known["W4:12 rivals"].startswith("0.2 [")
    assert (known["W4:12 rivals.least"], known["W4:12 rivals.greatest"]) == ("0.1", "0.4")
    assert f"| 12 rivals | {known['W4:12 rivals']} |" in known["W4.points"]


def test_the_page_of_the_reproduction_is_what_the_stored_results_give() -> None:
    page = docs.page(numbers.ROOT / "docs")
    assert (numbers.ROOT / "docs/reproduction.md").read_text(encoding="utf-8") == page, HINT


def test_a_page_names_every_state_of_its_numbers() -> None:
    known = numbers.values()
    for page in numbers.pages():
        text = page.read_text(encoding="utf-8")
        names = numbers.named(text)
        for state in {known[state] for name in names if (state := numbers.state_of(name, known))}:
            assert state in text, f"{page.name}: {state}"


def test_findings_have_no_number_by_hand() -> None:
    text = (numbers.ROOT / "docs/findings.md").read_text(encoding="utf-8")
    assert numbers.by_hand(text) == []


def test_a_number_by_hand_is_found() -> None:
    text = (
        "It got <!--=P3.1-->4.5<!--/--> Mbps (P3, section 4.1), not 3.6 and 40 % of `7.5`\n"
        "where 0.976<!--reported--> was reported. [a](b-1.2.md)\n"
    )
    assert numbers.by_hand(text) == ["3.6", "40 %"]
