"""Grading by replay, with real runs: an honest one of another user, and forgeries of it.

Three runs are made: the student's, its replay, and one with the seed of another student.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from outcast import analysis, experiment
from outcast.engines.guest import roots
from outcast.engines.virtual import world_of
from outcast.experiment import Experiment
from outcast.files import cache_folder
from outcast.records.run_directory import RunDirectory
from outcast.uses.classroom import evidence, packed
from outcast.uses.classroom.classes import Class, new_class
from outcast.uses.classroom.exercise import load_exercise
from outcast.uses.classroom.folder import Folder, Key
from outcast.uses.classroom.marking import Graded, mark
from tests import guest_runs, other_users

NOBODY = 65534
ROOT = Path(__file__).parents[2]
EXERCISE = """\
format: outcast-exercise-1
title: One run
minutes: 5
runs: {unfair: {config: configs/unfair.yaml}}
questions:
  - {key: ratio, kind: number, run: unfair, asked: "How many times as much?", points: 2,
     tolerance: 2%, answer: {sql: "SELECT outcast_ratio FROM run"}}
"""
CONFIG = """\
name: unfair
topology: {kind: linear, rivals: 2}
links: {rate: 100mbit, delay: 50us}
noise: {profile: jitter}
queue: {kind: tbf, limit: FILL_IN}
transport: {congestion_control: bic, min_rto: 2ms, offloads: false}
flows: [{from: 2-hop, hosts: 1}, {from: 3-hop, hosts: 2}]
duration: 100ms
analysis: {windows: [50ms], bin: 10ms}
engine: virtual
seed: {{seed}}
"""

RUN = """
import sys
from pathlib import Path
from outcast import experiment
from outcast.engines.virtual import VirtualEngine
from tests import engine_only
engine_only.make(experiment.read(Path(sys.argv[1])), VirtualEngine(), Path(sys.argv[2]))
"""


@dataclass
class Remembering:
    """The guest. It makes every run once."""

    folder: Path
    made: list[str] = field(default_factory=list)

    def run(self, config: Experiment, target: Path) -> RunDirectory:
        text = experiment.dump(config)
        if text not in self.made:
            self.made.append(text)
            evidence.Guest().run(config, self.folder / str(len(self.made) - 1))
        shutil.copytree(self.folder / str(self.made.index(text)), target)
        return RunDirectory(target)


@pytest.fixture(scope="module")
def class_(tmp_path_factory) -> Class:
    folder = tmp_path_factory.mktemp("class")
    (folder / "small/configs").mkdir(parents=True)
    (folder / "small/exercise.yaml").write_text(EXERCISE)
    (folder / "small/solution.yaml").write_text("runs: {unfair: {queue.limit: 16KB}}\n")
    (folder / "small/task.md").write_text("For {{student}}.\n")
    (folder / "small/configs/unfair.yaml").write_text(CONFIG)
    exercise = load_exercise(folder / "small")
    return new_class(folder / "NETS26", "NETS26", exercise, ["ana", "ben"], Key(b"k" * 32))


@pytest.fixture(scope="module")
def submitted(class_, kernel) -> Iterator[Folder]:
    """Made by another user, in that user's home, with their own kernel and no privileges.

    The analysis is made here, because that user would have to compile it first.
    """
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        made = Folder(home / "my course/ana")
        shutil.copytree(class_.handed_out("ana").path, made.path)
        config = made.path / "configs/unfair.yaml"
        config.write_text(config.read_text().replace("FILL_IN", "16KB"))
        # Our programs for the guest are ready, so the root with the compiler is not needed.
        world_of(experiment.load(ROOT / "configs/fig3c.yaml"), kernel)
        root = roots.find()
        for kept in (kernel.program.parent, root.folder.parent, cache_folder() / "programs"):
            cached = home / ".cache/outcast" / kept.relative_to(cache_folder())
            shutil.copytree(kept, cached, symlinks=True)
        words = [sys.executable, "-c", RUN, str(config), str(made.run("unfair").path)]
        if os.geteuid() == 0:
            other_users.require_readable()
            for path in (home, *home.rglob("*")):
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
            as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
            words = [*as_nobody, "--inh-caps=-all", "--bounding-set=-all", *words]
        own = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT)}
        own |= {"LC_ALL": "C", "TZ": "Pacific/Auckland", "USER": "ana"}
        done = guest_runs.ran(words, cwd=home, env=own)
        assert done.returncode == 0, done.stderr
        analysis.analyze(made.run("unfair"))
        made.run("unfair").seal()
        yield made


@pytest.fixture(scope="module")
def runner(tmp_path_factory) -> Remembering:
    return Remembering(tmp_path_factory.mktemp("replays"))


@pytest.fixture
def inbox(submitted, tmp_path) -> Folder:
    """The folder as it reaches the teacher: with other paths, another owner, other times."""
    shutil.copytree(submitted.path, tmp_path / "inbox", copy_function=shutil.copyfile)
    folder = Folder(tmp_path / "inbox")
    summary = yaml.safe_load(folder.run("unfair").summary.read_text())
    folder.answers.write_text(f"ratio: {summary['outcast_ratio']}\n")
    return folder


@pytest.fixture
def grade(class_, tmp_path) -> Callable[[Path, Remembering], Graded]:
    def graded(place: Path, runner: Remembering) -> Graded:
        scratch = Path(tempfile.mkdtemp(dir=tmp_path))
        return mark(class_, place, runner, scratch)

    return graded


def test_an_honest_submission_from_elsewhere_is_genuine(inbox, runner, grade, tmp_path):
    made = packed.write(inbox, tmp_path / "ana.zip")
    assert made.bytes < 100_000
    for place in (inbox.path, made.path):
        graded = grade(place, runner)
        assert (graded.verdict, graded.points, graded.notes) == ("genuine", 2, ())


def test_a_friends_run_under_the_own_seed(class_, inbox, runner, grade):
    shutil.copyfile(class_.handed_out("ben").assignment, inbox.assignment)
    run, seed = inbox.run("unfair"), class_.issued("ben").seed
    config = inbox.path / "configs/unfair.yaml"
    config.write_text(config.read_text().replace(str(class_.issued("ana").seed), str(seed)))
    resolved = experiment.load(config).resolved("virtual")
    run.config.write_text(experiment.dump(resolved))
    run.write_manifest(run.read_manifest().model_copy(update={"seed": seed}))
    analysis.analyze(run)
    run.seal()
    graded = grade(inbox.path, runner)
    assert (graded.student, graded.verdict, graded.points) == ("ben", "rejected", 0)
    assert "they part " in graded.notes[0]
    assert len(runner.made) <= 2
