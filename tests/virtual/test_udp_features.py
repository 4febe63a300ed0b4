"""What UDP programs ask of the kernel: what works in the guest, as docs/programs.md has it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from outcast.cli import invoke

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/programs.md"
NETWORK = """
name: udp
topology: {kind: linear, rivals: 1}
links: {rate: 100mbit, delay: 1ms}
queue: {kind: pfifo, limit: 100 packets}
addressing: both
programs:
  - name: serve
    host: h2
    command: [python3, udp_features.py, serve]
    files: [udp_features.py]
    ready: {line: ready}
    to: [h1]
duration: 1s
engine: virtual
"""
FQ = "links.overrides=[{from: h1, to: s1, queue: {kind: fq, limit: 1000 packets}}]"
TWO_LINKS_MS = 2

ROWS: list[tuple[str, str, Any, str]] = [
    # The name on the page, the key, what both families give, and the words on the page.
    (
        "`UDP_SEGMENT` (GSO)",
        "gso",
        [1000, 1000, 1000, 500],
        "a send is cut into datagrams of the requested size",
    ),
    ("`UDP_GRO`", "gro", [None] * 4, "taken, and datagrams come one by one"),
    ("ECN bits", "ecn", [0, 1, 2, 3], "set by `IP_TOS` or `IPV6_TCLASS`, they come as sent"),
    (
        "`SO_TXTIME`",
        "txtime",
        [TWO_LINKS_MS - 20],
        "taken; the datagram is sent at once, or at its time if the host's port has a queue of "
        "kind `fq`",
    ),
    (
        "Path MTU discovery",
        "path_mtu",
        ["EMSGSIZE", 1500],
        "what the host's link does not take is refused (`EMSGSIZE`), and `IP_MTU` has the MTU. "
        "A path with a narrower link is refused before the run",
    ),
    (
        "ICMP errors",
        "icmp",
        None,
        "a port that nobody has gives `ECONNREFUSED`, by the error queue too (`IP_RECVERR`)",
    ),
    ("Fragments", "fragments", [4000], "a datagram of 4000 bytes comes whole"),
]
UNREACHABLE = {"ipv4": ["ECONNREFUSED", 3, 3], "ipv6": ["ECONNREFUSED", 1, 4]}
"""Types and codes of "port unreachable" in RFC 792 and RFC 4443."""


def tried(folder: Path, capsys: pytest.CaptureFixture[str], *settings: str) -> dict[str, Any]:
    shutil.copy(HERE / "udp_features.py", folder)
    (folder / "net.yaml").write_text(NETWORK, encoding="utf-8")
    asked = [word for setting in settings for word in ("--set", setting)]
    command = ["python3", "udp_features.py", "try", "h2"]
    assert invoke(["exec", str(folder / "net.yaml"), *asked, "--json", "--", *command]) == 0
    found: dict[str, Any] = json.loads(json.loads(capsys.readouterr().out)["stdout"])
    return found


def test_what_works_is_on_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = tried(tmp_path, capsys)
    assert set(found) == {key for _, key, *_ in ROWS}
    page = PAGE.read_text(encoding="utf-8")
    for name, key, expected, words in ROWS:
        wanted = {"ipv4": expected, "ipv6": expected} if key != "icmp" else UNREACHABLE
        assert found[key] == wanted, key
        assert f"| {name} | {words} |" in page, name


def test_a_datagram_leaves_at_its_time_where_the_port_has_fq(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    times = tried(tmp_path, capsys, FQ)["txtime"]
    assert times == {"ipv4": [TWO_LINKS_MS], "ipv6": [TWO_LINKS_MS]}
