"""Which of a student's submissions counts; and an exercise whose solution is not right."""

import shutil
from pathlib import Path

import pytest

from outcast.errors import InputError
from outcast.uses.classroom.evidence import Evidence, RunState
from outcast.uses.classroom.exercise import load_exercise
from outcast.uses.classroom.marking import Graded, Verdict, chosen
from outcast.uses.classroom.solution import lint
from tests.golden.class_folder import EXERCISE
from tests.golden.handed_class import GoldenRunner


def handed(
    student: str | None,
    place: str = "",
    *,
    verdict: Verdict = "genuine",
    state: RunState = "genuine",
    **texts: str,
) -> Graded:
    run = Evidence("unfair", state)
    return Graded(student, place or str(student), verdict, runs=(run,), texts=texts)


def compared(*graded: Graded) -> list[Graded]:
    """In the order in which they came."""
    return chosen(graded, range(len(graded)))


def test_of_a_students_submissions_the_best_counts_and_of_equal_ones_the_first():
    bad, first, second = compared(
        handed("ana", "bad", verdict="rejected"), handed("ana", "first"), handed("ana", "second")
    )
    assert [bad.counts, first.counts, second.counts] == [False, True, False]
    assert bad.for_teacher == ("does not count: first, also handed in for ana, is genuine",)
    assert second.for_teacher == ("does not count: first, also handed in for ana, came first",)


def test_the_first_is_so_by_its_date():
    """Not by its place, which the student names."""
    later, first = chosen([handed("ana", "a"), handed("ana", "b")], [2, 1])
    assert [later.counts, first.counts] == [False, True]


def test_without_a_name_nothing_is_a_second_submission():
    assert all(each.counts for each in compared(handed(None, "a"), handed(None, "b")))


def test_a_sound_exercise_and_one_that_is_not(tmp_path):
    sound = lint(load_exercise(EXERCISE), GoldenRunner(), tmp_path / "a")
    assert sound == []
    wrong = Path(shutil.copytree(EXERCISE, tmp_path / "wrong"))
    text = (wrong / "exercise.yaml").read_text()
    text = text.replace("hops = 2", "hops = 4").replace("widest: 0.001", "widest: 0.0000001")
    text = text.replace("SELECT sum(dropped)", "SELECT sum(dropped) / 7.0")
    (wrong / "exercise.yaml").write_text(text)
    solution = (wrong / "solution.yaml").read_text()
    solution = solution.replace("Because the ports take turns in losing", "In turns")
    solution = solution.replace(
        "{kind: sfq, limit: 20 packets, buckets: 1024}", "{kind: tbf, limit: 17KB}"
    )
    (wrong / "solution.yaml").write_text(solution)
    told = "\n".join(lint(load_exercise(wrong), GoldenRunner(), tmp_path / "b"))
    assert "lone_goodput: " in told
    assert "lost: the solution's answer, to three digits, is not right" in told
    assert "why: answers.yaml: why: fewer than 5 words" in told
    assert "remedy_works: over 3 seeds the difference lies between 0 Mbps and 0" in told
    (wrong / "exercise.yaml").write_text(text.replace("sum(dropped)", "sum(dorpped)"))
    with pytest.raises(InputError, match='lost: sql: unable to find column "dorpped"'):
        lint(load_exercise(wrong), GoldenRunner(), tmp_path / "c")
