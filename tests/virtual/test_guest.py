"""The guest itself: what it sees, how it ends, what it repeats, and how exact its clock is."""

import functools
import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from outcast import experiment
from outcast.emulation.commands import wait_until
from outcast.engines.doctor import prepare_check
from outcast.engines.guest import boot as guest
from outcast.engines.guest import kernels, world
from outcast.engines.guest.world import World
from outcast.engines.virtual import world_of
from outcast.errors import GuestError
from outcast.records.flows import GUEST_START_NS
from tests.deadlines import HANG_S
from tests.processes import descendants, is_alive

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"


@pytest.fixture(scope="module")
def kernel() -> Path:
    found = kernels.find()
    return found.program


@functools.cache
def locked() -> World:
    """The root of the lock, with our code."""
    kernel = kernels.find()
    assert kernel is not None
    sees = world_of(experiment.load(ROOT / "configs/fig3c.yaml"), kernel)
    assert not sees.is_host, "run: scripts/guest/build"
    return sees


def run(
    kernel: Path, folder: Path, script: str, *, seed: int = 1, **options: Any
) -> tuple[guest.GuestResult, list[str]]:
    """Runs a shell script in the guest. Returns its result and its lines."""
    lines: list[str] = []
    argv, options = ["/bin/sh", "-c", script], {"sees": locked(), **options}
    asked = guest.Boot(kernel, folder, argv, seed=seed, **options)
    return guest.boot(asked, lines.append), lines


def output(
    kernel: Path, folder: Path, script: str, *, seed: int = 1, sees: World | None = None
) -> list[str]:
    result, lines = run(kernel, folder, f"set -e; {script}", seed=seed, sees=sees or locked())
    assert result.status == 0, result.console
    return lines


def test_it_boots_within_a_second_and_says_how_its_program_ended(kernel, tmp_path):
    result, lines = run(kernel, tmp_path, "echo hello; echo oh >&2; exit 3")
    assert result.status == 3
    assert lines == ["hello"]
    assert "oh" in result.console
    assert result.boot_s < 1
    assert run(kernel, tmp_path, "kill -TERM $$")[0].status == -signal.SIGTERM


def test_with_the_hosts_root_it_writes_to_the_run_directory_and_to_nothing_else(kernel, tmp_path):
    # Not below /tmp, where the guest sees nothing of the host anyway.
    with tempfile.TemporaryDirectory(dir=RESULTS) as name:
        theirs = Path(name) / "theirs"
        theirs.write_text("before\n")
        file, configs = (shlex.quote(str(path)) for path in (theirs, ROOT / "configs"))
        script = f"""
        echo new > new; mkdir folder; echo deep > folder/deep
        cat {file}; echo after > {file}; cat {file}; rm -r {configs}
        touch /etc/of-the-guest; test -e /etc/of-the-guest
        id -u; hostname; ls /sys/class/net"""
        said = output(kernel, tmp_path, script, sees=world.of_host())
        assert theirs.read_text() == "before\n"
    assert said == ["before", "after", "0", "outcast", "lo"]
    assert (tmp_path / "new").read_text() == "new\n"
    assert (tmp_path / "folder/deep").read_text() == "deep\n"
    assert (RESULTS / "../configs/fig3c.yaml").exists()
    assert not Path("/etc/of-the-guest").exists()


MOUNT = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
os.mkdir("/tmp/x")
options = [b"", b"/", b".", b"/.", b"1001/.", b"1002/.", b"1002/../../../../.."]
options += [b"../../../etc", b"/../../.."]
for option in [*options, *sys.argv[1].encode().split()]:
    for flags in (0, 1):
        if libc.mount(b"none", b"/tmp/x", b"hostfs", flags, option) == 0:
            print("mounted", option, os.listdir("/tmp/x"))
        elif ctypes.get_errno() != errno.EPERM:
            print(option, os.strerror(ctypes.get_errno()))
for path in ("/sys/module/hostfs/parameters/sealed", "/proc/sys/kernel/modules_disabled"):
    try:
        open(path, "w").write("0")
    except OSError:
        pass
    print(open(path).read().strip())
with open("/tmp/x/y.ko", "w") as module:
    module.write("no module")
with open("/tmp/x/y.ko") as module:
    print(libc.syscall(313, module.fileno(), b"", 0), os.strerror(ctypes.get_errno()))
# Out of a chroot, and as far up as there is.
os.chroot("/tmp/x")
for _ in range(100):
    os.chdir("..")
os.chroot(".")
for path in sys.argv[2:]:
    print(path, os.path.lexists(path))
print(*(name for name in sorted(os.listdir("/")) if name not in os.listdir("/proc/1/root")))
"""


def test_nothing_else_of_the_host_can_be_read_or_mounted(kernel, tmp_path):
    with tempfile.TemporaryDirectory(dir=RESULTS) as name:
        secret = Path(name) / "secret"
        secret.write_text("secret\n")
        (tmp_path / "mount.py").write_text(MOUNT)
        hidden = [str(secret), str(ROOT), "/work", "/home/user", "/etc/shadow", sys.prefix]
        hidden += [str(Path.home() / ".cache"), "/usr/bin/gcc", str(kernel)]
        said = output(
            kernel,
            tmp_path,
            f"""
            for name in {shlex.join(hidden)}; do ! cat "$name"; ! ls "$name"; done 2>/dev/null
            ! echo more > {shlex.quote(str(secret))} 2>/dev/null
            python3 mount.py {shlex.quote(f"{ROOT} {secret.parent}")} {shlex.join(hidden)}
            ls -d /home/* /root/* 2>/dev/null || true""",
        )
        assert secret.read_text() == "secret\n"
    assert said == [
        *("Y", "1", "-1 Operation not permitted"),
        *(f"{path} False" for path in hidden),
        "",
    ]


def test_no_path_or_name_of_the_host_is_told_to_the_guest(kernel, tmp_path):
    places = "/proc/cmdline /proc/mounts /proc/1/environ /proc/self/environ /proc/cpuinfo"
    said = "\n".join(output(kernel, tmp_path, f"cat {places} /proc/version; env; uname -a; dmesg"))
    host = os.uname()
    names = {str(tmp_path), str(ROOT), str(locked().root), str(kernel), str(Path.home() / ".cache")}
    names |= {host.nodename, host.release} - {"localhost", "outcast"}
    assert not [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", said)]


LISTING = """
import os
def show(path):
    for entry in [path, *(f"{path}/{name}" for name in os.listdir(path))]:
        s = os.lstat(entry)
        print(entry, s.st_ino, s.st_nlink, s.st_uid, s.st_gid, oct(s.st_mode), s.st_size,
              s.st_blocks, s.st_mtime_ns, s.st_ctime_ns, s.st_atime_ns, s.st_blksize, s.st_dev)
    for entry in os.scandir(path):
        print(entry.name, entry.inode(), entry.is_dir(), entry.is_symlink())
        if entry.is_dir(follow_symlinks=False):
            show(entry.path)
show("/mnt/run")
s = os.statvfs("/mnt/run")
print(s.f_bsize, s.f_blocks, s.f_bavail, s.f_files, s.f_namemax, s.f_fsid)
"""


def test_a_folder_looks_the_same_whatever_file_system_it_is_on(kernel, tmp_path):
    names = ["b", "ä", "a", "Z", *(f"{n}" for n in range(300))]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as in_memory:
        listings = []
        for place, order in ((tmp_path / "one", names), (Path(in_memory), names[::-1])):
            for folder in (place, place / "deep", place / "deep" / "er"):
                folder.mkdir(exist_ok=True)
                folder.chmod(0o755)
                for name in order:
                    path = folder / name
                    # A hole is a hole on one file system, and on another it is written out.
                    with path.open("wb") as stream:
                        if place == tmp_path / "one":
                            stream.truncate(100_000)
                        else:
                            stream.write(bytes(100_000))
                    path.chmod(0o644)
                (folder / "link").symlink_to("deep/er")
            (place / "listing.py").write_text(LISTING)
            (place / "listing.py").chmod(0o644)
            if os.geteuid() == 0 and place != tmp_path / "one":
                for path in (place, *place.rglob("*")):
                    os.chown(path, 12345, 54321, follow_symlinks=False)
            listings.append(output(kernel, place, "python3 listing.py"))
    assert listings[0] == listings[1]
    assert len(listings[0]) > 1800
    (first, *_) = [line for line in listings[0] if line.startswith("/mnt/run/Z ")]
    assert " 0 0 0o100644 100000 196 " in first
    shown = [line.split()[0] for line in listings[0] if line.startswith("/mnt/run/deep/")]
    assert shown[:5] == [f"/mnt/run/deep/{name}" for name in sorted(names)[:5]]


def test_files_may_be_removed_while_their_folder_is_read(kernel, tmp_path):
    code = """
import os
os.mkdir("many")
for n in range(5000):
    open(f"many/{n:04d}-{'x' * 100}", "w").close()
listing = os.scandir("many")
for entry in listing:
    os.unlink(entry.path)
print(len(os.listdir("many")))
os.rmdir("many")
"""
    (tmp_path / "remove.py").write_text(code)
    assert output(kernel, tmp_path, "python3 remove.py") == ["0"]
    assert not (tmp_path / "many").exists()


def test_the_guests_own_mask_decides_modes(kernel, tmp_path):
    before = os.umask(0o077)
    try:
        said = output(
            kernel,
            tmp_path,
            "umask; (umask 077; echo > a; mkdir b); umask 002; echo > c; chmod 751 c; echo > d;"
            "stat -c %a a b c d; chown 0:0 d; ! chown 1:1 d 2>/dev/null; stat -c %u:%g d",
        )
    finally:
        os.umask(before)
    assert said == ["0022", "600", "700", "751", "664", "0:0"]
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "abcd"]
    assert modes == [0o600, 0o700, 0o751, 0o664]


def test_a_run_directory_may_have_any_name(kernel, tmp_path):
    folder = tmp_path / "ü" / "a,b [c] *" / os.fsdecode(b"a\xffb")
    folder.mkdir(parents=True)
    # In this locale a path is read as ASCII, and other bytes are kept as surrogates.
    code = f"""
import os
from pathlib import Path
from outcast.engines.guest.boot import Boot, boot
folder = Path(os.fsdecode({os.fsencode(folder)!r}))
print(boot(Boot(Path({str(kernel)!r}), folder, ["/bin/sh", "-c", "echo new > new"], seed=1),
     print).status)
"""
    for own in ({}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == "0\n", done.stderr
        assert (folder / "new").read_text() == "new\n"
        (folder / "new").unlink()


def test_its_kernel_has_what_experiments_use(kernel, tmp_path):
    command = shlex.join(prepare_check(tmp_path))
    found = kernels.find()
    said = json.loads(output(kernel, tmp_path, command)[-1])
    assert said["release"] == found.release
    assert tuple(said["congestion_controls"]) == found.congestion_controls


RANDOM = """
head -c 16 /dev/urandom | od -An -tx1; cat /proc/sys/kernel/random/uuid
python3 -c 'import os, random; print(os.urandom(8).hex(), random.random())'
sh -c 'echo $$'; date +%s.%N; ip link add type veth; cat /sys/class/net/veth0/address
"""


def test_a_seed_decides_everything_random(kernel, tmp_path):
    one, other = tmp_path / "one", tmp_path / "a rather longer name" / "other"
    for folder in (one, other):
        folder.mkdir(parents=True)
    first = output(kernel, one, RANDOM)
    assert output(kernel, other, RANDOM) == first
    different = output(kernel, one, RANDOM, seed=2)
    assert all(a != b for a, b in zip(first[:3], different[:3], strict=True))


def test_time_starts_where_it_always_does_and_stands_still(kernel, tmp_path):
    script = """
    date +%s; cut -d. -f1 /proc/uptime
    a=$(date +%s%N); i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i+1)); done
    echo $(( $(date +%s%N) - a ))
    a=$(date +%s%N); sleep 1000; echo $(( ($(date +%s%N) - a) / 1000000000 ))"""
    began = time.monotonic()
    start_s, uptime_s, computed_ns, slept_s = (
        int(line) for line in output(kernel, tmp_path, script)
    )
    assert start_s - GUEST_START_NS // 10**9 == uptime_s
    assert uptime_s >= 11
    assert computed_ns < 1_000_000
    assert slept_s == 1000
    assert time.monotonic() - began < 30


def test_a_busy_guest_without_a_sign_of_life_is_ended(kernel, tmp_path):
    with pytest.raises(GuestError, match="no sign of life for 3 s"):
        run(kernel, tmp_path, "while :; do :; done", stall_s=3)


def test_a_program_that_never_ends_is_ended_by_virtual_time(kernel, tmp_path):
    result, _ = run(kernel, tmp_path, "while :; do sleep 1; done", virtual_limit_s=500)
    assert result.status == 124
    assert any("500 virtual seconds" in line for line in result.console)


def test_a_panic_is_told_with_the_console(kernel, tmp_path):
    grow = "[bytes(b'x' * (1 << 20)) for _ in range(1 << 20)]"
    script = f'echo 1 > /proc/sys/vm/panic_on_oom; exec python3 -c "{grow}"'
    with pytest.raises(GuestError, match="its kernel panicked"):
        run(kernel, tmp_path, script, memory_mib=256)


def test_a_killed_parent_leaves_no_process(kernel, tmp_path):
    code = f"""
from pathlib import Path
from outcast.engines.guest.boot import Boot, boot
boot(Boot(Path({str(kernel)!r}), Path({str(tmp_path)!r}),
     ["/bin/sh", "-c", "touch up; while :; do :; done"], seed=1), print)
"""
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        wait_until((tmp_path / "up").exists, "the guest", HANG_S)
        children = descendants(parent.pid)
        assert len(children) >= 3
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    wait_until(lambda: not any(map(is_alive, children)), "their end", HANG_S)
