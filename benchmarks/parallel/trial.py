"""One TCP transfer over one link: both hosts in one guest, or one in each of two guests.

    python benchmarks/parallel/trial.py [--kernel FILE] [--bytes N] [--both-ways] [--folder DIR]

docs/design/parallel.md says what it is for. The kernel is the newest in the cache that was built by
`scripts/guest/build --patch benchmarks/parallel/two-guests.patch`. gcc compiles the controller.
For each way it prints the processor time and context switches of all processes of the guests and
the controller, what the controller counted from the transfer's start on, and the captures' hashes.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from outcast.emulation.commands import end_with_parent  # noqa: E402
from outcast.engines.guest import boot, init, world  # noqa: E402
from outcast.engines.kernel import cache as kernels  # noqa: E402
from outcast.engines.root import cache as roots  # noqa: E402

DELAY_NS = 4992
"""What tc of iproute2 6.1 makes of 5us, see outcast/emulation/netem.py."""

LINK_FD = 1010
START_NS = 20_000_000_000
PATCH = "two-guests.patch"
WAYS = {
    "one": "one guest, time-travel=inf-cpu",
    "messages": "two guests at the same time; every word of the protocol is a message",
    "memory": "two guests at the same time; the protocol's shared memory",
    "turns": "two guests, one at a time, as other controllers do it; shared memory",
}
_LIBC = ctypes.CDLL(None)
_PR_SET_CHILD_SUBREAPER = 36
_DEADLINE_S = 900


def start_guest(
    kernel: Path, folder: Path, argv: list[str], core: int, clock: str, link: int | None, host: int
) -> subprocess.Popen[bytes]:
    """Starts a guest on one core that runs host.py with these arguments."""
    folder.mkdir(parents=True)
    shutil.copyfile(HERE / "host.py", folder / "host.py")
    directory = Path(tempfile.mkdtemp(prefix="boot-", dir=folder.parent))
    shutil.copyfile(str(init.__file__), directory / "init.py")
    root = roots.find()
    if root is None:
        sys.exit("there is no guest's root yet: scripts/guest/build")
    guest = boot.Boot(
        kernel,
        folder,
        [world.PYTHON, "-I", str(boot.RUN_DIRECTORY / "host.py"), *argv],
        seed=1,
        virtual_limit_s=1000,
        memory_mib=512,
        sees=world.World(root.folder),
    )
    (directory / init.BOOT).write_text(guest.description(), encoding="utf-8")
    line = boot.command_line(guest)
    at = line.index("time-travel=inf-cpu")
    line[at : at + 1] = [clock, *([] if link is None else [f"umlink={LINK_FD},{DELAY_NS},{host}"])]
    folders = guest.folders(directory)
    opened = {number: os.open(path, os.O_DIRECTORY) for number, path in folders.items()}

    def before_exec() -> None:
        end_with_parent()
        os.sched_setaffinity(0, {core})
        for number, descriptor in opened.items():
            os.dup2(descriptor, number)
        if link is not None:
            os.dup2(link, LINK_FD)

    with open(folder / "console", "wb") as console:
        process = subprocess.Popen(
            line,
            cwd=directory,
            close_fds=False,
            env={"PATH": "/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/dev/shm"},
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            preexec_fn=before_exec,
        )
    for descriptor in opened.values():
        os.close(descriptor)
    return process


def usage() -> dict[str, float]:
    """Of all that has ended, also of guests' processes, which are ours once they are orphans."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"cpu_s": used.ru_utime + used.ru_stime, "switches": used.ru_nvcsw + used.ru_nivcsw}


def wait(processes: list[subprocess.Popen[Any]]) -> list[int]:
    """Waits for all. Ends them if one does not end in time."""
    end = time.monotonic() + _DEADLINE_S
    try:
        return [process.wait(max(0.1, end - time.monotonic())) for process in processes]
    except subprocess.TimeoutExpired as late:
        for process in processes:
            process.kill()
        sys.exit(f"{late.cmd[0]} did not end within {_DEADLINE_S} s")


def two_guests(
    way: str, kernel: Path, folder: Path, arguments: list[str]
) -> tuple[list[int], dict[str, Any]]:
    """Runs the controller and two guests. Returns their statuses, and what the controller says."""
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    for link in (link for pair in pairs for link in pair):
        os.set_inheritable(link.fileno(), True)
    path = folder / "clock"
    ends = [pair[0].fileno() for pair in pairs]
    argv = [str(folder.parent / "controller"), str(path), "2", str(DELAY_NS), way]
    controller = subprocess.Popen(
        [*argv, *map(str, ends)],
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=ends,
        env={"COUNT_FROM_NS": str(START_NS)},
    )
    while not path.exists() and controller.poll() is None:
        time.sleep(0.02)
    cores = sorted(os.sched_getaffinity(0))
    guests = []
    for host in (0, 1):
        clock = f"time-travel=ext:{host}:{path}"
        mode = [f"h{host}", *arguments]
        guests.append(
            start_guest(
                *(kernel, folder / f"h{host}", mode, cores[host % len(cores)], clock),
                *(pairs[host][1].fileno(), host),
            )
        )
    for pair in pairs:
        for link in pair:
            link.close()
    statuses = wait([*guests, controller])
    said = controller.stdout.read() if controller.stdout else ""
    return statuses, json.loads(said or "{}")


def main() -> None:
    """Runs every way and prints one line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", type=Path)
    parser.add_argument("--bytes", type=int, default=50_000_000)
    parser.add_argument("--both-ways", action="store_true")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--folder", type=Path, default=Path("results/parallel"))
    given = parser.parse_args()
    built = [kernel.program for kernel in kernels.find_all() if PATCH in kernel.own]
    if given.kernel is None and not built:
        sys.exit(f"no kernel: scripts/guest/build --patch {HERE / PATCH}")
    kernel = (given.kernel or built[-1]).resolve()
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    headers = kernel.parent / "headers/source/include/uapi"
    gcc = ["gcc", "-O2", "-Wall", "-iquote", str(headers)]
    subprocess.run([*gcc, "-o", folder / "controller", HERE / "controller.c"], check=True)
    arguments = [str(given.bytes), "both" if given.both_ways else "one"]
    for way in given.ways.split(","):
        place = folder / way
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        before = usage()
        said: dict[str, Any] = {}
        if way == "one":
            core = max(os.sched_getaffinity(0))
            mode = ["both", *arguments]
            clock = "time-travel=inf-cpu"
            guest = start_guest(kernel, place / "both", mode, core, clock, None, 0)
            statuses = wait([guest])
        else:
            statuses, said = two_guests(way, kernel, place, arguments)
        after = usage()
        used = {key: round(after[key] - before[key], 3) for key in after}
        captures = sorted(place.glob("*/h?.pcap"))
        hashes = [hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in captures]
        result = {"way": way, "statuses": statuses, **used, "captures": hashes, "controller": said}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
