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

from outcast.analysis import selection
from outcast.cli import invoke as outcast
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.view import report
from outcast.view.report import page, timeline
from outcast.view.report.packed import Encoding, pack
from tests.golden.run_directory import analysed_run, with_records


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


def test_the_page_carries_every_packet_as_it_was(run):
    made = timeline.make(Run(run))
    packets = pl.read_parquet(run.path / "packets.parquet")
    got = columns(made)["packets"]
    assert (made.kept, made.packets) == (packets.height, packets.height)
    assert np.diff(got["t_in"]).tolist() == packets["t_in"].diff()[1:].to_list()
    stays = (packets["t_out"] - packets["t_in"] + 1).fill_null(0)
    assert got["stays"] == stays.to_list()
    assert got["found"] == (packets["queue_bytes"] + 1).fill_null(0).to_list()
    next_seq: dict[int, int] = {}
    for flow, away, payload, seq in zip(
        got["flow"], got["seq"], got["payload"], packets["seq"].to_list(), strict=True
    ):
        assert (next_seq.get(flow, 0) + away) % (1 << 32) == seq
        next_seq[flow] = seq + payload


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


def test_texts_are_escaped_and_scripts_cannot_be_ended():
    made = page.render(page.element("p", "<b>&", title='"<'))
    assert made == '<p title="&quot;<">&lt;b&gt;&amp;</p>'
    with pytest.raises(ValueError, match="within script"):
        page.render(page.element("script", "</script>"))


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


def test_the_viewer_takes_the_blackouts_of_the_table(run):
    chains = selection.blackouts(Run(run))
    assert chains["others_through"].min() > 0
    assert chains["t_start"].is_sorted()


def test_distrust_and_warnings_stand_at_the_top(run):
    read = Run(run)
    capture = read.summary.capture.model_copy(update={"trusted": False, "reasons": ["<lost> 5"]})
    warned = {"capture": capture, "warnings": ["the clock jumped"]}
    doubtful = with_records(read, summary=read.summary.model_copy(update=warned))
    text = report.make(doubtful)
    before = text[: text.index("<nav")]
    assert "✗ captures and counters do not agree" in before
    assert "They do not agree: &lt;lost&gt; 5" in before
    assert "Warning: the clock jumped" in before
