"""Other sources of a kernel than the lock's: a package of the distribution, or a user's tarball.

apt verifies the package's signature. It runs as an ordinary user and keeps its state in a folder of
ours. The machine's configuration is read and never changed. The archive's address comes from the
machine's own apt sources.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outcast.engines.kernel.programs import Programs
from outcast.errors import CommandError, InputError, KernelError

SUITES = ("trixie-backports",)
"""Asked first, because from Linux 6.16 on the guest's system calls use seccomp, which is faster."""

_KEYRINGS = (
    Path("/usr/share/keyrings/debian-archive-keyring.pgp"),
    Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
)
_PACKAGE = re.compile(r"^(linux-source-([0-9]+(?:\.[0-9]+)*)) - ", re.MULTILINE)
_VERSION = re.compile(r"^Version: (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Source:
    """A kernel source that can be fetched.

    Attributes:
        name: the package, as `linux-source-7.3`, or `tarball`.
        version: the package's version, or the tarball's SHA-256.
        tarball: the file, if the user gave one.
    """

    name: str
    version: str
    tarball: Path | None = None


class Archive:
    """The distribution's archive, read by apt with a configuration of our own.

    Args:
        folder: the folder for apt's lists and downloads.
        programs: what runs apt.
        suites: the suites to look in. If they cannot be read, the machine's own are used.
        keyrings: files of the archive's keys, of which the first that exists is used. If none
            exists, apt's own trusted keys are used.
    """

    def __init__(
        self,
        folder: Path,
        programs: Programs,
        suites: Sequence[str] = SUITES,
        keyrings: Sequence[Path] = _KEYRINGS,
    ) -> None:
        self._folder = folder
        self._programs = programs
        self._suites = tuple(suites)
        self._keyring = next((path for path in keyrings if path.exists()), None)

    def newest(self, name: str | None = None) -> Source:
        """The newest linux-source package, or the one with this name.

        Raises:
            KernelError: there is none, or the archive cannot be reached.
        """
        bases = self._bases()
        named = [(bases[0][0], suite) for suite in self._suites]
        try:
            self._update(named)
        except CommandError as error:
            own = [base for base in bases if base not in named]
            try:
                self._update(own)
            except CommandError:
                raise KernelError(f"the archive cannot be read: {error}") from None
        listed = self._apt("apt-cache", "search", "--names-only", "^linux-source-[0-9]")
        packages = {
            match[1]: tuple(int(part) for part in match[2].split("."))
            for match in _PACKAGE.finditer(listed)
        }
        if not packages or (name is not None and name not in packages):
            raise KernelError(
                f"no package {name or 'linux-source'} in {', '.join(self._suites)}; "
                f"there is {', '.join(sorted(packages)) or 'none'}; "
                "name another suite with --suite, or a file with --tarball"
            )
        chosen = name or max(packages, key=lambda package: packages[package])
        shown = self._apt("apt-cache", "show", "--no-all-versions", chosen)
        match = _VERSION.search(shown)
        if match is None:
            raise KernelError(f"apt-cache shows no version of {chosen}")
        return Source(chosen, match[1])

    def fetch(self, source: Source) -> Path:
        """Downloads the package. Raises CommandError where apt could not fetch or verify it."""
        downloads = self._folder / "download"
        downloads.mkdir()
        self._apt("apt-get", "download", f"{source.name}={source.version}", cwd=downloads)
        (package,) = downloads.glob("*.deb")
        return package

    def _bases(self) -> list[tuple[str, str]]:
        """The address and suite of the archive's main component in the machine's apt sources."""
        listed = self._programs.run(
            [
                "apt-get",
                "indextargets",
                "--format",
                "$(REPO_URI) $(RELEASE) $(COMPONENT)",
                "Created-By: Packages",
            ],
            cwd=self._folder.parent,
        )
        rows = [line.split() for line in listed.splitlines() if len(line.split()) == 3]
        main = [(address, suite) for address, suite, component in rows if component == "main"]
        # The plain suite comes first, because the archive at its address has the other suites too.
        main.sort(key=lambda row: (bool(re.search(r"-security|/", row[1])), "-" in row[1]))
        if not main:
            raise KernelError(
                "the machine's apt sources name no archive; give the source with --tarball"
            )
        return main

    def _update(self, suites: Sequence[tuple[str, str]]) -> None:
        for name in ("state/lists/partial", "cache/archives/partial", "sources"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        signed = f"Signed-By: {self._keyring}\n" if self._keyring else ""
        (self._folder / "sources" / "ours.sources").write_text(
            "\n".join(
                f"Types: deb\nURIs: {address}\nSuites: {suite}\nComponents: main\n{signed}"
                for address, suite in suites
            ),
            encoding="utf-8",
        )
        (self._folder / "apt.conf").write_text(
            f'Dir::State "{self._folder}/state";\n'
            f'Dir::Cache "{self._folder}/cache";\n'
            'Dir::Etc::SourceList "/dev/null";\n'
            f'Dir::Etc::SourceParts "{self._folder}/sources";\n'
            'Dir::Etc::Preferences "/dev/null";\n'
            'Dir::Etc::PreferencesParts "/dev/null";\n'
            'Acquire::Languages "none";\n'
            'APT::Update::Error-Mode "any";\n'
            'APT::Sandbox::User "";\n',
            encoding="utf-8",
        )
        self._apt("apt-get", "update", "--quiet")

    def _apt(self, *argv: str, cwd: Path | None = None) -> str:
        return self._programs.run(
            argv,
            cwd=cwd or self._folder,
            environment={"APT_CONFIG": str(self._folder / "apt.conf")},
        )


def from_tarball(path: Path) -> Source:
    """The source in a user's file. Raises InputError if the file cannot be read."""
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}; allowed is a kernel's source tarball"
        ) from None
    return Source("tarball", digest, path.resolve())
