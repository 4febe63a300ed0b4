"""Programs that compile for the guest or for this kernel, outside or inside a root of their own.

A chroot needs no mount but that of /dev/null, which every user may make in namespaces of their own.
So an ordinary user can build as root can. See user_namespaces(7) and unshare(1).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from outcast.emulation.commands import end_with_parent
from outcast.errors import CommandError, FeatureMissingError, KernelError

_ERROR_LINES = 12


class Programs:
    """Starts programs. An interrupt ends the program and all that it started."""

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> str:
        """Runs a program to its end. Returns its standard output and its errors.

        Of our environment it gets PATH, HOME and proxies alone.

        Raises:
            CommandError: the program failed.
            FeatureMissingError: it is not there.
        """
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in ("PATH", "HOME") or name.lower().endswith("_proxy")
        }
        try:
            process = subprocess.Popen(
                argv,
                cwd=cwd,
                env={**kept, "LC_ALL": "C.UTF-8", **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        except FileNotFoundError:
            raise FeatureMissingError(f"{argv[0]} is missing on this machine") from None
        lines: list[str] = []
        try:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if on_line is not None:
                    on_line(line.rstrip("\n"))
            status = process.wait()
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if status:
            last = " | ".join(line.strip() for line in lines[-_ERROR_LINES:])
            raise CommandError(argv, status, last)
        return "".join(lines)


ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/",
    "LC_ALL": "C",
    "TZ": "UTC",
}
"""The whole environment of programs in the root, besides what a call adds."""

_NAMESPACES = ("--mount", "--pid", "--fork", "--kill-child=SIGKILL")
_WITH_NULL = 'umask 022; mount --bind /dev/null "$0/dev/null" && exec chroot "$0" "$@"'
_PLAIN = 'umask 022; exec chroot "$0" "$@"'
WAYS = (
    ("unshare", *_NAMESPACES, "sh", "-c", _WITH_NULL),
    ("unshare", "--user", "--map-root-user", *_NAMESPACES, "sh", "-c", _WITH_NULL),
    ("sh", "-c", _PLAIN),
)
"""Commands that enter the root, which is their next argument. The first that works is used: root's
own, an ordinary user's, and that of a root without privileges, as in a container."""

_PROBE = "test -c /dev/null && : >/dev/null"
"""Without a mount, /dev/null is a device in the root, which not every file system allows."""


class EnclosedPrograms(Programs):
    """Starts programs inside a root.

    Arguments and folders are named as they are outside. The root's own path is cut off from them.
    So a program sees the same paths wherever the root stands.

    Args:
        root: the root's folder.
        enter: the command that enters it; see WAYS.
        programs: what starts that command.
    """

    def __init__(self, root: Path, enter: Sequence[str], programs: Programs) -> None:
        self._root = root
        self._enter = tuple(enter)
        self._programs = programs

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> str:
        """See Programs.run. Raises CommandError, which names the program and not how it entered."""
        settings = [
            f"{name}={text}" for name, text in {**ENVIRONMENT, **(environment or {})}.items()
        ]
        folder = f"--chdir={self._inside(str(cwd))}"
        inside = [self._inside(word) for word in argv]
        command = [*self._enter, str(self._root), "/usr/bin/env", "-i", folder, *settings, *inside]
        try:
            return self._programs.run(command, cwd=self._root, on_line=on_line)
        except CommandError as error:
            raise CommandError(argv, error.status, error.stderr) from None

    def _inside(self, word: str) -> str:
        root = str(self._root)
        return "/" if word == root else word.replace(f"{root}/", "/")


def enclose(packages: Path, root: Path, programs: Programs) -> EnclosedPrograms:
    """Copies or links a folder of packages to a new root, and finds how it can be entered.

    Raises FeatureMissingError: no way into the root works here; with what each said.
    """
    try:
        shutil.copytree(packages, root, symlinks=True, copy_function=link_or_copy)
    except shutil.Error as error:
        _, target, why = error.args[0][0]
        raise KernelError(f"{target}: {why}") from None
    for folder in ("dev", "tmp"):
        (root / folder).mkdir(exist_ok=True)
    null = root / "dev/null"
    try:
        os.mknod(null, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        # An ordinary user mounts the machine's own over this.
        null.touch()
    refused = []
    for enter in WAYS:
        enclosed = EnclosedPrograms(root, enter, programs)
        try:
            enclosed.run(["/bin/sh", "-c", _PROBE], cwd=root / "tmp")
        except (CommandError, FeatureMissingError) as error:
            refused.append(error.stderr if isinstance(error, CommandError) else str(error))
        else:
            return enclosed
    raise FeatureMissingError(f"a root of its own cannot be entered: {'; '.join(refused)}")


def link_or_copy(source: str, target: str) -> None:
    """Links a file where both stand on one file system and the file is ours: that costs nothing."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target)
