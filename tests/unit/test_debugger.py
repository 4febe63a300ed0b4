"""A debugger on the guest's kernel: when it starts, how it ends, and what is refused."""

import importlib.util
import os
import shlex
import struct
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import outcast
from outcast.cli import invoke
from outcast.engines.guest import boot as guest
from outcast.engines.guest import debugger
from outcast.engines.guest.debugger import Gdb, Request
from outcast.engines.kernel.cache import Kernel
from outcast.errors import DeadlineError, FeatureMissingError, GuestError, InputError, StallError
from tests.processes import is_alive
from tests.unit import test_guest_boot as guests
from tests.unit.test_archive_replay import prepare
from tests.unit.test_guest_boot import ENDS

pytestmark = pytest.mark.usefixtures("undrawn")


class FakeDebugger:
    """Starts a shell in gdb's place."""

    def __init__(self, script: str, *, is_interactive: bool = False) -> None:
        self.stop_ns = 15
        self.is_interactive = is_interactive
        self.script = script
        self.pids: list[int] = []

    def start(self, pid: int) -> subprocess.Popen[bytes]:
        self.pids.append(pid)
        return subprocess.Popen(["sh", "-c", self.script])

    def require_done(self) -> None:
        pass


def boot(tmp_path: Path, script: str, fake: FakeDebugger, **options: Any) -> list[str]:
    return guests.boot(tmp_path, script, debugger=fake, **options)[1]


def test_the_debugger_starts_when_the_guest_stands_and_the_guest_goes_on_after_it(tmp_path):
    done = tmp_path / "done"
    script = f"echo before; kill -STOP $$; [ -e {done} ] && echo after; {ENDS}"
    fake = FakeDebugger(f"sleep 0.2; : > {done}")
    noted: list[int] = []
    assert boot(tmp_path, script, fake, on_start=noted.append) == ["before", "after"]
    # Both are on the run's page of the ledger.
    assert noted[0] == fake.pids[0]
    assert len(noted) == 2


def test_a_guest_goes_on_after_its_debugger(tmp_path):
    lines = boot(tmp_path, f"kill -STOP $$; echo on; {ENDS}", FakeDebugger("kill -KILL $$"))
    assert lines == ["on"]
    script = f"kill -STOP $$; sleep 0.3; kill -STOP $$; echo on; {ENDS}"
    assert boot(tmp_path, script, FakeDebugger("true"), stall_s=20) == ["on"]


def test_a_guest_that_ends_takes_a_debugger_that_hangs_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(debugger, "END_DEADLINE_S", 0.3)
    fake = FakeDebugger("")
    fake.script = f"echo $$ > {tmp_path}/pid; kill -CONT $(cat {tmp_path}/guest); exec sleep 60"
    script = f"echo $$ > {tmp_path}/guest; kill -STOP $$; {ENDS}"
    with pytest.raises(DeadlineError, match="for gdb to end after the guest"):
        boot(tmp_path, script, fake)
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_nobody_has_to_type_in_time(tmp_path):
    script = f"kill -STOP $$; {ENDS}"
    boot(tmp_path, script, FakeDebugger("sleep 0.6", is_interactive=True), stall_s=0.2)
    with pytest.raises(StallError, match="no sign of life"):
        boot(tmp_path, script, FakeDebugger("sleep 5"), stall_s=0.2)


def test_the_instant_is_an_argument_of_the_kernel_alone(tmp_path):
    asked = guest.Boot(Path("/linux"), tmp_path, ["/bin/true"], seed=7)
    stopping = replace(asked, debugger=FakeDebugger("true"))
    assert "time-travel-stop=15" in guest.command_line(stopping)
    assert not any("stop" in word for word in guest.command_line(asked))


REQUEST = Request(
    begin_ns=10,
    host=None,
    breakpoint="tcp_retransmit_skb",
    expressions=("segs",),
    count=None,
    commands=(),
    flows=(),
)


@pytest.fixture
def kernel(tmp_path) -> Kernel:
    program = tmp_path / "kernels" / "linux"
    program.parent.mkdir()
    program.touch()
    made = Kernel("linux-source-7.3", "7.3.4", "abc", "7.3.4", 1.0, "0" * 64, program)
    made.symbols.touch()
    return made


@pytest.fixture
def fake_gdb(tmp_path, monkeypatch) -> Path:
    """A gdb that does what a file says, in Python, with `settings` and `leave(outcome)`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "gdb.py"
    script.write_text(
        textwrap.dedent(
            f"""\
            import json, os, sys
            descriptor = int(os.environ["OUTCAST_DEBUG"])
            settings = json.loads(os.pread(descriptor, 1 << 20, 0))
            def leave(outcome):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, json.dumps(outcome).encode(), 0)
            exec(open({str(tmp_path / "does")!r}).read())
            """
        )
    )
    # A first line of `#!` could not name a Python in a path with a space.
    program = folder / "gdb"
    program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, str(script)])} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return tmp_path / "does"


def test_gdb_is_told_what_to_do_and_says_what_came_of_it(fake_gdb, kernel):
    fake_gdb.write_text(
        "assert settings['breakpoint'] == 'tcp_retransmit_skb', settings\n"
        "assert any(word.endswith('linux.debug') for word in sys.argv)\n"
        "leave({'hits': 0 if settings['pid'] is None else 12})"
    )
    with Gdb(kernel, 15, REQUEST) as gdb:
        gdb.check()
        assert gdb.start(1).wait() == 0
        assert gdb.hits() == 12


def test_what_gdb_refuses_is_one_line(fake_gdb, kernel):
    fake_gdb.write_text("leave({'failure': 'Function \"no\" not defined.', 'hits': 0})")
    with Gdb(kernel, 15, REQUEST) as gdb:
        with pytest.raises(InputError, match=r"^--break tcp_retransmit_skb: Function \"no\" not"):
            gdb.check()
        gdb.start(1).wait()
        with pytest.raises(InputError, match=r"^gdb: Function \"no\" not defined"):
            gdb.hits()


def test_a_gdb_without_python_or_one_that_dies_is_said(fake_gdb, kernel):
    fake_gdb.write_text("os.kill(os.getpid(), 9)")
    with Gdb(kernel, 15, REQUEST) as gdb:
        with pytest.raises(FeatureMissingError, match="written in Python; install the package gdb"):
            gdb.check()
        with pytest.raises(GuestError, match="the guest did not stop at 15 ns"):
            gdb.hits()
        gdb.start(1).wait()
        with pytest.raises(GuestError, match="gdb ended before it had finished"):
            gdb.hits()


def test_what_is_missing_has_a_remedy(kernel, fake_gdb, tmp_path, monkeypatch):
    scope = tmp_path / "scope"
    monkeypatch.setattr(debugger, "_SCOPE", scope)
    scope.write_text("1\n")
    assert debugger.require(kernel).endswith("bin/gdb")
    scope.write_text("3\n")
    with pytest.raises(FeatureMissingError, match=r"forbids debuggers: .* is 3; allowed are 0 and"):
        debugger.require(kernel)
    kernel.symbols.unlink()
    with pytest.raises(FeatureMissingError, match=r"no symbols; .*: outcast kernel build --sym"):
        debugger.require(kernel)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FeatureMissingError, match=r"gdb is missing; install .* \(apt install gdb"):
        debugger.require(kernel)


def test_wrong_use_is_one_line(tmp_path, monkeypatch, capsys):
    prepare(tmp_path, monkeypatch)
    run = outcast.run(outcast.load("golden.yaml"), tmp_path / "run").path
    capsys.readouterr()
    for arguments, said in (
        (["--print", "segs"], "--print and --count: allowed only with --break"),
        (["--count", "2"], "--print and --count: allowed only with --break"),
        (["--at", "3600"], "--at 3600000.000000ms: allowed is from 0 until the flows have ended"),
        (["--at=-1ms"], "--at -1.000000ms: allowed is from 0 until the flows have ended"),
        (["--at", "soon"], "--at: 'soon' is not a time"),
        (["--host", "nobody"], "--host nobody: there is no such host; allowed are"),
    ):
        assert invoke(["debug", str(run), *arguments]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1


class FakeGdb(ModuleType):
    """gdb's module, as far as importing our commands needs it."""

    class Command:
        pass

    class Breakpoint:
        def __init__(self, place: str) -> None:
            self.place = place

    class GdbError(Exception):
        pass

    class error(Exception):
        pass

    COMMAND_USER = 0


@pytest.fixture
def in_gdb(monkeypatch) -> Any:
    monkeypatch.setitem(sys.modules, "gdb", FakeGdb("gdb"))
    spec = importlib.util.spec_from_file_location("in_gdb", debugger.IN_GDB)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_times_are_exact(in_gdb):
    assert in_gdb.millisecond_text(629_200) == "0.629200 ms"
    assert in_gdb.millisecond_text(-1) == "-0.000001 ms"
    assert in_gdb.time_of("0.6292ms") == 629_200
    assert in_gdb.time_of("2s") == 2 * 10**9
    assert in_gdb.time_of("17 ns") == 17
    assert in_gdb.time_of(".5us") == 500
    for wrong in ("soon", "1", "0.5ns", "ms", "-1ms", "1e3ms", "1.0000001ms"):
        with pytest.raises(ValueError, match="allowed is a time as 0"):
            in_gdb.time_of(wrong)


def tcp_frame(payload: int) -> bytes:
    ip = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 40 + payload, 77, 0, 64, 6, 0, b"\x0a\0\0\3", b"\x0a\0\0\2"
    )
    tcp = struct.pack("!HHIIBBHHH", 20001, 5001, 1000, 5, 5 << 4, 16, 1, 0, 0)
    return bytes(12) + b"\x08\0" + ip + tcp


def test_packets_are_put_in_words(in_gdb):
    said = "10.0.0.3:20001 > 10.0.0.2:5001 id 77 seq 1000 ack 5 payload 1460"
    frame = tcp_frame(1460)
    assert in_gdb.structures.packet_text(frame) == said
    assert in_gdb.structures.packet_text(bytes(12) + b"\x08\x06" + bytes(28)) == "ethertype 0x0806"
    for size in (0, 13, 14, 20, 33):
        assert in_gdb.structures.packet_text(frame[:size]) == "cut off"
    # As much of a TCP header as there is not is not guessed.
    assert in_gdb.structures.packet_text(frame[:40]) == "10.0.0.3 > 10.0.0.2 id 77 protocol 6"


@pytest.mark.parametrize(
    ("count", "hits"), [(None, [False, False]), (2, [False, True]), (1, [True])]
)
def test_a_breakpoint_prints_and_goes_on(in_gdb, count, hits, monkeypatch):
    settings = {
        **{"host": "h0", "begin_ns": 5, "flows": [{"sport": 1, "dport": 2, "flow": 3}]},
        **{"breakpoint": "f if x > 1", "expressions": ["segs"], "commands": ["bt"]},
        "count": count,
    }
    session = in_gdb.Session(settings)
    assert session.flow_text(2, 1) == "3"
    values = {"segs": SimpleNamespace(format_string=lambda: "7"), "x > 1": True}
    names = {100: "h0", 200: "h1"}
    monkeypatch.setattr(in_gdb.structures, "now_ns", lambda: 1_000_005)
    monkeypatch.setattr(in_gdb.structures, "ports", lambda sock: (1, 2))
    monkeypatch.setattr(session, "name", lambda net: names[net])
    gdb = in_gdb.gdb
    gdb.newest_frame = lambda: None
    gdb.set_convenience_variable = lambda name, value: None
    monkeypatch.setattr(in_gdb.structures, "tcp_of", lambda sock: SimpleNamespace(address=1))
    gdb.parse_and_eval = lambda asked: values[asked]
    gdb.execute = lambda command, to_string: f"#0 {command}\n"
    printed: list[str] = []
    printing = in_gdb.Printing(session, settings, printed.append)
    assert printing.place == "f"
    monkeypatch.setattr(in_gdb.structures, "owner", lambda frame: (200, object()))
    assert not printing.stop()  # another host
    monkeypatch.setattr(in_gdb.structures, "owner", lambda frame: (100, object()))
    values["x > 1"] = False
    assert not printing.stop()
    assert printed == []
    values["x > 1"] = True
    assert [printing.stop() for _ in hits] == hits
    assert printed == ["1.000000 ms  h0  flow 3  segs = 7\n#0 bt\n"] * len(hits)
    assert printing.hits == len(hits)


def test_an_expression_that_the_function_does_not_know_is_said_with_those_it_does(
    in_gdb, monkeypatch
):
    settings = {
        **{"host": None, "begin_ns": 0, "flows": [], "breakpoint": "f"},
        **{"expressions": ["nosuch"], "commands": [], "count": None},
    }
    gdb = in_gdb.gdb

    def refuse(asked: str) -> None:
        raise gdb.error(f'No symbol "{asked}" in current context.')

    block = [SimpleNamespace(name=name, is_argument=True) for name in ("sk",)]
    gdb.newest_frame = lambda: SimpleNamespace(block=lambda: block, name=lambda: "f")
    gdb.parse_and_eval = refuse
    monkeypatch.setattr(in_gdb.structures, "owner", lambda frame: (0, None))
    monkeypatch.setattr(in_gdb.structures, "now_ns", lambda: 0)
    printing = in_gdb.Printing(in_gdb.Session(settings), settings, print)
    assert printing.stop()
    assert printing.failure == (
        'nosuch: No symbol "nosuch" in current context.; f has sk; $tcp is its tcp_sock'
    )
