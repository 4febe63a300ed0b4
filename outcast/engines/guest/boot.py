"""Boots the guest, runs one program in it as root, and ends it, whatever happens.

The guest's kernel is one process of the user who starts it. Each process of the guest is another
process here, and the host's kernel kills these when the first one ends. The guest's clock is
virtual: it stands still while the guest computes, and jumps when every process waits
(`time-travel` in the kernel's arch/um/kernel/time.c).

The guest sees the same of the host in every boot, because the same seed must give the same run. The
kernel mixes its command line into its random numbers, so no path is in it: hostfs finds folders of
the host by descriptors of fixed numbers. The environment is fixed, the clock starts at
GUEST_START_NS, and the run directory always has the same name.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from outcast import files
from outcast.emulation.commands import end_with_parent
from outcast.engines import ledger, limits
from outcast.engines.guest import init, world
from outcast.engines.guest.console import END_DEADLINE_S, PIPE_BYTES, Console, GuestResult, follow
from outcast.engines.guest.world import World
from outcast.engines.own_modules import Compiled
from outcast.errors import FeatureMissingError, GuestError
from outcast.records.flows import GUEST_START_NS

RUN_DIRECTORY = Path(init.RUN_DIRECTORY)
"""The path of the run directory in the guest."""

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/tmp",
    "USER": "root",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""The payload's whole environment."""

WHO = "the virtual engine's guest"
"""The name in errors about the limits of `limits.of_guest`."""

BOOT_PREFIX = "outcast-guest-"
STALL_S = 600.0
"""A guest hangs if it prints no line and passes no second of virtual time for this long. The time
that it waits for a processor does not count. An emulated one took two minutes for a line."""

STALL_OF_PROGRAMS_S = 300.0
"""The same while the user's programs run, because a program that spins stops the clock."""

_PYTHON = "/usr/bin/python3"


@dataclass(frozen=True)
class Boot:
    """A guest, and the program that runs in it.

    Attributes:
        kernel: the User-Mode Linux program.
        run_directory: the only folder of the host that the guest can write to. In the guest it is
            RUN_DIRECTORY, the program's working directory.
        seed: decides every random number of the guest, 64 bits.
        stall_s: see STALL_S.
        virtual_limit_s: seconds of virtual time after which the program is ended.
        memory_mib: the guest's memory. The host gives a page when the guest first touches it.
        processes: the number that run in it at a time.
        open_files: the number that the program needs, if that is more than the guest's kernel
            allows by itself (INR_OPEN_CUR in include/uapi/linux/fs.h).
        sees: what the guest sees besides the run directory; by default this machine's own programs.
        arguments: further options of the kernel, which it does not show in the guest.
    """

    kernel: Path
    run_directory: Path
    argv: Sequence[str]
    seed: int
    stall_s: float = STALL_S
    virtual_limit_s: float = 86_400.0
    memory_mib: int = limits.LEAST_MEMORY_MIB
    processes: int = limits.PROCESSES
    open_files: int = 0
    sees: World = field(default_factory=world.of_host)
    modules: Sequence[Compiled] = ()
    arguments: Sequence[str] = ()

    def description(self) -> str:
        """The work of init.py, as JSON."""
        description = {
            "argv": list(self.argv),
            "needed": self.sees.needed,
            "has_code": self.sees.code is not None,
            "has_folder": self.sees.folder is not None,
            "environment": {**ENVIRONMENT, **self.sees.environment},
            "virtual_limit_s": self.virtual_limit_s,
            "open_files": self.open_files,
            "modules": [
                {"file": module.program.name, "arguments": module.arguments}
                for module in self.modules
            ],
        }
        return json.dumps(description)

    def folders(self, directory: Path) -> dict[int, Path]:
        """The folders of the host that the guest sees, by their descriptors' numbers."""
        folders = {
            init.BOOT_FD: directory,
            init.ROOT_FD: self.sees.root,
            init.RUN_FD: self.run_directory,
            init.CODE_FD: self.sees.code,
            init.FOLDER_FD: self.sees.folder,
        }
        return {number: folder for number, folder in folders.items() if folder is not None}


def boot(
    guest: Boot,
    on_line: Callable[[str], None],
    on_message: Callable[[str], None] = lambda line: None,
    on_folder: Callable[[Path], None] = lambda folder: None,
) -> GuestResult:
    """Boots the guest and runs a program in it.

    `on_line` gets the program's standard output, `on_message` the kernel's messages and the
    program's standard error. `on_folder` gets the boot directory before it is made, so that it can
    be removed if this process is killed.

    Raises:
        FeatureMissingError: the host has no room for the guest's memory, its limits are too
            small, or it cannot start it.
        GuestError: the guest panicked, was killed, or refused a module; with what its console said.
        StallError: the guest showed no sign of life for `stall_s`.
    """
    memory_directory = _memory_directory(guest.memory_mib)
    with _boot_directory(guest, on_folder) as directory, _free_core() as core:
        with limits.raised(limits.of_guest(guest.processes), WHO):
            process = _start(guest, directory, memory_directory, core)
        try:
            # Nobody needs the boot directory after the payload's start, so it is removed then.
            console = Console(on_message, lambda: _remove(directory))
            return follow(process, on_line, console, guest.stall_s)
        finally:
            _end(process)


def command_line(guest: Boot) -> list[str]:
    """The guest kernel's arguments. The guest sees all of them but `Boot.arguments`.

    The first process is the root's Python. It mounts the boot directory and runs init.py from
    there. hostfs looks for every folder among the descriptors of the guest's kernel.
    """
    first = (
        f"__import__('ctypes').CDLL(None).mount(b'none',b'{init.BOOT_DIRECTORY}',b'hostfs',1,"
        f"b'{init.BOOT_FD}/.');exec(open('{init.BOOT_DIRECTORY}/init.py').read())"
    )
    return [
        str(guest.kernel),
        f"mem={guest.memory_mib}M",
        "seccomp=auto",
        "time-travel=inf-cpu",
        f"time-travel-start={GUEST_START_NS}",
        f"entropy-seed={guest.seed % (1 << 64)}",
        *guest.arguments,
        "norandmaps",
        "root=none",
        "rootfstype=hostfs",
        "hostfs=/proc/self/fd",
        f"rootflags={init.ROOT_FD}/.",
        "con=null",
        "con0=null,fd:1",
        "con1=null,fd:2",
        "console=tty1",
        "dummy.numdummies=0",
        "ifb.numifbs=0",
        "noreboot",
        "panic=-1",
        f"init={_PYTHON}",
        "--",
        "-I",
        "-S",
        "-c",
        first,
    ]


def _memory_directory(memory_mib: int) -> str:
    """A folder for the file that is the guest's memory, itself in memory if that has the space.

    /var/tmp is on a disk (hier(7)), to which the host then writes what the guest touches. Debian 13
    with 4 GB needs it: both other places hold half the memory.
    """
    tried = []
    for path in ("/dev/shm", os.environ.get("TMPDIR", "/tmp"), "/tmp", "/var/tmp"):
        try:
            room_mib = shutil.disk_usage(path).free >> 20
            # The guest's programs run from its memory.
            forbids_programs = bool(os.statvfs(path).f_flag & os.ST_NOEXEC)
        except OSError as error:
            tried.append(f"{path}: {error.strerror}")
            continue
        if room_mib < memory_mib:
            tried.append(f"{path} has {room_mib} MiB")
        elif forbids_programs:
            tried.append(f"{path} is mounted noexec")
        elif not os.access(path, os.W_OK | os.X_OK):
            tried.append(f"{path} cannot be written to")
        else:
            return path
    raise FeatureMissingError(
        f"no room for the guest's memory: {memory_mib} MiB are needed, "
        f"{', '.join(dict.fromkeys(tried))}; enlarge /dev/shm (mount -o remount,exec,size=...) "
        "or set TMPDIR"
    )


def require(processes: int, memory_mib: int) -> None:
    """Raises FeatureMissingError where this host has no room for such a guest."""
    limits.require(limits.of_guest(processes), WHO)
    _memory_directory(memory_mib)


@contextlib.contextmanager
def _boot_directory(guest: Boot, on_folder: Callable[[Path], None]) -> Iterator[Path]:
    """A folder with init.py, the description of its work, and the modules that it loads."""
    # tempfile would make the folder before the ledger could note its name.
    directory = Path(tempfile.gettempdir()).absolute() / f"{BOOT_PREFIX}{secrets.token_hex(4)}"
    on_folder(directory)
    directory.mkdir(mode=0o700)
    try:
        for path in (Path(init.__file__), *(module.program for module in guest.modules)):
            shutil.copyfile(path, directory / path.name)
        (directory / init.BOOT).write_text(guest.description(), encoding="utf-8")
        yield directory
    finally:
        _remove(directory)


def _remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _free_core() -> Iterator[int]:
    """A core on which no other guest of this user runs; if all are taken, any of them.

    The guest's kernel and its processes hand each other a futex at every system call, and never run
    at the same time. On two cores, waking the other core makes a system call five times as slow.
    """
    folder = ledger.default_folder() / "cores"
    cores = sorted(os.sched_getaffinity(0), reverse=True)
    for core in cores:
        descriptor = ledger.lock_file(folder, str(core))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        try:
            yield core
        finally:
            os.close(descriptor)
        return
    yield cores[os.getpid() % len(cores)]


def _start(
    guest: Boot, directory: Path, memory_directory: str, core: int
) -> subprocess.Popen[bytes]:
    """Starts the guest's kernel, with the folders of the host that it sees open."""
    opened: dict[int, int] = {}

    def before_exec() -> None:
        end_with_parent()
        os.sched_setaffinity(0, {core})
        # The guest gets nothing else that is open here.
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if int(name) > 2:
                    os.set_inheritable(int(name), False)
        for number, descriptor in opened.items():
            os.dup2(descriptor, number)

    try:
        for number, folder in guest.folders(directory).items():
            opened[number] = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        for descriptor in opened.values():
            os.close(descriptor)
        raise GuestError(f"the guest cannot be given a folder: {files.describe(error)}") from None
    try:
        return subprocess.Popen(
            command_line(guest),
            cwd=directory,
            # `pass_fds` takes only numbers that are open here; see before_exec.
            close_fds=False,
            # The guest's programs have a mask of their own.
            umask=0,
            env={"PATH": "/usr/bin:/bin", "HOME": str(directory), "TMPDIR": memory_directory},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pipesize=PIPE_BYTES,
            start_new_session=True,
            preexec_fn=before_exec,
        )
    except OSError as error:
        raise FeatureMissingError(f"the guest's kernel cannot be started: {error}") from None
    finally:
        for descriptor in opened.values():
            os.close(descriptor)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills the guest if it still runs, and reaps it. Its processes end with its kernel."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(END_DEADLINE_S)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
