"""A student's complete folder, whose runs hold the reference switch's captures."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from outcast import analysis, experiment
from outcast import workflow as execute
from outcast.assignment import old_folder as folder
from outcast.assignment import old_tasks as tasks
from outcast.assignment.old_questions import ESSAYS, QUESTIONS
from outcast.experiment import Experiment
from outcast.plan.make import make_plan
from outcast.records.run import Run
from outcast.records.run_directory import Manifest, RunDirectory
from tests.golden import model
from tests.golden.run_directory import write_run

DURATION_NS = 20_000_000
KERNEL = "5eed" * 16


@functools.cache
def traffic(seed: int, queue_kind: str) -> model.Traffic:
    limit = 16_384 if queue_kind == "tbf" else 30_000
    return model.drop_tail(model.make_traffic(seed, 1_600), limit, 10**9)


def golden_run(target: Path, wanted: Experiment, **changes: object) -> RunDirectory:
    """A sealed and analysed run whose captures follow from the seed and the queue's kind."""
    directory = write_run(target, traffic(wanted.seed, wanted.queue.kind), DURATION_NS)
    resolved = execute.resolve(wanted, "virtual")
    directory.config.write_text(experiment.dump(resolved))
    directory.write_plan(make_plan(resolved))
    manifest = directory.read_manifest()
    flows = [
        flow.model_copy(update={"hops": 6}) if flow.hops == 3 else flow for flow in manifest.flows
    ]
    update = {"engine": "virtual", "seed": wanted.seed, "flows": flows}
    update |= {"kernel": {"sha256": KERNEL}, **changes}
    directory.write_manifest(manifest.model_copy(update=update))
    analysis.analyze(directory)
    directory.seal()
    return directory


def wanted(task: tasks.Task, seed: int) -> Experiment:
    """The task's solution, with windows short enough for the golden runs."""
    found = task.expected(seed)
    short = found.analysis.model_copy(update={"windows_ns": (10_000_000,), "bin_ns": 1_000_000})
    return found.model_copy(update={"analysis": short})


def submit(target: Path, identity: folder.Identity) -> folder.Folder:
    """An honest submission. The answer is 1 if the golden captures have no number for it."""
    made = folder.make_folder(target, identity)
    answers: dict[str, object] = {}
    for task in tasks.TASKS:
        config = wanted(task, identity.seed)
        made.config(task).write_text(experiment.dump(config))
        golden_run(made.run(task).path, config)
    for question in QUESTIONS:
        known = question.known(Run(made.run(question.task)))
        answers[question.key] = round(known[0], 4) if known else 1
    for essay in ESSAYS:
        answers[essay.key] = f"{identity.student} thinks: {essay.asked} " + "because " * 15
    made.answers.write_text(yaml.safe_dump(answers))
    return made


@dataclass
class GoldenRunner:
    """Makes golden runs again, with `changes` in their manifests, as on another machine."""

    changes: dict[str, object] = field(default_factory=dict)
    kernel: str = KERNEL
    made: int = 0

    def obstacle(self, manifest: Manifest) -> str:
        made = manifest.kernel.get("sha256")
        return "" if made == self.kernel else f"made by kernel {made}, here is {self.kernel}"

    def run(self, wanted: Experiment, target: Path) -> RunDirectory:
        self.made += 1
        return golden_run(target, wanted, **self.changes)
