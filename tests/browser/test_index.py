"""The pages over several runs in a browser: they load nothing, fit the window and can be sorted."""

from pathlib import Path

import pytest
from playwright.sync_api import Page

from outcast import cli
from outcast.sweep import index
from outcast.sweep.store import SweepDirectory
from tests.browser.test_report import make_run
from tests.unit.test_index import make_reproduction
from tests.unit.test_sweep_results import make_sweep

READY = ".sortable button"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    directory = SweepDirectory(make_sweep(folder / "made"))
    first = next(directory.runs.iterdir())
    (first / "report.html").write_bytes(
        (make_run(folder, 9, 600).path / "report.html").read_bytes()
    )
    return index.write_index(directory)


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
@pytest.mark.parametrize("name", ["sweep", "reproduction"])
def test_it_fits_the_window_with_all_figures(request, open_page, name, width):
    page = open_page(request.getfixturevalue(name), width=width, ready=READY)
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


def test_a_click_on_a_heading_sorts_by_quantity(sweep, open_page):
    page = open_page(sweep, ready=READY)
    table = page.locator("#results table")

    def column(number: int) -> list[str]:
        return table.locator(f"tbody tr > :nth-child({number})").all_inner_texts()

    assert column(1) == ["16 KB"] * 2 + ["64 KB"] * 2 + ["512 KB"] * 2
    table.get_by_role("button", name="limit").click()
    table.get_by_role("button", name="limit").click()
    assert column(1) == ["512 KB"] * 2 + ["64 KB"] * 2 + ["16 KB"] * 2
    assert table.locator("th[aria-sort]").get_attribute("aria-sort") == "descending"
    table.get_by_role("button", name="outcast ratio").press("Enter")
    ratios = [float(text.split()[0]) for text in column(3)]
    assert ratios == sorted(ratios)
    assert table.locator("th[aria-sort]").inner_text().startswith("outcast ratio")


def test_a_run_leads_to_its_report(sweep, open_page):
    page = open_page(sweep, ready=READY)
    links = page.locator("#runs td a, #runs th a")
    assert links.count() == 1
    links.click()
    page.wait_for_selector("#blackouts-viewer[data-ready=yes]")
    assert page.locator("#trust").is_visible()


def test_a_row_leads_to_its_section(reproduction, open_page):
    page = open_page(reproduction, ready=READY)
    row = page.locator("#verdicts tbody tr", has_text="inconclusive").first
    link = row.locator("a").first
    name = link.inner_text()
    link.click()
    assert page.url.endswith(f"#{name}")
    badge = page.locator(f"section[id='{name}'] .badge").first.inner_text()
    assert badge == "? inconclusive under jitter"
