"""The report's parts that need no browser: packing, thinning, words, the page."""

import base64
import json
import re
import zlib
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcast.cli import invoke as outcast
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.view import listings, report
from outcast.view.report import timeline
from outcast.view.report.packed import Encoding, pack
from tests.golden.run_directory import analysed_run, with_records
from tests.unit.view.all_measured import all_measured
from tests.unit.view.test_terminal_tables import reference_runs


def unpack(text: str, rows: int, width: int, encoding: Encoding) -> list[int]:
    return decoded(inflated(text), rows, width, encoding)


def inflated(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text), -zlib.MAX_WBITS)


def decoded(data: bytes, rows: int, width: int, encoding: Encoding) -> list[int]:
    planes = [data[place * rows : (place + 1) * rows] for place in range(width)]
    values = [sum(plane[i] << 8 * k for k, plane in enumerate(planes)) for i in range(rows)]
    if encoding == "plain":
        return values
    signed = [value // 2 if value % 2 == 0 else -(value // 2) - 1 for value in values]
    return signed if encoding == "signed" else np.cumsum(signed).tolist()


@given(
    st.lists(st.integers(-(2**50), 2**50), max_size=30),
    st.sampled_from(["plain", "signed", "delta"]),
)
def test_packed_numbers_come_back(values, encoding):
    wanted = [abs(value) for value in values] if encoding == "plain" else values
    described, text = pack({"one": {"column": (encoding, np.array(wanted, np.int64))}})
    (column,) = described["one"]["columns"]
    rows = described["one"]["rows"]
    assert unpack(text, rows, column["width"], encoding) == wanted


@given(st.data())
def test_thinning_keeps_drops_and_what_is_near(data):
    size = data.draw(st.integers(1, 3000))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    dropped = rng.random(size) < data.draw(st.sampled_from([0.0, 0.001, 0.3]))
    lane = rng.integers(0, 3, size)
    most = data.draw(st.integers(1, 3500))
    resent = rng.random(size) < 0.01
    keep, every = timeline.thin(dropped, resent, lane, most)
    assert keep[dropped | resent].all()
    if size <= most:
        assert every == 1
        assert keep.all()
        return
    near = np.zeros(size, bool)
    for at in np.flatnonzero(dropped):
        near[max(0, at - timeline.NEAR_PACKETS) : at + timeline.NEAR_PACKETS + 1] = True
    if (near | resent).sum() <= most:
        assert keep[near].all()
    assert keep.sum() <= max(most, (dropped | resent).sum()) + 3


def columns(made: timeline.Timeline) -> dict[str, dict[str, list[int]]]:
    """The columns of each table that the page carries."""
    data = inflated(made.payload)
    found: dict[str, dict[str, list[int]]] = {}
    for name, described in json.loads(made.header)["tables"].items():
        rows = described["rows"]
        found[name] = {}
        for column in described["columns"]:
            width = column["width"]
            of_column, data = data[: rows * width], data[rows * width :]
            found[name][column["name"]] = decoded(of_column, rows, width, column["encoding"])
    return found


def test_a_kept_packet_stands_for_those_left_out_before_it(run, monkeypatch):
    monkeypatch.setattr(timeline, "NEAR_PACKETS", 1)
    made = timeline.make(Run(run), most=4000)
    assert made.every > 1
    got = columns(made)["packets"]
    packets = pl.read_parquet(run.path / "packets.parquet")
    dropped = (packets["verdict"] == "dropped").to_list()
    ports = packets["ingress"].to_list()
    standing: dict[str, int] = {}
    last: dict[str, int] = {}
    for row, weight in zip(got["row"], got["weight"], strict=True):
        if dropped[row]:
            assert weight == 1
        else:
            standing[ports[row]] = standing.get(ports[row], 0) + weight
            last[ports[row]] = row
    for port, row in last.items():
        until = [each for each in range(row + 1) if ports[each] == port and not dropped[each]]
        assert standing[port] == len(until)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunDirectory:
    return analysed_run(tmp_path_factory.mktemp("report") / "run", 30_000_000, 9, 6_000)


class Checker(HTMLParser):
    """Collects ids and targets of links within the page. Checks that elements are closed."""

    VOID = ("meta", "link", "br", "hr", "img", "input")

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.loads: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name == "href" and (value or "").startswith("#") and "=" not in (value or ""):
                self.targets.append((value or "")[1:])
            if name in ("src", "href") and not (value or "").startswith(("#", "data:")):
                self.loads.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.usefixtures("pictures")
def test_the_page_is_whole_and_loads_nothing(run):
    assert outcast(["report", str(run.path)]) == 0
    text = (run.path / "report.html").read_text(encoding="utf-8")
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert checker.loads == []
    assert len(set(checker.ids)) == len(checker.ids)
    assert set(checker.targets) <= set(checker.ids)
    assert not re.search(r"https?://", text)
    assert outcast(["report", str(run.path)]) == 0
    assert (run.path / "report.html").read_text(encoding="utf-8") == text


def test_the_first_screen_has_marks_that_texts_below_explain_with_names_escaped(run):
    read = Run(run)
    capture = read.summary.capture.model_copy(update={"trusted": False, "reasons": ["<lost> 5"]})
    changes = {"name": "</script><b>", "capture": capture, "warnings": ["the clock jumped"]}
    text = report.make(with_records(read, summary=read.summary.model_copy(update=changes)))
    assert "<b>" not in text
    assert "<h1>&lt;/script&gt;&lt;b&gt;</h1>" in text
    before = text[: text.index('id="goodput"')]
    assert re.findall(r'badge (\w+)">(. [^<]*)</span>', before) == [
        ("bad", "✗ captures and counters do not agree"),
        ("good", "✓ no trend found"),
        ("doubtful", "! other"),
    ]
    assert "<details open>" in before
    assert "<li>✗ They do not agree: &lt;lost&gt; 5</li>" in before
    assert "<li>! other: the clock jumped</li>" in before


def test_every_kind_of_run_has_its_tables_on_the_first_screen(run):
    for kind in reference_runs(Run(run)).values():
        first = report.make(kind).partition('id="viewer"')[0]
        titles = [made.title for made in listings.shown(kind, "run", listings.SCREEN)]
        assert re.findall("<caption>([^<]*)<", first) == titles


def test_all_that_was_measured_has_a_folded_section(tmp_path):
    text = report.make(all_measured(tmp_path / "run"))
    headings = re.findall(r"<h2 [^>]*>([^<]*)</h2>", text)
    assert headings == [
        *("Goodput", "Whether and when it was decided", "Packet by packet", "The experiment"),
        *("Every flow", "Fairness over time", "Losses of every port", "The queue", "Drops"),
        *("Classes of service", "Who takes the free place", "Noise", "Latency under load", "UDP"),
        *("Flow completion times", "Programs", "Generated traffic over time", "Sockets"),
        *("Settings", "Run it again", "Words"),
    ]
    assert text.count("<details><summary><h2") == len(headings) - 3
