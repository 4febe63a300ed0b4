"""Opens pages in the distribution's headless Chromium, driven by Playwright."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

OPTIONS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)

VIEWER = "#blackouts-viewer[data-ready=yes][data-frames]"
"""A run's report has one once its packets are drawn."""

Open = Callable[..., Page]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium")
    if found is None:
        pytest.fail("no chromium; scripts/install.sh installs it")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=found, headless=True, args=list(OPTIONS)
        )
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser) -> Iterator[Open]:
    """Opens a file. Fails after the test if the console said or the page loaded anything."""
    complaints: list[str] = []
    pages: list[Page] = []

    def listen(message: ConsoleMessage) -> None:
        complaints.append(f"{message.type}: {message.text}")

    def asked(request: Request) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            complaints.append(f"asked for {request.url}")

    def opener(path: Path, fragment: str = "", width: int = 1400, ready: str = VIEWER) -> Page:
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.set_default_timeout(20_000)
        page.on("console", listen)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", asked)
        pages.append(page)
        page.goto(path.as_uri() + fragment)
        page.wait_for_selector(ready)
        return page

    yield opener
    for page in pages:
        page.close()
    assert complaints == []
