"""A sweep in an archive: its files, and claims about it with the commands that show them.

Every run goes in with its configuration, manifest and small tables, and with the hashes of its
captures; some go in whole. So the unpacked archive is a sweep's folder, and each run can be
replayed.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, TypeAdapter, ValidationError

from outcast import archive, experiment, handed_in
from outcast.archive import Packed, Record, contents, zips
from outcast.errors import InputError, RunError, without_folder
from outcast.experiment import Sweep
from outcast.handed_in import plain_files
from outcast.sweep import dataset, groups, store
from outcast.sweep.dataset import State
from outcast.sweep.points import combinations
from outcast.sweep.store import SweepDirectory

SAMPLE = 5
"""The number of runs of a sweep that are made again by default."""
_LARGE = ("captures/", "samples/", "trace/")
_TABLES = ("packets.parquet", "queue.parquet", "sockets.parquet", "ports.parquet")
_PICTURES = (".png", ".html", ".pdf", ".svg")
_SPAN_S = 3600.0
"""The longest time of a claim's command."""


def _line(text: str) -> str:
    return " ".join(text.split())


def _command(text: str) -> str:
    program, *words = shlex.split(text) or [""]
    if program != "outcast" or any(Path(word).is_absolute() or ".." in word for word in words):
        raise ValueError(f"{text!a}: allowed is a command of outcast with paths of the archive")
    return _line(text)


class Claim(handed_in.Record):
    """A claim about a sweep, and the command that shows it in the unpacked archive's folder."""

    claim: Annotated[str, AfterValidator(_line)]
    command: Annotated[str, AfterValidator(_command)]


_MEANS = Claim(
    claim="All means with their 95 % intervals", command=f"outcast results {archive.SWEEP}"
)


def read_claims(file: Path) -> list[Claim]:
    """The claims in a YAML file. Raises InputError if something else is in it."""
    try:
        return TypeAdapter(list[Claim]).validate_python(handed_in.read_yaml(file))
    except FileNotFoundError:
        raise InputError(f"{file}: there is no such file") from None
    except ValidationError as error:
        raise InputError(
            f"{file}: {handed_in.first_problem(error)}; allowed is a list of `claim: TEXT` with "
            "`command: outcast ...`"
        ) from None


def write(
    path: Path,
    directory: SweepDirectory,
    whole: int,
    captures: contents.Captures,
    claims: Sequence[Claim],
    scratch: Path,
) -> Packed:
    """Writes the archive of a sweep, with `whole` runs complete and all others without captures.

    Raises:
        InputError: a run is missing or was changed, or a file that the sweep needs stands outside
            of the folder.
        RunError: the command of a claim failed.
        OSError: the archive cannot be written.
    """
    sweep = dataset.read_state(directory)
    if lacking := [*sweep.failures, *sweep.left]:
        raise InputError(
            f"{directory.path}: {len(lacking)} of {len(sweep.planned)} runs have no result "
            f"({contents.listed(lacking)}); allowed is a whole sweep: --resume makes them"
        )
    names = [point.name for point in sweep.planned]
    count = len(names)
    whole = min(whole, count)
    # Spread over the sweep's points.
    chosen = {names[index * count // whole] for index in range(whole)}
    members: dict[str, Path | bytes] = {}
    manifests = []
    for name in names:
        collected = (
            contents.collect(directory.run(name), captures)
            if name in chosen
            else contents.collect(directory.run(name), "hashes", _is_large)
        )
        members |= collected.members(f"{archive.SWEEP}/runs/{name}/")
        manifests.append(collected.manifest)
    for file in _files_of_all(directory, sweep):
        members[f"{archive.SWEEP}/{file.relative_to(directory.path)}"] = file
    has_captures = any("/captures/" in name for name in members)
    notes = (*_on_results(sweep), *archive.on_replays(manifests, has_captures))
    made, table = _tried([_MEANS, *claims], members, scratch)
    each_s = sum(sum(manifest.wall_s.values()) for manifest in manifests) / count
    members |= made
    members[archive.README] = archive.readme(
        f"Sweep {sweep.experiment.name} of outcast, {count} runs",
        [_DESCRIPTION.format(len(chosen), count), *notes],
        _USAGE.format(table=table, file=shlex.quote(path.name), each=_time(each_s)),
    )
    date_s = max(directory.run(name).manifest.stat().st_mtime for name in names)
    record = Record(captures=captures, sweep=True)
    return Packed(path, archive.put(path, members, record, date_s), (), notes)


_DESCRIPTION = (
    "An experiment on Linux's own TCP in an emulated network, run with other values and seeds. "
    "{} of {} runs are there whole, all others with results and the hashes of their captures."
)
_USAGE = """\
With outcast, each claim, the command that gives it, and the time that it took the author's
machine. Unpack this archive, and run the commands in its folder.

{table}
To make runs again, which takes {each} for each, and to compare captures to the byte and all values:

   outcast replay {file} --runs 5
   outcast replay {file} --runs all

To go on with the sweep elsewhere: outcast sweep sweep/sweep.yaml -o FOLDER
"""


def _is_large(name: str) -> bool:
    return name.startswith(_LARGE) or name in _TABLES or name.endswith(_PICTURES)


def _files_of_all(directory: SweepDirectory, sweep: State) -> list[Path]:
    """The files of the sweep itself, and the user's files that it names."""
    config = experiment.read(directory.config, own_folder=directory.path)
    settings = combinations(sweep.experiment.sweep or Sweep())
    points = (config.at_point(each).experiment() for each in settings)
    own = store.own_files_of(sweep.experiment, points, directory.path)
    if own.outside:
        raise InputError(
            f"{directory.path}: a swept value names {own.outside[0]}, which is outside of the "
            "configuration's folder; allowed are files below it"
        )
    dataset.write(directory)
    names = ("runs.parquet", "run_flows.parquet", *map(str, own.places))
    paths = [directory.config, directory.networks, *(directory.path / name for name in names)]
    return [
        file
        for path in paths
        if path.exists()
        for file in (plain_files(path) if path.is_dir() else [path])
    ]


def _on_results(sweep: State) -> list[str]:
    notes = []
    if sweep.disagreeing:
        notes.append(
            f"{len(sweep.disagreeing)} of its runs have captures and counters that do not agree."
        )
    if len(sweep.makers) > 1:
        notes.append(f"Its runs were made by: {'; '.join(sweep.makers)}.")
    runs = groups.agreeing(sweep.results.runs)
    by = groups.default_by(sweep.results)
    return notes + groups.remarks_on_trends(groups.summarize(runs, by, (), "mean"))


def _tried(
    claims: Sequence[Claim], members: zips.Members, scratch: Path
) -> tuple[dict[str, Path | bytes], str]:
    """Runs the commands of claims in the folder that the archive will unpack to.

    Returns what they wrote, and a table: each claim, its command, and the time it took.
    """
    folder = scratch / "laid-out"
    for name, content in members.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            shutil.copy(content, folder / name)
    (claimed := scratch / archive.CLAIMS).mkdir()
    table = ""
    before = {*plain_files(folder)}
    for number, claim in enumerate(claims, 1):
        argv = [sys.executable, "-P", "-m", "outcast", *shlex.split(claim.command)[1:]]
        began = time.monotonic()
        try:
            done = subprocess.run(
                argv, cwd=folder, capture_output=True, timeout=_SPAN_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise RunError(f"{claim.command}: took over an hour") from None
        took = _time(time.monotonic() - began)
        if done.returncode:
            last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise RunError(
                f"{claim.command}: ended with status {done.returncode}: "
                f"{without_folder(last.replace(str(folder), '.'))}"
            )
        (claimed / f"claim-{number}.txt").write_bytes(done.stdout)
        for path in {*plain_files(folder)} - before:
            # Moved, because the next command may write it again.
            path.rename(claimed / f"claim-{number}-{path.name}")
        table += f"{number}. {claim.claim}\n   {claim.command}\n"
        table += f"   {took}, gave {archive.CLAIMS}/claim-{number}*\n"
    return {f"{archive.CLAIMS}/{path.name}": path for path in plain_files(claimed)}, table


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
