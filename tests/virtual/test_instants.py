"""What was done before a fixed instant does not reach what follows it."""

import shutil
from pathlib import Path

from outcast.emulation import instants
from outcast.engines.guest import boot as guest
from outcast.engines.guest.kernels import Kernel
from outcast.records.flows import GUEST_START_NS

SPIN_STEP_NS = 50_000
"""How long a program that spins waits at each call (patch 0020)."""

AFTER = """
import os, socket, time, instants
server = socket.create_server(("127.0.0.1", 7))
# Whatever this opens and imports is then there in every case.
socket.create_connection(("127.0.0.1", 7)).close()
open("/proc/sys/kernel/random/uuid").read()
print(instants.sleep_to(instants.STEP_NS))
print(time.clock_gettime_ns(time.CLOCK_REALTIME), time.monotonic_ns())
seen = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
seen.bind(("lo", 0))
print(open("/proc/sys/kernel/random/uuid").read().strip(), os.urandom(8).hex())
client = socket.create_connection(("127.0.0.1", 7), source_address=("127.0.0.1", 20001))
# The SYN: its identification, sequence number and time stamp are random.
print(seen.recv(100).hex())
"""
"""Prints what TCP and programs draw after an instant."""

BEFORE = {
    "a reading of the clock": "import time; time.time_ns()",
    "calls that fail": "import os; [os.path.exists('/missing') for _ in range(500)]",
    "an import": "import xml.dom.minidom, http.client",
    "a folder": "import os; os.mkdir('/tmp/extra')",
    "a random number": "import os; os.urandom(8)",
    "random numbers of the kernel": "[open('/proc/sys/kernel/random/uuid').read() for _ in 'abc']",
    "a program": "import subprocess; subprocess.run(['true'])",
    "a sleep": "import time; time.sleep(0.0137)",
    "a connection": "import socket; s = socket.create_server(('127.0.0.1', 9)); "
    "socket.create_connection(('127.0.0.1', 9))",
    "a process": "import os; os.fork() or os._exit(0); os.wait()",
}


def after(kernel: Kernel, folder: Path, before: str, seed: int = 1) -> list[str]:
    folder.mkdir()
    shutil.copy(Path(instants.__file__), folder)
    (folder / "after.py").write_text(f"{before}\n{AFTER}")
    lines: list[str] = []
    argv = ["/usr/bin/python3", "after.py"]
    result = guest.boot(guest.Boot(kernel.program, folder, argv, seed=seed), lines.append)
    assert result.status == 0, result.console
    return lines


def test_what_came_before_an_instant_does_not_matter_afterwards(kernel, tmp_path):
    plain = after(kernel, tmp_path / "plain", "")
    assert len(plain) == 4
    instant_ns = int(plain[0])
    # A sleep has at least 1 ns of slack.
    assert plain[1] == f"{GUEST_START_NS + instant_ns + 1} {instant_ns + 1}"
    for number, (what, before) in enumerate(BEFORE.items()):
        assert after(kernel, tmp_path / str(number), before) == plain, what
    other = after(kernel, tmp_path / "other", "", seed=2)
    assert other[:2] == plain[:2]
    assert all(mine != theirs for mine, theirs in zip(plain[2:4], other[2:4], strict=True))


def test_reading_the_clock_takes_time_only_where_nothing_else_would(kernel, tmp_path):
    readings = "import time; t = [time.monotonic_ns() for _ in range(3000)]"
    said = after(kernel, tmp_path / "read", f"{readings}; print(t[500] - t[0], t[-1] - t[0])")
    free_ns, spinning_ns = (int(number) for number in said[0].split())
    assert free_ns == 0
    assert 1500 < spinning_ns <= 3000


def test_a_program_of_the_configuration_that_spins_waits(kernel, tmp_path):
    """Its runner gives it the personality that patch 0022 looks for."""
    code = """
import ctypes, os, select, socket, time
ctypes.CDLL(None).personality(0x2000000)
poll, (mine, other) = select.poll(), socket.socketpair()
mine.setblocking(False)
def read():
    try: mine.recv(1)
    except BlockingIOError: pass
times = []
for call in (time.monotonic_ns, lambda: poll.poll(0), os.sched_yield, lambda: time.sleep(0), read):
    time.sleep(0.001)
    begin = time.monotonic_ns()
    for _ in range(300): call()
    middle = time.monotonic_ns()
    for _ in range(1700): call()
    times += [middle - begin, time.monotonic_ns() - middle]
print(*times)
"""
    said = after(kernel, tmp_path / "spin", code)
    times = [int(number) for number in said[0].split()]
    free, waited = times[::2], times[1::2]
    assert max(free) < 1000, free
    # Python's `poll` and `sleep` read the clock too.
    assert all(900 * SPIN_STEP_NS < ns < 4000 * SPIN_STEP_NS for ns in waited), waited


def test_a_call_that_fails_takes_time_only_where_nothing_else_would(kernel, tmp_path):
    calls = "import os, time; t = []\n" + (
        "for _ in range(3000): os.path.exists('/missing'); t.append(time.monotonic_ns())"
    )
    said = after(kernel, tmp_path / "fail", f"{calls}\nprint(t[500] - t[0], t[-1] - t[1000])")
    free_ns, failing_ns = (int(number) for number in said[0].split())
    assert free_ns == 0
    assert failing_ns > 1_000_000
