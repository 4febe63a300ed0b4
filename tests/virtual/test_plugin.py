"""The pytest plugin, in sessions of pytest as users have them."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from outcast.api import archives
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


def at_h1(folder: Path, *words: str, delay: str = "3ms}") -> subprocess.CompletedProcess[str]:
    """A command at a host of the examples' network."""
    network = (EXAMPLES / "go" / "net.yaml").read_text().partition("programs:")[0]
    network = network.replace("3ms}", delay) + "flows:\n  - {from: [h2]}\n"
    (folder / "net.yaml").write_text(network)
    return guest_runs.outcast("exec", "net.yaml", "--host", "h1", *words, where=folder)


def session(folder: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A session of pytest in a folder with the program and these tests."""
    (folder / "app.py").write_text(APP)
    (folder / "app.py").chmod(0o755)
    (folder / "test_app.py").write_text(NETWORK + tests)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return guest_runs.ran(words, cwd=folder)


def test_a_test_sees_programs_and_packets_and_leaves_nothing(tmp_path):
    tests = """
def test_transfer(outcast):
    run = outcast.run(**NETWORK)
    get = run.program("get")
    assert (get.status, get.output, get.errors) == (0, "100000\\n", "")
    assert 0.05 < get.duration_s < 1
    assert len(get.executions) == 1
    assert run.table("packets").height > 60
"""
    done = session(tmp_path, tests, "--basetemp=temporary")
    assert done.returncode == 0, done.stdout
    assert not (tmp_path / "outcast-failures").exists()
    assert not list((tmp_path / "temporary").rglob("*.parquet"))


def test_programs_and_commands_that_spin_see_time_pass(tmp_path):
    """Without the wait of patch 0022 a reading takes 1 ns, and 0.2 s need minutes."""
    (tmp_path / "spin.py").write_text(
        "import time\nend, n = time.monotonic() + 0.2, 0\n"
        "while time.monotonic() < end: n += 1\nprint(n)\n"
    )
    tests = """
def test_spin(outcast):
    spin = {"name": "spin", "host": "h1", "command": ["python3", "spin.py"], "files": ["spin.py"]}
    run = outcast.run(**NETWORK | {"programs": [*NETWORK["programs"], spin | {"to": ["h2"]}]})
    assert 3000 < int(run.program("spin").output) < 6000
"""
    done = session(tmp_path, tests)
    assert done.returncode == 0, done.stdout
    assert 3000 < int(at_h1(tmp_path, "--", "python3", "spin.py").stdout) < 6000


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


def test_a_fixture_that_fails_keeps_its_run(tmp_path):
    tests = """
@pytest.fixture
def transfer(outcast):
    run = outcast.run(**NETWORK)
    yield
    assert run.program("get").duration_s < 0.001

def test_transfer(transfer):
    pass
"""
    done = session(tmp_path, tests, "--outcast-keep", "kept")
    assert "1 error" in done.stdout
    folder = tmp_path / "kept" / "test_app.py-test_transfer"
    assert f"packets: {folder / '1.pcapng'}" in done.stdout
    assert (folder / "1.zip").is_file()


def test_failures_of_programs_and_mistakes_are_told_in_a_line(tmp_path):
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

def test_a_server_that_ends(outcast):
    outcast.run(**NETWORK | {"programs": [
        {"name": "serve", "host": "h2", "command": ["python3", "-c", "print('up')"],
         "ready": {"line": "up"}},
        {"name": "get", "host": "h1", "command": ["sleep", 1], "to": ["h2"]},
    ]})
"""
    done = session(tmp_path, tests)
    assert "3 failed, 1 passed" in done.stdout
    assert "none.yaml: there is no such file" in done.stdout
    assert "did you mean 'pfifo'?" in done.stdout
    assert "program serve at h2" in done.stdout
    assert "outcast/api" not in done.stdout, "frames of ours"
    assert "outcast/experiment" not in done.stdout, "frames of ours"
    test = tmp_path / "test_app.py::test_a_server_that_ends"
    assert f"again:   python -m pytest {test}" in done.stdout
    kept = tmp_path / "outcast-failures" / "test_app.py-test_a_server_that_ends" / "1.failed"
    assert (kept / "log.txt").is_file()


@pytest.mark.parametrize(
    ("language", "command"),
    [
        (
            "python",
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--outcast-seed=1"],
        ),
        ("go", ["go", "test", "-count=1", "./..."]),
        ("rust", ["cargo", "test", "--offline"]),
    ],
)
def test_the_examples_of_other_languages_pass(tmp_path, language, command):
    version = "version" if language == "go" else "--version"
    if shutil.which(command[0]) is None or subprocess.run([command[0], version]).returncode:
        pytest.skip(f"{command[0]} does not work here")
    folder = tmp_path / language
    shutil.copytree(EXAMPLES / language, folder, ignore=shutil.ignore_patterns("target"))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = guest_runs.ran(command, cwd=folder, env={**os.environ, "PATH": path})
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        (
            "@pytest.mark.outcast_seeds(0)\ndef test_it(outcast): pass",
            "outcast_seeds: allowed is one number above 0, as outcast_seeds(10)",
        ),
        (
            "@pytest.mark.outcast_seeds(2)\ndef test_it(): pass",
            "outcast_seeds: the test does not use the fixture `outcast`",
        ),
    ],
)
def test_a_wrong_marker_is_told(tmp_path, tests, said):
    done = session(tmp_path, tests)
    assert done.returncode != 0
    assert said in done.stdout
    assert "pluggy" not in done.stdout


def test_seeds_of_a_class_are_of_its_tests_with_a_network(tmp_path):
    tests = """
import unittest

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
    done = session(tmp_path, tests)
    assert "3 passed, 1 error" in done.stdout
    assert "no unittest.TestCase around it" in done.stdout
    wrong = session(tmp_path, tests, "--outcast-seed=1_0")
    assert "--outcast-seed: '1_0'; allowed is a whole number from 0" in wrong.stderr


def test_what_a_program_left_undone_is_warned_of(tmp_path):
    tests = """
def test_it(outcast):
    serve, get = NETWORK["programs"]
    late = get | {"name": "late", "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 30 & wait"],
                  "to": ["h2"], "limits": {"time": "100ms"}}
    often = get | {"repeat": 9, "every": "500ms"}
    run = outcast.run(**NETWORK | {"duration": "1s", "programs": [serve, often, late]})
    assert run.program("late").status == -15
"""
    done = session(tmp_path, tests)
    assert "1 passed, 1 warning" in done.stdout
    assert "program get was executed 2 times of 9 within the duration" in done.stdout


def test_a_command_meets_the_losses_of_links(tmp_path):
    ping = ("--", "ping", "-c", "200", "-i", "0.01", "h2")
    done = at_h1(tmp_path, *ping, delay="3ms, loss: 0.2}")
    received = re.search(r"(\d+) received", done.stdout)
    # Each way has links that lose a fifth: some 0.8 ** 4 or less of the answers come back.
    assert 20 < int(received[1]) < 150


def test_a_command_in_a_host_tells_its_end_as_json(tmp_path):
    script = "getent hosts h2; echo no >&2; kill -9 $$"
    done = at_h1(tmp_path, "--json", "--", "sh", "-c", script)
    assert done.returncode == 128 + 9
    told = {"status": -9, "stdout": "10.0.0.2        h2\n", "stderr": "no\n"}
    assert json.loads(done.stdout) == told | {"crash": "was killed by signal 9 (SIGKILL)"}
