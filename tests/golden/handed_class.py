"""A class whose students handed in runs with the reference switch's captures."""

import functools
import hashlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from outcast import analysis, experiment
from outcast.experiment import Experiment
from outcast.plan.make import make_plan
from outcast.records.run import Run
from outcast.records.run_directory import GuestRecord, RunDirectory
from outcast.uses.classroom.classes import Class, new_class
from outcast.uses.classroom.exercise import Exercise, load_exercise
from outcast.uses.classroom.folder import Folder, Key
from outcast.uses.classroom.questions import Choice, Effect, Picture, Prediction, Question, Text
from tests.golden import model
from tests.golden.run_directory import write_run

RUNNER = f"{__name__}:GoldenRunner"
DURATION_NS = 20_000_000
GUEST = {"kernel": {"sha256": "5eed" * 16}, "guest": GuestRecord(root="f00d" * 8, code="c0de")}

EXERCISE = """\
format: outcast-exercise-1
title: Small and quick
minutes: 10
parameters: {rivals: {choose: [11, 12]}}
runs:
  unfair: {config: configs/unfair.yaml}
  remedy: {config: configs/remedy.yaml, free: [queue]}
questions:
  - {key: expectation, kind: prediction, asked: "Who gets more?", points: 1,
     choices: {lone: the near one, rivals: the far ones}}
  - {key: ratio, kind: number, run: unfair, asked: "How many times as much?", points: 2,
     tolerance: 2%, answer: {sql: "SELECT outcast_ratio FROM run"}}
  - {key: cause, kind: choice, run: unfair, asked: "What is the cause?", points: 2, answer: phase,
     choices: {rtt: the round-trip time, phase: the order of arrivals}}
  - {key: why, kind: text, asked: "Why?", points: 4, least_words: 5}
  - {key: remedy_works, kind: effect, run: remedy, against: unfair, measure: total_goodput_bps,
     above: 1, asked: "Does it help?", points: 3, seeds: 3}
  - {key: picture, kind: picture, asked: Show it., points: 1, most_mb: 1}
"""
CONFIG = """\
name: {name}
topology: {kind: fattree, k: 4}
links: {rate: 1gbit, delay: 5us}
noise: {profile: jitter}
queue: {queue}
transport: {congestion_control: bic, min_rto: 2ms}
flows: [{from: 2-hop, hosts: 1}, {from: 6-hop, hosts: "{{rivals}}"}]
duration: 20ms
analysis: {windows: [10ms], bin: 1ms}
engine: virtual
seed: {{seed}}
"""
SOLUTION = """\
runs:
  unfair: {queue.limit: 16KB}
  remedy: {queue: {kind: sfq, limit: 20 packets, buckets: 1024}}
answers: {expectation: rivals}
"""


def exercise(folder: Path) -> Exercise:
    """Writes a small exercise with most kinds of questions."""
    (folder / "configs").mkdir(parents=True)
    (folder / "exercise.yaml").write_text(EXERCISE)
    (folder / "solution.yaml").write_text(SOLUTION)
    (folder / "task.md").write_text("For {{student}}.\n")
    for name, queue in (("unfair", "{kind: tbf, limit: FILL_IN}"), ("remedy", "FILL_IN")):
        text = CONFIG.replace("{name}", name).replace("{queue}", queue)
        (folder / f"configs/{name}.yaml").write_text(text)
    return load_exercise(folder)


def small_class(folder: Path, *students: str) -> Class:
    """A class with a fixed key, so that every machine has the same seeds."""
    return new_class(
        folder / "class", "NETS26", exercise(folder / "small"), students, Key(b"k" * 32)
    )


@functools.cache
def traffic(seed: int, queue_kind: str) -> model.Traffic:
    """Traffic that follows from the seed, and a larger queue for all kinds but tbf."""
    limit = 16_384 if queue_kind == "tbf" else 60_000
    return model.drop_tail(model.make_traffic(seed, 1_600), limit, 10**9)


def golden_run(target: Path, asked: Experiment, **changes: Any) -> RunDirectory:
    """A sealed and analysed run whose captures follow from the seed and the queue's kind."""
    directory = write_run(target, traffic(asked.seed, asked.queue.kind), DURATION_NS)
    resolved = asked.resolved("virtual")
    directory.config.write_text(experiment.dump(resolved))
    directory.write_plan(make_plan(resolved))
    manifest = directory.read_manifest()
    flows = [
        flow.model_copy(update={"hops": 6}) if flow.hops == 3 else flow for flow in manifest.flows
    ]
    update = {"engine": "virtual", "seed": asked.seed, "flows": flows, **GUEST, **changes}
    directory.write_manifest(manifest.model_copy(update=update))
    analysis.analyze(directory)
    directory.seal()
    return directory


@dataclass
class GoldenRunner:
    """Makes golden runs again, each of them once.

    Attributes:
        kept: a folder for the runs that were made; None makes each again.
        asked: the experiments that were asked for.
    """

    kept: Path | None = None
    asked: list[Experiment] = field(default_factory=list)

    def run(self, config: Experiment, target: Path) -> RunDirectory:
        self.asked.append(config)
        if self.kept is None:
            return golden_run(target, config)
        name = hashlib.sha256(experiment.dump(config).encode()).hexdigest()
        if not (self.kept / name).exists():
            golden_run(self.kept / name, config)
        shutil.copytree(self.kept / name, target)
        return RunDirectory(target)


def hand_in(class_: Class, student: str, target: Path) -> Folder:
    """An honest student's folder, with everything right."""
    identity = class_.issued(student)
    folder = Folder(target)
    handed_out = class_.handed_out(student).path
    for path in sorted(handed_out.rglob("*")):
        copy = target / path.relative_to(handed_out)
        if path.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    asked = class_.exercise.with_values(identity.values)
    for name in asked.runs:
        config = asked.expected(name, identity.seed)
        (target / asked.runs[name].config).write_text(experiment.dump(config))
        golden_run(folder.run(name).path, config)
    (target / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * 100)
    answers = {
        question.key: _answer(question, folder, student)
        for question in asked.questions
        if not isinstance(question, Effect)
    }
    folder.answers.write_text(yaml.safe_dump(answers))
    return folder


def _answer(question: Question, folder: Folder, student: str) -> Any:
    if isinstance(question, Prediction):
        return "rivals"
    if isinstance(question, Text):
        return f"{student} thinks that one port is always a little late."
    if isinstance(question, Picture):
        return "picture.png"
    if isinstance(question, Choice):
        return question.answer
    assert question.run is not None
    right = question.right_answers(Run(folder.run(question.run)))
    assert right
    return right[0]


def change_answers(folder: Folder, **changes: Any) -> None:
    """Changes answers; None removes one."""
    tree = {**yaml.safe_load(folder.answers.read_text()), **changes}
    kept = {key: value for key, value in tree.items() if value is not None}
    folder.answers.write_text(yaml.safe_dump(kept))
