"""A sweep's folder: what is finished, what failed, and what a killed one left.

```
sweep.yaml          the configuration, with its sweep: `outcast sweep sweep.yaml --resume` goes on
runs/NAME/          a run directory for each finished run; appears by a rename, whole
failed/NAME/        what a failed run left, and why.json
unfinished/NAME/    runs in progress; emptied when the sweep goes on
runs.parquet, run_flows.parquet, index.html
```
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outcast import experiment, files, handed_in
from outcast.engines import ledger
from outcast.errors import BusyError, ConfigError, InputError
from outcast.experiment import Experiment
from outcast.files import write_json, write_text
from outcast.records import verify
from outcast.records.run_directory import RunDirectory
from outcast.sweep.task import Failure

RESULT = "run"
"""The run directory within the folder of an attempt."""

_LOCK = ".lock"
"""Stands in every store from its beginning on, and tells it from other folders."""

_OF_THE_SWEEP = ("sweep", "repetitions")
"""Keys that may differ when a sweep goes on: it can grow."""


@dataclass(frozen=True)
class SweepDirectory:
    """The paths of one sweep."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "sweep.yaml"

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def unfinished(self) -> Path:
        return self.path / "unfinished"

    @property
    def failed(self) -> Path:
        return self.path / "failed"

    def run(self, name: str) -> RunDirectory:
        """Where a finished run stands."""
        return RunDirectory(self.runs / name)

    def read_experiment(self) -> Experiment:
        """The configuration. Raises InputError where this is no sweep's folder."""
        if not self.config.exists():
            raise InputError(
                f"{self.path}: no {self.config.name}; a folder that `outcast sweep` wrote is needed"
            )
        handed_in.require_plain(self.path, 2)
        return experiment.load_resolved(self.config)

    def attempt(self, name: str) -> Path:
        """Where a run in progress writes: the run directory as RESULT, and its own notes."""
        return self.unfinished / name

    def accept(self, name: str) -> None:
        """Takes an unfinished run among the finished ones; what an earlier attempt left goes."""
        target = self.runs / name
        if target.exists():
            shutil.rmtree(target)
        (self.attempt(name) / RESULT).rename(target)
        self.clear(name)
        shutil.rmtree(self.failed / name, ignore_errors=True)

    def reject(self, name: str, failure: Failure, attempts: int) -> None:
        """Keeps what a failed run left, with the reason."""
        target = self.failed / name
        shutil.rmtree(target, ignore_errors=True)
        self.failed.mkdir(exist_ok=True)
        self.attempt(name).mkdir(exist_ok=True)
        self.attempt(name).rename(target)
        # The failed run itself said where it was, which is no longer so.
        message = failure.message.replace(str(self.attempt(name)), str(target))
        write_json(
            target / "why.json", {**asdict(failure), "message": message, "attempts": attempts}
        )

    def clear(self, name: str) -> None:
        """Removes what an attempt left."""
        shutil.rmtree(self.attempt(name), ignore_errors=True)

    def failures(self) -> dict[str, Failure]:
        """By name; what cannot be read is passed by."""
        found = {}
        for file in sorted(self.failed.glob("*/why.json")):
            try:
                told: dict[str, Any] = handed_in.read_json(file)
                told.pop("attempts", None)
                found[file.parent.name] = Failure(**told)
            except (OSError, InputError, TypeError, AttributeError):
                continue
        return found


def problems(directory: RunDirectory) -> list[str]:
    """Why a run directory is not that of a finished run; empty where its manifest verifies.

    Every file that the manifest names is to be there, with its hash.
    """
    try:
        manifest = directory.read_manifest()
    except InputError as error:
        return [str(error)]
    if not manifest.files:
        return [f"{directory.manifest}: not sealed: it names no file"]
    differences = verify.differences(directory, manifest)
    return [
        *(f"{directory.path / name}: missing" for name in differences.missing),
        *(
            f"{directory.path / name}: not as it was when the run ended"
            for name in differences.changed
        ),
    ]


@contextmanager
def opened(path: Path, wanted: Experiment, resume: bool) -> Iterator[SweepDirectory]:
    """The folder, ours alone until the block ends; what a killed sweep left is removed.

    Raises:
        ConfigError: where it holds something and `resume` is not asked for, or the sweep it holds
            is of another configuration.
        BusyError: where another process is at it.
    """
    _require_usable(SweepDirectory(path), wanted, resume)
    with locked(path) as directory:
        write_text(directory.config, experiment.dump(wanted))
        yield directory


@contextmanager
def locked(path: Path) -> Iterator[SweepDirectory]:
    """A store for runs, ours alone until the block ends; what a killed process left is removed.

    Raises:
        ConfigError: where it cannot be made, or is a folder for something else.
        BusyError: where another process is at it.
    """
    directory = SweepDirectory(path)
    try:
        files.make_folders(path)
        # It is emptied below; in a folder that is no store it would be somebody's own.
        is_store = (path / _LOCK).exists() or directory.config.exists()
        if not is_store and os.path.lexists(directory.unfinished):
            raise ConfigError(
                f"{path}: is no folder of ours and has {directory.unfinished.name} in it; "
                "allowed is a new folder"
            )
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path / _LOCK, flags, 0o666)
        for folder in (directory.runs, directory.unfinished):
            folder.mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; allowed is a new folder of yours") from None
    with open(descriptor, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(f"{path}: another outcast is at it; wait for its end") from None
        _undo_killed(directory.unfinished)
        shutil.rmtree(directory.unfinished)
        directory.unfinished.mkdir()
        try:
            yield directory
        finally:
            files.hand_over(path)


def _undo_killed(unfinished: Path) -> None:
    """Removes what killed runs of this sweep left on the machine, as `outcast clean` would."""
    ours = unfinished.absolute()
    for folder in ledger.all_folders():
        for entry in ledger.read_entries(folder):
            of_us = any(Path(name).is_relative_to(ours) for name in entry.folders)
            if of_us and entry.is_dead():
                entry.undo()


def _require_usable(directory: SweepDirectory, wanted: Experiment, resume: bool) -> None:
    path = directory.path
    try:
        if not path.exists() or (path.is_dir() and not any(path.iterdir())):
            return
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; allowed is a new folder of yours") from None
    if not directory.config.exists():
        raise ConfigError(f"{path}: exists already and is no sweep; allowed is a new folder")
    if not resume:
        raise ConfigError(f"{path}: holds a sweep already; --resume goes on with it")
    there, here = (_comparable(each) for each in (directory.read_experiment(), wanted))
    for key in here.keys() | there.keys():
        if here.get(key) != there.get(key):
            raise ConfigError(
                f"{path}: holds a sweep with another {key} ({there.get(key)} there, "
                f"{here.get(key)} here); its configuration is {directory.config}"
            )


def _comparable(one: Experiment) -> dict[str, Any]:
    tree = one.model_dump(mode="json", by_alias=True)
    return {key: value for key, value in tree.items() if key not in _OF_THE_SWEEP}
