"""The user's files that a sweep names, kept in its folder, so that sweep.yaml works anywhere.

A file below the folder of the configuration goes to the same place below the sweep's folder, so
that swept values, which decide the runs' names and seeds, stay as they are. Any other file of the
experiment goes to `sources/`, and sweep.yaml names it there.
"""

from __future__ import annotations

import filecmp
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outcast import files
from outcast.engines import own_modules
from outcast.errors import ConfigError
from outcast.experiment import Experiment, Sweep
from outcast.experiment.parts import files_of, with_files

_OURS = frozenset(
    (
        *("runs", "failed", "unfinished", "sources", "sweep.yaml", "networks.json", ".lock"),
        *("runs.parquet", "run_flows.parquet"),
    )
)
"""The files of a sweep's folder that are its own."""
_NAMING = ("trace", "files", "path", "sizes")
"""Keys whose values name files."""


@dataclass(frozen=True)
class OwnFiles:
    """A sweep's files by their places in its folder; `outside` are swept values without one."""

    places: Mapping[Path, Path]
    outside: tuple[str, ...]

    def rewritten(self, whole: Experiment) -> Experiment:
        """The configuration, whose files are named by their places."""
        there = {file: place for place, file in self.places.items()}
        return with_files(whole, lambda file: there.get(file, file))


def of_sweep(whole: Experiment, folder: Path) -> OwnFiles:
    """The files that a sweep names. Raises ConfigError: a kernel module's source cannot be read."""
    above = Path(os.path.abspath(folder))
    places: dict[Path, Path] = {}
    for number, file in enumerate(dict.fromkeys(files_of(whole))):
        beside = _below(above, file)
        place = Path("sources", str(number), file.name) if beside is None else beside
        places |= _with_headers(place, file)
    outside = []
    for name in _swept_files(whole.sweep or Sweep()):
        file = Path(os.path.normpath(above / name))
        beside = None if os.path.isabs(name) else _below(above, file)
        if beside is not None and file.exists():
            places |= _with_headers(beside, file)
        elif beside is None:
            outside.append(name)
    return OwnFiles(places, tuple(outside))


def _below(folder: Path, file: Path) -> Path | None:
    """A file's path below a folder; None if it is elsewhere or has a name that outcast uses."""
    if not file.is_relative_to(folder) or file == folder:
        return None
    path = file.relative_to(folder)
    return None if path.parts[0] in _OURS else path


def _with_headers(place: Path, file: Path) -> dict[Path, Path]:
    """A file by its place, with what the source of a kernel module includes from beside it."""
    if file.suffix != ".c":
        return {place: file}
    return {place.parent / name: file.parent / name for name in own_modules.sources(file)}


def _swept_files(sweep: Sweep) -> Iterator[str]:
    """All texts in swept values that can stand for files."""
    for settings in (*sweep.points, sweep.lists):
        yield from _texts(settings, "")


def _texts(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, str):
        # What came of a topology's file is kept in networks.json.
        if key in _NAMING and (key != "path" or value.endswith(".c")):
            yield value
    elif isinstance(value, Mapping):
        for inner_key, inner in value.items():
            yield from _texts(inner, _NUMBER.sub("", str(inner_key)).rpartition(".")[2])
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _texts(inner, key)


_NUMBER = re.compile(r"(\.\d+)+$")
"""An index at the end of a key, as in `programs.0.files.0`."""


def keep(own: OwnFiles, folder: Path) -> None:
    """Copies the files to the sweep's folder, unless they are there.

    Raises:
        ConfigError: a file is not there, or is another one than when the sweep began.
        OSError: a copy cannot be written.
    """
    for place, file in own.places.items():
        copy = folder / place
        if copy.exists() and file.exists() and copy.samefile(file):
            continue
        if not file.exists():
            raise ConfigError(f"{file}: there is no such file")
        if not copy.exists():
            files.make_folders(copy.parent)
            if file.is_dir():
                shutil.copytree(file, copy, symlinks=True)
            else:
                shutil.copy(file, copy)
        elif file.is_file() and not filecmp.cmp(file, copy, shallow=False):
            raise ConfigError(
                f"{file}: is another file than when the sweep began ({copy}); allowed is a new "
                "folder"
            )
