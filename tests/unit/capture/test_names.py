"""Names of strangers on their way to tables, figures, reports and files."""

import re
import struct

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcast.analysis.capture.pcap import interfaces_of
from outcast.analysis.capture.records import MOST_COLUMNS, shown_name
from outcast.api.joins import join_captures
from outcast.cli import invoke as outcast
from tests.unit.join.test_own_captures import section

NODES = ["n" * 300, r"$\frac{$", "a\x01b\x1b[31m", "a\u202eb", "<script>alert(1)</script>"]
EXPERIMENT = """
name: x
links: {rate: 10mbit, delay: 1ms}
queue: {kind: pfifo, limit: 10 packets}
flows: [{from: [h2], to: h1}]
duration: 1s
topology: """


@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("kind", ["graph", "file"])
def test_names_of_nodes_are_drawn_or_refused_by_one_line(kind, name, tmp_path, capsys):
    if kind == "graph":
        graph = nx.Graph([("s", "h1"), ("s", "h2")])
        labels = {"s": re.sub(r"[\x00-\x1f]", "\x85", name), "h1": "h1", "h2": "h2"}
        nx.set_node_attributes(graph, labels, "label")
        nx.set_node_attributes(graph, {"s": "switch", "h1": "host", "h2": "host"}, "kind")
        nx.write_graphml(graph, tmp_path / "net.graphml")
        topology = "{kind: graph, path: net.graphml}"
    else:
        (tmp_path / "net.py").write_text(
            "from mininet.topo import Topo\n"
            "class T(Topo):\n"
            "    def build(self):\n"
            f"        switch = self.addSwitch({name!r})\n"
            "        for host in ('h1', 'h2'):\n"
            "            self.addLink(self.addHost(host), switch)\n"
            "topos = {'t': T}\n"
        )
        topology = "{kind: file, path: net.py, topo: t}"
    (tmp_path / "x.yaml").write_text(EXPERIMENT + topology)
    png = tmp_path / "x.png"
    status = outcast(["topo", str(tmp_path / "x.yaml"), "--png", str(png)])
    said = capsys.readouterr()
    if kind == "graph":
        assert (status, said.err) == (0, "")
        assert png.read_bytes().startswith(b"\x89PNG")
    else:
        (line,) = said.err.split("\n")[:-1]
        assert status == 2
        assert line.isprintable()
        assert len(line) < 300 + len(str(tmp_path))


def _frame(number, src, dst):
    head = struct.pack(">BBHHHBBH", 0x45, 0, 286, number, 0, 64, 17, 0)
    ends = bytes([10, 0, 0, src, 10, 0, 0, dst])
    return (
        bytes([2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, src, 8, 0])
        + head
        + ends
        + struct.pack(">HHHHI", 1000 + src, 1000 + dst, 266, number, number)
    ).ljust(300, b"x")


def _capture(path, names):
    """Interfaces with these names; what comes in at the first two leaves by the third."""
    seen = []
    for number in range(60):
        for src in (1, 2):
            at_ns = 1_700_000_000_000_000_000 + number * 1_003_000 + src * 7_000
            seen.append((at_ns, src - 1, _frame(number, src, 9)))
            if number % 10 != 4:
                seen.append((at_ns + 60_000, 2, _frame(number, src, 9)))
    path.write_bytes(section([name.decode() for name in names], sorted(seen)))
    return path


@given(st.text(max_size=400), st.text(max_size=400))
def test_a_shown_name_is_short_and_printable_and_stays_its_own(name, other):
    shown = shown_name(name, blank="if0")
    assert shown
    assert shown.isprintable()
    assert len(shown) <= MOST_COLUMNS
    if name.isprintable() and other.isprintable() and name.strip() and name != other:
        assert shown != shown_name(other, blank="if1")


def test_interfaces_of_long_names_stay_apart(tmp_path):
    path = _capture(tmp_path / "a.pcapng", [b"n" * 300, b"n" * 301, b""])
    assert len(interfaces_of(path)) == 3
    assert "if2" in interfaces_of(path)


@pytest.mark.usefixtures("pictures")
def test_captures_of_any_names_are_analysed(tmp_path):
    names = [b"W" * 300, "輸入埠🚀".encode() * 20, rb"$\frac{$ ../\x1b"]
    joined = join_captures(file=_capture(tmp_path / "a.pcapng", names))
    run = joined.save(tmp_path / (r"$\frac$" + "W" * 200))
    assert joined.joined.counts.dropped == 12
    assert (run.path / "drops.png").exists()
    assert (run.path / "report.html").exists()


def test_long_and_wide_names_end_in_a_hash():
    assert shown_name("n" * 300)[:18] == "n" * 17 + "…"
    assert shown_name("輸" * 13)[:9] == "輸" * 8 + "…"
