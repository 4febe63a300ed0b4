"""The report in a browser: it loads nothing, and the viewer shows what the tables say."""

import re
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from playwright.sync_api import Page

from outcast.analysis import analyze
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.records.trace import FOLDER
from outcast.view import report
from tests.golden import model
from tests.golden.run_directory import write_run
from tests.golden.traced import write_trace

VIEWER = "#blackouts-viewer"
COLUMNS = """
async () => {
  const text = (id) => document.getElementById(id).textContent;
  const header = JSON.parse(text("viewer-header"));
  const made = await outcastTables(header.tables, text("viewer-data"));
  const lanes = new OutcastLanes(header, made);
  const p = lanes.packets, plain = (values) => Array.from(values);
  return {
    t_in: plain(p.t_in), t_out: plain(lanes.out).map((t) => (isNaN(t) ? null : t)),
    verdict: plain(p.verdict).map((code) => header.verdicts[code]),
    ingress: plain(p.lane).map((lane) => header.inputs[lane].port),
    flow: plain(p.flow).map((place) => header.flows[place].flow),
    seq: plain(lanes.seq), payload: plain(p.payload), frame: plain(p.frame),
    flags: plain(p.flags), queue_bytes: plain(p.found).map((held) => (held ? held - 1 : null)),
    row: p.row ? plain(p.row) : null, weight: p.weight ? plain(p.weight) : null,
    steps: lanes.steps(0, lanes.begin - 1, lanes.end),
  };
}
"""


def make_run(folder: Path, seed: int, packets: int, limit: int = 16_384) -> RunDirectory:
    traffic = model.drop_tail(model.make_traffic(seed, packets), limit, 10**9)
    span_ns = int(traffic.t_in[-1] - traffic.t_in[0])
    directory = write_run(folder / "run", traffic, span_ns // 1_000_000 * 1_000_000)
    analyze(directory)
    report.write(directory)
    return directory


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunDirectory:
    return make_run(tmp_path_factory.mktemp("report"), 9, 12_000)


@pytest.fixture
def page(run, open_page) -> Page:
    return open_page(run.path / "report.html")


def table(run: RunDirectory, name: str) -> pl.DataFrame:
    """A table of the run, with times counted from the traffic's start."""
    start = run.read_manifest().traffic.t_start_ns
    frame = pl.read_parquet(run.path / f"{name}.parquet")
    times = [column for column in ("t", "t_in", "t_out", "t_start", "t_end") if column in frame]
    return frame.with_columns(pl.col(column) - start for column in times)


def data(page: Page, name: str) -> float:
    """A number that the viewer reports about itself, once it has settled."""
    page.wait_for_timeout(250)
    return float(page.locator(VIEWER).get_attribute(f"data-{name}") or "nan")


def test_every_packet_and_the_queue_are_in_the_page(run, page):
    columns = page.evaluate(COLUMNS)
    packets = table(run, "packets")
    for name in ("t_in", "t_out", "flow", "seq", "payload", "frame", "flags", "queue_bytes"):
        assert columns[name] == packets[name].to_list(), name
    for name in ("verdict", "ingress"):
        assert columns[name] == packets[name].cast(pl.String).to_list(), name
    after = dict(columns["steps"])
    queue = table(run, "queue").group_by("t", maintain_order=True).agg(pl.last("queue_bytes"))
    assert [(t, held) for t, held in queue.iter_rows() if after.get(t) != held] == []


def test_jumps_to_the_longest_blackout(run, page):
    page.click("[data-do=longest]")
    chains = table(run, "blackouts").filter(pl.col("others_through") > 0)
    chains = chains.with_columns(lasts=pl.col("t_end") - pl.col("t_start"))
    longest = chains.sort(["drops", "lasts"], descending=[True, False]).row(0, named=True)
    assert longest["drops"] > 3
    assert data(page, "chain-drops") == longest["drops"]
    assert data(page, "chain-start") == longest["t_start"]
    assert data(page, "chain-end") == longest["t_end"]
    assert page.locator(VIEWER).get_attribute("data-chain-port") == longest["ingress"]
    low, high = data(page, "from"), data(page, "to")
    assert low < longest["t_start"] <= longest["t_end"] < high
    assert high - low < 4 * (longest["t_end"] - longest["t_start"]) + 100_000
    text = page.inner_text(".details")
    assert f"{longest['drops']} packets of {longest['flows']} flow" in text
    assert f"{longest['others_through']} of other ports got through" in text
    first = page.locator("#viewer tbody tr").first.inner_text()
    assert f"{longest['t_start'] / 1e6:.4f} ms" in first


def test_a_key_at_the_top_of_the_page_brings_the_blackout_into_view(page):
    page.evaluate("scrollTo(0, 0); document.activeElement.blur()")
    page.keyboard.press("l")
    page.wait_for_function("location.hash.includes('blackout=')")
    assert -1 <= page.locator("canvas.lanes").bounding_box()["y"] < 900


def test_walks_through_the_blackouts_of_a_port(run, page):
    page.select_option(f"{VIEWER} select", label="s1-eth2 (2-hop, cubic)")
    page.focus("canvas.lanes")
    page.keyboard.press("Home")
    chains = table(run, "blackouts").filter(
        (pl.col("others_through") > 0) & (pl.col("ingress") == "s1-eth2")
    )
    starts = chains.sort("t_start")["t_start"].to_list()
    middle = (data(page, "from") + data(page, "to")) / 2
    later = [start for start in starts if start > middle]
    seen = []
    for _ in range(4):
        page.keyboard.press("n")
        seen.append(data(page, "chain-start"))
    assert seen == later[:4]
    page.keyboard.press("p")
    assert data(page, "chain-start") == later[2]
    for _ in range(2):
        page.keyboard.press("p")
    page.keyboard.press("p")
    assert data(page, "chain-start") == starts[starts.index(later[0]) - 1]


def in_view(run: RunDirectory, page: Page) -> tuple[int, int]:
    low, high = data(page, "from"), data(page, "to")
    seen = table(run, "packets").filter((pl.col("t_in") >= low) & (pl.col("t_in") < high))
    return seen.height, seen.filter(pl.col("verdict") == "dropped").height


def test_zooms_from_the_whole_run_to_microseconds(run, page):
    viewer = page.locator(VIEWER)
    assert viewer.get_attribute("data-mode") == "columns"
    packets = table(run, "packets")
    assert data(page, "packets") == packets.height
    assert data(page, "drops") == packets.filter(pl.col("verdict") == "dropped").height
    canvas = page.locator("canvas.lanes")
    canvas.click(position={"x": 300, "y": 8})
    span = data(page, "to") - data(page, "from")
    for _ in range(8):
        page.mouse.wheel(0, -600)
    assert viewer.get_attribute("data-mode") == "marks"
    low, high = data(page, "from"), data(page, "to")
    assert high - low < span / 500
    assert in_view(run, page) == (data(page, "packets"), data(page, "drops"))
    for _ in range(20):
        page.keyboard.press("+")
    assert data(page, "to") - data(page, "from") == 500
    page.keyboard.press("Home")
    assert data(page, "to") - data(page, "from") == pytest.approx(span, rel=1e-6)


def test_pans_by_mouse_and_keys(run, page):
    page.click("[data-do=longest]")
    low, high = data(page, "from"), data(page, "to")
    box = page.locator("canvas.lanes").bounding_box()
    page.mouse.move(box["x"] + 600, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 100, steps=5)
    page.mouse.up()
    moved = data(page, "from") - low
    assert moved == pytest.approx((high - low) * 300 / box["width"], rel=0.01)
    assert in_view(run, page) == (data(page, "packets"), data(page, "drops"))
    page.focus("canvas.lanes")
    before = data(page, "from")
    page.keyboard.press("ArrowLeft")
    assert data(page, "from") == pytest.approx(before - (high - low) / 4, abs=2)


def test_a_link_restores_the_view(run, page, open_page):
    page.click("[data-do=longest]")
    page.click("[data-do=in]")
    page.focus("canvas.lanes")
    page.keyboard.press(".")
    low, high = data(page, "from"), data(page, "to")
    details = page.inner_text(".details")
    assert details.startswith("packet ")
    # Only a run of the virtual engine can be made again.
    assert "outcast whatif" not in details
    fragment = page.evaluate("location.hash")
    again = open_page(run.path / "report.html", fragment)
    assert data(again, "from") == pytest.approx(low, abs=2)
    assert data(again, "to") == pytest.approx(high, abs=2)
    assert again.inner_text(".details") == details
    place = again.locator("#viewer tbody a").nth(2).get_attribute("href")
    assert place is not None
    third = open_page(run.path / "report.html", place)
    again.locator("#viewer tbody a").nth(2).click()
    assert data(third, "chain-start") == data(again, "chain-start")


def test_the_details_of_a_dropped_packet(run, page):
    page.click("[data-do=longest]")
    start = data(page, "chain-start")
    row = (
        table(run, "packets")
        .with_row_index("number")
        .filter((pl.col("t_in") == start) & (pl.col("verdict") == "dropped"))
        .row(0, named=True)
    )
    port = page.locator(VIEWER).get_attribute("data-chain-port")
    lanes = page.locator("canvas.lanes")
    box = lanes.bounding_box()
    low, high = data(page, "from"), data(page, "to")
    x = (start - low) / (high - low) * box["width"]
    # The drops' row of the first lane, and of the one below it.
    y = 78 if port == "s1-eth2" else 78 + 69
    lanes.hover(position={"x": x, "y": y})  # Waits until the page stands still.
    tip = page.locator(".tip")
    tip.wait_for(state="visible")
    text = tip.inner_text()
    assert f"packet {row['number']:,}: dropped" in text
    assert f"{row['src']}:{row['sport']} to {row['dst']}:{row['dport']}" in text
    assert f"in by {port} at {start / 1e6:.6f} ms" in text
    assert f"found {row['queue_bytes']:,} bytes queued" in text
    assert f"seq {row['seq']}, {row['payload']:,} bytes of data" in text
    page.mouse.click(box["x"] + x, box["y"] + y)
    assert f"packet {row['number']:,}: dropped" in page.inner_text(".details")


def test_walks_from_a_drop_to_its_retransmission_and_back(run, page):
    packets = table(run, "packets").with_row_index("number")
    drop = packets.filter(pl.col("verdict") == "dropped", pl.col("payload") > 0)
    copies = drop.join(packets, on=["flow", "egress", "seq"], suffix="_again")
    copies = copies.filter(pl.col("t_in_again") > pl.col("t_in"), pl.col("payload_again") > 0)
    first = copies.sort("number", "number_again").row(0, named=True)
    flow = packets["flow"].unique().sort().to_list().index(first["flow"])
    page.locator(".flows button").nth(flow).click()
    page.focus("canvas.lanes")
    details = page.locator(".details")
    of_flow = drop.filter(pl.col("flow") == first["flow"])["number"].to_list()
    for _ in range(of_flow.index(first["number"]) + 1):
        page.keyboard.press("d")
    assert f"packet {first['number']:,}: dropped" in details.inner_text()
    assert f"its data came again in packet {first['number_again']:,}" in details.inner_text()
    page.keyboard.press("r")
    assert f"packet {first['number_again']:,}: {first['verdict_again']}" in details.inner_text()
    assert "inferred from the captures" in details.inner_text()
    assert data(page, "from") <= first["t_in"] < first["t_in_again"] <= data(page, "to")
    page.click("[data-do=first]")
    assert f"packet {first['number']:,}: dropped" in details.inner_text()
    page.click("[data-do=first]")
    assert "brought no data that was sent before" in details.inner_text()


def test_the_lanes_of_a_traced_sender(run, tmp_path, open_page):
    directory = RunDirectory(tmp_path / "run")
    shutil.copytree(run.path, directory.path)
    write_trace(directory)
    page = open_page(report.write(directory), width=1100)
    sent = pl.read_parquet(directory.path / FOLDER / "retransmissions.parquet")
    packets = table(run, "packets").with_row_index("number")
    timeout = sent.filter(pl.col("drop_packet").is_not_null(), pl.col("cause") == "rto").row(
        5, named=True
    )
    drop = packets.row(timeout["drop_packet"], named=True)
    # The page's address names the dropped packet; one key leads to its retransmission.
    page.evaluate(
        f"location.hash = '#at={drop['t_in'] - 50_000}&span=100000&packet={drop['number']}'"
    )
    details = page.locator(".details")
    page.wait_for_function("document.querySelector('.details').textContent.startsWith('packet')")
    where = "s1-eth1, qdisc tbf, QDISC_DROP, tbf_enqueue()"
    assert f"dropped: {where}" in details.inner_text()
    page.focus("canvas.lanes")
    page.keyboard.press("r")
    assert "sent again: the retransmission timer fired (rto)" in details.inner_text()
    assert "inferred" not in details.inner_text()
    steps = page.locator(".walk li")
    told = [re.sub(r"^.*?\) |^.*? ms ", "", text, count=1) for text in steps.all_inner_texts()]
    first = told.index(f"came in as packet {drop['number']:,} (dropped): {where}")
    assert told[first + 1 : first + 4] == [
        "taken for lost by tcp_retransmit_timer",
        "congestion state from open to loss",
        "sent again: the retransmission timer fired (rto); RTO 2 ms",
    ]
    assert told[first + 4].startswith("came in again as packet")
    # A step without a packet moves a line there, and says what the sender's window was.
    steps.nth(first + 1).get_by_role("button").press("Enter")
    assert f"{timeout['t_detect_ns'] / 1e6:.6f} ms: taken for lost" in details.inner_text()
    series = pl.read_parquet(directory.path / FOLDER / "tcp.parquet")
    then = series.filter(
        pl.col("flow") == timeout["flow"], pl.col("t_ns") <= timeout["t_detect_ns"]
    ).row(-1, named=True)
    assert f"cwnd {then['cwnd']}, ssthresh {then['ssthresh']}" in details.inner_text()
    # The lanes are those of the flow chosen, and a pointer reads them.
    canvas = page.locator("canvas.lanes")
    box = canvas.bounding_box()
    canvas.hover(position={"x": box["width"] - 2, "y": box["height"] - 150})
    chosen = page.locator(".shown-sender option:checked").text_content()
    assert page.locator(".tip div").first.inner_text() == chosen
    before = canvas.screenshot()
    page.select_option(".shown-sender select", index=1)
    page.wait_for_timeout(200)
    assert canvas.screenshot() != before


def test_a_flow_is_highlighted(page):
    button = page.locator(".flows button").nth(0)
    before = page.locator("canvas.lanes").screenshot()
    button.click()
    page.wait_for_timeout(200)
    assert button.get_attribute("aria-pressed") == "true"
    assert page.locator("canvas.lanes").screenshot() != before
    button.click()
    page.wait_for_timeout(200)
    assert button.get_attribute("aria-pressed") == "false"
    assert page.locator("canvas.lanes").screenshot() == before


def test_thinning_never_hides_a_drop(run, tmp_path, open_page):
    path = tmp_path / "thin.html"
    path.write_text(report.make(Run(run), most_packets=7_000), encoding="utf-8")
    page = open_page(path)
    packets = table(run, "packets").with_row_index("row")
    columns: dict[str, Any] = page.evaluate(COLUMNS)
    kept = packets[columns["row"]]
    assert kept.height < 8_000 < packets.height
    assert columns["t_in"] == kept["t_in"].to_list()
    assert columns["seq"] == kept["seq"].to_list()
    dropped = packets.filter(pl.col("verdict") == "dropped")
    assert kept.filter(pl.col("verdict") == "dropped")["row"].to_list() == dropped["row"].to_list()
    assert data(page, "drops") == dropped.height
    # Packets left out are counted with the packet after them. The tail after the last one is not.
    assert packets.height - 40 <= data(page, "packets") <= packets.height
    assert "of them are in this page: every packet dropped or sent again" in page.inner_text(
        "#viewer"
    )
    page.click("[data-do=longest]")
    assert (
        data(page, "chain-drops")
        == table(run, "blackouts").filter(pl.col("others_through") > 0)["drops"].max()
    )


@pytest.mark.parametrize(("width", "height"), [(1280, 1000), (390, 844)])
def test_the_first_screen_has_the_result(page, width, height, tmp_path):
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_timeout(200)
    page.screenshot(path=tmp_path / "kept where this fails.png")
    for shown in (".lead", "dl.key", ".marks", "#goodput table"):
        box = page.locator(shown).first.bounding_box()
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width, shown
        assert 0 <= box["y"] <= box["y"] + box["height"] <= height, shown
    assert "needs JavaScript" not in page.inner_text("body")
    for folded in page.locator("details").all():
        folded.evaluate("part => { part.open = true; }")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_section_opens_for_a_link_to_it(run, open_page):
    page = open_page(run.path / "report.html")
    assert not page.locator("#settings table").first.is_visible()
    page.evaluate("location.hash = '#settings'")
    page.locator("#settings table").first.wait_for(state="visible")


def test_drawings_have_words_and_controls_have_names(page):
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("svg:not([aria-hidden]), canvas, [role=region]")]
        .filter((one) => !one.getAttribute("aria-label")).length"""
    )
    assert unnamed == 0
    assert page.locator("main img").count() >= 4
    assert page.locator('main img[alt=""], main img:not([alt])').count() == 0
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, a, select")]
        .filter((one) => !one.textContent.trim()).length"""
    )
    assert nameless == 0
    # The keyboard can do to the viewer whatever the mouse can.
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the content"
