"""The golden runs: small experiments whose captures are the same bytes on every machine.

    python -m tests.golden.replays [NAME]...                 compare with its hashes
    python -m tests.golden.replays --write                   write the hashes
    python -m tests.golden.replays --engine-only [NAME]...   without analysis and figures

`replays.json` has for each run its configuration, what is set in it, and the SHA-256 of every
capture. `replays-guest.json` says of which kernel and root the hashes are, because these decide the
captures. The runs are made by `outcast run`. `--engine-only` makes them by the engine alone: an
emulated processor needs many minutes for an analysis, which says nothing about the captures.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from outcast import experiment
from outcast.engines.virtual import VirtualEngine
from outcast.errors import OutcastError
from outcast.files import sha256, write_text
from tests import engine_only

REPOSITORY = Path(__file__).resolve().parents[2]
REPLAYS = Path(__file__).with_name("replays.json")
GUEST = Path(__file__).with_name("replays-guest.json")

OF_HOST = "host"
"""The root of a guest that runs the host's programs."""


@dataclass(frozen=True)
class Golden:
    """A golden run.

    Attributes:
        config: the configuration's path below the repository.
        overrides: the keys that `--set` sets, with their values.
        captures: the SHA-256 of each capture, by the file's name in `captures/`.
    """

    config: str
    overrides: Mapping[str, Any]
    captures: Mapping[str, str]

    @property
    def settings(self) -> list[str]:
        """What `--set` is given, a text for each key."""
        return [f"{key}={json.dumps(value)}" for key, value in self.overrides.items()]


@dataclass(frozen=True)
class Guest:
    """What the golden runs were made with: the kernel's SHA-256 and the root's key."""

    kernel: str
    root: str


def read_goldens() -> dict[str, Golden]:
    """The golden runs by their names."""
    return {name: Golden(**entry) for name, entry in json.loads(REPLAYS.read_text()).items()}


def read_guest() -> Guest:
    """The guest that the hashes are of."""
    return Guest(**json.loads(GUEST.read_text()))


def run(golden: Golden, target: Path) -> None:
    """Makes the run by `outcast run`. Raises CalledProcessError, with its output, if that fails."""
    argv = [sys.executable, "-m", "outcast", "run", golden.config, "--engine", "virtual"]
    argv += [word for setting in golden.settings for word in ("--set", setting)]
    subprocess.run(
        [*argv, "-o", str(target)], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )


def run_engine_only(golden: Golden, target: Path) -> None:
    """Makes the run without its analysis. Raises OutcastError if it fails."""
    source = experiment.read(
        REPOSITORY / golden.config, {**golden.overrides, "engine": VirtualEngine.name}
    )
    engine_only.make(source, VirtualEngine(), target)


def digests(target: Path) -> dict[str, str]:
    """The SHA-256 of every capture of a run, by the file's name."""
    return {path.name: sha256(path) for path in sorted((target / "captures").iterdir())}


def guest_of(target: Path) -> Guest:
    """The guest that made a run."""
    manifest = json.loads((target / "manifest.json").read_text())
    return Guest(manifest["kernel"]["sha256"], manifest.get("guest", {}).get("root", OF_HOST))


def differences(
    name: str, golden: Golden, captures: Mapping[str, str], expected: Guest, actual: Guest
) -> list[str]:
    """Says in lines what is not as it was: the guest first, because it decides the captures."""
    lines = []
    if actual.kernel != expected.kernel:
        lines.append(
            f"{name}: the guest's kernel is not the locked one: its SHA-256 is {actual.kernel}, "
            f"and the hashes are of {expected.kernel}; allowed is what `scripts/guest/build` "
            "makes from the lock"
        )
    if actual.root != expected.root:
        lines.append(
            f"{name}: the guest's root is not the locked one: it is {actual.root}, and the hashes "
            f"are of {expected.root}; allowed is what `scripts/guest/build` makes from the lock"
        )
    for file in sorted({*golden.captures, *captures}):
        if file not in captures:
            lines.append(f"{name}: {file} is missing")
        elif file not in golden.captures:
            lines.append(f"{name}: {file} is a capture that was not there before")
        elif captures[file] != golden.captures[file]:
            lines.append(
                f"{name}: {file} differs: its SHA-256 is {captures[file]} and was "
                f"{golden.captures[file]}"
            )
    return lines


def remedy(name: str, target: Path) -> str:
    """How to find the first difference, where another machine still has the golden hashes."""
    return (
        f"the run is in {target}; where {name} is still equal, keep its run and make an archive of "
        "it (outcast pack); here `outcast replay ARCHIVE --explain` then says when and where the "
        "two part"
    )


def write(runs: Mapping[str, Path]) -> None:
    """Writes the hashes of these runs and their guest.

    Raises:
        ValueError: not all were made by the same guest.
    """
    goldens = read_goldens()
    guests = {guest_of(target) for target in runs.values()}
    if len(guests) != 1:
        raise ValueError(f"the runs were made by {len(guests)} guests")
    written = {
        name: asdict(replace(golden, captures=digests(runs[name])))
        for name, golden in goldens.items()
    }
    write_text(REPLAYS, json.dumps(written, indent=2) + "\n")
    write_text(GUEST, json.dumps(asdict(guests.pop()), indent=2) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    goldens = read_goldens()
    parser = argparse.ArgumentParser(prog="python -m tests.golden.replays")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(goldens)}")
    parser.add_argument("--write", action="store_true", help="write the hashes of all runs")
    parser.add_argument("--engine-only", action="store_true", help="no analysis, no figures")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the runs there")
    options = parser.parse_args(argv)
    if unknown := sorted({*options.names} - {*goldens}):
        parser.error(f"{unknown[0]}: allowed are {', '.join(goldens)}")
    if options.write and options.names:
        parser.error("--write: allowed is no NAME, because all hashes are of one guest")
    make = run_engine_only if options.engine_only else run
    expected, failed = read_guest(), 0
    with tempfile.TemporaryDirectory(prefix="outcast-golden-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        runs = {name: folder.resolve() / name for name in options.names or goldens}
        print(
            f"{platform.machine()}, Python {platform.python_version()}, {_processor()}", flush=True
        )
        for name, target in runs.items():
            began = time.monotonic()
            try:
                make(goldens[name], target)
            except (OutcastError, subprocess.CalledProcessError) as error:
                said = (
                    error.stderr[-2000:] if isinstance(error, subprocess.CalledProcessError) else ""
                )
                raise SystemExit(f"{said}{name}: the run failed: {error}") from None
            captures = digests(target)
            lines = differences(name, goldens[name], captures, expected, guest_of(target))
            wall_s = time.monotonic() - began
            if options.write:
                print(f"{name}: {len(captures)} captures ({wall_s:.0f} s)", flush=True)
            elif lines:
                failed += 1
                print("\n".join([*lines, remedy(name, target)]), flush=True)
            else:
                print(f"{name}: {len(captures)} captures, equal ({wall_s:.0f} s)", flush=True)
        if options.write:
            write(runs)
    return 1 if failed else 0


def _processor() -> str:
    """The processor's name, as the kernel tells it; see proc_cpuinfo(5)."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return "an unknown processor"


if __name__ == "__main__":
    sys.exit(main())
