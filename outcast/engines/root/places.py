"""From where packages can be had: an archive's mirror, a snapshot archive, the user's folder."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outcast.engines.kernel.programs import Programs
from outcast.errors import CommandError, FeatureMissingError, InputError

MIRROR_VARIABLE = "OUTCAST_MIRROR"
SNAPSHOT_ID = "@SNAPSHOTID@"
"""apt.conf(5) and Release files write this where the address of a snapshot needs its time."""

_ADDRESS = re.compile(r"https?://[^\s/]+(?:/\S*)?")
_MOST_MIRRORS = 3


@dataclass(frozen=True)
class Named:
    """The places of packages that the user names.

    Attributes:
        mirror: the address of an archive; the environment's OUTCAST_MIRROR if left out.
        snapshot: the address of a snapshot archive, with or without `@SNAPSHOTID@`.
    """

    mirror: str | None = None
    snapshot: str | None = None
    packages: Path | None = None


NOTHING = Named()
"""Nothing is named, so this machine's apt and the environment say it."""


@dataclass(frozen=True)
class Places:
    """The places to look in, in this order.

    Attributes:
        folder: the user's folder with files of packages, or None.
        mirrors: addresses of archives, each without a slash at its end.
        snapshot: the address of the archive as it was at one time, or None.
    """

    folder: Path | None = None
    mirrors: tuple[str, ...] = ()
    snapshot: str | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses, the snapshot archive last, because it is slow and serves everyone."""
        return (*self.mirrors, *((self.snapshot,) if self.snapshot else ()))


def find(run: Programs, at: Path, snapshot_id: str, named: Named = NOTHING) -> Places:
    """The places that the user names, else those of this machine's apt.

    Raises:
        InputError: an address is none, or there is no such folder.
        FeatureMissingError: nothing is named, and this machine's apt names no archive.
    """
    packages = named.packages
    if packages is not None and not packages.is_dir():
        raise InputError(f"--packages {packages}: there is no such folder")
    mirror = named.mirror or os.environ.get(MIRROR_VARIABLE)
    mirrors = (_address(mirror, f"--mirror or {MIRROR_VARIABLE}"),) if mirror else of_apt(run, at)
    shot = _address(named.snapshot, "--snapshot") if named.snapshot else snapshot_of_apt(run, at)
    if shot is not None:
        shot = shot.replace(SNAPSHOT_ID, snapshot_id)
    if not mirrors and shot is None and packages is None:
        raise FeatureMissingError(
            "the guest's root cannot be made: this machine's apt names no archive; name a mirror "
            f"of Debian with --mirror URL or {MIRROR_VARIABLE}, give the packages with --packages "
            "FOLDER, or install the wheel outcast-guest"
        )
    return Places(packages, mirrors, shot)


def of_apt(run: Programs, at: Path) -> tuple[str, ...]:
    """The archives of this machine's apt sources; none where it has no apt.

    Those for security updates come last, because a suite's first packages are elsewhere.
    """
    said = _ask(
        run,
        at,
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(COMPONENT)", "Created-By: Packages"],
    )
    rows = [line.split() for line in said.splitlines()]
    addresses = {
        row[0].rstrip("/"): None
        for row in rows
        if len(row) == 2 and row[1] == "main" and _ADDRESS.fullmatch(row[0])
    }
    ordered = sorted(addresses, key=lambda address: "security" in address)
    return tuple(ordered[:_MOST_MIRRORS])


def snapshot_of_apt(run: Programs, at: Path) -> str | None:
    """The snapshot archive of Debian that this machine's apt knows (since apt 2.9), or None."""
    name = "Acquire::Snapshots::URI::Origin::Debian"
    said = _ask(run, at, ["apt-config", "shell", "ADDRESS", name])
    match = re.search(r"ADDRESS='([^']+)'", said)
    if match is None or not _ADDRESS.fullmatch(match[1]):
        return None
    return match[1].rstrip("/")


def _ask(run: Programs, at: Path, argv: Sequence[str]) -> str:
    try:
        return run.run(argv, cwd=at)
    except (CommandError, FeatureMissingError):
        return ""


def _address(text: str, option: str) -> str:
    if not _ADDRESS.fullmatch(text):
        raise InputError(
            f"{option}: {text}: not the address of an archive; allowed is one as "
            "http://mirror.example.org/debian"
        )
    return text.rstrip("/")
