"""Which of a student's submissions counts, and lint over students."""

import shutil
from pathlib import Path

import pytest

from outcast.assignment import counting, lint
from outcast.assignment.exercise import load_exercise
from outcast.assignment.graded import Evidence, Graded, RunState, Verdict
from outcast.assignment.questions import Choice, Number, Packets
from outcast.assignment.questions.base import Right
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
    return counting.chosen(graded, range(len(graded)))


def test_two_that_have_nothing_in_common():
    both = handed("ana", captures=("a",), why="one"), handed("ben", captures=("b",), why="two")
    assert compared(*both) == list(both)


def test_of_a_students_submissions_the_best_counts_and_of_equal_ones_the_first():
    bad, first, second = compared(
        handed("ana", "bad", verdict="rejected"), handed("ana", "first"), handed("ana", "second")
    )
    assert [bad.counts, first.counts, second.counts] == [False, True, False]
    assert bad.for_teacher == ("does not count: first, also handed in for ana, is genuine",)
    assert second.for_teacher == ("does not count: first, also handed in for ana, came first",)


def test_the_first_is_so_by_its_date():
    """Not by its place, which the student names."""
    later, first = counting.chosen([handed("ana", "a"), handed("ana", "b")], [2, 1])
    assert [later.counts, first.counts] == [False, True]


def test_without_a_name_nothing_is_a_second_submission():
    assert all(each.counts for each in compared(handed(None, "a"), handed(None, "b")))


STUDENTS = ["ana", "ben", "cem", "dan"]


def test_a_sound_exercise_and_one_that_is_not(tmp_path):
    sound = lint.lint(load_exercise(EXERCISE), GoldenRunner(), tmp_path / "a", seeds=4)
    assert sound.runs == 12
    assert sound.all_problems == []
    assert list(tmp_path.glob("a/*")) == []
    wrong = Path(shutil.copytree(EXERCISE, tmp_path / "wrong"))
    text = (wrong / "exercise.yaml").read_text()
    text = text.replace("hops = 2", "hops = 4").replace("sum(dropped)", "sum(dorpped)")
    (wrong / "exercise.yaml").write_text(text)
    solution = (wrong / "solution.yaml").read_text()
    solution = solution.replace("Because the ports take turns in losing", "In turns")
    (wrong / "solution.yaml").write_text(swapped(solution))
    found = lint.lint(load_exercise(wrong), GoldenRunner(), tmp_path / "b", seeds=4)
    told = "\n".join(found.all_problems)
    assert "lone_goodput: has no answer for 4 of 4 (student1, student2, student3, ...)" in told
    assert 'lost: sql: unable to find column "dorpped"' in told
    assert "why: the model answer has 2 words; asked are 5" in told
    assert "remedy_works: the solution does not pass: 0 to 0" in told
    assert "remedy_works: passes with non_remedies.0" in told


def swapped(solution: str) -> str:
    """The solution with the remedy and the change that is none in each other's place."""
    remedy, none = "{kind: sfq, limit: 20 packets, buckets: 1024}", "{kind: tbf, limit: 17KB}"
    return solution.replace(remedy, "X").replace(none, remedy).replace("X", none)


NUMBER = {"kind": "number", "key": "n", "asked": "?", "points": 1, "run": "r"}


def problems(question: Number | Packets | Choice, given: list[Right]) -> str:
    return "; ".join(lint._of_answers(question, STUDENTS, given)[1])


@pytest.mark.parametrize(
    ("tolerance", "values", "said"),
    [
        ("2%", (10.01, 12.03, 14.5, 18.2), ""),
        ("2%", (78.21, 78.52, 78.63, 78.94), "one answer (78.21) is right for 4 of 4 students"),
        ("50%", (10.01, 12.03, 14.5, 18.2), "is right for 4 of 4 students"),
        ("0.1%", (10.01, 12.03, 14.5, 18.2), "narrower than the rounding of a report to 3 digits"),
        (0, (4.0, 5.0, 7.0, 9.0), ""),
        (0, (4.0, 4.0, 4.0, 9.0), "one answer (4) is right for 3 of 4 students"),
        ("2%", (-1.23, 2.03, 3.56, 4.01), "its sign changes: from -1.23 to 4.01"),
        ("2%", (None, 12.03, 14.5, 18.2), "has no answer for 1 of 4 (ana)"),
    ],
)
def test_tolerances(tolerance, values, said):
    question = Number.model_validate({**NUMBER, "tolerance": tolerance})
    told = problems(question, [() if value is None else (value,) for value in values])
    assert (said in told) if said else told == ""


def test_choices_and_ranges():
    choice = Choice.model_validate(
        {**NUMBER, "kind": "choice", "choices": {"more": "x", "less": "y"}}
    )
    assert problems(choice, [("more",)] * 4) == ""
    told = problems(choice, [("more",)] * 3 + [("less",)])
    assert "changes from student to student: more for 3, less for 1" in told
    packets = Packets.model_validate({**NUMBER, "kind": "packets", "widest": 1})
    apart: list[Right] = [((float(n), n + 0.2),) for n in (1, 5, 9, 20)]
    assert problems(packets, apart) == ""
    assert "one answer (from 1) is right for 4 of 4" in problems(packets, [((1.0, 1.2),)] * 4)
    told = problems(packets, [*apart[:3], ((40.0, 43.0),)])
    assert "widest: 1 is narrower than an answer of 3" in told
