"""The student's folder: its content, and what `check` says is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from outcast import cli, experiment
from outcast.assignment import old_answers as answers
from outcast.assignment import old_check as check
from outcast.assignment import old_folder as folder
from outcast.assignment import old_tasks as tasks
from outcast.assignment.old_questions import ESSAYS, QUESTIONS
from outcast.errors import ConfigError, InputError
from outcast.plan.make import make_plan
from tests.deadlines import HANG_S
from tests.golden.submission import submit

ANA = folder.Identity("nets", "ana")


def test_a_new_folder_names_every_gap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "ana"
    assert cli.invoke(["assignment", "new", "nets", "--student", "ana", "-o", str(target)]) == 0
    assert f"seed {ANA.seed}" in capsys.readouterr().out
    assert str(ANA.seed) in (target / "task.md").read_text()
    assert cli.invoke(["assignment", "check", str(target)]) == 2
    said = capsys.readouterr()
    for task in tasks.TASKS:
        assert f"configs/{task.name}.yaml: FILL_IN is still in line" in said.out
        assert f"make it with: outcast run configs/{task.name}.yaml -o runs/{task.name}" in said.out
    for each in (*QUESTIONS, *ESSAYS):
        assert f"answers.yaml: {each.key}: not answered" in said.out
    assert len(said.err.splitlines()) == 1


def test_nothing_of_the_templates_is_left_over(tmp_path: Path) -> None:
    made = folder.make_folder(tmp_path / "x", ANA)
    texts = [path.read_text() for path in made.path.rglob("*") if path.is_file()]
    assert len(texts) == 4 + len(tasks.TASKS)
    for word in ("SEED_OF_STUDENT", "NAME_OF_ASSIGNMENT", "ID_OF_STUDENT"):
        assert not any(word in text for text in texts)


@pytest.mark.parametrize("task", tasks.TASKS, ids=lambda task: task.name)
def test_a_gap_left_is_refused_by_run_and_the_solution_can_be_built(
    task: tasks.Task, tmp_path: Path
) -> None:
    made = folder.make_folder(tmp_path / "x", ANA)
    assert tasks.gaps(made.config(task))
    with pytest.raises(ConfigError, match=r"FILL_IN|mapping"):
        experiment.load(made.config(task))
    found = task.expected(ANA.seed)
    assert make_plan(found, where="x").flows
    assert tasks.departures(task, found, ANA.seed) == []


@given(st.text(min_size=1), st.text(min_size=1), st.text(min_size=1), st.text(min_size=1))
def test_seeds_follow_from_name_and_student(a: str, b: str, c: str, d: str) -> None:
    one, other = folder.Identity(a, b), folder.Identity(c, d)
    assert 1 <= one.seed <= 10**9
    assert one.seed == folder.Identity(a, b).seed
    if one != other and "\n" not in a + b + c + d:
        assert one.seed != other.seed


def test_names_that_are_no_words_and_folders_that_are_taken(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--student"):
        folder.make_folder(tmp_path / "x", folder.Identity("nets", "a/b"))
    folder.make_folder(tmp_path / "x", ANA)
    with pytest.raises(ConfigError, match="exists and is not empty"):
        folder.make_folder(tmp_path / "x", ANA)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: nets\nstudent: ana\nseed: 7\n", "seed: 7: allowed is"),
        ("name: nets\n", "student: allowed is"),
        ("- 1\n", "name: allowed is"),
        ("{", "not valid YAML"),
    ],
)
def test_an_edited_assignment_yaml(text: str, said: str, tmp_path: Path) -> None:
    made = folder.make_folder(tmp_path / "x", ANA)
    made.assignment.write_text(text)
    with pytest.raises(InputError, match=said):
        check.check(made)


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no assignment\.yaml"):
        check.check(folder.Folder(tmp_path))


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("outcast_ratio", "four", "'four' is not a number"),
        ("outcast_ratio", "4.1 Mbps", "is not a number"),
        ("outcast_ratio", "true", "is not a number"),
        ("outcast_ratio", "FILL_IN", "not answered"),
        ("why_blackouts", "too short", "fewer than 15 words"),
        ("why_blackouts", "|\n  FILL_IN\n", "not answered"),
    ],
)
def test_answers_that_are_none(key: str, text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "answers.yaml"
    path.write_text(f"{key}: {text}\n")
    (line,) = [each for each in answers.read_answers(path).missing if f": {key}:" in each]
    assert said in line


def test_answers_of_no_finite_number(tmp_path: Path) -> None:
    path = tmp_path / "answers.yaml"
    path.write_text("\noutcast_ratio: .nan\n")
    (line, *_) = answers.read_answers(path).missing
    assert line == "answers.yaml:2: .nan: allowed are finite numbers"


def test_questions_that_nobody_asked(tmp_path: Path) -> None:
    path = tmp_path / "answers.yaml"
    path.write_text("outcast_ration: 4\n")
    assert (
        "answers.yaml: outcast_ration: there is no such question"
        in answers.read_answers(path).missing
    )


def test_a_complete_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = submit(tmp_path / "ana", ANA)
    assert cli.invoke(["assignment", "check", str(made.path)]) == 0
    assert capsys.readouterr().out == f"{made.path}: complete\n"


def rewrite(made: folder.Folder, task: tasks.Task, **changes: object) -> None:
    found = experiment.load(made.config(task)).model_copy(update=changes)
    made.config(task).write_text(experiment.dump(found))


def test_what_check_says_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = submit(tmp_path / "ana", ANA)
    rewrite(made, tasks.UNFAIR, seed=3)
    rewrite(made, tasks.REMEDY, queue=tasks.UNFAIR.expected(1).queue)
    summary = made.run(tasks.EQUAL_RTT).summary
    summary.write_text(summary.read_text().replace('"trusted": true', '"trusted": false'))
    assert cli.invoke(["assignment", "check", str(made.path)]) == 2
    out = capsys.readouterr().out
    assert f"configs/unfair.yaml: seed is 3, and yours is {ANA.seed}" in out
    assert "runs/unfair: configs/unfair.yaml has changed since the run was made" in out
    assert "configs/remedy.yaml: it has no remedy" in out
    assert "runs/equal-rtt: summary.json changed after the run" in out


def test_a_broken_run_alone_has_the_status_of_distrust(tmp_path: Path) -> None:
    made = submit(tmp_path / "ana", ANA)
    made.run(tasks.UNFAIR).counters.write_text("{}")
    assert cli.invoke(["assignment", "check", str(made.path)]) == 4


def test_pictures_drawn_again_are_no_forgery(tmp_path: Path) -> None:
    made = submit(tmp_path / "ana", ANA)
    (made.run(tasks.UNFAIR).path / "mine.png").write_bytes(b"x")
    (made.run(tasks.UNFAIR).path / "notes.txt").write_text("what I saw")
    found = check.check(made)
    assert (found.missing, found.doubtful) == ((), ())


def test_the_notebook_reads_a_run(tmp_path: Path) -> None:
    made = submit(tmp_path / "ana", ANA)
    done = subprocess.run(
        [sys.executable, "read_run.py"],
        cwd=made.path,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
        env={**os.environ, "MPLBACKEND": "Agg"},
    )
    assert done.returncode == 0, done.stderr
    text = (made.path / "answers.yaml").read_text()
    wanted = yaml.safe_load(text)["lone_port_lost_percent"]
    assert f"{wanted:.2f}" in done.stdout
    assert (made.run(tasks.UNFAIR).path / "longest_blackout.png").stat().st_size > 1000
