"""Measures how long report.html takes to write, its size, and how fast it opens and pans.

    python benchmarks/report.py [--packets 1000000] [--repeats 3] [--chromium /usr/bin/chromium]

The run is that of the tests' reference switch: 13 flows from two ports into a drop-tail queue at
1 Gbps. Headless Chromium opens the page from a file, without a GPU. The time to open counts from
the navigation to the viewer's first frame; the best and the worst of the repeats are shown. Panning
moves the view by 20 pixels a frame, at several zooms, for two seconds each. It counts the frames,
the time of the viewer's drawing, and the time that the page's thread ran. Other programs on the
machine change this last number least.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

OPTIONS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PAN = """
async (span) => {
  const root = document.getElementById("blackouts-viewer");
  const canvas = root.querySelector("canvas.lanes");
  const whole = Number(root.dataset.to) - Number(root.dataset.from);
  location.hash = `#at=${Math.round(whole * 0.2)}&span=${Math.round(span * whole)}`;
  await new Promise((done) => setTimeout(done, 300));
  canvas.focus();
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const before = Number(root.dataset.frames), began = performance.now();
  let way = 20, drawn = 0, most = 0, last = before;
  const left = canvas.getBoundingClientRect().left;
  while (performance.now() - began < 2000) {
    canvas.dispatchEvent(new WheelEvent("wheel", { deltaX: way, clientX: left + 50 }));
    await frame();
    const took = Number(root.dataset.took);
    if (Number(root.dataset.frames) !== last) { drawn += took; most = Math.max(most, took); }
    last = Number(root.dataset.frames);
    if (performance.now() - began > 1000) way = -20;
  }
  const frames = last - before, seconds = (performance.now() - began) / 1000;
  const mode = root.dataset.mode;
  document.querySelector("[data-do=whole]").click();
  await new Promise((done) => setTimeout(done, 200));
  return { frames, rate: frames / seconds, mean: drawn / frames, most, mode };
}
"""


def make_run(folder: Path, packets: int) -> Path:
    """Makes an analysed run of about `packets` packets. Returns its folder."""
    from outcast.analysis import analyze
    from tests.golden import model
    from tests.golden.run_directory import write_run

    traffic = model.drop_tail(model.make_traffic(1, packets, load=1.05), 16_384, 10**9)
    duration_ns = int(traffic.t_in[-1] - traffic.t_in[0])
    directory = write_run(folder / "run", traffic, duration_ns // 1_000_000 * 1_000_000)
    analyze(directory)
    return directory.path


def thread_s(metrics: CDPSession) -> float:
    """The seconds for which the page's main thread has run."""
    values = metrics.send("Performance.getMetrics")["metrics"]
    return float(next(item["value"] for item in values if item["name"] == "TaskDuration"))


def main() -> None:
    """Prints the measurements."""
    from playwright.sync_api import sync_playwright

    from outcast.records.run_directory import RunDirectory
    from outcast.view import report

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packets", type=int, default=1_000_000)
    parser.add_argument("--run", type=Path, help="use this analysed run")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = arguments.run or make_run(Path(folder), arguments.packets)
        began = time.monotonic()
        path = report.write(RunDirectory(run))
        took = time.monotonic() - began
        size = path.stat().st_size
        print(
            f"written in {took:.2f} s: {size / 1e6:.1f} MB, "
            f"{size / arguments.packets:.2f} bytes a packet"
        )
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=arguments.chromium, headless=True, args=list(OPTIONS)
            )
            opened, used = [], []
            for _ in range(arguments.repeats):
                page = browser.new_page(viewport={"width": 1400, "height": 900})
                metrics = page.context.new_cdp_session(page)
                metrics.send("Performance.enable", {"timeDomain": "threadTicks"})
                began = time.monotonic()
                page.goto(path.as_uri(), wait_until="commit")
                page.wait_for_selector("#blackouts-viewer[data-frames]", timeout=60_000)
                opened.append(time.monotonic() - began)
                used.append(thread_s(metrics))
                if len(opened) < arguments.repeats:
                    page.close()
            print(
                f"opened in {min(opened):.2f} to {max(opened):.2f} s, of which the page's thread "
                f"ran {min(used):.2f} to {max(used):.2f} s; load {os.getloadavg()[0]:.1f}"
            )
            for span in (0.9, 0.5, 0.1, 0.01, 0.001):
                before = thread_s(metrics)
                result = page.evaluate(PAN, span)
                each_ms = (thread_s(metrics) - before) / result["frames"] * 1e3
                print(
                    f"panning {span:g} of the run ({result['mode']}): "
                    f"{result['rate']:.0f} frames/s; drawing {result['mean']:.1f} ms on average, "
                    f"{result['most']:.1f} ms at most; thread {each_ms:.1f} ms a frame"
                )
            browser.close()


if __name__ == "__main__":
    main()
