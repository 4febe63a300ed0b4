"""rdtsc and rdtscp of a program in the guest return the guest's clock (patch 0026)."""

import shutil
import subprocess
from pathlib import Path

import pytest

from outcast.engines.guest import boot as guest
from outcast.engines.guest import kernels

SOURCE = Path(__file__).with_name("counter.c")
SLEEP_NS = 10_000_001
"""A sleep of 10 ms, which ends within a nanosecond."""

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    """counter.c, compiled so that it needs no library of the guest's."""
    made = tmp_path_factory.mktemp("counter") / "counter"
    subprocess.run(["cc", "-O2", "-static", "-pthread", "-o", made, SOURCE], check=True)
    return made


def said(folder: Path, program: Path, seed: int, *arguments: str) -> list[tuple[str, list[int]]]:
    """The program's lines in the guest: a name, and numbers."""
    kernel = kernels.find()
    assert kernel is not None
    folder.mkdir()
    shutil.copy2(program, folder)
    lines: list[str] = []
    asked = guest.Boot(kernel.program, folder, ["./counter"], seed=seed, arguments=arguments)
    result = guest.boot(asked, lines.append)
    assert result.status == 0, result.console
    return [(name, [*map(int, numbers)]) for name, *numbers in map(str.split, lines)]


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_the_counter_of_a_program_is_the_guests_clock(mode, program, tmp_path):
    """`seccomp=off` is the guest whose programs the kernel holds by ptrace(2)."""
    lines = said(tmp_path / "1", program, 1, f"seccomp={mode}")
    spun_ns = lines.pop()[1][0]
    read = [0, 0, SLEEP_NS, SLEEP_NS, SLEEP_NS]
    assert lines == [
        *(
            line
            for who in ("first", "forked", "executed", "thread")
            for line in ((who, read), ("processor", [0]))
        ),
        *((name, [0]) for name in ("plain", "split", "split", "prefixed", "last")),
        # Other faults are the program's own, as before.
        *((name, [-11]) for name in ("halt", "halt", "too-long")),
    ]
    # A program that waits for its counter sees time pass, in steps of 50 us.
    assert 1_000_000 <= spun_ns < 1_060_000
    assert said(tmp_path / "2", program, 2, f"seccomp={mode}") == [*lines, ("spun", [spun_ns])]
