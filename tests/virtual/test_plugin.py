"""The pytest plugin, in sessions of pytest as users have them."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from outcast.api import archives
from outcast.cli import invoke
from tests import guest_runs

APP = """#!/usr/bin/python3
import socket, sys
if sys.argv[1] == "serve":
    server = socket.create_server(("", 7777))
    while True:
        connection = server.accept()[0]
        connection.sendall(b"x" * 100_000)
        connection.close()
connection = socket.create_connection((sys.argv[2], 7777))
print(sum(len(data) for data in iter(lambda: connection.recv(65536), b"")))
"""

NETWORK = """
import pytest

NETWORK = dict(
    topology={"kind": "linear", "rivals": 2},
    links={"rate": "50mbit", "delay": "3ms"},
    queue={"kind": "pfifo", "limit": "40 packets"},
    duration="20s",
    programs=[
        {"name": "serve", "host": "h2", "command": ["python3", "app.py", "serve"],
         "files": ["app.py"], "ready": {"port": 7777}},
        {"name": "get", "host": "h1", "command": ["./app.py", "get", "h2"],
         "files": ["app.py"]},
    ],
)
"""


EXAMPLES = Path(__file__).parents[2] / "examples" / "ci"


At = Callable[..., dict[str, object]]


@pytest.fixture
def at_h1(tmp_path, capsys) -> At:
    """Makes a command at a host of the examples' network, and gives what became of it."""

    def command(*words: str, delay: str = "3ms}") -> dict[str, object]:
        network = (EXAMPLES / "go" / "net.yaml").read_text().partition("programs:")[0]
        network = network.replace("3ms}", delay) + "flows:\n  - {from: [h2]}\n"
        (tmp_path / "net.yaml").write_text(network)
        capsys.readouterr()
        network = str(tmp_path / "net.yaml")
        status = invoke(["exec", network, "--host", "h1", "--json", "--", *words])
        told: dict[str, object] = json.loads(capsys.readouterr().out)
        assert status == (137 if told["status"] == -9 else told["status"])
        return told

    return command


def session(folder: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A session of pytest in a folder with the program and these tests."""
    (folder / "app.py").write_text(APP)
    (folder / "app.py").chmod(0o755)
    (folder / "test_app.py").write_text(NETWORK + tests)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return guest_runs.ran(words, cwd=folder)


SPIN = (
    "import time\nend, n = time.monotonic() + 0.2, 0\n"
    "while time.monotonic() < end: n += 1\nprint(n)\n"
)


def test_a_test_sees_programs_and_packets_and_leaves_nothing(tmp_path):
    """What spins sees time pass: without the wait of patch 0022 a reading takes 1 ns."""
    (tmp_path / "spin.py").write_text(SPIN)
    tests = """
import unittest

def test_transfer(outcast):
    spin = {"name": "spin", "host": "h1", "command": ["python3", "spin.py"], "files": ["spin.py"]}
    run = outcast.run(**NETWORK | {"programs": [*NETWORK["programs"], spin | {"to": ["h2"]}]})
    get = run.program("get")
    assert (get.status, get.output, get.errors) == (0, "100000\\n", "")
    assert 0.05 < get.duration_s < 1
    assert len(get.executions) == 1
    assert run.table("packets").height > 60
    assert 3000 < int(run.program("spin").output) < 6000

def test_what_is_left_undone(outcast):
    serve, get = NETWORK["programs"]
    late = get | {"name": "late", "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 30 & wait"],
                  "to": ["h2"], "limits": {"time": "100ms"}}
    often = get | {"repeat": 9, "every": "500ms"}
    run = outcast.run(**NETWORK | {"duration": "1s", "programs": [serve, often, late]})
    assert run.program("late").status == -15

@pytest.mark.outcast_seeds(2)
class TestBoth:
    def test_with(self, outcast):
        assert outcast.seed in (1, 2)

    def test_without(self):
        pass

class Old(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def network(self, outcast):
        self.outcast = outcast

    @pytest.mark.outcast_seeds(3)
    def test_old(self):
        pass
"""
    done = session(tmp_path, tests, "--basetemp=temporary")
    assert "5 passed, 1 warning, 1 error" in done.stdout
    assert "program get was executed 2 times of 9 within the duration" in done.stdout
    assert "no unittest.TestCase around it" in done.stdout
    assert not (tmp_path / "outcast-failures").exists()
    assert not list((tmp_path / "temporary").rglob("*.parquet"))


def test_a_failing_test_keeps_what_replays(tmp_path):
    tests = """
@pytest.mark.outcast_seeds(3)
def test_transfer(outcast):
    assert outcast.run(**NETWORK).program("get").duration_s < 0.001
"""
    done = session(tmp_path, tests, "--outcast-seed", "7")
    assert done.returncode == 1
    assert "test_transfer[seed7]" in done.stdout
    assert "seed1" not in done.stdout
    folder = tmp_path / "outcast-failures" / "test_app.py-test_transfer[seed7]"
    assert f"packets: {folder / '1.pcapng'}" in done.stdout
    assert (folder / "1" / "report.html").is_file()
    assert "Packets dropped, by place and reason" in (folder / "1.why.txt").read_text()
    again = re.search(r"again: +outcast replay (.+)", done.stdout)
    archive, allow = shlex.split(again[1])
    assert allow == "--allow-programs"
    assert archives.replay(archive, allow_programs=True, progress=False).equal


def test_failures_of_programs_and_mistakes_are_told_in_a_line(tmp_path):
    """What a fixture began is kept too if the fixture fails."""
    tests = """
def with_client(*command):
    serve, get = NETWORK["programs"]
    return NETWORK | {"programs": [serve, get | {"command": [*command], "to": ["h2"]}]}

def test_status_without_a_packet(outcast):
    assert outcast.run(**with_client("python3", "-c", "exit(7)")).program("get").status == 7

def test_no_such_kind(outcast):
    outcast.run(**NETWORK | {"queue": {"kind": "pfifoo"}})

def test_no_such_file(outcast):
    outcast.load("none.yaml")

@pytest.fixture
def ended(outcast):
    with pytest.raises(Exception, match="program serve at h2") as caught:
        outcast.run(**NETWORK | {"programs": [
            {"name": "serve", "host": "h2", "command": ["python3", "-c", "print('up')"],
             "ready": {"line": "up"}},
            {"name": "get", "host": "h1", "command": ["sleep", 1], "to": ["h2"]},
        ]})
    yield
    raise caught.value

def test_a_server_that_ends(ended):
    pass
"""
    done = session(tmp_path, tests, "--outcast-keep", "kept")
    assert "2 failed, 2 passed, 1 error" in done.stdout
    assert "none.yaml: there is no such file" in done.stdout
    assert "did you mean 'pfifo'?" in done.stdout
    assert "program serve at h2" in done.stdout
    assert "outcast/api" not in done.stdout, "frames of outcast"
    assert "outcast/experiment" not in done.stdout, "frames of outcast"
    test = tmp_path / "test_app.py::test_a_server_that_ends"
    assert f"again:   python -m pytest {test}" in done.stdout
    kept = tmp_path / "kept" / "test_app.py-test_a_server_that_ends" / "1.failed"
    assert (kept / "log.txt").is_file()


def test_the_example_of_the_docs_passes(tmp_path):
    """Those in Go and Rust: scripts/test-programs.sh."""
    shutil.copytree(EXAMPLES / "python", tmp_path / "python")
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--outcast-seed=1"]
    done = guest_runs.ran([sys.executable, *words], cwd=tmp_path / "python")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_marker_or_option_is_told(tmp_path):
    (tmp_path / "test_other.py").write_text(
        "import pytest\n@pytest.mark.outcast_seeds(2)\ndef test_it(): pass"
    )
    done = session(tmp_path, "@pytest.mark.outcast_seeds(0)\ndef test_it(outcast): pass")
    assert done.returncode != 0
    for said in (
        "outcast_seeds: allowed is one number above 0, as outcast_seeds(10)",
        "outcast_seeds: the test does not use the fixture `outcast`",
    ):
        assert said in done.stdout
    assert "pluggy" not in done.stdout
    wrong = session(tmp_path, "", "--outcast-seed=1_0")
    assert "--outcast-seed: '1_0'; allowed is a whole number from 0" in wrong.stderr


def test_a_command_that_spins_sees_time_pass(at_h1):
    told = at_h1("python3", "-c", SPIN)
    assert 3000 < int(str(told["stdout"])) < 6000


def test_a_command_meets_the_losses_of_links(at_h1):
    told = at_h1("ping", "-c", "200", "-i", "0.01", "h2", delay="3ms, loss: 0.2}")
    received = re.search(r"(\d+) received", str(told["stdout"]))
    # Each way has links that lose a fifth: some 0.8 ** 4 or less of the answers come back.
    assert 20 < int(received[1]) < 150


def test_a_command_in_a_host_tells_its_end_as_json(at_h1):
    script = "getent hosts h2; echo no >&2; kill -9 $$"
    told = {"status": -9, "stdout": "10.0.0.2        h2\n", "stderr": "no\n"}
    crash = {"crash": "was killed by signal 9 (SIGKILL)"}
    assert at_h1("sh", "-c", script) == told | crash
