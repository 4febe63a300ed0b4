"""Repeats a virtual run with its seed, and compares it with the submitted one byte by byte."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from outcast import experiment
from outcast.api import archives, runs
from outcast.assignment.seal import is_evidence
from outcast.engines.kernel import cache
from outcast.errors import ReplayError
from outcast.experiment import Experiment
from outcast.records import replay
from outcast.records.run_directory import Manifest, RunDirectory


class Runner(Protocol):
    """What a replay needs from an engine; `Guest` is the real one."""

    def obstacle(self, manifest: Manifest) -> str:
        """Why this run cannot be repeated to the byte on this machine; empty if it can."""

    def run(self, config: Experiment, target: Path) -> RunDirectory:
        """Makes the run. Raises OutcastError if it fails."""


@dataclass(frozen=True, slots=True)
class Guest:
    """The virtual engine."""

    def obstacle(self, manifest: Manifest) -> str:
        """See Runner."""
        if manifest.engine != "virtual":
            return "a realtime run cannot be repeated to the byte"
        if cache.find() is None:
            return "no kernel here to replay it; build it with: outcast kernel build"
        return archives.other_guest(manifest)

    def run(self, config: Experiment, target: Path) -> RunDirectory:
        """See Runner."""
        return runs.execute(config, target, progress=False, draw=False)


@dataclass(frozen=True, slots=True)
class Replayed:
    """The outcome of a replay. `reason` is empty if the runs are equal or there was no replay."""

    state: Literal["equal", "different", "impossible"]
    reason: str = ""


def compare(submitted: RunDirectory, runner: Runner, target: Path) -> Replayed:
    """Runs the submitted configuration and seed again, in `target`.

    A difference counts only if all programs have the same versions. With another version of a
    program a difference proves nothing, so the replay is called impossible.
    """
    manifest = submitted.read_manifest()
    obstacle = runner.obstacle(manifest)
    if obstacle:
        return Replayed("impossible", obstacle)
    fresh = runner.run(experiment.load_finished(submitted.config), target)
    again = fresh.read_manifest()
    wrong = _difference(submitted, fresh)
    if not wrong:
        return Replayed("equal")
    elsewhere = _environment(manifest, again)
    if elsewhere:
        return Replayed("impossible", elsewhere)
    return Replayed("different", wrong)


def _difference(submitted: RunDirectory, fresh: RunDirectory) -> str:
    try:
        replay.require_equal(submitted, fresh)
    except ReplayError as error:
        return f"run again, {error}"
    here, there = submitted.read_manifest(), fresh.read_manifest()
    measured = {
        name
        for name in (*here.files, *there.files)
        if name.startswith(("counters.json", "flows/", "samples/", "blackout.json"))
        and is_evidence(name)
    }
    for name in sorted(measured):
        if here.files.get(name) != there.files.get(name):
            return f"run again, {name} differs"
    for key in ("seed", "requested", "effective", "traffic", "flows", "bottlenecks", "captures"):
        if getattr(here, key) != getattr(there, key):
            return f"run again, {key} of manifest.json differs"
    return ""


def _environment(submitted: Manifest, fresh: Manifest) -> str:
    """What else could make two runs differ, besides configuration and seed; empty if nothing."""
    for what, there, here in (
        ("outcast", submitted.outcast, fresh.outcast),
        *(
            (name, version, fresh.versions.get(name))
            for name, version in submitted.versions.items()
        ),
    ):
        if there != here:
            return f"made with {what} {there}, here is {here}"
    return ""
