"""As a dishonest student: what is handed in gets no mark that was not earned.

docs/grading.md has the table of these ways.
"""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from outcast import analysis, experiment
from outcast.errors import InputError
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.records.summary import Summary
from outcast.uses.classroom import evidence, marking, packed
from outcast.uses.classroom.classes import Class
from outcast.uses.classroom.evidence import Evidence, WantedRun, as_wanted
from outcast.uses.classroom.folder import Folder
from outcast.uses.classroom.marking import Graded
from tests import zips
from tests.golden import handed_class as golden
from tests.json_files import edit

STUDENTS = ("ana", "ben")


@dataclass(frozen=True)
class Inbox:
    """A class, and what ana and ben handed in. Ben cheats."""

    class_: Class
    path: Path
    runner: golden.GoldenRunner

    @property
    def ben(self) -> Folder:
        return Folder(self.path / "ben")

    @property
    def unfair(self) -> RunDirectory:
        """Ben's run."""
        return self.ben.run("unfair")

    @property
    def ana(self) -> Folder:
        return Folder(self.path / "ana")

    def mark(self, place: Path) -> Graded:
        scratch = self.path / f"scratch-{len(list(self.path.glob('scratch-*')))}"
        scratch.mkdir()
        return marking.mark(self.class_, place, self.runner, scratch, self.runner.kept)


@pytest.fixture(scope="module")
def honest(tmp_path_factory) -> Inbox:
    folder = tmp_path_factory.mktemp("honest")
    class_ = golden.small_class(folder, *STUDENTS)
    for student in STUDENTS:
        golden.hand_in(class_, student, folder / "inbox" / student)
    (folder / "kept").mkdir()
    return Inbox(class_, folder / "inbox", golden.GoldenRunner(folder / "kept"))


@pytest.fixture
def inbox(honest, tmp_path) -> Inbox:
    shutil.copytree(honest.path, tmp_path / "inbox", ignore=shutil.ignore_patterns("scratch-*"))
    return Inbox(honest.class_, tmp_path / "inbox", honest.runner)


def points(graded: Graded) -> dict[str, float]:
    return {marked.key: marked.points for marked in graded.marked}


def states(graded: Graded) -> dict[str, str]:
    return {run.name: run.state for run in graded.runs}


def analyze_again(run: RunDirectory) -> None:
    analysis.analyze(run)
    run.seal()


def edit_assignment(folder: Folder, **changes: Any) -> None:
    tree = yaml.safe_load(folder.assignment.read_text())
    folder.assignment.write_text(yaml.safe_dump({**tree, **changes}))


def set_config(folder: Folder, name: str, **changes: Any) -> None:
    """Changes a configuration, and makes the run that it gives."""
    path = folder.path / "configs" / f"{name}.yaml"
    config = experiment.load(path).model_copy(update=changes)
    path.write_text(experiment.dump(config))
    shutil.rmtree(folder.run(name).path)
    golden.golden_run(folder.run(name).path, config)


def test_the_honest_get_their_marks(inbox):
    for student in STUDENTS:
        graded = inbox.mark(inbox.path / student)
        assert (graded.verdict, graded.student, graded.notes) == ("genuine", student, ())
        assert points(graded) == {
            **{"expectation": 1, "ratio": 2, "cause": 2, "remedy_works": 3},
            **{"why": 0, "picture": 0},
        }
        assert (graded.points, graded.by_hand_points, graded.most_points) == (8, 5, 13)


# Each way is a function of ben's folder, with what comes of it. Its name is that of the test.

FORGED = {"verdict": "rejected", "unfair": "forged", "lost": {"ratio"}}
REJECTED = {"verdict": "rejected", "lost": {"ratio", "cause", "remedy_works"}}
OTHER = {"unfair": "other", "lost": {"ratio"}}
WAYS: list[Any] = []


def way(verdict: str = "", said: str = "", lost: Iterable[str] = (), **states: str) -> Any:
    """Adds a way to cheat: the verdict, a note, questions without points, and states of runs."""

    def add(function: Callable[[Inbox], object]) -> Callable[[Inbox], object]:
        WAYS.append(pytest.param(function, verdict, said, set(lost), states, id=function.__name__))
        return function

    return add


@way(unfair="genuine", lost={"ratio"})
def edited_summary(inbox: Inbox) -> None:
    """Answers are compared with the run that is made again."""
    golden.change_answers(inbox.ben, ratio=1.0)
    edit(inbox.unfair.summary, lambda tree: tree.update(outcast_ratio=1.0))


@way(unfair="genuine", lost={"ratio"})
def edited_summary_and_hashes(inbox: Inbox) -> None:
    edited_summary(inbox)
    inbox.unfair.seal()


@way(unfair="genuine", lost={"ratio"})
def handmade_table(inbox: Inbox) -> None:
    golden.change_answers(inbox.ben, ratio=1.0)
    path = inbox.unfair.path / "flows.parquet"
    pl.read_parquet(path).with_columns(goodput_bps=pl.col("goodput_bps") * 2).write_parquet(path)
    inbox.unfair.seal()


@way(**FORGED)
def edited_capture(inbox: Inbox) -> None:
    """The first packet leaves a nanosecond earlier or later."""
    path = inbox.unfair.captures / "s1-eth1.out.pcap"
    content = bytearray(path.read_bytes())
    content[24 + 4] ^= 1
    path.write_bytes(bytes(content))
    analyze_again(inbox.unfair)


@way(**FORGED)
def edited_counters(inbox: Inbox) -> None:
    def change(tree: Any) -> None:
        next(iter(tree["hosts"].values()))["after"]["TcpExtTCPTimeouts"] += 1

    edit(inbox.unfair.counters, change)
    analyze_again(inbox.unfair)


@way(**FORGED)
def rewritten_counters(inbox: Inbox) -> None:
    """So that the analysis comes out the same."""
    inbox.unfair.counters.write_text(f"{inbox.unfair.counters.read_text()}\n")
    inbox.unfair.seal()


@way(**FORGED)
def edited_settings(inbox: Inbox) -> None:
    changed = {"bottleneck.limit_bytes": 16384}
    edit(inbox.unfair.manifest, lambda tree: tree["effective"].update(changed))
    analyze_again(inbox.unfair)


@way(**FORGED)
def without_a_hash(inbox: Inbox) -> None:
    def change(manifest: dict[str, Any]) -> None:
        del manifest["files"][manifest["captures"][0]["file"]]

    edit(inbox.unfair.manifest, change)


@way(**FORGED)
def capture_of_another_seed(inbox: Inbox) -> None:
    other = golden.traffic(2, "tbf")
    for name, made in golden.model.captures(other).items():
        port = {"in0": "s1-eth2.in", "in1": "s1-eth3.in", "out": "s1-eth1.out"}[name]
        golden.model.write_pcap(inbox.unfair.captures / f"{port}.pcap", made)
    analyze_again(inbox.unfair)


def claims(**claim: Any) -> Callable[[Inbox], None]:
    """Another run, whose manifest says that it cannot be compared to the byte."""

    def forge(inbox: Inbox) -> None:
        run = inbox.unfair
        capture_of_another_seed(inbox)
        run.write_manifest(run.read_manifest().model_copy(update=claim))
        run.seal()
        ratio = json.loads(run.summary.read_text())["outcast_ratio"]
        golden.change_answers(inbox.ben, ratio=ratio)

    forge.__name__ = f"claims_another_{'_'.join(claim)}"
    return forge


for claim in (
    {"kernel": {"sha256": "bad0" * 16}},
    {"guest": golden.GuestRecord(root="f00d" * 8, code="altered")},
    {"outcast": "9.9"},
):
    COMPARED = "answers are compared with the run as it comes out here"
    way(said=COMPARED, lost={"ratio"}, unfair="consistent")(claims(**claim))


@way("incomplete", "and yours is", **OTHER)
def a_friends_run(inbox: Inbox) -> None:
    for name in ("runs/unfair", "configs/unfair.yaml", "answers.yaml"):
        mine, hers = inbox.ben.path / name, inbox.ana.path / name
        if mine.is_dir():
            shutil.rmtree(mine)
            shutil.copytree(hers, mine)
        else:
            shutil.copyfile(hers, mine)


@way(said="was not issued to", **REJECTED)
def a_friends_folder(inbox: Inbox) -> Path:
    """With its ticket, in ben's name. test_assignment.py changes the rest."""
    edit_assignment(inbox.ana, student="ben")
    return inbox.ana.path


@way(said="class: belongs to NETS25; allowed is NETS26", **REJECTED)
def a_ticket_of_another_class(inbox: Inbox) -> None:
    folder = inbox.path.parent / "class"
    class_ = inbox.class_
    other = golden.new_class(folder, "NETS25", class_.exercise, ["ben"], class_.key)
    shutil.copyfile(other.handed_out("ben").assignment, inbox.ben.assignment)


@way("genuine", lost={"ratio"})
def easier_questions(inbox: Inbox) -> None:
    tree = yaml.safe_load(inbox.ben.assignment.read_text())
    questions = [{**each, "points": 100, "tolerance": "900%"} for each in tree["questions"]]
    edit_assignment(inbox.ben, questions=questions)
    golden.change_answers(inbox.ben, ratio=99)


@way(said="runs/unfair: manifest.json says seed ", **OTHER)
def another_seed(inbox: Inbox) -> None:
    edit(inbox.unfair.manifest, lambda tree: tree.update(seed=tree["seed"] + 1))


@way(said="runs/unfair: engine is realtime, and the task sheet asks for virtual", **OTHER)
def real_time(inbox: Inbox) -> None:
    config = inbox.unfair.config
    config.write_text(config.read_text().replace("engine: virtual", "engine: realtime"))
    inbox.unfair.seal()


@way(said="runs/unfair: duration is not what the task sheet asks for", **OTHER)
def another_duration(inbox: Inbox) -> None:
    set_config(inbox.ben, "unfair", duration_ns=30_000_000)


@way(
    said="runs/remedy: configs/remedy.yaml has changed since the run was made",
    lost={"remedy_works"},
    remedy="other",
)
def a_configuration_changed_after_its_run(inbox: Inbox) -> None:
    path = inbox.ben.path / "configs/remedy.yaml"
    config = experiment.load(path)
    path.write_text(experiment.dump(config.model_copy(update={"repetitions": 2})))


@way(said="runs/remedy: ", lost={"remedy_works"}, remedy="other")
def another_of_his_runs(inbox: Inbox) -> None:
    shutil.rmtree(inbox.ben.run("remedy").path)
    shutil.copytree(inbox.unfair.path, inbox.ben.run("remedy").path)


@way("genuine", lost={"remedy_works"})
def a_remedy_that_is_none(inbox: Inbox) -> None:
    before = experiment.load(inbox.ben.path / "configs/unfair.yaml")
    set_config(inbox.ben, "remedy", queue=before.queue)


@way("incomplete", lost={"ratio", "cause"}, unfair="missing")
def no_run(inbox: Inbox) -> None:
    shutil.rmtree(inbox.unfair.path)


@way(**FORGED)
def a_packed_file_with_anothers_hashes(inbox: Inbox) -> Path:
    mine, hers = packed_of(inbox.ben), packed_of(inbox.ana)
    name = "runs/unfair/manifest.json"
    held = zips.contents(mine)
    manifest, theirs = (json.loads(each[name]) for each in (held, zips.contents(hers)))
    changed = json.dumps({**manifest, "dropped": theirs["dropped"]}).encode()
    return zips.written(mine, held | {name: changed})


@way(said="expand to", **REJECTED)
def an_archive_that_attacks(inbox: Inbox) -> Path:
    """What it holds is looked at as in any archive (test_doors.py)."""
    return zips.written(inbox.path / "evil.zip", {"answers.yaml": bytes(200 << 20)})


@pytest.mark.parametrize(("forge", "verdict", "said", "lost", "runs"), WAYS)
def test_cheating_gains_nothing(forge, verdict, said, lost, runs, inbox):
    graded = inbox.mark(forge(inbox) or inbox.ben.path)
    assert graded.verdict == (verdict or graded.verdict)
    assert (graded.student is None) == (lost == REJECTED["lost"])
    assert runs.items() <= states(graded).items()
    reasons = [line for run in graded.runs for line in run.reasons]
    assert any(said in line for line in ["", *graded.notes, *reasons]), (graded.notes, reasons)
    assert graded.most_points in (0, 13)
    assert not any(points(graded).get(key) for key in lost)


def test_a_submission_is_no_better_than_the_worst_of_its_runs():
    good, fair = Evidence("unfair", "genuine"), Evidence("remedy", "consistent")
    assert marking._verdict((good, fair), unanswered=False) == "consistent"
    assert marking._verdict((good,), unanswered=False) == "genuine"
    assert marking._verdict((good,), unanswered=True) == "incomplete"


def test_a_run_that_disagrees_does_not_count(inbox, monkeypatch):
    class Disagreeing(Run):
        @property
        def summary(self) -> Summary:
            capture = super().summary.capture
            update = {"trusted": False, "reasons": ["tcpdump lost 7 packets in the kernel"]}
            capture = capture.model_copy(update=update)
            return super().summary.model_copy(update={"capture": capture})

    monkeypatch.setattr(evidence, "Run", Disagreeing)
    graded = inbox.mark(inbox.ben.path)
    assert set(states(graded).values()) == {"disagreeing"}
    assert "runs/remedy: tcpdump lost 7 packets in the kernel" in graded.notes


def test_a_free_key_names_no_file(inbox, tmp_path):
    """A replay would read it, because it takes the free keys from the student."""
    ours = experiment.load(inbox.ben.path / "configs/unfair.yaml")
    theirs = ours.model_copy(update={"queue": {"sizes": tmp_path / "grades.csv"}})
    asked = WantedRun("remedy", inbox.class_.exercise.runs["remedy"], ours)
    with pytest.raises(InputError, match="queue: names a file; a replay reads no files"):
        as_wanted(asked, theirs, frozenset())


def test_what_a_run_records_is_not_chosen_by_the_student(inbox):
    """Another analysis is no forgery, and answers come from the exercise's own."""
    before = experiment.load(inbox.ben.path / "configs/unfair.yaml").analysis
    set_config(inbox.ben, "unfair", analysis=before.model_copy(update={"windows_ns": (5_000_000,)}))
    inbox.runner.asked.clear()
    graded = inbox.mark(inbox.ben.path)
    assert states(graded)["unfair"] == "genuine"
    seed = inbox.ben.run("unfair").read_manifest().seed
    asked = [run for run in inbox.runner.asked if (run.name, run.seed) == ("unfair", seed)]
    assert [run.analysis == before for run in asked] == [False, True]


# Code and files of the student's, which a replay must not start or read.

OWN = {
    "programs": "programs: [{name: evil, host: h0_0_2, command: [touch, EVIL]}]",
    "kernel": "kernel: {modules: [evil.c]}",
    "topology": "topology: {kind: file, path: evil.py, topo: evil}",
    "a trace": "links: {overrides: [{between: [e0_0, a0_0], rate: {trace: /etc/passwd}}]}",
    "sizes": "workloads: [{kind: background, load: 0.1, sizes: GRADES}]",
}


@pytest.mark.parametrize("text", OWN.values(), ids=OWN)
def test_nothing_of_the_students_is_started_or_read(text, inbox):
    run = inbox.ben.run("remedy")
    evil, grades = inbox.path / "EVIL", inbox.path.parent / "grades.csv"
    grades.write_text("ana,1.0\n")
    for path in (inbox.ben.path / "configs/remedy.yaml", run.config):
        own = yaml.safe_load(text.replace("EVIL", str(evil)).replace("GRADES", str(grades)))
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | own))
    for name in ("evil.py", "evil.c"):
        (inbox.ben.path / "configs" / name).write_text(f"open({str(evil)!r}, 'w')\n")
    run.seal()
    inbox.runner.asked.clear()
    graded = inbox.mark(inbox.ben.path)
    assert states(graded)["remedy"] in ("other", "forged")
    assert points(graded)["remedy_works"] == 0
    assert not evil.exists()
    assert "ana,1.0" not in str(graded)
    assert not any(asked.programs or asked.kernel for asked in inbox.runner.asked)


# Archives and files that attack the reader.


def packed_of(folder: Folder) -> Path:
    path = folder.path.with_suffix(".zip")
    packed.write(folder, path)
    return path


def test_a_packed_submission_is_as_good_as_its_folder(inbox):
    path = packed_of(inbox.ben)
    assert path.stat().st_size < 100_000
    graded = inbox.mark(path)
    assert (graded.verdict, graded.points, graded.by_hand_points) == ("genuine", 8, 5)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_damaged_a_grade_comes_out(seed, inbox):
    draw = random.Random(seed)
    of_a_run = ("", "manifest.json", "summary.json", "config.yaml", "flows.parquet", "captures")
    names = ["answers.yaml", "assignment.yaml", "configs/unfair.yaml", "configs"]
    names += [f"runs/unfair/{name}" for name in of_a_run]
    _damage(inbox.ben.path / draw.choice(names), draw)
    graded = inbox.mark(inbox.ben.path)
    assert graded.points <= 8
    assert all("\n" not in note for note in graded.notes)


def _damage(path: Path, draw: random.Random) -> None:
    content = path.read_bytes() if path.is_file() else b""
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    match draw.randrange(5):
        case 0:
            os.mkfifo(path)
        case 1:
            path.symlink_to("/dev/zero")
        case 2:
            path.mkdir()
        case 3:
            path.write_bytes(content[: len(content) // 2])
        case 4:
            path.write_bytes(draw.choice((b"", b"[]", b"[" * 100_000, b"\0", b"9" * 10_000)))
