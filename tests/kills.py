"""Kills runs at random moments: `outcast clean` must leave nothing and touch nothing foreign.

    python -m tests.kills [--count N] [--engine realtime|virtual] [--seed S]

As root, with no other run of ours on the machine, since those change the same two settings.
Beside the runs stand a bridge, a network namespace, an iperf and a bridge of another Open
vSwitch, and folders with names like ours. A line for each kill, and `N passed, N failed` at the
end; exit status 1 if one failed. It takes about ten seconds a kill.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from outcast.engines import ledger

CONFIGS = Path(__file__).parents[1] / "configs"
EXPERIMENTS = {
    "realtime": ("linear-12.yaml", "duration=1500ms", "analysis.windows=[1s]"),
    "virtual": ("fig3c.yaml", "duration=100ms", "analysis={}"),
}
END_DEADLINE_S = 20.0
RUN_DEADLINE_S = 180.0
START_DEADLINE_S = 15.0
PORT = "5998"


@dataclass(frozen=True)
class Place:
    """Where a round of kills happens.

    Attributes:
        folder: holds all of it; its name is the mark by which the runs' processes are known.
    """

    folder: Path

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    @property
    def results(self) -> Path:
        return self.folder / "results"


def processes(place: Place) -> list[str]:
    """Processes whose environment names the place: those of its runs, in a guest or not."""
    found = []
    mark = os.fsencode(place.folder)
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes():
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found.append(f"process {entry.name} {line[:80]}")
    return found


def names(folder: Path) -> list[str]:
    """Everything below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def machine(place: Place) -> dict[str, object]:
    """Settings that a run must put back."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return {
        "interfaces": sorted(
            f"{name} {Path('/sys/class/net', name, 'ifindex').read_text().strip()}"
            for name in os.listdir("/sys/class/net")
            if Path("/sys/class/net", name, "ifindex").exists()
        ),
        "named namespaces": output("ip", "netns", "list"),
        "mounts": sorted(
            at
            for at in (line.split()[4] for line in lines)
            if Path(at).is_relative_to(place.folder)
        ),
        "settings": {
            name: Path(name).read_text() for name in ledger.SETTINGS if Path(name).exists()
        },
        "the folder for temporary files": names(place.temporary),
        "memory files": sorted(
            name for name in os.listdir("/dev/shm") if name.startswith(("vm_file", "outcast"))
        ),
        "the ledger": sorted(
            str(entry.file)
            for folder in ledger.all_folders()
            for entry in ledger.read_entries(folder)
            if entry.is_dead()
        ),
        "results": names(place.results),
    }


def output(*argv: str) -> str:
    """Returns a program's output. Raises CalledProcessError if it fails."""
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True).stdout


@contextlib.contextmanager
def foreign(place: Place) -> Iterator[dict[str, Callable[[], object]]]:
    """Makes things of others on the machine. Yields, by name, how to look at each."""
    name = f"notours{os.getpid() % 100_000}"
    iperf_client = ("iperf", "-c", "127.0.0.1", "-p", PORT, "-t", "0.2", "-f", "k")
    with contextlib.ExitStack() as stack:
        # Not below the place, because the place marks the runs' processes.
        switch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="notours-")))
        socket = f"unix:{switch}/db.sock"
        vsctl = ("ovs-vsctl", f"--db={socket}", "--timeout=15")

        def begin(*argv: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                argv,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "OVS_RUNDIR": str(switch), "OVS_LOGDIR": str(switch)},
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        output("ip", "link", "add", name, "type", "bridge")
        stack.callback(output, "ip", "link", "del", name)
        output("ip", "netns", "add", name)
        stack.callback(output, "ip", "netns", "del", name)
        output("ip", "-n", name, "link", "set", "lo", "up")
        iperf = begin("ip", "netns", "exec", name, "iperf", "-s", "-p", PORT)
        database = str(switch / "conf.db")
        output("ovsdb-tool", "create", database, "/usr/share/openvswitch/vswitch.ovsschema")
        servers = [begin("ovsdb-server", f"--remote=p{socket}", database)]
        end = time.monotonic() + START_DEADLINE_S
        while not (switch / "db.sock").exists():
            if time.monotonic() > end:
                raise SystemExit(f"the other Open vSwitch is not there after {START_DEADLINE_S} s")
            time.sleep(0.05)
        output(*vsctl, "--no-wait", "init")
        servers.append(begin("ovs-vswitchd", socket))
        output(
            *(*vsctl, "add-br", name[::-1], "--"),
            *("set", "bridge", name[::-1], "datapath_type=netdev"),
        )
        stack.callback(output, *vsctl, "del-br", name[::-1])
        for folder in ("run.failed", ".run.partial", "other"):
            (place.results / folder).mkdir(parents=True)
            (place.results / folder / "thesis.txt").write_text("mine\n")
        (place.temporary / "outcast-of-another").mkdir(parents=True)
        (place.temporary / "outcast-of-another" / "thesis.txt").write_text("mine\n")
        yield {
            "iperf": iperf.poll,
            "iperf's answer": lambda: (
                "bits/sec" in output("ip", "netns", "exec", name, *iperf_client)
            ),
            "Open vSwitch": lambda: [server.poll() for server in servers],
            "Open vSwitch's bridges": lambda: output(*vsctl, "list-br"),
            "the bridge": lambda: output("ip", "-o", "link", "show", name),
            "the namespace": lambda: output("ip", "-n", name, "-o", "link"),
            "files": lambda: [path.read_text() for path in place.folder.rglob("thesis.txt")],
        }


def outcast(place: Place, *argv: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from outcast.cli import main; main()", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(place.temporary), "OUTCAST_KILLS": str(place.folder)},
        start_new_session=True,
    )


def start(place: Place, engine: str) -> subprocess.Popen[str]:
    config, *overrides = EXPERIMENTS[engine]
    settings = [word for override in overrides for word in ("--set", override)]
    target = str(place.results / "run")
    return outcast(
        *(place, "run", str(CONFIGS / config), "--engine", engine, *settings, "-o", target)
    )


def kill(place: Place, engine: str, after_s: float) -> tuple[str, list[str]]:
    """Kills one run. Returns its last line, and what is wrong after `outcast clean`."""
    before = machine(place)
    run = start(place, engine)
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.wait(after_s)
    run.send_signal(signal.SIGKILL)
    # A process that is left over must not hold the pipe open for ever.
    end = time.monotonic() + END_DEADLINE_S
    while (left := processes(place)) and time.monotonic() < end:
        time.sleep(0.05)
    if left:
        return "", left
    text, _ = run.communicate(timeout=END_DEADLINE_S)
    phase = (text.splitlines() or ["nothing"])[-1].strip()
    wrong = []
    if phase.startswith("outcast: "):
        wrong.append("the run was refused or failed before it was killed")
    # A run that was killed while it printed, or later, has left its whole result.
    result = place.results / "run"
    if (result / "report.html").exists():
        shutil.rmtree(result)
    clean = outcast(place, "clean")
    text, _ = clean.communicate(timeout=60)
    if clean.returncode:
        wrong.append(f"clean ended with {clean.returncode}: {text}")
    after = machine(place)
    wrong += [
        f"{what}: {before[what]} became {after[what]}"
        for what in before
        if before[what] != after[what]
    ]
    return phase, wrong


def rounds(engine: str, count: int, draw: random.Random) -> tuple[int, int]:
    """Kills `count` runs of one engine. Returns how many passed and how many failed."""
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        place = Place(Path(name))
        with foreign(place) as others:
            began = time.monotonic()
            text, _ = (whole := start(place, engine)).communicate(timeout=RUN_DEADLINE_S)
            whole_s = time.monotonic() - began
            if whole.returncode:
                raise SystemExit(f"{engine}: the run that is not killed fails: {text}")
            shutil.rmtree(place.results / "run")
            before = {what: look() for what, look in others.items()}
            for number in range(count):
                after_s = draw.uniform(0, whole_s)
                phase, wrong = kill(place, engine, after_s)
                wrong += [
                    f"{what} of others: {before[what]} became {now}"
                    for what, look in others.items()
                    if (now := look()) != before[what]
                ]
                passed, failed = (passed, failed + 1) if wrong else (passed + 1, failed)
                verdict = f"FAILED: {'; '.join(wrong)}" if wrong else "nothing left"
                print(
                    f"{engine} {number}: killed after {after_s:.2f} of {whole_s:.2f} s "
                    f"({phase}): {verdict}",
                    flush=True,
                )
    return passed, failed


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50, help="kills of each engine")
    parser.add_argument("--engine", choices=sorted(EXPERIMENTS), help="only this one")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    results = [
        rounds(engine, arguments.count, random.Random(f"{arguments.seed} {engine}"))
        for engine in ([arguments.engine] if arguments.engine else sorted(EXPERIMENTS))
    ]
    passed, failed = (sum(counts) for counts in zip(*results, strict=True))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
