"""Keeps a failing test's runs, with all that explains them, in one folder."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from outcast import uses
from outcast.errors import OutcastError
from outcast.experiment.engine import properties

if TYPE_CHECKING:
    from outcast.testing.networks import Networks

MARK = ".outcast-evidence"
"""Marker file in each evidence folder. It holds the test's name, because several tests may share
a folder's name.

A later failure of the same test replaces no other folder.
"""


def keep(networks: Networks, home: Path, test: str) -> list[str]:
    """Copies the runs of a failing test to a folder named after it, and completes them.

    A debugger and fixtures still find them where they were. Each copy gets figures, the report, all
    packets with verdicts, an archive, and the output of `outcast why` on the run, made again.
    `home` holds the folders of all tests, whose names are those in pytest.

    Returns what to print: three lines for each run, or two where it failed.
    """
    if not networks.kept:
        return []
    seed = [] if networks.seed is None else ["--outcast-seed", str(networks.seed)]
    _, *within = test.split("::", 1)
    chosen = "::".join([str(networks.beside), *within])
    again = shlex.join(["python", "-m", "pytest", chosen, *seed])
    try:
        folder = fresh_folder(home, test)
        lines = []
        for path in networks.kept:
            kept = folder / path.name
            shutil.copytree(path, kept)
            lines += _complete(kept, again)
    except OSError as error:
        return [f"the evidence could not be kept: {error}"]
    networks.kept.clear()
    return lines


def fresh_folder(home: Path, test: str) -> Path:
    """An empty folder for a test, in place of the one that an earlier failure left."""
    # An older folder may be a repository, so git must still see it.
    with contextlib.suppress(FileExistsError):
        home.mkdir(parents=True)
        (home / ".gitignore").write_text("*\n")
    name = re.sub(r"[^\w.\[\]-]+", "-", test).strip("-.")[-120:]
    for number in range(1, 1000):
        folder = home / (name if number == 1 else f"{name}-{number}")
        if _has_mark(folder, test):
            shutil.rmtree(folder)
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            (folder / MARK).write_text(test)
            return folder
    raise OSError(f"{home / name}: all names are taken")


def _has_mark(folder: Path, test: str) -> bool:
    mark = folder / MARK
    is_ours = mark.is_file() and not mark.is_symlink() and not folder.is_symlink()
    return is_ours and mark.read_text() == test


def _complete(path: Path, again: str) -> list[str]:
    """Adds files that explain a run. Returns the lines to print; `again` is for a failed run."""
    if path.name.endswith(".failed"):
        return [f"the run failed; what it had written: {path}", f"again:   {again}"]
    from outcast.api import archives, captures
    from outcast.records.run_directory import RunDirectory
    from outcast.view import figures, report

    packets, archive = path.with_name(f"{path.name}.pcapng"), path.with_name(f"{path.name}.zip")
    lines = [f"run:     {path / 'report.html'}", f"packets: {packets}"]
    try:
        figures.draw(RunDirectory(path))
        report.write(RunDirectory(path))
        archives.pack(path, archive)
        captures.export(path, packets)
        if properties(RunDirectory(path).read_manifest().engine).own_kernel:
            for ending, place in uses.TEXTS.items():
                path.with_name(f"{path.name}.{ending}").write_text(uses.find(place)(path))
    except OutcastError as error:
        lines.append(f"not all of it could be written: {error}")
    allow = " --allow-programs" if (path / "programs").exists() else ""
    return [*lines, f"again:   outcast replay {shlex.quote(str(archive))}{allow}"]
