"""The guest under this machine's limits: it needs some of them raised, and sees none of them."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from outcast import experiment
from outcast.engines import limits
from outcast.engines.guest import boot, kernels
from outcast.engines.ledger import undo_dead
from outcast.plan.make import make_plan
from tests import guest_runs
from tests.processes import children, command

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "configs/fig3c.yaml"
SHORT = ("duration=100ms", "analysis={}")
USUAL_OPEN_FILES = 1024
"""The soft limit of nearly every machine."""
LOW_OPEN_FILES = 200
"""Less than a run of figure 3(c) needs."""


def start(target: Path, **options: object) -> subprocess.Popen[str]:
    words = guest_runs.argv(CONFIG, target, *SHORT)
    return subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options
    )


def limit_open_files() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (LOW_OPEN_FILES, hard))


def test_a_run_under_a_low_limit_of_open_files(tmp_path):
    run = start(tmp_path / "run", preexec_fn=limit_open_files)
    descriptors, processes = 0, 0
    while run.poll() is None:
        kernels = [pid for pid in children(run.pid) if "time-travel" in command(pid)]
        for kernel in kernels:
            descriptors = max(descriptors, count(Path(f"/proc/{kernel}/fd")))
            processes = max(processes, len(children(kernel)))
        time.sleep(0.02)
    assert run.returncode == 0, run.communicate()[1]
    plan = make_plan(experiment.load(CONFIG))
    needed = limits.of_guest(limits.processes(plan))
    # It was more than the limit, so the test really needs the raised one.
    assert LOW_OPEN_FILES < descriptors < needed
    assert len(plan.flows) < processes < limits.MARGIN * limits.processes(plan)


def test_a_hard_limit_is_refused_before_anything_is_made(tmp_path):
    limit, target = USUAL_OPEN_FILES, tmp_path / "run"

    def forbid() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    drop = ["setpriv", "--bounding-set", "-sys_resource"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*drop, *guest_runs.argv(CONFIG, target)],
        preexec_fn=forbid,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert f"open files, and {limit} are allowed here (ulimit -Hn)" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_guest_sees_the_same_limits_whatever_the_hosts_are(tmp_path):
    found = kernels.find()
    code = f"""
from pathlib import Path
from outcast.engines.guest.boot import Boot, boot
boot(Boot(Path({str(found.program)!r}), Path.cwd(),
     ["/bin/sh", "-c", "cat /proc/self/limits; od -An -tx1 -N16 /dev/urandom"],
     seed=1), print)
"""
    shown = [
        subprocess.run(
            ["sh", "-c", f'{script}; exec "$@"', "sh", sys.executable, "-c", code],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for script in (":", "ulimit -Sn 1024; ulimit -Ss 1024; ulimit -Sc 0; ulimit -Sl 64")
    ]
    assert "Max open files            1024                 4096" in shown[0]
    assert shown[0] == shown[1]


def test_a_start_that_is_killed_leaves_nothing_that_clean_does_not_know(tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    run = start(tmp_path / "run", env={**os.environ, "TMPDIR": str(temporary)})
    end = time.monotonic() + 60
    while not list(temporary.glob(f"{boot.BOOT_PREFIX}*")):
        assert run.poll() is None
        assert time.monotonic() < end
    run.send_signal(signal.SIGKILL)
    run.wait()
    assert list(temporary.iterdir()) != []
    undo_dead()
    assert list(temporary.iterdir()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["tmp"]


def count(folder: Path) -> int:
    try:
        return len(os.listdir(folder))
    except OSError:
        return 0
