"""The library that lets time pass for programs that read the clock in a loop."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from outcast.emulation import in_c
from outcast.emulation.commands import SystemCommands

SCRIPT = """
import resource, time
begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
while time.clock_gettime_ns(time.CLOCK_MONOTONIC) < begin + 200_000_000:
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw)
print(abs(time.time() - time.clock_gettime(time.CLOCK_REALTIME)) < 1)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return in_c.provide(in_c.SPINNING, tmp_path_factory.mktemp("library"), SystemCommands())


def test_a_loop_over_the_clock_sleeps_where_readings_follow_at_once(
    library: Path, tmp_path: Path
) -> None:
    """A reading has to take less than NEAR_NS, as in the guest. So the bound is raised here."""
    text = in_c.SPINNING.sources[0].read_text(encoding="ascii")
    assert "#define NEAR_NS 1000\n" in text
    near = tmp_path / "near.c"
    near.write_text(text.replace("#define NEAR_NS 1000\n", "#define NEAR_NS 100000000\n"))
    raised = tmp_path / "near.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", raised, near], check=True)
    times_waited = {}
    for name, preloaded in (("sleeps", raised), ("alone", None)):
        environment = {} if preloaded is None else {"LD_PRELOAD": str(preloaded)}
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", SCRIPT],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        waited, agrees = done.stdout.split()
        assert agrees == "True"
        times_waited[name] = int(waited)
    # However busy the machine is, a program that only reads the clock gives the core up to nobody.
    assert times_waited["sleeps"] > times_waited["alone"] + 10


def test_programs_see_the_same_times_with_it(library: Path) -> None:
    script = "import time; print(time.time_ns() // 10**10, time.monotonic() > 0)"
    said = [
        subprocess.run(
            [sys.executable, "-I", "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for environment in ({}, {"LD_PRELOAD": str(library)})
    ]
    assert abs(int(said[0][0]) - int(said[1][0])) <= 1
    assert said[1][1] == "True"
