"""How programs are started, never from the working folder, and what is reported of their end."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from outcast import cli
from outcast.emulation.commands import (
    SystemCommands,
    leave_working_folder,
    python_module,
)
from outcast.engines import INSIDE, EventReader
from outcast.errors import CommandError, RunError

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def trap(tmp_path, monkeypatch) -> Path:
    """The working folder, with a stranger's modules. Importing one creates the given file."""
    mark = tmp_path / "executed"
    for name in ("pydantic", "networkx", "click", "outcast", "controllers", "json"):
        (tmp_path / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    return mark


@pytest.mark.parametrize("module", [INSIDE, "controllers", "outcast.sweep.worker"])
def test_modules_of_the_working_folder_are_not_run(module, trap):
    argv = [*python_module(module), "--help"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert not trap.exists(), done.stderr


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"PATH": ":/usr/bin:.:bin:/bin:"}, {"PATH": "/usr/bin:/bin"}),
        ({"PATH": ""}, {"PATH": os.defpath}),
        ({"PATH": "."}, {"PATH": os.defpath}),
        ({"PYTHONPATH": ":/x"}, {"PYTHONPATH": "/x"}),
        ({"PYTHONPATH": "."}, {}),
        ({"HOME": "."}, {"HOME": "."}),
    ],
)
def test_elements_below_the_working_folder_are_left_out(before, after):
    environment = dict(before)
    leave_working_folder(environment)
    assert environment == after


def test_no_verb_runs_programs_of_the_working_folder(trap, monkeypatch):
    fake = trap.with_name("unshare")
    fake.write_text(f"#!/bin/sh\ntouch {trap}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f":{os.environ['PATH']}")
    cli.invoke(["doctor"])
    assert not trap.exists()


def test_a_killed_programs_error_is_its_name_and_the_signal(tmp_path):
    commands = SystemCommands()
    script = "echo listening on s1-eth1 >&2; sleep 9 & kill -KILL $$"
    process = commands.spawn(
        "tcpdump on s1-eth1", ["sh", "-c", script], stdout=tmp_path / "out", stderr=tmp_path / "err"
    )
    process.wait(5)
    with pytest.raises(CommandError) as raised:
        process.require_alive()
    assert str(raised.value) == "tcpdump on s1-eth1 was killed by signal 9 (SIGKILL)"
    later = raised.value.during("the traffic")
    assert str(later) == "tcpdump on s1-eth1 was killed by signal 9 (SIGKILL) during the traffic"
    assert script in later.in_full()
    assert "listening on s1-eth1" in later.in_full()


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("ovs-vsctl: no\n bridge\n", "ovs-vsctl: no bridge"),
        ("", "it wrote no reason"),
        ("odd\nTraceback (most recent call last):\n  File x\nKeyError: 'h1'\n", "KeyError: 'h1'"),
    ],
)
def test_a_failed_programs_error_is_what_it_said(output, said):
    error = CommandError(["ovs-vsctl", *["add-br"] * 500], 2, output)
    assert str(error).endswith(f": exit status 2: {said}")
    assert str(error).startswith("ovs-vsctl add-br")
    assert len(str(error)) < 120
    assert error.in_full().count("add-br") > 500


def test_a_program_that_cannot_be_started_is_an_error_of_the_run(tmp_path):
    with pytest.raises(RunError, match="cannot be started: Permission denied"):
        SystemCommands().run([str(tmp_path)])


def test_an_inner_program_that_was_lost_is_said_with_its_phase():
    reader = EventReader(lambda event: None)
    assert str(reader.lost(-11, "")) == (
        "the run's inner program was killed by signal 11 (SIGSEGV) during the guest's boot"
    )
    reader.feed('{"event": "phase", "phase": "traffic"}')
    trace = "Traceback (most recent call last):\n  File x\nImportError: no numpy\n"
    assert str(reader.lost(1, trace)) == (
        "the run's inner program: exit status 1 during the traffic: ImportError: no numpy"
    )


def test_what_was_started_ends_with_the_block(tmp_path):
    files = {"stdout": tmp_path / "out", "stderr": tmp_path / "err"}
    with SystemCommands() as commands:
        process = commands.spawn("a sleeper", ["sleep", "99"], **files)
        assert process.popen.poll() is None
    assert process.popen.returncode == -signal.SIGKILL


def test_a_process_ends_with_a_killed_parent():
    code = (
        "import subprocess, sys\n"
        "from outcast.emulation.commands import end_with_parent\n"
        "child = subprocess.Popen(['sleep', '60'], preexec_fn=end_with_parent)\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with parent:
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    try:
        # The descriptor of a process can be read when it has ended (pidfd_open(2)).
        assert select.select([child], [], [], 10.0)[0], "it runs on"
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(child, signal.SIGKILL)
        os.close(child)
