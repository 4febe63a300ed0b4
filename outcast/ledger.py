"""The ledger: what each run in progress has made, so that `outcast clean` can remove just that.

One JSON file for each run, written before the thing is made and deleted when the run has ended.
A run that was killed leaves its file behind. Processes are noted with their start time, so that
a number that has meanwhile been given to another process is never mistaken for ours.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from outcast.errors import DeadlineError
from outcast.run import write_json

KILL_DEADLINE_S = 10.0


def default_folder() -> Path:
    """Where this user's ledger stands."""
    if os.geteuid() == 0:
        return Path("/run/outcast")
    base = os.environ.get("XDG_RUNTIME_DIR")
    return (
        Path(base) / "outcast" if base else Path(tempfile.gettempdir()) / f"outcast-{os.getuid()}"
    )


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """A process that cannot be mistaken for a later one of the same number.

    Attributes:
        pid: its number.
        start_ticks: its start time since boot, in clock ticks (proc(5), stat, field 22).
    """

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessMark:
        """The mark of a living process. Raises ProcessLookupError where there is none."""
        ticks = _start_ticks(pid)
        if ticks is None:
            raise ProcessLookupError(pid)
        return cls(pid, ticks)

    def is_alive(self) -> bool:
        """Whether this very process still runs."""
        return _start_ticks(self.pid) == self.start_ticks


def _start_ticks(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


@dataclass
class Entry:
    """One run's page.

    Attributes:
        owner: the process of the `outcast` command.
        processes: what it started and has to end.
        folders: temporary and unfinished folders.
        settings: files under /proc/sys that were changed, with what stood there before.
    """

    file: Path
    owner: ProcessMark
    processes: list[ProcessMark] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)

    def write(self) -> None:
        """Puts the page on disk."""
        document = asdict(self)
        del document["file"]
        write_json(self.file, document)

    def undo(self) -> list[str]:
        """Removes all that the page names, and the page; what was done, in words."""
        done = []
        for mark in self.processes:
            if mark.is_alive():
                _kill(mark)
                done.append(f"ended process {mark.pid}")
        done += self.restore_settings()
        for folder in self.folders:
            if Path(folder).exists():
                shutil.rmtree(folder)
                done.append(f"removed {folder}")
        self.file.unlink(missing_ok=True)
        return done

    def restore_settings(self) -> list[str]:
        """Puts the machine's settings back that the run changed; what was done, in words."""
        done = []
        for path, value in self.settings.items():
            if Path(path).exists():
                Path(path).write_text(value)
                done.append(f"set {path} back to {value!r}")
        self.settings = {}
        return done


def _kill(mark: ProcessMark) -> None:
    os.kill(mark.pid, signal.SIGKILL)
    end = time.monotonic() + KILL_DEADLINE_S
    while mark.is_alive():
        if time.monotonic() > end:
            raise DeadlineError(f"process {mark.pid} to end", KILL_DEADLINE_S)
        time.sleep(0.02)


def open_entry(folder: Path) -> Entry:
    """A new page for this process."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f"run-{os.getpid()}-", suffix=".json", dir=folder)
    os.close(descriptor)
    entry = Entry(Path(name), ProcessMark.of(os.getpid()))
    entry.write()
    return entry


def read_entries(folder: Path) -> list[Entry]:
    """All pages, those of running and those of dead runs. An unreadable page is skipped."""
    entries = []
    for file in sorted(folder.glob("run-*.json")):
        try:
            document = json.loads(file.read_text())
            entries.append(
                Entry(
                    file=file,
                    owner=ProcessMark(**document["owner"]),
                    processes=[ProcessMark(**mark) for mark in document["processes"]],
                    folders=list(document["folders"]),
                    settings=dict(document["settings"]),
                )
            )
        except (json.JSONDecodeError, KeyError, TypeError, FileNotFoundError):
            continue
    return entries


def restore_settings(folder: Path) -> None:
    """Puts back what dead runs changed of the machine, before a new one notes what it finds."""
    for entry in read_entries(folder):
        if entry.settings and not entry.owner.is_alive():
            entry.restore_settings()
            entry.write()


def clean(folder: Path) -> list[str]:
    """Undoes every page whose run is dead; what was done, in words."""
    return [
        line
        for entry in read_entries(folder)
        if not entry.owner.is_alive()
        for line in entry.undo()
    ]
