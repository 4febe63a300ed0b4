"""If a program is killed within a run, that is the run's only error, in one line."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests import guest_runs
from tests.processes import command, descendants

CONFIG = Path(__file__).parents[2] / "configs" / "linear-12.yaml"
RUN = [*guest_runs.OUTCAST, "run", str(CONFIG)]


@pytest.mark.parametrize(
    ("victim", "name"),
    [
        ("tcpdump -i s1-eth1 ", "tcpdump on s1-eth1 (out)"),
        ("iperf -c ", "the client of flow "),
        ("ovs-vswitchd ", "ovs-vswitchd"),
        (" controllers ", "the controller"),
        (" outcast.emulation ", "the run's inner program"),
    ],
)
def test_who_was_killed_is_said_first(victim, name, tmp_path):
    target = tmp_path / "run"
    argv = [*RUN, "--engine", "realtime", "-o", str(target)]
    argv += ["--set", "duration=20s", "--set", "analysis={}"]
    run = subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        before = []
        while "flows are running" not in (line := run.stderr.readline()):
            before.append(line)
            assert line, before
        os.kill(await_victim(run.pid, victim), signal.SIGKILL)
        said = run.communicate(timeout=120)[1]
    finally:
        run.kill()
        run.wait()
    last = said.splitlines()[-1]
    assert run.returncode == 1
    assert last.startswith(f"outcast: {name}")
    assert " was killed by signal 9 (SIGKILL) during the traffic" in last
    # The log has the command and its output. The line names the log's folder.
    assert victim.strip() not in last.partition("during the traffic")[2]
    assert str(target) in last
    assert len(last) < 300
    if "outcast.emulation" not in victim:
        (log,) = tmp_path.glob("run*/log.txt")
        assert victim in log.read_text()


def await_victim(run: int, victim: str) -> int:
    """The number of a process below `run` whose command has `victim` in it, 1 s after its start."""
    end = time.monotonic() + 20
    while True:
        for pid in descendants(run):
            line = command(pid)
            if line.startswith(victim) or (victim[0] == " " and f"-m{victim}" in line):
                if "unshare" in line:
                    continue
                time.sleep(1)
                return pid
        assert time.monotonic() < end, f"no {victim}"
        time.sleep(0.05)
