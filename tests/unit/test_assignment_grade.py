"""Several submissions together: copies, answers, the teacher's table."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from outcast import analysis, cli
from outcast.assignment import old_tasks as tasks
from outcast.assignment.grade import Graded, grade
from outcast.assignment.old_folder import Folder, Identity
from outcast.assignment.old_questions import QUESTIONS
from tests.golden.submission import GoldenRunner, submit
from tests.unit.test_assignment_evidence import analyze_again, edited_drop_counter

ANA, BEN = Identity("nets", "ana"), Identity("nets", "ben")


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    inbox = tmp_path_factory.mktemp("inbox")
    for identity in (ANA, BEN):
        submit(inbox / identity.student, identity)
    return inbox


@pytest.fixture
def inbox(honest: Path, tmp_path: Path) -> Path:
    shutil.copytree(honest, tmp_path / "inbox")
    return tmp_path / "inbox"


def graded(inbox: Path, *, replay: bool = True) -> dict[str, Graded]:
    found = grade(sorted(inbox.iterdir()), GoldenRunner() if replay else None)
    return {Path(each.place).name: each for each in found}


def take_runs(inbox: Path, giver: str, taker: str) -> None:
    shutil.rmtree(inbox / taker / "runs")
    shutil.copytree(inbox / giver / "runs", inbox / taker / "runs")


def test_honest_submissions(inbox: Path) -> None:
    found = graded(inbox)
    assert {each.verdict for each in found.values()} == {"genuine"}
    assert not any(each.notes for each in found.values())
    known = [each for each in found["ana"].answered if each.known]
    assert len(known) > 8
    assert all(each.right for each in known)
    assert not any(each.right for each in found["ana"].answered if not each.known)


def test_runs_taken_from_another_student(inbox: Path) -> None:
    take_runs(inbox, "ana", "ben")
    for replay in (True, False):
        found = graded(inbox, replay=replay)
        assert found["ben"].verdict == "rejected"
        notes = " | ".join(found["ben"].notes)
        assert f"seed is {ANA.seed}, and yours is {BEN.seed}" in notes
        assert "the captures are those of" in notes
        # A note tells of it, and she keeps her grade.
        assert found["ana"].verdict == ("genuine" if replay else "consistent")
        assert any("the captures are those of" in note for note in found["ana"].notes)


def test_runs_taken_and_given_the_own_seed(inbox: Path) -> None:
    take_runs(inbox, "ana", "ben")
    for task in tasks.TASKS:
        run = Folder(inbox / "ben").run(task)
        run.config.write_text(run.config.read_text().replace(str(ANA.seed), str(BEN.seed)))
        run.write_manifest(run.read_manifest().model_copy(update={"seed": BEN.seed}))
        analysis.analyze(run)
        run.seal()
    found = graded(inbox)
    assert found["ben"].verdict == "rejected"
    assert {run.state for run in found["ben"].runs} == {"forged"}
    assert found["ana"].verdict == "genuine"
    # Without running them again nothing tells whose they are, so the teacher has to ask both.
    found = graded(inbox, replay=False)
    assert {each.verdict for each in found.values()} == {"rejected"}


def test_a_whole_folder_handed_in_twice(inbox: Path) -> None:
    shutil.rmtree(inbox / "ben")
    shutil.copytree(inbox / "ana", inbox / "ben")
    found = graded(inbox, replay=False)
    assert {each.verdict for each in found.values()} == {"rejected"}
    assert "ana handed in twice" in " | ".join(found["ana"].notes)


def test_a_folder_renamed_for_another_student(inbox: Path) -> None:
    """Another student's whole folder, with one's own name and seed in assignment.yaml."""
    own = (inbox / "ben/assignment.yaml").read_text()
    shutil.rmtree(inbox / "ben")
    shutil.copytree(inbox / "ana", inbox / "ben")
    (inbox / "ben/assignment.yaml").write_text(own)
    found = graded(inbox)
    assert found["ana"].verdict == "genuine"
    assert found["ben"].verdict == "rejected"
    assert "word for word as in" in " | ".join(found["ben"].notes)
    (inbox / "ben/assignment.yaml").write_text(own.replace("ben", "cem"))
    found = graded(inbox)
    assert found["ben"].identity is None
    assert "seed" in found["ben"].notes[0]


def test_words_alike_are_for_the_teacher_to_judge(inbox: Path) -> None:
    mine, its = (inbox / name / "answers.yaml" for name in ("ana", "ben"))
    tree = yaml.safe_load(its.read_text())
    tree["why_blackouts"] = yaml.safe_load(mine.read_text())["why_blackouts"].upper()
    its.write_text(yaml.safe_dump(tree))
    found = graded(inbox)
    assert {each.verdict for each in found.values()} == {"genuine"}
    assert all("word for word" in each.notes[0] for each in found.values())


def test_a_submission_of_another_assignment(inbox: Path) -> None:
    submit(inbox / "old", Identity("nets25", "cem"))
    found = graded(inbox, replay=False)
    assert found["old"].verdict == "rejected"
    assert "belongs to another assignment: nets25; most belong to nets" in found["old"].notes[-1]
    assert found["ana"].verdict == "consistent"


def test_a_run_that_is_not_to_be_trusted_is_rejected(inbox: Path) -> None:
    run = Folder(inbox / "ana").run(tasks.UNFAIR)
    edited_drop_counter(run)
    analyze_again(run)
    found = graded(inbox, replay=False)
    assert [found[name].verdict for name in ("ana", "ben")] == ["rejected", "consistent"]
    assert any("its queue counted" in note for note in found["ana"].notes)


def test_what_is_missing_is_incomplete_and_not_rejected(inbox: Path) -> None:
    shutil.rmtree(inbox / "ana/runs/remedy")
    answers = inbox / "ben/answers.yaml"
    tree = yaml.safe_load(answers.read_text())
    del tree["outcast_ratio"]
    tree["lone_goodput_mbps"] *= 1.5
    answers.write_text(yaml.safe_dump(tree))
    found = graded(inbox)
    assert [found[name].verdict for name in ("ana", "ben")] == ["incomplete", "incomplete"]
    right = {each.key: each.right for each in found["ben"].answered}
    assert not right["outcast_ratio"]
    assert not right["lone_goodput_mbps"]
    assert right["rival_goodput_mbps"]


@pytest.mark.parametrize(
    ("key", "factor", "right"),
    [("outcast_ratio", 1.02, True), ("outcast_ratio", 1.05, False), ("blackout_drops", 1.5, False)],
)
def test_tolerances(key: str, factor: float, right: bool) -> None:
    (question,) = (each for each in QUESTIONS if each.key == key)
    assert question.holds(factor * 4, (4.0,)) is right
    assert question.holds(factor * 4, (100.0, 4.0)) is right
    assert not question.holds(4, ())


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = cli.invoke(["assignment", "grade", "--no-replay", *argv])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_the_table_and_its_exit_status(inbox: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [str(path) for path in sorted(inbox.iterdir())]
    status, out, err = run(capsys, *folders)
    assert status == 0
    assert "consistent" in out
    assert "grading" in err
    take_runs(inbox, "ana", "ben")
    status, out, err = run(capsys, *folders)
    assert status == 4
    assert f"{inbox / 'ben'}: runs/unfair: seed is" in out
    assert err.splitlines()[-1] == f"outcast: rejected: {inbox / 'ben'}"


def test_csv_and_json(inbox: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (inbox / "none").mkdir()
    folders = [str(path) for path in sorted(inbox.iterdir())]
    status, out, _ = run(capsys, "--format", "csv", *folders)
    assert status == 4
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["student"] for row in rows] == ["ana", "ben", str(inbox / "none")]
    assert [row["verdict"] for row in rows] == ["consistent", "consistent", "rejected"]
    assert rows[0]["packet_time_us.right"] == "1"
    assert rows[0]["seed"] == str(ANA.seed)
    assert all(None not in row for row in rows)
    status, out, _ = run(capsys, "--format", "json", *folders)
    tree: list[dict[str, Any]] = json.loads(out)
    assert tree[0]["runs"]["unfair"]["state"] == "consistent"
    assert tree[0]["answers"]["packet_time_us"] == {
        "answer": 12.112,
        "known": [12.112],
        "right": True,
    }
    assert "ana thinks" in tree[0]["texts"]["why_blackouts"]
