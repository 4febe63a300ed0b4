"""Makes the pictures of docs/images again, and stores the numbers that pages give beside them.

`python -m scripts.pictures` runs configs/fig3c.yaml, photographs its report in Chromium, shows
the senders by `outcast trace`, and photographs them too. README.md and docs/report.md show the
pictures; `python -m scripts.fill_numbers` then takes the numbers.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks import stored
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory

ROOT = Path(__file__).parents[1]
CONFIG = "configs/fig3c.yaml"
IMAGES = ROOT / "docs/images"
NAME = "pictures"
WIDTH = 1140
"""Of the viewer's pictures, in pixels."""
FLOW = 0
"""The flow whose sender is shown: the only one of the nearest class."""
AROUND_NS = 2_000_000
"""What is in view before a loss and after its last retransmission."""


def main() -> int:
    """Makes the run, the pictures and the entry of docs/results/measured.json."""
    browser = shutil.which("chromium")
    if browser is None:
        print("no chromium; scripts/install.sh installs it", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory(Path(folder) / "fig3c")
        _outcast("run", CONFIG, "-o", str(directory.path))
        run = Run(directory)
        # First, because a checkout that has changed says so in the entry.
        stored.store(NAME, _entry(run))
        _keep((directory.path / "goodput.png").read_bytes(), IMAGES / "goodput.png")
        with sync_playwright() as playwright:
            options = ["--no-sandbox", "--disable-gpu"]
            launched = playwright.chromium.launch(executable_path=browser, args=options)
            _of_report(launched, directory)
            _outcast("trace", str(directory.path))
            _of_sender(launched, Run(directory))
            launched.close()
    return 0


def _outcast(*arguments: str) -> None:
    """Runs a verb of this checkout. Raises CalledProcessError."""
    subprocess.run([sys.executable, "-m", "outcast", *arguments], cwd=ROOT, check=True)


def longest_blackout(run: Run) -> dict[str, Any]:
    """The row of blackouts.parquet that the report calls the longest."""
    lasts = (pl.col("t_end") - pl.col("t_start")).alias("lasts")
    rows = run.table("blackouts").filter(pl.col("others_through") > 0).with_columns(lasts)
    return rows.sort(["drops", "lasts"], descending=[True, False]).row(0, named=True)


def _entry(run: Run) -> stored.Entry:
    """The numbers that pages tell of the pictures."""
    longest = longest_blackout(run)
    return stored.Entry(
        "scripts/pictures.py",
        stored.state_of([run]),
        values={
            "blackout": f"{longest['drops']} packets",
            "blackout.port": str(longest["ingress"]),
            "blackout.others": f"{longest['others_through']:,}",
        },
    )


def _keep(png: bytes, path: Path) -> None:
    """Stores a picture with at most 256 colours, which makes it a third as large."""
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256).save(path, optimize=True)


def _open(browser: Browser, directory: RunDirectory, width: int, height: int) -> Page:
    page = browser.new_page(viewport={"width": width, "height": height})
    page.goto((directory.path / "report.html").as_uri())
    page.wait_for_selector("#blackouts-viewer[data-ready=yes][data-frames]")
    return page


def _photograph(page: Page, name: str) -> None:
    """The viewer alone, once it has settled."""
    page.wait_for_timeout(500)
    _keep(page.locator("#blackouts-viewer").screenshot(), IMAGES / f"{name}.png")


def _of_report(browser: Browser, directory: RunDirectory) -> None:
    """The report's top, the whole run in the viewer, and the longest blackout."""
    page = _open(browser, directory, 1400, 1100)
    _keep(page.screenshot(), IMAGES / "report.png")
    page.close()
    page = _open(browser, directory, WIDTH + 60, 1100)
    page.click("[data-do=whole]")
    _photograph(page, "report-run")
    page.click("[data-do=longest]")
    page.focus("canvas.lanes")
    page.keyboard.press("d")
    _photograph(page, "report-blackout")
    page.close()


def _of_sender(browser: Browser, run: Run) -> None:
    """A timeout of the lone flow: what was lost and sent again in the lanes of its sender."""
    start_ns = run.manifest.traffic.t_start_ns
    sent = run.table("trace/retransmissions").filter(
        pl.col("flow") == FLOW, pl.col("cause") == "rto", pl.col("drop_packet").is_not_null()
    )
    first = sent.row(0, named=True)
    packet = run.table("packets", whole=True).row(first["drop_packet"], named=True)
    from_ns = packet["t_in"] - start_ns - AROUND_NS
    span_ns = first["t_ns"] - from_ns + 2 * AROUND_NS
    page = _open(browser, run.directory, WIDTH + 60, 1400)
    page.evaluate(
        f"location.hash = '#at={from_ns}&span={span_ns}&packet={first['drop_packet']}"
        f"&sender={FLOW}'"
    )
    page.wait_for_function("document.querySelector('.details').textContent.startsWith('packet')")
    _photograph(page, "report-sender")
    page.close()


if __name__ == "__main__":
    sys.exit(main())
