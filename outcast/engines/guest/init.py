"""The first process of the guest: it builds the file system, runs the payload and halts.

The guest's kernel starts it in the Python of the root, without site packages. It imports nothing
else of outcast. BOOT, a file of the boot directory that `outcast.engines.guest.boot` made, says
what it does.

Of the host the guest gets a few folders, which are open descriptors of its kernel: the boot
directory, the root, the code that lies over the root, the run directory, and the working folder of
a single command. Root, code and working folder are read-only under overlays in memory. Writing
reaches the host only at RUN_DIRECTORY. Once all are mounted, hostfs is sealed, and nothing more of
the host can be mounted.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import sys
import termios
import time
import traceback

BOOT_FD, ROOT_FD, RUN_FD, CODE_FD, FOLDER_FD = 1001, 1002, 1003, 1004, 1005
"""The descriptors by which the guest's kernel knows folders of the host. hostfs mounts them by
their numbers, so that no path of the host reaches the guest."""
BOOT_DIRECTORY = "/mnt"
BOOT = "boot.json"
RUN_DIRECTORY = "/mnt/run"
FOLDER = "/mnt/folder"
SEAL = "/sys/module/hostfs/parameters/sealed"
TCP_MEMORY = "/proc/sys/net/ipv4/tcp_mem"
NO_MORE_MODULES = "/proc/sys/kernel/modules_disabled"
TRACEFS = "/sys/kernel/tracing"
EMPTY = ("/dev/shm", "/run", "/tmp", "/var/log", "/var/tmp", "/mnt", "/etc/openvswitch")

# ovs-vswitchd counts the cores again ten seconds after the last count, and takes the clock's zero
# for the last one. So in the first ten seconds after boot it sees no core and starts no upcall
# handler. No real machine starts it that early. Sleeping costs nothing here.
UPTIME_S = 11

SAID_LINE = "outcast guest: the kernel said, while it loaded modules"
REFUSED_LINE = "outcast guest: module refused"
UNSEALED_LINE = "outcast guest: this kernel cannot be sealed: programs could read any file of yours"
START_LINE = "outcast guest: start"
EXIT_LINE = "outcast guest: exit"
BEAT_LINE = "outcast guest: beat"
BEAT_S = 1.0

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND = 1, 2, 4, 8, 4096
_MNT_DETACH = 2
_RB_POWER_OFF = 0x4321FEDC
_RLIMIT_NOFILE = 7
_PR_SET_TIMERSLACK = 29
_PIVOT_ROOT, _FINIT_MODULE = 155, 313
"""The numbers of pivot_root(2) and finit_module(2) on x86-64; libc has no functions for them."""
_CLOCK_MONOTONIC, _TIMER_ABSTIME = 1, 1
_READ_ALL, _CONSOLE_OFF, _CONSOLE_ON = 3, 6, 7
_MESSAGES_BYTES = 1 << 20
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(kind: str, target: str, *, source: str = "", flags: int = 0, options: str = "") -> None:
    """Mounts a file system on a target, and first makes the target if it is missing."""
    os.makedirs(target, exist_ok=True)
    _checked(
        _libc.mount(
            os.fsencode(source or kind),
            os.fsencode(target),
            os.fsencode(kind) or None,
            flags,
            os.fsencode(options) or None,
        ),
        f"mount {kind or source} on {target}",
    )


def load_modules(modules: list[dict[str, str]]) -> list[str]:
    """Loads the user's modules from the boot directory; each has a `file` and its `arguments`.

    It is done before anything else, and while the kernel writes nothing to the console. So a run
    with modules goes on as one without them, because what the console writes raises interrupts,
    and their times are among the kernel's random numbers.

    Returns what the kernel said meanwhile.

    Raises OSError: the kernel refused a module. What it said has been written to the console.
    """
    if not modules:
        return []
    before = len(kernel_messages())
    _libc.klogctl(_CONSOLE_OFF, None, 0)
    try:
        for module in modules:
            load(module["file"], module["arguments"])
    except OSError as error:
        for line in (SAID_LINE, *kernel_messages()[before:], f"{REFUSED_LINE}: {error.strerror}"):
            say(line)
        raise
    finally:
        _libc.klogctl(_CONSOLE_ON, None, 0)
    return kernel_messages()[before:]


def load(file: str, arguments: str) -> None:
    """Loads a module from the boot directory. Raises OSError, which names it."""
    descriptor = os.open(os.path.join(BOOT_DIRECTORY, file), os.O_RDONLY)
    try:
        result = _libc.syscall(_FINIT_MODULE, descriptor, arguments.encode(), 0)
        _checked(result, file)
    finally:
        os.close(descriptor)


def kernel_messages() -> list[str]:
    """The kernel's ring buffer without its priorities; see syslog(2)."""
    buffer = ctypes.create_string_buffer(_MESSAGES_BYTES)
    size = _libc.klogctl(_READ_ALL, buffer, _MESSAGES_BYTES)
    lines = buffer.raw[: max(size, 0)].decode(errors="replace").splitlines()
    return [line.partition(">")[2] for line in lines]


def mount_folder(descriptor: int, target: str, *, flags: int = 0) -> None:
    """Mounts a folder of the host, by its descriptor in the guest's kernel."""
    mount("hostfs", target, source="none", flags=flags, options=f"{descriptor}/.")


def build_root(needed: list[str], *, has_code: bool) -> None:
    """Enters an overlay of root and code, with its own /proc, /sys, /dev, /run, /tmp.

    The guest does not see what the root keeps in the folders of EMPTY, except the `needed` folders
    below them. Every needed folder is mounted, even outside of EMPTY, because then the guest makes
    the same system calls wherever they are. Nothing of what was mounted before can be reached
    afterwards: only the overlay holds it.
    """
    mount("tmpfs", "/tmp")
    for name in ("upper", "work", "root", "code"):
        os.mkdir(f"/tmp/{name}")
    lower = "/"
    if has_code:
        mount_folder(CODE_FD, "/tmp/code", flags=_MS_RDONLY)
        lower = "/tmp/code:/"
    mount("overlay", "/tmp/root", options=f"lowerdir={lower},upperdir=/tmp/upper,workdir=/tmp/work")
    os.chdir("/tmp/root")
    # See pivot_root(2): the old root ends up on top of the new one, and is taken away from there.
    _checked(_libc.syscall(_PIVOT_ROOT, b".", b"."), "pivot_root")
    _checked(_libc.umount2(b".", _MNT_DETACH), "umount of the old root")
    os.chdir("/")
    quiet = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    mount("proc", "/proc", flags=quiet)
    mount("sysfs", "/sys", flags=quiet)
    if os.path.isdir(TRACEFS):
        mount("tracefs", TRACEFS, flags=quiet)
    mount("devtmpfs", "/dev", flags=_MS_NOSUID)
    mount("devpts", "/dev/pts", flags=_MS_NOSUID | _MS_NOEXEC, options="ptmxmode=0666")
    kept = [(path, os.open(path, os.O_PATH | os.O_DIRECTORY)) for path in needed]
    for path in EMPTY:
        mount("tmpfs", path, flags=_MS_NOSUID | _MS_NODEV)
    for path, descriptor in kept:
        mount("", path, source=f"/proc/self/fd/{descriptor}", flags=_MS_BIND)
        os.close(descriptor)
    mount_folder(RUN_FD, RUN_DIRECTORY)
    for link, target in (("fd", "self/fd"), ("stdin", "self/fd/0"), ("stdout", "self/fd/1")):
        if not os.path.lexists(f"/dev/{link}"):
            os.symlink(f"/proc/{target}", f"/dev/{link}")


def mount_working_folder() -> None:
    """Mounts the folder in which a single command runs; what it writes there stays in memory."""
    lower, upper, work = (f"/run/outcast/{name}" for name in ("lower", "upper", "work"))
    for path in (lower, upper, work):
        os.makedirs(path)
    mount_folder(FOLDER_FD, lower, flags=_MS_RDONLY)
    mount("overlay", FOLDER, options=f"lowerdir={lower},upperdir={upper},workdir={work}")
    _checked(_libc.umount2(lower.encode(), _MNT_DETACH), f"umount {lower}")


def seal() -> bool:
    """Makes the kernel refuse any further folder of the host, and modules, which could undo that.

    Returns whether it refuses folders now. A kernel from before patch 0006 cannot.
    """
    for path, value in ((SEAL, "Y"), (NO_MORE_MODULES, "1")):
        if os.path.exists(path):
            with open(path, "w", encoding="ascii") as stream:
                stream.write(value)
    return os.path.exists(SEAL)


def allow_tcp_memory() -> None:
    """Lets TCP use most of the memory before it feels a lack of it (tcp_mem in tcp(7)).

    All hosts are one kernel's. With its usual eighth of the memory, buffers of one host took the
    windows of all others away, which no real host does.
    """
    pages = os.sysconf("SC_PHYS_PAGES")
    with open(TCP_MEMORY, "w", encoding="ascii") as stream:
        stream.write(f"{pages // 2} {pages * 3 // 4} {pages}")


def name_host() -> None:
    """Gives the guest its own host name and tables instead of the host's."""
    socket.sethostname("outcast")
    for path, text in (
        ("/etc/hostname", "outcast\n"),
        ("/etc/hosts", "127.0.0.1 localhost outcast\n"),
        ("/etc/resolv.conf", ""),
    ):
        if os.path.lexists(path):
            os.unlink(path)
        with open(path, "w", encoding="ascii") as stream:
            stream.write(text)


def make_timers_exact() -> None:
    """Makes the sleeps of this process, and of all that it starts, end exactly on time.

    By default one ends up to 50 us late, together with another timer (PR_SET_TIMERSLACK in
    prctl(2)). So a flow's start would depend on what else sleeps.
    """
    _checked(_libc.prctl(_PR_SET_TIMERSLACK, 1), "prctl")


def sleep_until(uptime_s: int) -> None:
    """Returns at exactly this time since boot, however often the clock was read before.

    Meanwhile the kernel seeds its random numbers again (drivers/char/random.c, crng_reseed). So it
    does not matter either how many were taken before; making a folder takes one.
    """
    at = struct.pack("ll", uptime_s, 0)
    number = _libc.clock_nanosleep(_CLOCK_MONOTONIC, _TIMER_ABSTIME, at, None)
    if number != 0:
        raise OSError(number, f"clock_nanosleep: {os.strerror(number)}")


def raise_loopback() -> None:
    """Sets the loopback interface up; see netdevice(7)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack_from("h", fcntl.ioctl(control, _SIOCGIFFLAGS, request), 16)[0]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def open_console(path: str) -> int:
    """Opens a console and makes it pass bytes on unchanged, with no carriage return added."""
    console = os.open(path, os.O_WRONLY | os.O_NOCTTY)
    settings = termios.tcgetattr(console)
    settings[1] &= ~termios.OPOST
    termios.tcsetattr(console, termios.TCSANOW, settings)
    return console


def allow_open_files(count: int) -> None:
    """Raises the limit of open files for this process and its children, if it is smaller."""
    soft, hard = struct.unpack("QQ", _limit_of_open_files(None))
    if soft < count:
        _limit_of_open_files(struct.pack("QQ", count, max(count, hard)))


def _limit_of_open_files(new: bytes | None) -> bytes:
    old = ctypes.create_string_buffer(16)
    _checked(_libc.prlimit(0, _RLIMIT_NOFILE, new, old), "prlimit")
    return old.raw


def start(argv: list[str], environment: dict[str, str]) -> int:
    """Starts the payload, with its output on the first console and its errors on the second."""
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        nothing = os.open("/dev/null", os.O_RDONLY)
        output = open_console("/dev/tty0")
        for descriptor, number in ((nothing, 0), (output, 1)):
            os.dup2(descriptor, number)
        os.chdir(RUN_DIRECTORY)
        os.execve(argv[0], argv, environment)
    except OSError as error:
        print(f"cannot start {argv[0]}: {error}", file=sys.stderr, flush=True)
    os._exit(127)


def wait_for(child: int, virtual_limit_s: float) -> int:
    """Reaps every orphan until the payload ends. Returns its status, negative for a signal.

    A beat on the second console shows the host, every second of virtual time, that time passes.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    end = time.monotonic() + virtual_limit_s
    while True:
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == child:
                    return os.waitstatus_to_exitcode(status)
                if pid == 0:
                    break
        except ChildProcessError:
            return 127
        if signal.sigtimedwait({signal.SIGCHLD}, BEAT_S) is None:
            say(f"{BEAT_LINE} {time.monotonic():.0f}")
            if time.monotonic() > end:
                say(f"outcast guest: the payload ran for {virtual_limit_s:g} virtual seconds")
                return 124


def end_others() -> None:
    """Ends and reaps every other process, so that their output is flushed."""
    for number, patience_s in ((signal.SIGTERM, 1.0), (signal.SIGKILL, 10.0)):
        try:
            os.kill(-1, number)
        except ProcessLookupError:
            return
        end = time.monotonic() + patience_s
        while time.monotonic() < end:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    signal.sigtimedwait({signal.SIGCHLD}, 0.1)
            except ChildProcessError:
                return


def say(line: str) -> None:
    """Writes a line to the console from which the host reads messages."""
    os.write(2, line.encode() + b"\n")


def halt() -> None:
    """Powers the guest off."""
    os.sync()
    _libc.reboot(_RB_POWER_OFF)


def main() -> None:
    """Runs the payload of BOOT. Whatever happens, it says how the payload ended and powers off."""
    status = 126
    try:
        with open(os.path.join(BOOT_DIRECTORY, BOOT), encoding="utf-8") as stream:
            boot = json.load(stream)
        said = load_modules(boot["modules"])
        build_root(boot["needed"], has_code=boot["has_code"])
        if boot["has_folder"]:
            mount_working_folder()
        is_sealed = seal()
        os.dup2(open_console("/dev/tty1"), 2)
        if not is_sealed:
            say(UNSEALED_LINE)
        allow_open_files(boot["open_files"])
        make_timers_exact()
        sleep_until(UPTIME_S)
        name_host()
        allow_tcp_memory()
        raise_loopback()
        say(f"{START_LINE} {boot['argv'][0]}")
        status = wait_for(start(boot["argv"], boot["environment"]), boot["virtual_limit_s"])
        end_others()
        for line in said:
            say(line)
    except OSError as error:
        say(f"outcast guest: {error}")
    except Exception:
        traceback.print_exc()
    say(f"{EXIT_LINE} {status}")
    halt()


if __name__ == "__main__":
    main()
