"""The host's side of the guest, with a script in place of the kernel."""

import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outcast.engines import ledger
from outcast.engines.guest import boot as guest
from outcast.engines.guest import console, init
from outcast.engines.guest.world import World
from outcast.engines.own_modules import Compiled
from outcast.errors import FeatureMissingError, GuestError


def kernel(tmp_path: Path, script: str) -> Path:
    path = tmp_path / "linux"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def boot(tmp_path: Path, script: str, **options: Any) -> tuple[guest.GuestResult, list[str]]:
    """Boots a program in the kernel's place; options named `on_...` are told what happens."""
    lines: list[str] = []
    told = {name: options.pop(name) for name in list(options) if name.startswith("on_")}
    usual = {"seed": 7, "memory_mib": 1}
    program = kernel(tmp_path, script)
    asked = guest.Boot(program, tmp_path, ["/bin/true"], **usual | options)
    return guest.boot(asked, **{"on_line": lines.append, **told}), lines


ENDS = f"echo '{init.EXIT_LINE} 0' >&2"


def test_output_and_status_come_out(tmp_path):
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


def test_the_kernel_learns_of_the_host_only_what_is_always_the_same(tmp_path):
    asked = guest.Boot(Path("/some/where/linux"), tmp_path, ["/bin/true"], seed=7)
    line = guest.command_line(asked)
    rest = " ".join(line[1:])
    assert str(tmp_path) not in rest
    assert os.path.expanduser("~") not in rest
    assert sys.prefix not in rest
    assert "entropy-seed=7 " in rest
    assert guest.command_line(replace(asked, seed=8))[1:] != line[1:]
    result, lines = boot(tmp_path, f"env; pwd; cat boot.json; {ENDS}")
    told = "\n".join(lines)
    for name in os.environ:
        if name not in ("PATH", "HOME", "TMPDIR", "PWD", "_", "SHLVL", "OLDPWD"):
            assert f"\n{name}=" not in told
    description = json.loads(lines[-1])
    assert description["argv"] == ["/bin/true"]
    assert description["environment"]["PYTHONHASHSEED"] == "0"
    assert result.status == 0


def test_the_guest_gets_its_folders_as_descriptors_and_no_others(tmp_path):
    for name in ("root", "code"):
        (tmp_path / name).mkdir()
    show = f"for fd in /proc/$$/fd/*; do echo $fd $(readlink $fd); done; cat boot.json; {ENDS}"
    beside = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(beside, True)
    try:
        sees = World(tmp_path / "root", tmp_path / "code")
        lines = boot(tmp_path, show, sees=sees)[1]
    finally:
        os.close(beside)
    words = [line.partition(" ") for line in lines[:-1]]
    opened = {int(place.rpartition("/")[2]): target for place, _, target in words}
    by_number = {number: opened[number] for number in sorted(opened) if number > 1000}
    (boot_directory,) = [by_number.pop(init.BOOT_FD)]
    assert boot_directory.rpartition("/")[2].startswith("outcast-guest-")
    folders = {init.ROOT_FD: "root", init.RUN_FD: "", init.CODE_FD: "code"}
    assert by_number == {number: str(tmp_path / name) for number, name in folders.items()}
    # The shell itself has its script open, and a pipe.
    others = [target for number, target in opened.items() if 2 < number < 1000]
    assert str(tmp_path) not in others
    # Nothing in a file that the guest reads names a folder of the host.
    told = {key: value for key, value in json.loads(lines[-1]).items() if key != "environment"}
    assert "/" not in json.dumps(told).replace("/bin/true", "")


def said(*lines: str) -> str:
    return "".join(f"echo '{line}'; " for line in lines)


PANIC = "Kernel panic - not syncing: "
SAID = said(init.SAID_LINE, "x: loading out-of-tree module taints kernel.", "x: no", "x: never")
REFUSED = f"{init.REFUSED_LINE}: x.ko: "


@pytest.mark.parametrize(
    ("script", "cause"),
    [
        (said(f"{PANIC}Out of memory", "trace") + "kill -ABRT $$", f"panicked: {PANIC}Out of"),
        (
            said("RIP: 0033:[<00007f>]", "RIP: 0033:mine_acked+0x2/0xaf0 [tcp_mine]", PANIC + "x")
            + "kill -ABRT $$",
            f"{PANIC}x, in mine_acked+0x2/0xaf0 [tcp_mine]",
        ),
        (
            said("boots") + SAID + said(f"{REFUSED}File exists", f"{init.EXIT_LINE} 126"),
            "refused the module x.ko: File exists; the kernel says: x: no | x: never",
        ),
        (said(f"{REFUSED}Exec format error", f"{init.EXIT_LINE} 126"), "x.ko: Exec format error"),
        ("echo last words; kill -KILL $$", "the guest's kernel was killed by signal 9 (SIGKILL)"),
        ("exit 3", "the guest's kernel: exit status 3"),
        ("echo last words; exit 3", "the guest's kernel: exit status 3; its last line: last words"),
        (
            said("setup_physmem - mapping 9 bytes of memory at 0x6 failed - errno = -12")
            + "exit 1",
            "mapping 9 bytes of memory at 0x6 failed: Cannot allocate memory",
        ),
        (
            said("Bus error - the host /dev/shm or /tmp mount likely just ran out of space")
            + said(f"{PANIC}Kernel mode signal 7")
            + "kill -ABRT $$",
            f"just ran out of space; its kernel panicked: {PANIC}Kernel mode signal 7",
        ),
    ],
)
def test_why_a_guest_ended_is_said_in_one_line(script, cause, tmp_path):
    with pytest.raises(GuestError) as raised:
        boot(tmp_path, f"exec >&2; {script}")
    assert cause in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_boot_directory_has_the_modules(tmp_path):
    program = tmp_path / "cache" / "tcp_mine.ko"
    program.parent.mkdir()
    program.write_text("module")
    module = Compiled("tcp_mine", program, "beta=717", "gcc 12", {})
    script = f"cat boot.json; echo; cat tcp_mine.ko; {ENDS}"
    lines = boot(tmp_path, script, modules=[module])[1]
    assert json.loads(lines[0])["modules"] == [{"file": "tcp_mine.ko", "arguments": "beta=717"}]
    assert lines[1] == "module"


def test_a_silent_guest_is_ended(tmp_path):
    pid = tmp_path / "pid"
    began = time.monotonic()
    with pytest.raises(GuestError, match=r"no sign of life for 0\.3 s.*booted"):
        boot(tmp_path, f"echo booted >&2; echo $$ > {pid}; sleep 100", stall_s=0.3)
    assert time.monotonic() - began < 50
    assert not Path("/proc", pid.read_text().strip()).exists()


def test_the_time_that_a_guest_waits_for_a_processor_does_not_count(tmp_path, monkeypatch):
    monkeypatch.setattr(console, "_waited_s", lambda pid: time.monotonic())
    assert boot(tmp_path, f"sleep 1; {ENDS}", stall_s=0.2)[0].status == 0


def test_a_beat_is_a_sign_of_life(tmp_path):
    beats = f"for i in 1 2 3 4; do sleep 0.2; echo '{init.BEAT_LINE}' >&2; done; {ENDS}"
    assert boot(tmp_path, beats, stall_s=0.6)[0].status == 0


def test_an_error_in_the_callback_ends_the_guest(tmp_path):
    pid = tmp_path / "pid"

    def fail(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        boot(tmp_path, f"echo $$ > {pid}; echo line; sleep 100", on_line=fail)
    assert not Path("/proc", pid.read_text().strip()).exists()


def test_the_folder_of_a_killed_boot_is_removed_by_clean(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    noted: list[Path] = []
    asked = guest.Boot(tmp_path, tmp_path, ["/bin/true"], seed=1)
    boot_directory = guest._boot_directory(asked, noted.append)
    boot_directory.__enter__()
    assert noted[0].is_dir()
    entry = ledger.open_entry(tmp_path / "ledger")
    entry.folders = [str(path) for path in noted]
    assert entry.undo() == [f"removed {noted[0]}"]
    assert not noted[0].exists()


def test_a_kernel_that_is_no_program(tmp_path):
    with pytest.raises(FeatureMissingError, match="cannot be started"):
        guest.boot(guest.Boot(tmp_path, tmp_path, ["/bin/true"], seed=1, memory_mib=1), print)
