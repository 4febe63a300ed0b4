"""Archives of sweeps, and runs of a sweep that are made again."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from outcast import archive, handed_in
from outcast import experiment as reading
from outcast.api import archives, guest, sweeps
from outcast.api.progress import note
from outcast.archive import About, Packed, zips
from outcast.archive.contents import Captures
from outcast.errors import ConfigError, InputError, RunError, without_folder
from outcast.experiment import Source
from outcast.experiment.parts import files_of
from outcast.plan.planned import Planned
from outcast.records.run_directory import Manifest
from outcast.sweep import dataset, groups, packing
from outcast.sweep.packing import Compared
from outcast.sweep.points import combinations
from outcast.sweep.store import SweepDirectory

FEW = 3
"""How many runs of a sweep go into its archive whole, where nobody says it."""
SAMPLE = 5
"""How many runs of a sweep are made again, where nobody says it."""
_MOST_CLAIMS = 100
_SPAN_S = 3600.0
"""How long the command of a claim may take."""


@dataclass(frozen=True)
class Claim:
    """A claim that somebody makes about a sweep.

    Attributes:
        text: the claim: a number, a figure.
        command: the command that gives it, in the unpacked archive's folder.
    """

    text: str
    command: str


def is_sweep(source: str | os.PathLike[str]) -> bool:
    """Whether a folder or an archive is of a sweep. What cannot be read is of none."""
    path = Path(source)
    if path.is_dir():
        return SweepDirectory(path).config.exists() and not (path / "manifest.json").exists()
    return zips.holds(path, f"{archive.SWEEP}/")


def read_claims(file: Path) -> list[Claim]:
    """The claims in a YAML file. Raises InputError if something else is in it."""
    allowed = "allowed is a list of `claim: TEXT` with `command: outcast ...`"
    try:
        rows = handed_in.read_yaml(file)
    except FileNotFoundError:
        raise InputError(f"{file}: there is no such file") from None
    if not isinstance(rows, list) or not 0 < len(rows) <= _MOST_CLAIMS:
        raise InputError(f"{file}: {allowed}")
    claims = []
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping) or row.keys() != {"claim", "command"}:
            raise InputError(f"{file}: claim {number}: {allowed}")
        text, command = (" ".join(str(row[key]).split()) for key in ("claim", "command"))
        try:
            program = shlex.split(command)[:1]
        except ValueError as error:
            raise InputError(f"{file}: claim {number}: {command!a}: {error}") from None
        if program != ["outcast"] or not command.startswith("outcast "):
            raise InputError(f"{file}: claim {number}: {command!a}; {allowed}")
        claims.append(Claim(text, command))
    return claims


_MEANS = Claim("All means with their 95 % intervals", f"outcast results {archive.SWEEP}")


def pack_sweep(
    directory: str | os.PathLike[str],
    file: str | os.PathLike[str],
    *,
    runs: int | None = FEW,
    captures: Captures = "keep",
    claims: Sequence[Claim] = (),
    license_url: str | None = None,
) -> Packed:
    """Makes one archive of a finished sweep, which others can read and replay.

    The command of each claim is run in the unpacked archive. What it printed and drew goes in, and
    the time that it took.

    Args:
        directory: the sweep's folder.
        file: the zip file to write. A file of this name is replaced.
        runs: how many runs go in whole; all others lack captures and the tables of packets. None
            stands for all.
        captures: as in `pack`.
        claims: what is said of the sweep; the table of its means is there in any case.
        license_url: as in `pack`.

    Raises:
        InputError: a run is missing or was changed, or a file that the sweep names is elsewhere.
        RunError: the command of a claim failed.
        ConfigError: an argument is refused.
        OSError: the archive cannot be written.
    """
    archives.require_choices(captures, license_url)
    sweep = SweepDirectory(Path(directory))
    collected = packing.collect(sweep, runs, captures)
    experiment = sweep.read_experiment()
    manifests = list(collected.manifests.values())
    count = len(manifests)
    results = dataset.load(sweep.path)
    points = groups.summarize(groups.agreeing(results.runs), groups.default_by(results), (), "mean")
    notes = (*collected.notes, *groups.remarks_on_trends(points))
    all_claims = [_MEANS, *claims]
    with archives.scratch_folder() as scratch:
        _lay_out(collected.members, folder := scratch / "laid-out")
        times_s, written = _tried(all_claims, folder, scratch)
        about = About(
            title=f"Sweep {experiment.name} of outcast, {count} runs",
            description=" ".join((_DESCRIPTION.format(collected.whole, count), *notes)),
            usage=_usage(Path(file).name, zip(all_claims, times_s, strict=True), manifests),
            license_url=license_url,
        )
        date_s = max(sweep.run(name).manifest.stat().st_mtime for name in collected.manifests)
        members = {**collected.members, **written}
        number = archive.put(Path(file), members, about, captures, date_s, is_sweep=True)
    return Packed(Path(file), number, (), notes)


_DESCRIPTION = (
    "An experiment on Linux's own TCP in an emulated network, run with other values and seeds. "
    "{} of {} runs are there whole, all others with results and the hashes of their captures."
)


def _lay_out(members: zips.Members, folder: Path) -> None:
    """Makes the folder that the archive will unpack to."""
    for name, content in members.items():
        zips.require_name(name)
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            shutil.copy(content, target)


def _tried(
    claims: Sequence[Claim], folder: Path, scratch: Path
) -> tuple[list[float], dict[str, Path | bytes]]:
    """Runs the commands of claims in an unpacked archive; their times, and what they wrote."""
    times_s = []
    written: dict[str, Path | bytes] = {}
    before = set(handed_in.plain_files(folder))
    for number, claim in enumerate(claims, 1):
        argv = [sys.executable, "-P", "-m", "outcast", *shlex.split(claim.command)[1:]]
        began = time.monotonic()
        try:
            done = subprocess.run(
                argv, cwd=folder, capture_output=True, timeout=_SPAN_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise RunError(f"{claim.command}: took over an hour") from None
        times_s.append(time.monotonic() - began)
        if done.returncode:
            last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise RunError(
                f"{claim.command}: ended with status {done.returncode}: "
                f"{without_folder(last.replace(str(folder), '.'))}"
            )
        name = f"{archive.CLAIMS}/claim-{number}"
        written[f"{name}.txt"] = done.stdout
        for path in sorted({*handed_in.plain_files(folder)} - before):
            # Kept elsewhere, because the next command may write it again.
            kept = scratch / f"{number}-{path.name}"
            shutil.move(path, kept)
            written[f"{name}-{path.name}"] = kept
    return times_s, written


def _usage(file: str, rows: Iterable[tuple[Claim, float]], manifests: Sequence[Manifest]) -> str:
    """The end of README.txt: each claim with its command and its time."""
    count = len(manifests)
    each_s = sum(sum(manifest.wall_s.values()) for manifest in manifests) / count
    lines = [
        f"{number}. {claim.text}\n   {claim.command}\n   {_time(seconds)}, "
        f"gave {archive.CLAIMS}/claim-{number}*"
        for number, (claim, seconds) in enumerate(rows, 1)
    ]
    again = [("All", "all", count)]
    if count > SAMPLE:
        again.insert(0, (f"{SAMPLE} of the", str(SAMPLE), SAMPLE))
    lines += [
        f"{number}. {words} {count} runs, made again and compared\n"
        f"   outcast replay {shlex.quote(file)} --runs {count_words}\n"
        f"   {_time(each_s * made)} one by one"
        for number, (words, count_words, made) in enumerate(again, len(lines) + 1)
    ]
    return _USAGE.format(table="\n".join(lines))


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


_USAGE = """\
With outcast, each claim, the command that gives it, and the time that it took the author's
machine. Unpack this archive, and run the commands in its folder.

{table}

`outcast replay` compares captures to the byte and every value of the tables. To go on with the
sweep elsewhere: outcast sweep sweep/sweep.yaml -o FOLDER
"""


@dataclass(frozen=True)
class SweepReplay:
    """Runs of a sweep that were made again.

    Attributes:
        runs: their names.
        planned: how many runs the sweep has.
        compared: what was compared, and what differs.
        directory: the folder with the new runs; None if it was not kept.
    """

    runs: tuple[str, ...]
    planned: int
    compared: Compared
    directory: Path | None

    @property
    def equal(self) -> bool:
        """Whether all captures and all values are equal."""
        return not self.compared.differing


def replay_sweep(
    source: str | os.PathLike[str],
    directory: str | os.PathLike[str] | None = None,
    *,
    runs: int | None = SAMPLE,
    jobs: int | None = None,
    allow_programs: bool = False,
    progress: bool | None = None,
) -> SweepReplay:
    """Makes runs of a packed sweep again, and compares captures and all values of the tables.

    Args:
        source: an archive of a sweep, or a sweep's folder.
        directory: a new or empty folder in which the new runs are kept; None keeps nothing.
        runs: how many runs, drawn at random; None makes all.
        jobs: how many go on at a time; None is as many as there are cores.
        allow_programs: whether what the sweep brings may start here, with your rights.
        progress: as in `outcast.run`.

    Raises:
        InputError: the archive is broken or cannot be replayed.
        RunError: a run failed.
        OutcastError: as in `run_sweep`.
    """
    with _opened(Path(source)) as there, archives.scratch_folder() as scratch:
        experiment = _replayable(there, str(source), allow_programs)
        stored = dataset.load(there.path) if Path(source).is_dir() else dataset.read(there)
        target = scratch / "again" if directory is None else Path(directory)
        guest.provide(Planned(experiment.experiment()), progress)
        prepared = sweeps.prepare(experiment, target, jobs=jobs)
        packing.require_runs_of(there, prepared.plan.runs)
        names = [run.point.name for run in prepared.plan.runs]
        count = len(names) if runs is None else min(runs, len(names))
        chosen = set(random.SystemRandom().sample(names, count))
        chosen_runs = tuple(run for run in prepared.plan.runs if run.point.name in chosen)
        other = archives.other_guest(there.run(chosen_runs[0].point.name).read_manifest())
        if other:
            note(progress, f"{source}: {other}, so results may differ")
        note(progress, f"{source}: {count} of {len(names)} runs")
        result = sweeps.carry_out(
            replace(prepared, plan=replace(prepared.plan, runs=chosen_runs), left=chosen_runs),
            progress=progress,
        )
        for name, failure in result.progress.failures.items():
            raise RunError(f"{source}: {name}: {failure.kind}: {failure.message}")
        made = tuple(run.point.name for run in chosen_runs)
        compared = packing.compare(there, SweepDirectory(target), made, stored)
    return SweepReplay(made, len(names), compared, None if directory is None else target)


@contextmanager
def _opened(source: Path) -> Iterator[SweepDirectory]:
    """A sweep's folder, or the one in an archive for as long as the block takes."""
    if source.is_dir():
        handed_in.require_plain(source)
        packing.require_bounded(directory := SweepDirectory(source))
        yield directory
        return
    with archives.scratch_folder() as folder, archives.named_as("", folder):
        packing.require_bounded(directory := SweepDirectory(archive.unpack_sweep(source, folder)))
        yield directory


def _replayable(there: SweepDirectory, where: str, allow_programs: bool) -> Source:
    """The configuration of a sweep that was handed in. Raises as `archives.replayable`."""
    source = reading.read(there.config, own_folder=there.path)
    whole = source.experiment()
    for run in there.runs.iterdir():
        archives.require_virtual(where, there.run(run.name).read_manifest().engine)
    archives.require_own(there.config, files_of(whole))
    brought: dict[str, None] = {}
    for settings in combinations(whole.sweep) if whole.sweep is not None else [{}]:
        try:
            experiment = source.at_point(settings).experiment()
        except ConfigError as error:
            raise InputError(str(error)) from None
        archives.require_own(there.config, files_of(experiment))
        brought |= dict.fromkeys(archives.brought_by(experiment))
    archives.require_allowed(where, list(brought), allow_programs)
    return source.changed({"engine": "virtual"})
