"""The report's parts that need no browser: packing, thinning, words, the page."""

import base64
import json
import re
import shutil
import zlib
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcast.analysis import selection
from outcast.cli import invoke as outcast
from outcast.plan import link_words
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.records.summary import TimesSummary
from outcast.view import report
from outcast.view.report import losses, markup, timeline
from outcast.view.report.experiment import sentences, spaced
from outcast.view.report.packed import GREATEST, Encoding, pack
from tests import records
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


def test_numbers_that_cannot_be_packed():
    for value in (-1, GREATEST):
        with pytest.raises(ValueError, match=r"column: values from 0 to 2\^53"):
            pack({"one": {"column": ("plain", np.array([value]))}})


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


def test_thinning_around_one_drop():
    dropped = np.arange(10_000) == 5_000
    keep, every = timeline.thin(
        dropped, np.zeros(dropped.size, bool), np.zeros(dropped.size, np.int64), 1_000
    )
    near = timeline.NEAR_PACKETS
    assert keep[5_000 - near : 5_000 + near + 1].all()
    away = np.flatnonzero(keep[: 5_000 - near])
    assert set(np.diff(away)) == {every}
    assert every == -(-(10_000 - 2 * near - 1) // (1_000 - 2 * near - 1))


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
    made = markup.render(markup.element("p", "<b>&", title='"<'))
    assert made == '<p title="&quot;<">&lt;b&gt;&amp;</p>'
    with pytest.raises(ValueError, match="within script"):
        markup.render(markup.element("script", "</script>"))


def test_quantities_for_reading():
    assert [spaced(text) for text in ("5us", "1gbit", "12 packets", "2.5ms", 7, "6056ns")] == [
        *("5 µs", "1 Gbps", "12 packets", "2.5 ms", "7", "6.056 µs")
    ]


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


@pytest.mark.parametrize("name", ["packets", "queue", "blackouts", "throughput", "flows", "bins"])
def test_a_table_of_another_kind(run, tmp_path, capsys, name):
    copy = tmp_path / "copy"
    shutil.copytree(run.path, copy)
    pl.DataFrame({"one": [1]}).write_parquet(copy / f"{name}.parquet")
    assert outcast(["report", str(copy)]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert f"`outcast analyze {copy}` writes them anew" in error


def test_a_configuration_that_is_no_text(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run.path, copy)
    (copy / "config.yaml").write_bytes(b"\xff\xfe")
    text = report.write(RunDirectory(copy)).read_text(encoding="utf-8")
    assert "config.yaml cannot be read" in text


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


def test_the_utilisation_is_the_summarys(run):
    read = Run(run)
    ((port, queue),) = read.summary.queue.items()
    queues = {port: queue.model_copy(update={"utilisation": 0.4321})}
    update = {"queue": queues, "start_s": 0.5, "end_s": 2.0}
    text = report.make(with_records(read, summary=read.summary.model_copy(update=update)))
    assert f"Used from 0.5 to 2 s: 43.2% of {port}'s rate." in text
    queues["other"] = queues[port]
    text = report.make(
        with_records(read, summary=read.summary.model_copy(update={"queue": queues}))
    )
    assert f"43.2% of {port}'s rate, 43.2% of other's rate." in text


def test_what_else_was_measured_is_shown_where_it_is_there(tmp_path):
    directory = analysed_run(tmp_path / "run", 3_000_000, 9, 600)
    assert {"sockets", "ports", "links", "completions"}.isdisjoint(identities(directory))
    t = np.arange(5) * 500_000
    sockets = {"t": t, "flow": [0, 1, 0, 1, 0], "host": ["h2", "h3", "h2", "h3", "h2"]}
    sockets |= {"unacked": [1] * 5, "notsent_bytes": [0] * 5}
    written = {
        "sockets": {**sockets, "cwnd": [10, 4, 5, 3, 2], "srtt_us": [90] * 5, "timeouts": [3] * 5},
        "ports": {
            "t": t,
            "port": ["s1-eth1"] * 5,
            "backlog_bytes": t // 1000,
            "drops": t // 10**5,
            "marks": t,
        },
        "links": {
            **{"port": ["s1-eth1"], "node": ["s1"], "neighbour": ["h1"]},
            **{"other": [False], "bytes": [12_345_678], "utilisation": [0.5478]},
        },
        "completions": {
            "workload": [0, 0, 1],
            "kind": ["poisson", "poisson", "incast"],
            "fct": [2_000_000, None, 7_000_000],
            "size_bytes": [1000, 2000, 3000],
        },
    }
    for name, columns in written.items():
        pl.DataFrame(columns).write_parquet(directory.path / f"{name}.parquet")
    assert set(written) <= set(identities(directory))
    text = (directory.path / "report.html").read_text(encoding="utf-8").partition("<script")[0]
    for shown in ("12,345,678", "54.8%", ">no<", "cwnd"):
        assert (shown in text) == (shown != "cwnd")


def identities(directory: RunDirectory) -> list[str]:
    checker = Checker()
    checker.feed(report.write(directory).read_text(encoding="utf-8"))
    return checker.ids


def test_a_packet_that_finds_the_queue_empty_is_not_said_to_wait_for_nothing(run):
    said = markup.render(losses.queue(Run(run)))
    assert "sojourn when empty" in said


def test_the_experiment_in_words(run):
    read = Run(run)
    words = " ".join(sentences(read))
    assert "1 TCP flow (cubic) to h1 over 2 links; 12 TCP flows (cubic) to h1 over 3 links" in words
    assert "They start together. The run lasts 30 ms." in words
    assert "They meet at the output" in words
    assert (
        "the output s1-eth1 of s1, which is fed by s1-eth2 (2-hop, cubic), s1-eth3 (3-hop, cubic)"
        in words
    )
    assert "(tbf) has room for 16 KB and drains at 1 Gbps" in words
    link = read.plan.links["s1", "h1"]
    assert f" Its link has {link_words.settings(link)}. " in words


def test_generated_traffic_alone(run):
    read = Run(run)
    times = TimesSummary(
        flows=20, finished=19, mean_ms=2.0, p50_ms=1.5, p95_ms=9.0, p99_ms=9.5, max_ms=9.9
    )
    workload = records.completed(
        kind="incast", flows=20, unfinished=1, goodput_bps=9.5e8, times={"all": times}
    )
    of_workload = {"classes": {}, "completions": {"0": workload}}
    alone = with_records(
        read,
        manifest=read.manifest.model_copy(update={"flows": []}),
        plan=None,
        summary=read.summary.model_copy(update=of_workload),
    )
    text = report.make(alone)
    assert "20 flows (incast) at 950 Mbps, 1 unfinished" in text
    assert "<dt>median completion time</dt><dd>1.5 ms</dd>" in text
    assert "outcast ratio" not in text


def test_a_capacity_that_nothing_was_configured_for(run):
    read = Run(run)
    port, queue = next(iter(read.summary.queue.items()))
    unknown = queue.capacity.model_copy(update={"configured": None, "agrees": None})
    of_port = {port: queue.model_copy(update={"capacity": unknown})}
    summary = read.summary.model_copy(update={"queue": of_port})
    text = report.make(with_records(read, summary=summary))
    assert f"{port} has room for at least {unknown.at_least:,}" in text
    assert "configured" not in text.split("has room for at least")[1].split("</p>")[0]
