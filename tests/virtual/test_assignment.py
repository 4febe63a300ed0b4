"""Grading by replay, with real runs: an honest one of another user, and forgeries of it.

Three runs are made: the student's, its replay, and one with the seed of another student.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from outcast import analysis, experiment
from outcast.assignment import evidence, replayed
from outcast.assignment import old_folder as folder
from outcast.assignment import old_tasks as tasks
from outcast.engines.kernel import cache
from outcast.experiment import Experiment
from outcast.records.run_directory import Manifest, RunDirectory
from tests.deadlines import HANG_S

NOBODY = 65534
UNFAIR = tasks.UNFAIR
ANA, BEN = folder.Identity("nets", "ana"), folder.Identity("nets", "ben")

RUN = """
import sys
from pathlib import Path
from outcast import experiment
from outcast.assignment.replayed import Guest
Guest().run(experiment.load(Path(sys.argv[1])), Path(sys.argv[2]))
"""


@dataclass
class Remembering:
    """The guest. It makes every run once."""

    folder: Path
    made: list[str] = field(default_factory=list)

    def obstacle(self, manifest: Manifest) -> str:
        return replayed.Guest().obstacle(manifest)

    def run(self, wanted: Experiment, target: Path) -> RunDirectory:
        text = experiment.dump(wanted)
        if text not in self.made:
            self.made.append(text)
            replayed.Guest().run(wanted, self.folder / str(len(self.made) - 1))
        return RunDirectory(self.folder / str(self.made.index(text)))


@pytest.fixture(scope="module")
def submitted() -> Iterator[folder.Folder]:
    """Made by another user, in that user's home, with their own kernel and no privileges."""
    kernel = cache.find()
    assert kernel is not None, "run: outcast kernel build"
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        made = folder.make_folder(home / "my course/ana", ANA)
        made.config(UNFAIR).write_text(experiment.dump(UNFAIR.expected(ANA.seed)))
        its = home / ".cache/outcast/kernels" / kernel.program.parent.name
        shutil.copytree(kernel.program.parent, its, symlinks=True)
        words = [sys.executable, "-c", RUN, str(made.config(UNFAIR)), str(made.run(UNFAIR).path)]
        if os.geteuid() == 0:
            for path in (home, *home.rglob("*")):
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
            as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
            words = [*as_nobody, "--inh-caps=-all", "--bounding-set=-all", *words]
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
            cwd=home,
            env={
                **{"PATH": os.environ["PATH"], "HOME": name, "NUMBA_CACHE_DIR": name},
                **{"LC_ALL": "C", "TZ": "Pacific/Auckland", "USER": "ana"},
            },
        )
        assert done.returncode == 0, done.stderr
        yield made


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Remembering:
    return Remembering(tmp_path_factory.mktemp("replays"))


@pytest.fixture
def inbox(submitted: folder.Folder, tmp_path: Path) -> folder.Folder:
    """The folder as it reaches the teacher: with other paths, another owner, other times."""
    shutil.copytree(submitted.path, tmp_path / "inbox", copy_function=shutil.copyfile)
    return folder.Folder(tmp_path / "inbox")


def test_an_honest_run_from_elsewhere_is_genuine(inbox: folder.Folder, runner: Remembering) -> None:
    found = evidence.examine(inbox, ANA, UNFAIR, runner)
    assert (found.state, found.reasons) == ("genuine", ())
    # The margin is safe: over five seeds the ratio was 4.2 and more (docs/teaching.md).
    assert found.known["outcast_ratio"][0] > 2


def one_packet_later(run: RunDirectory) -> None:
    path = run.captures / "e0_0-eth1.out.pcap"
    content = bytearray(path.read_bytes())
    content[24 + 4] ^= 1
    path.write_bytes(bytes(content))


def fewer_timeouts(run: RunDirectory) -> None:
    counters = run.read_counters()
    host = counters.hosts["h0_0_3"]
    after = {**host.after, "TcpExtTCPTimeouts": host.before.get("TcpExtTCPTimeouts", 0)}
    hosts = {**counters.hosts, "h0_0_3": host.model_copy(update={"after": after})}
    run.write_counters(counters.model_copy(update={"hosts": hosts}))


def another_limit_in_effect(run: RunDirectory) -> None:
    manifest = run.read_manifest()
    effective = {**manifest.effective, "bottleneck.limit_bytes": 65536}
    run.write_manifest(manifest.model_copy(update={"effective": effective}))


@pytest.mark.parametrize("forge", [one_packet_later, fewer_timeouts, another_limit_in_effect])
def test_a_forgery_that_fits_together_is_not_what_the_seed_gives(
    forge: Callable[[RunDirectory], None], inbox: folder.Folder, runner: Remembering
) -> None:
    run = inbox.run(UNFAIR)
    forge(run)
    analysis.analyze(run)
    run.seal()
    assert evidence.examine(inbox, ANA, UNFAIR, None).state == "consistent"
    found = evidence.examine(inbox, ANA, UNFAIR, runner)
    assert found.state == "forged"
    assert found.reasons[0].startswith("runs/unfair: run again, ")


def test_a_friends_run_under_the_own_seed(inbox: folder.Folder, runner: Remembering) -> None:
    run = inbox.run(UNFAIR)
    for path in (run.config, inbox.config(UNFAIR)):
        path.write_text(path.read_text().replace(str(ANA.seed), str(BEN.seed)))
    run.write_manifest(run.read_manifest().model_copy(update={"seed": BEN.seed}))
    analysis.analyze(run)
    run.seal()
    assert evidence.examine(inbox, BEN, UNFAIR, None).state == "consistent"
    found = evidence.examine(inbox, BEN, UNFAIR, runner)
    assert found.state == "forged"
    assert "differs first" in found.reasons[0]
    assert len(runner.made) <= 2
