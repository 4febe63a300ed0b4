"""Gives what the lock pins for a kernel: its source, the compiler's root, the guest's root."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from outcast.engines.kernel.programs import Programs
from outcast.engines.root import build, fetch, lock, places
from outcast.engines.root.cache import Root
from outcast.engines.root.lock import Kind, Package
from outcast.engines.root.places import Named
from outcast.errors import RootError


class Supply(Protocol):
    """Gives what the lock pins."""

    @property
    def source(self) -> Package:
        """The package with the kernel's source."""

    def fetch_source(self, into: Path) -> Path:
        """Fetches that package into a folder; its file. Raises RootError."""

    def provide_root(self, kind: Kind) -> Root:
        """A root of the lock, which is made if it is not there.

        Raises:
            RootError: a package of it cannot be had.
            FeatureMissingError: nothing says where packages can be had.
        """


class LockSupply:
    """Gives what our lock pins; see Supply.

    Args:
        run: what starts programs.
        named: where packages are.
    """

    def __init__(self, run: Programs, named: Named) -> None:
        self._run, self._named = run, named
        self._lock = lock.ours()

    @property
    def source(self) -> Package:
        """See Supply.source."""
        return self._lock.kernel_source

    def fetch_source(self, into: Path) -> Path:
        """See Supply.fetch_source."""
        where = places.find(self._run, into, self._lock.snapshot, self._named)
        try:
            with fetch.packages([self.source], where, into) as paths:
                return next(paths)
        except RootError as error:
            raise RootError(f"{error}, or build another kernel with --tarball") from None

    def provide_root(self, kind: Kind) -> Root:
        """See Supply.provide_root."""
        return build.build(kind, named=self._named, run=self._run)
