"""Whole runs on this kernel: real Mininet, Open vSwitch, qdiscs, captures, iperf.

What is tested holds on any machine under any load: settings, trust, warnings, order, cleanup. Who
starves is a draw of the machine here, so effects are tests of the virtual engine.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from outcast.engines import ledger
from tests import guest_runs
from tests.deadlines import HANG_S
from tests.guest_runs import OUTCAST, outcast

CONFIGS = Path(__file__).parents[2] / "configs"
SETTINGS = ("duration=1500ms", "analysis.windows=[1s]")
SHORT = [word for setting in SETTINGS for word in ("--set", setting)]


def interfaces() -> set[str]:
    return set(os.listdir("/sys/class/net"))


def leftovers(below: Path) -> list[str]:
    """Live processes of runs into this folder. Processes of other runs do not matter here."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if str(below) in line:
                found.append(line)
    return found


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path) -> Iterator[None]:
    before = interfaces()
    yield
    assert interfaces() == before
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("config", "overrides"),
    [
        (
            "linear-12",
            ["topology.rivals=6", "flows.1.hosts=6", "queue={kind: htb, limit: 11 packets}"],
        ),
        ("linear-12", ["queue={kind: pfifo, limit: 11 packets}", "flows.0.per_host=3"]),
        ("linear-12", ["transport.offloads=true"]),
        (
            "fattree-12",
            [
                *("transport.congestion_control=reno", "transport.sack=false"),
                *("queue={kind: bfifo, limit: 32KB, shaper: htb}", "flows.1.start=300ms"),
            ],
        ),
    ],
)
def test_a_run_is_complete_and_agrees_with_the_counters(config, overrides, tmp_path):
    target = tmp_path / "run"
    guest_runs.undrawn(config, target, *SETTINGS, *overrides)
    summary = json.loads((target / "summary.json").read_text())
    assert summary["capture"]["trusted"] is True
    assert summary["capture"]["inferred_drops"] == summary["capture"]["qdisc_drops"]
    assert summary["capture"]["tcpdump_kernel_drops"] == 0
    # At most the payload of back-to-back frames, and of the burst that was saved up before.
    assert 0 < summary["total_goodput_bps"] < 1.01 * 10**8 * 1448 / 1538
    assert {"boot", "setup", "traffic", "analysis"} <= set(summary["wall_s"])
    manifest = json.loads((target / "manifest.json").read_text())
    assert manifest["effective"]["bottleneck.rate_bps"] == 10**8
    # A full frame, and what the rate sends in 100 us.
    assert manifest["effective"]["bottleneck.burst_bytes"] == pytest.approx(1600 + 1250, abs=25)
    assert 0 < manifest["effective"]["cpu.machine_share"] <= 1
    assert 0 <= manifest["effective"]["cpu.arrivals_core_share"] <= 1
    assert manifest["effective"]["cpu.openvswitch_share"] >= 0
    assert manifest["effective"]["offloads"] is ("transport.offloads=true" in overrides)
    for name in ("packets", "queue", "blackouts", "throughput", "flows"):
        assert pl.read_parquet(target / f"{name}.parquet").height > 0
    sockets = pl.read_parquet(target / "sockets.parquet")
    assert sockets["flow"].n_unique() == sum(part["flows"] for part in summary["classes"].values())
    assert pl.read_parquet(target / "ports.parquet")["sent_packets"].max() > 0
    packets = pl.read_parquet(target / "packets.parquet")
    verdicts = dict(packets["verdict"].value_counts().iter_rows())
    assert verdicts["forwarded"] > 0
    assert verdicts.get("dropped", 0) == summary["capture"]["qdisc_drops"]
    departed = packets.filter(verdict="forwarded")
    assert (departed["t_out"] >= departed["t_in"]).all()
    flows = pl.read_parquet(target / "flows.parquet")
    assert flows.height == len(manifest["flows"])


def ledger_folders(below: Path) -> list[str]:
    """What the ledger still names of this test's runs. Other runs do not matter here."""
    entries = ledger.read_entries(ledger.default_folder())
    return [name for entry in entries for name in entry.folders if name.startswith(str(below))]


def start(target: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*OUTCAST, "run", str(CONFIGS / "fattree-12.yaml"), "-o", str(target), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def await_flows(run: subprocess.Popen[str], target: Path) -> None:
    """Waits until the run's own flows have begun to log."""
    end = time.monotonic() + HANG_S
    while not list(target.parent.glob(f".{target.name}.*.partial/flows/client.12.out")):
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < end, "the flows never started"
        time.sleep(0.05)
    time.sleep(1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_leaves_nothing_and_disturbs_nobody(number, tmp_path):
    target = tmp_path / "run"
    bridge = "notours0"
    stamping = Path("/proc/sys/net/core/netdev_tstamp_prequeue")
    stamped = stamping.read_text()
    foreign = subprocess.Popen(["iperf", "-s", "-p", "5999"], stdout=subprocess.DEVNULL)
    subprocess.run(["ip", "link", "add", bridge, "type", "bridge"], check=True)
    try:
        run = start(target)
        await_flows(run, target)
        run.send_signal(number)
        _, errors = run.communicate(timeout=HANG_S)
        assert run.returncode == (-9 if number == signal.SIGKILL else 130)
        if number != signal.SIGKILL:
            assert errors.splitlines()[-1] == "outcast: interrupted"
            assert list(tmp_path.iterdir()) == []
        end = time.monotonic() + HANG_S
        while leftovers(tmp_path) and time.monotonic() < end:
            time.sleep(0.05)
        done = outcast("clean")
        assert done.returncode == 0, done.stderr
        assert list(tmp_path.iterdir()) == []
        assert ledger_folders(tmp_path) == []
        assert stamping.read_text() == stamped
        assert foreign.poll() is None
        assert bridge in interfaces()
        guest_runs.realtime("linear-12", target, *SETTINGS)
        assert foreign.poll() is None
        assert bridge in interfaces()
    finally:
        foreign.kill()
        foreign.wait()
        subprocess.run(["ip", "link", "del", bridge], check=True)


def test_two_runs_at_once_are_refused(tmp_path):
    """The first run goes on until the second has been refused, however long that takes."""
    first = start(tmp_path / "one", "--set", f"duration={HANG_S:g}s")
    try:
        await_flows(first, tmp_path / "one")
        target = tmp_path / "two"
        second = outcast("run", str(CONFIGS / "linear-12.yaml"), *SHORT, "-o", str(target))
        assert first.poll() is None
    finally:
        first.send_signal(signal.SIGINT)
        _, errors = first.communicate(timeout=HANG_S)
    assert errors.splitlines()[-1] == "outcast: interrupted"
    assert second.returncode == 1
    assert "another realtime run is going on" in second.stderr
    assert not target.exists()


def test_a_controller_that_cannot_start_is_named(tmp_path):
    done = outcast(
        *("run", str(CONFIGS / "linear-12.yaml"), *SHORT, "-o", str(tmp_path / "run")),
        OUTCAST_OPENFLOW="nonsense",
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("outcast: the controller: exit status 1")
    assert "nonsense" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "run").exists()


def test_a_machine_on_which_programs_start_slowly_starts_all_flows_together(tmp_path, monkeypatch):
    wrapper = tmp_path / "bin/iperf"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f'#!/bin/sh\n[ "$1" != -c ] || sleep 1.$(($$ % 9))\nexec {shutil.which("iperf")} "$@"\n'
    )
    wrapper.chmod(0o755)
    target = tmp_path / "run"
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    guest_runs.realtime("linear-12", target, *SETTINGS)
    manifest = json.loads((target / "manifest.json").read_text())
    assert manifest["effective"]["traffic.start_set"] == "when all had connected"
    assert manifest["effective"]["traffic.connect_s"] > 1


def test_a_machine_without_idle_cpu_is_warned_of(tmp_path):
    target = tmp_path / "run"
    # One on each core, even if the tests may use only some, because all cores are measured.
    hog = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
    hogs = [
        subprocess.Popen([sys.executable, "-c", hog, str(core)])
        for core in range(os.cpu_count() or 1)
    ]
    try:
        guest_runs.undrawn("linear-12", target, *SETTINGS, "engine=realtime")
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    manifest = json.loads((target / "manifest.json").read_text())
    of_cores = "the machine's cores were more than 95% busy in "
    (warning,) = [each for each in manifest["warnings"] if each.startswith(of_cores)]
    assert "--engine virtual" in warning
    assert manifest["effective"]["cpu.machine_share"] > 0.95
