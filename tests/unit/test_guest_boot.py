"""The host's side of the guest, with a script in place of the kernel."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from outcast import ledger
from outcast.errors import FeatureMissingError, GuestError
from outcast.guest import boot as guest
from outcast.guest import init
from tests.deadlines import HANG_S


def kernel(tmp_path: Path, script: str) -> Path:
    path = tmp_path / "linux"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def boot(tmp_path: Path, script: str, **options: float) -> tuple[guest.GuestResult, list[str]]:
    lines: list[str] = []
    result = guest.boot(
        kernel(tmp_path, script),
        tmp_path,
        ["/bin/true"],
        seed=7,
        on_line=lines.append,
        memory_mib=1,
        **options,  # type: ignore[arg-type]
    )
    return result, lines


ENDS = f"echo '{init.EXIT_LINE} 0' >&2"


def test_output_and_status_come_out(tmp_path: Path) -> None:
    script = f"""
    echo one; printf 'two\\r\\nthree'
    echo '{init.START_LINE} x' >&2; echo '{init.BEAT_LINE} 12' >&2; echo oh >&2
    echo '{init.EXIT_LINE} -9' >&2"""
    result, lines = boot(tmp_path, script)
    assert lines == ["one", "two", "three"]
    assert result.status == -9
    assert "oh" in result.console
    assert not any("beat" in line for line in result.console)
    assert 0 < result.boot_s <= result.wall_s


def test_the_kernel_learns_of_the_host_only_what_is_always_the_same(tmp_path: Path) -> None:
    line = guest.command_line(Path("/some/where/linux"), 7, 1024)
    rest = " ".join(line[1:])
    assert str(tmp_path) not in rest
    assert os.path.expanduser("~") not in rest
    assert sys.prefix not in rest
    assert "entropy-seed=7 " in rest
    assert guest.command_line(Path("/x"), 8, 1024) != line
    result, lines = boot(tmp_path, f"env; pwd; cat boot.json; {ENDS}")
    told = "\n".join(lines)
    for name in os.environ:
        if name not in ("PATH", "HOME", "TMPDIR", "PWD", "_", "SHLVL", "OLDPWD"):
            assert f"\n{name}=" not in told
    description = json.loads(lines[-1])
    assert description["run_directory"] == str(tmp_path)
    assert description["argv"] == ["/bin/true"]
    assert description["environment"]["PYTHONHASHSEED"] == "0"
    assert result.status == 0


def test_a_panic_comes_out_with_the_console(tmp_path: Path) -> None:
    script = "echo 'Kernel panic - not syncing: Out of memory' >&2; kill -ABRT $$"
    with pytest.raises(GuestError, match=r"its kernel panicked.*Out of memory"):
        boot(tmp_path, script)


def test_a_killed_guest(tmp_path: Path) -> None:
    with pytest.raises(GuestError, match=r"signal 9 before its program did.*last words"):
        boot(tmp_path, "echo last words >&2; kill -KILL $$")


def test_a_guest_that_ends_without_a_word(tmp_path: Path) -> None:
    with pytest.raises(GuestError, match=r"status 3 before .*last lines: none"):
        boot(tmp_path, "exit 3")


def test_a_silent_guest_is_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    began = time.monotonic()
    with pytest.raises(GuestError, match=r"no sign of life for 0\.3 s.*booted"):
        boot(tmp_path, f"echo booted >&2; echo $$ > {pid}; sleep 100", stall_s=0.3)
    assert time.monotonic() - began < 5
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_a_beat_is_a_sign_of_life(tmp_path: Path) -> None:
    beats = f"for i in 1 2 3 4; do sleep 0.2; echo '{init.BEAT_LINE}' >&2; done; {ENDS}"
    assert boot(tmp_path, beats, stall_s=0.6)[0].status == 0


def test_an_error_in_the_callback_ends_the_guest(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    def fail(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guest.boot(
            kernel(tmp_path, f"echo $$ > {pid}; echo line; sleep 100"),
            tmp_path,
            ["/bin/true"],
            seed=1,
            on_line=fail,
            memory_mib=1,
        )
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_the_guest_ends_with_a_killed_parent(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    program = kernel(tmp_path, f"echo $$ > {pid}; exec sleep 100")
    code = f"""
from pathlib import Path
from outcast.guest.boot import boot, python_folders
boot(Path({str(program)!r}), Path({str(tmp_path)!r}), ["/bin/true"], seed=1, on_line=print,
     memory_mib=1)
"""
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        until(pid.exists)
        until(lambda: bool(pid.read_text()))
        child = int(pid.read_text())
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    until(lambda: not Path(f"/proc/{child}").exists() or state(child) == "Z")


def test_a_booted_guest_has_no_folder_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    script = f"""
    ls {tmp_path}/tmp; echo '{init.START_LINE} x' >&2
    for turn in $(seq 1000); do [ "$(ls {tmp_path}/tmp)" ] || break; sleep 0.1; done
    ls {tmp_path}/tmp; {ENDS}"""
    (name,) = boot(tmp_path, script)[1]
    assert name.startswith("outcast-guest-")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_no_room_for_the_memory_is_said_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(FeatureMissingError, match=r"/dev/shm has .* MiB.*remount"):
        guest.boot(
            kernel(tmp_path, ENDS),
            tmp_path,
            ["/bin/true"],
            seed=1,
            on_line=print,
            memory_mib=1 << 40,
        )


def test_a_kernel_that_is_no_program(tmp_path: Path) -> None:
    with pytest.raises(FeatureMissingError, match="cannot be started"):
        guest.boot(tmp_path, tmp_path, ["/bin/true"], seed=1, on_line=print, memory_mib=1)


def test_two_guests_get_two_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "default_folder", lambda: tmp_path)
    show = f"grep Cpus_allowed_list /proc/self/status; {ENDS}"
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("one core")
    _, alone = boot(tmp_path, show)
    with guest._free_core() as taken:
        _, beside = boot(tmp_path, show)
    assert beside != [f"Cpus_allowed_list:\t{taken}"]
    assert len(alone) == 1


def until(condition: object) -> None:
    assert callable(condition)
    end = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def test_the_checkout_is_seen_though_it_is_on_no_path() -> None:
    assert str(Path(__file__).resolve().parents[2]) in guest.python_folders()


def test_what_is_seen_is_the_same_wherever_one_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = guest.python_folders()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    guest.python_folders.cache_clear()
    assert guest.python_folders() == before
    # None hides what is below it when it is mounted.
    assert not [(a, b) for a in before for b in before if Path(a) in Path(b).parents]
