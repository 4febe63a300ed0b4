"""Programs and single commands in hosts, on this machine's kernel."""

from pathlib import Path

import polars as pl

import outcast

NETWORK = """
name: programs
topology: {kind: linear, rivals: 2}
links: {rate: 50mbit}
queue: {kind: tbf, limit: 64KB}
programs:
  - {name: web, host: h1, command: [python3, -m, http.server, 80], files: [page], ready: {port: 80}}
  - {name: get, host: h3, command: [curl, -fsSo, page, "http://{h1}/page"], repeat: 2}
duration: 1s
engine: realtime
"""


def network(tmp_path: Path) -> outcast.Experiment:
    (tmp_path / "page").write_bytes(bytes(20_000))
    (tmp_path / "net.yaml").write_text(NETWORK, encoding="utf-8")
    return outcast.load(tmp_path / "net.yaml")


def test_a_server_and_its_client(tmp_path):
    run = outcast.run(network(tmp_path), tmp_path / "run", progress=False)
    pages = run.table("flows").filter(pl.col("name") == "get", pl.col("src") == "h1")
    assert pages.height == 2
    assert (pages["goodput_bytes"] > 20_000).all()
    programs = run.summary.programs
    assert (programs["get"].executions, programs["get"].failures) == (2, 0)
    assert (run.path / "programs/get/written/page").stat().st_size == 20_000


def test_one_command(tmp_path):
    script = "curl -fsS -o /dev/null -w '%{{size_download}}' http://{h1}/page; pwd; exit 4"
    done = outcast.exec_in(network(tmp_path), ["sh", "-c", script], host="h3", progress=False)
    assert (done.status, done.stderr) == (4, b"")
    assert done.stdout == f"20000{Path.cwd()}\n".encode()
