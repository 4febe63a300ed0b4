"""Repeats a virtual run with its seed, and compares it with the submitted one byte by byte."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from outcast.api import making
from outcast.errors import ReplayError
from outcast.experiment import Experiment
from outcast.plan.planned import Planned
from outcast.records import replay
from outcast.records.run_directory import GuestRecord, Manifest, RunDirectory


class Runner(Protocol):
    """An engine as a replay needs it; `Guest` is the real one."""

    def run(self, config: Experiment, target: Path) -> RunDirectory:
        """Makes the run. Raises OutcastError if it fails."""


@dataclass(frozen=True, slots=True)
class Guest:
    """The virtual engine."""

    def run(self, config: Experiment, target: Path) -> RunDirectory:
        """See Runner."""
        return making.execute(Planned(config), target, progress=False, draw=False)


@dataclass(frozen=True, slots=True)
class Replayed:
    """The outcome of a replay. `reason` is empty if the runs are equal."""

    state: Literal["equal", "different", "impossible"]
    reason: str = ""


def compare(submitted: RunDirectory, fresh: RunDirectory) -> Replayed:
    """Compares a run that was handed in with the run that was made again.

    A difference counts only if all programs have the same versions. With another guest or another
    version of a program a difference proves nothing, so the replay is called impossible.
    """
    wrong = _difference(submitted, fresh)
    if not wrong:
        return Replayed("equal")
    elsewhere = _environment(submitted.read_manifest(), fresh.read_manifest())
    return Replayed("impossible", elsewhere) if elsewhere else Replayed("different", wrong)


def _difference(submitted: RunDirectory, fresh: RunDirectory) -> str:
    try:
        replay.require_equal(submitted, fresh)
    except ReplayError as error:
        return f"run again, {error}"
    here, there = submitted.read_manifest(), fresh.read_manifest()
    kinds = ("counters.json", "flows/", "samples/", "blackout.json")
    measured = {name for name in (*here.files, *there.files) if name.startswith(kinds)}
    for name in sorted(measured):
        if here.files.get(name) != there.files.get(name):
            return f"run again, {name} differs"
    for key in ("seed", "requested", "effective", "traffic", "flows", "bottlenecks", "captures"):
        if getattr(here, key) != getattr(there, key):
            return f"run again, {key} of manifest.json differs"
    return ""


def _environment(submitted: Manifest, fresh: Manifest) -> str:
    """Says what besides configuration and seed could make two runs differ; empty if nothing."""
    guests = [manifest.guest or GuestRecord(root="host") for manifest in (submitted, fresh)]
    for what, there, here in (
        ("outcast", submitted.outcast, fresh.outcast),
        ("engine", submitted.engine, fresh.engine),
        ("kernel", *(_short(part.kernel.get("sha256")) for part in (submitted, fresh))),
        ("root", *(_short(guest.root) for guest in guests)),
        ("code in the guest", *(_short(guest.code) for guest in guests)),
        *(
            (name, version, fresh.versions.get(name))
            for name, version in submitted.versions.items()
        ),
    ):
        if there != here:
            return f"made with {what} {there}, here is {here}"
    return ""


def _short(digest: object) -> str:
    return str(digest)[:12]
