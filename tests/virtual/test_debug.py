"""gdb stops the guest's kernel at a nanosecond and at breakpoints, and the run stays the same."""

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import polars as pl
import pytest

import outcast
from outcast.cli import invoke
from tests.deadlines import HANG_S

pytestmark = pytest.mark.skipif(
    shutil.which("gdb") is None, reason="gdb is missing: apt install gdb (scripts/install.sh does)"
)

SETTINGS = {
    "engine": "virtual",
    "topology.rivals": 2,
    "duration": "50ms",
    "analysis": {"bin": "10ms", "windows": ["50ms"]},
    "links.rate": "100mbit",
    "flows": [{"from": "2-hop", "hosts": 1}, {"from": "3-hop", "hosts": 2}],
    "trace": {"events": ["tcp:tcp_probe", "tcp:tcp_retransmit_skb"]},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> outcast.Run:
    folder = tmp_path_factory.mktemp("debug")
    return outcast.run(outcast.load("configs/linear-12.yaml", SETTINGS), folder / "run")


def seen_at_h2(run: outcast.Run, event: str) -> pl.DataFrame:
    """What the tracer saw at h2 after the traffic's start."""
    table = run.table(f"trace/{event}")
    return table.filter(pl.col("host") == "h2", pl.col("t_ns") >= 0).sort("t_ns")


def test_a_breakpoint_prints_what_the_tracer_saw(run, capfd):
    sent_again = seen_at_h2(run, "tcp_retransmit_skb")
    fields = ("snd_cwnd", "snd_una")
    # The argument `segs` is how many segments may be sent, and the tracer's how many were.
    asked = ["--print", "segs"]
    asked += [word for name in fields for word in ("--print", f"$tcp->{name}")]
    place = ["--break", "tcp_retransmit_skb", "--host", "h2", "--count", str(sent_again.height)]
    capfd.readouterr()
    assert invoke(["debug", str(run.path), *place, *asked]) == 0
    said = capfd.readouterr()
    assert f"{sent_again.height} hits; the run is the same: 3 captures are equal" in said.err
    printed = [
        re.findall(r"[\d.]+(?= ms)|(?<=snd_cwnd = )\d+|(?<=snd_una = )\d+", line)
        for line in said.out.splitlines()
    ]
    traced = [
        [f"{row['t_ns'] / 1e6:.6f}", *(str(row[name]) for name in fields)]
        for row in sent_again.iter_rows(named=True)
    ]
    assert len(traced) > 10
    assert printed == traced
    # The documentation shows the same run.
    page = (Path(__file__).parents[2] / "docs/verbs/debug.md").read_text()
    shown = [line for line in page.splitlines() if " ms  h2  flow 0  segs = " in line]
    assert len(shown) == 5
    assert shown == said.out.splitlines()[:5]


class Terminal:
    """A program that people type into."""

    def __init__(self, argv: list[str]) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            argv,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.shown = ""

    def wait_for(self, text: str) -> str:
        """What was shown up to this text."""
        deadline = time.monotonic() + HANG_S
        while text not in self.shown:
            assert time.monotonic() < deadline, f"no {text!r} in {self.shown}"
            if select.select([self._ours], [], [], 1.0)[0]:
                try:
                    self.shown += os.read(self._ours, 1 << 16).decode(errors="replace")
                except OSError:  # the program has closed its end
                    assert text in self.shown, self.shown
        before, _, self.shown = self.shown.partition(text)
        return before

    def type(self, line: str) -> None:
        os.write(self._ours, f"{line}\n".encode())

    def close(self) -> int:
        status = self.process.wait(HANG_S)
        os.close(self._ours)
        return status


def test_people_look_around_and_the_run_goes_on(run):
    probe = seen_at_h2(run, "tcp_probe")
    seen = probe.row(probe.height // 2, named=True)
    at = f"{seen['t_ns']}ns"
    argv = [sys.executable, "-m", "outcast", "debug", str(run.path), "--at", at, "--host", "h2"]
    terminal = Terminal(argv)
    try:
        stands = terminal.wait_for("(gdb) ")
        assert f"The guest stands at {seen['t_ns'] / 1e6:.6f} ms after" in stands
        # Ctrl-C is gdb's as long as somebody types into it.
        terminal.type("\x03")
        terminal.type("tcp-sock 20001")
        said = terminal.wait_for("p *(struct tcp_sock *)")
        for name, field in (("snd_cwnd", "snd_cwnd"), ("snd_una", "snd_una")):
            assert f"{field} {seen[name]} " in said
        for command, shown in (
            ("queue s1-eth1", "bfifo"),
            ("tcp-sock h1 5001", "10.0.0.1:5001 > 10.0.0.2:20001"),
            ("run-to 30.0000005ms", "30.0000005ms': allowed is a time as 0.7ms"),
            ("run-to 1ms", "1ms is past"),
            ("run-to 30ms", "30.000000 ms"),
            ("now", "30.000000 ms after the traffic's start"),
            ("backtrace", "time_travel_set_time"),
        ):
            terminal.type(command)
            terminal.wait_for(shown)
        terminal.type("quit")
        terminal.wait_for("the run is the same: 3 captures are equal")
    finally:
        if terminal.process.poll() is None and sys.exc_info()[0] is not None:
            terminal.process.send_signal(signal.SIGTERM)
        status = terminal.close()
    assert status == 0
