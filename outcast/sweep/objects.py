"""Results of Dask's workers in an object store, or on any other file system that fsspec knows.

fsspec's file systems can wait for ever (fsspec/filesystem_spec issue 565, fsspec/s3fs issue 464),
and each raises exceptions of its own. So every use of one is in a thread, with a deadline, and what
it raises becomes one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outcast.emulation.commands import within
from outcast.errors import ConfigError, FeatureMissingError, OutcastError, RunError

BASE_DEADLINE_S = 60.0
SLOWEST_BYTES_PER_S = 1e6
"""An upload or a download may take the base, and its bytes at this rate."""


@dataclass(frozen=True)
class Objects:
    """A folder of an object store, by its URL as fsspec takes it.

    A worker has the same folder by the same URL. Each machine has its credentials where the file
    system's library looks for them. Every method raises OutcastError in one line.
    """

    url: str

    @property
    def shown(self) -> str:
        """The URL without a name and password in it."""
        return re.sub(r"//[^/@]*@", "//...@", self.url)

    def below(self, name: str) -> Objects:
        """A folder in this one."""
        return Objects(f"{self.url.rstrip('/')}/{name}")

    def make(self) -> None:
        """Makes this folder in one that exists. Of an object store only the bucket has to."""
        self._use(lambda system, folder: system.mkdir(folder, create_parents=False), 0)

    def put(self, file: Path, name: str) -> None:
        """Writes a local file as an object."""
        size = file.stat().st_size
        self._use(lambda system, folder: system.put_file(str(file), f"{folder}/{name}"), size)

    def get(self, name: str, file: Path, most_bytes: int) -> None:
        """Reads an object into a local file. It may have `most_bytes`."""

        def read(system: Any, folder: str) -> None:
            # Another machine has written it, and some file systems keep lists of what was there.
            system.invalidate_cache()
            size = system.size(f"{folder}/{name}")
            if size is not None and size > most_bytes:
                raise RunError(f"{name}: has {size} bytes; {most_bytes} were written")
            system.get_file(f"{folder}/{name}", str(file))

        self._use(read, most_bytes)

    def remove(self, name: str) -> None:
        """Removes an object."""
        self._use(lambda system, folder: system.rm_file(f"{folder}/{name}"), 0)

    def remove_all(self) -> None:
        """Removes the folder with all objects in it."""
        self._use(lambda system, folder: system.rm(folder, recursive=True), 0)

    def _use(self, do: Callable[[Any, str], None], size: int) -> None:
        def use() -> None:
            try:
                system, folder = self._open()
                do(system, folder.rstrip("/"))
            except OutcastError:
                raise
            except BaseException as error:  # every file system has exceptions of its own
                said = " ".join(str(error).split()) or "no message"
                what = f"{type(error).__name__}: {said[:300]}"
                raise RunError(f"{self.shown}: {what}") from None

        deadline_s = BASE_DEADLINE_S + size / SLOWEST_BYTES_PER_S
        within(deadline_s, f"an answer of {self.shown}", use)

    def _open(self) -> tuple[Any, str]:
        if "://" not in self.url:
            raise ConfigError(
                f"--store {self.url}: is no URL; allowed is one of fsspec's, as "
                "s3://bucket/folder or file:///folder"
            )
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise FeatureMissingError(
                "--store: fsspec is missing; install it with: pip install 'outcast-testbed[dask]'"
            ) from None
        try:
            system, folder = url_to_fs(self.url)
        except ImportError as error:
            raise FeatureMissingError(f"--store {self.shown}: {error}") from None
        except ValueError as error:
            raise ConfigError(
                f"--store {self.shown}: {error}; allowed are the URLs of fsspec's file systems"
            ) from None
        return system, str(folder)
