"""The page of a reproduction in a browser: it loads nothing, fits the window and can be sorted."""

from pathlib import Path

import pytest
from playwright.sync_api import Page

from outcast import cli
from tests.unit.papers.test_index import make_reproduction

READY = ".sortable button"


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reproduction")
    make_reproduction(folder)
    assert cli.invoke(["report", str(folder)]) == 0
    return folder / "index.html"


def sideways(page: Page) -> int:
    """How many pixels the page is wider than its window."""
    return int(
        page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    )


@pytest.mark.parametrize("width", [1400, 400])
def test_it_fits_the_window_with_all_figures(reproduction, open_page, width):
    page = open_page(reproduction, width=width, ready=READY)
    for each in page.locator("details").all():
        each.evaluate("part => { part.open = true; }")
    assert sideways(page) == 0
    figures = page.locator("figure img")
    assert figures.count() >= 2
    for figure in figures.all():
        assert figure.evaluate("image => image.complete && image.naturalWidth > 100")
        assert figure.get_attribute("alt")
        box = figure.bounding_box()
        assert box["x"] + box["width"] <= width


def test_a_click_on_a_heading_sorts(reproduction, open_page):
    page = open_page(reproduction, ready=READY)
    table = page.locator(".sortable table").first
    button = table.get_by_role("button").first
    button.click()
    button.press("Enter")
    assert table.locator("th[aria-sort]").get_attribute("aria-sort") == "descending"
    shown = table.locator("tbody tr > :nth-child(1)").all_inner_texts()
    assert shown == sorted(shown, reverse=True)


def test_a_row_leads_to_its_section(reproduction, open_page):
    page = open_page(reproduction, ready=READY)
    row = page.locator("#verdicts tbody tr", has_text="inconclusive").first
    link = row.locator("a").first
    name = link.inner_text()
    link.click()
    assert page.url.endswith(f"#{name}")
    badge = page.locator(f"section[id='{name}'] .badge").first.inner_text()
    assert badge == "? inconclusive"
